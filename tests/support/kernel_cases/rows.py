"""What maps a row to a row: embeddings, norms, logits."""

from __future__ import annotations

import math

from kernel_cases import OPS, case, close, draw, tensor, tile
from vosti.spec.numerics import activations, norms, projections
from vosti.spec.numerics.floats import indices


@case
def embeddings() -> None:
    """Rows of the table, and the same times a scale."""
    import torch

    from vosti.kernels.embedding import embedding

    table, tokens = draw(5, 11, 40), [3, 0, 10, 3]
    out = torch.full((4, 40), math.nan)
    embedding(torch.tensor(tokens, dtype=torch.int32), tensor(table), out, tile(BLOCK=32))
    close(projections.embedding(OPS, table, indices(tokens, 4)), out, 0.0)
    embedding(torch.tensor(tokens, dtype=torch.int32), tensor(table), out, tile(BLOCK=32), scale=1.7)
    close(projections.scaled_embedding(OPS, table, indices(tokens, 4), 1.7), out, 0.0)


@case
def rms_norms() -> None:
    """Plain and unit offset; the sum is the row program's tree, so the bits agree."""
    import torch

    from vosti.kernels.rms_norm import rms_norm

    x, weight = draw(6, 5, 40), draw(7, 40)
    for unit_offset, function in ((False, norms.rms_norm), (True, norms.rms_norm_unit_offset)):
        out = torch.full((5, 40), math.nan)
        rms_norm(tensor(x), tensor(weight), out, 1e-5, tile(BLOCK=64), unit_offset=unit_offset)
        close(function(OPS, x, weight, 40, 1e-5), out, 0.0)


@case
def residual_rms_norms() -> None:
    """The sum replaces the residual stream, and the norm reads it."""
    import torch

    from vosti.kernels.rms_norm import rms_norm

    x, y, weight = draw(8, 5, 64), draw(9, 5, 64), draw(10, 64)
    for unit_offset, function in (
        (False, norms.residual_rms_norm),
        (True, norms.residual_rms_norm_unit_offset),
    ):
        stream, out = tensor(x), torch.full((5, 64), math.nan)
        rms_norm(
            stream, tensor(weight), out, 1e-6, tile(BLOCK=64), unit_offset=unit_offset, residual=(tensor(y), stream)
        )
        total, normed = function(OPS, x, y, weight, 64, 1e-6)
        close(total, stream, 0.0)
        close(normed, out, 0.0)


@case
def scaled_residual_rms_norms() -> None:
    """The sum times the scale replaces the residual stream, and the norm reads it."""
    import torch

    from vosti.kernels.rms_norm import rms_norm

    x, y, weight, scale = draw(8, 5, 64), draw(9, 5, 64), draw(10, 64), draw(21, 1)
    stream, out = tensor(x), torch.full((5, 64), math.nan)
    rms_norm(stream, tensor(weight), out, 1e-6, tile(BLOCK=64), residual=(tensor(y), stream), scale=tensor(scale))
    total, normed = norms.scaled_residual_rms_norm(OPS, x, y, weight, scale, 64, 1e-6)
    close(total, stream, 0.0)
    close(normed, out, 0.0)


@case
def rms_norm_of_chosen_rows() -> None:
    """With a row map, output row i is computed from row row_map[i]."""
    import torch

    from vosti.kernels.rms_norm import rms_norm

    x, y, weight, rows = draw(11, 6, 32), draw(12, 6, 32), draw(13, 32), [4, 1, 1]
    total, out = torch.full((3, 32), math.nan), torch.full((3, 32), math.nan)
    row_map = torch.tensor(rows, dtype=torch.int32)
    rms_norm(tensor(x), tensor(weight), out, 1e-6, tile(BLOCK=32), residual=(tensor(y), total), row_map=row_map)
    wanted = norms.residual_rms_norm(
        OPS, OPS.take(x, indices(rows, 3)), OPS.take(y, indices(rows, 3)), weight, 32, 1e-6
    )
    close(wanted[0], total, 0.0)
    close(wanted[1], out, 0.0)


@case
def logits_are_capped_and_flagged() -> None:
    """The soft cap, and a flag for the block that holds a number that is not finite."""
    import torch

    from vosti.kernels.finite import flag_logits

    x = draw(14, 3, 50, scale=20.0)
    logits, flags = tensor(x), torch.full((3, 2), -1, dtype=torch.int32)
    flag_logits(logits, flags, tile(BLOCK=32), cap=30.0)
    close(activations.softcap(OPS, x, 30.0), logits)
    assert flags.tolist() == [[0, 0]] * 3
    logits[1, 40], logits[2, 3] = math.inf, math.nan
    flag_logits(logits, flags, tile(BLOCK=32))
    assert flags.tolist() == [[0, 0], [0, 1], [1, 0]]
