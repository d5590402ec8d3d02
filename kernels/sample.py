"""The exact sampler where the logits lie: the tokens of `vosti.spec.sampling.sample`, for many rows at once.

One launch weighs all tokens of all rows (`sample_weights`), another draws: here, from all tokens of a row; with top-k
or top-p, in `sample_cuts`. The weights are proved, and the draw from all of them; what `sample_cuts` draws is compared
with the specification on all small rows, on hostile ones (`tests/gpu`) and by audits, and no proof covers it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import triton
import triton.language as tl

from vosti.kernels.contract import Access, Buffer, Constant, Contract, Fact, Integer, Output
from vosti.kernels.launch import Kernel
from vosti.kernels.sample_cuts import DRAW_BEYOND_HEAD, DRAW_FROM_HEAD
from vosti.kernels.sample_weights import ROW, WEIGHTS, drawn_share, first_beyond
from vosti.kernels.tile import Tile

if TYPE_CHECKING:
    import torch

BLOCK = 2048
"""Tokens of one program that weighs."""

WEIGHTS_TILE = Tile((("BLOCK", BLOCK),), 4, 1)
"""Of the launch that weighs."""

BLOCKS = 256
"""Blocks of a row, at most: a vocabulary is smaller than `sampling.VOCABULARY_LIMIT`."""

DRAW_TILE = Tile((("BLOCK", BLOCK), ("BLOCKS", BLOCKS)), 4, 1)
"""Of the launch that draws from all tokens."""

WHOLE_BLOCK = 8192
"""Tokens of a whole row that one program looks at together."""

HEAD = 1024
"""Tokens with the largest logits, at most, among which top-k and top-p are decided."""

DRAWN, UNDECIDED, REFUSED = 0, 1, 2
"""What becomes of a row: it has its token; the head does not decide it; the specification refuses it."""


@triton.jit(do_not_specialize=["rows", "width", "blocks"])
def draw_from_all_kernel(
    weights, sums, best, bits, out, rows, width, blocks, BLOCK: tl.constexpr, BLOCKS: tl.constexpr
):
    """See `DRAW_FROM_ALL`."""
    row = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, BLOCKS)
    partial = tl.load(sums + row * blocks + place, mask=place < blocks, other=0)
    reached = tl.cumsum(partial, 0)
    total = tl.sum(partial, 0)
    draw = drawn_share(tl.load(bits + row), total)
    block = tl.minimum(first_beyond(reached, draw), blocks - 1)
    before = tl.sum(tl.where(place < block, partial, 0), 0)
    token = block * BLOCK + tl.arange(0, BLOCK)
    weight = tl.load(weights + row * width + token, mask=token < width, other=0).to(tl.int64)
    drawn = block * BLOCK + first_beyond(before + tl.cumsum(weight, 0), draw)
    largest = tl.load(best + row)
    accepted = largest > float("-inf")
    tl.store(out + row * 2, drawn)
    tl.store(out + row * 2 + 1, tl.where(accepted, 0, 2))


_BY_DEFINITION = "by definition: reached[i, t] is the sum of the weights of the tokens below t"

_DRAW = "(bits[i] if bits[i] >= 0 else bits[i] + 2**64) * reached[i, width] // 2**64"
"""What `sampling.choose` calls the draw: `bits` holds the lower 64 bits of a number as a signed integer."""

DRAW_FROM_ALL = Kernel(
    draw_from_all_kernel,
    Contract(
        kernel="draw_from_all",
        row_program="sampling.choose, from the weights of all tokens",
        parameters=(
            Buffer("weights", "i32", ("rows", "width")),
            Buffer("sums", "i64", ("rows", "blocks")),
            Buffer("best", "fp32", ("rows",)),
            Buffer("bits", "i64", ("rows",)),
            Buffer("out", "i32", ("rows", "2"), Access.WRITE),
            *ROW,
            Integer("blocks"),
            Constant("BLOCK"),
            Constant("BLOCKS"),
        ),
        grid=("rows", "1", "1"),
        premises=("width < 2**19", "BLOCK <= 2**14", "blocks == cdiv(width, BLOCK)", "blocks <= BLOCKS <= 2**14"),
        row_inputs=("weights[i, :]", "sums[i, :]", "best[i]", "bits[i]"),
        outputs=(
            Output(
                "out",
                ("i", "c"),
                "choice(width, lambda t: weights[i, t], lambda t: reached[i, t], bits[i]) "
                "if c == 0 else refusal(best[i])",
                program=("i", "0", "0"),
            ),
        ),
        conclusion=(
            "out[i, 0] is the token that `sampling.choose` takes of all of row i's: the first at which the sum of "
            "weights, its own included, exceeds the draw; out[i, 1] is DRAWN, or REFUSED if the row's largest logit is "
            "-∞ or NaN."
        ),
        context=(
            Buffer("reached", "i64", ("rows", "2**20"), within=("0", "2**43")),
            Buffer("drawn", "i64", ("rows",), within=("0", "width")),
        ),
        facts=(
            Fact(("i",), "reached[i, 0] == 0", kept=_BY_DEFINITION),
            Fact(
                ("i", "t"),
                "weights[i, t] == reached[i, t + 1] - reached[i, t]",
                kept=_BY_DEFINITION,
                at=("weights",),
            ),
            Fact(
                ("i", "s", "t"),
                "reached[i, s] <= reached[i, t] or t < s",
                kept=f"{_BY_DEFINITION}, and no weight is negative",
            ),
            Fact(
                ("i", "b"),
                "sums[i, b] == reached[i, min((b + 1) * BLOCK, width)] - reached[i, b * BLOCK]",
                kept="by `weights`, the launch before",
            ),
            Fact(
                ("i",),
                f"reached[i, drawn[i]] <= {_DRAW} < reached[i, drawn[i] + 1]",
                kept="by definition: there is such a token: the draw is below the sum of the weights, which is not 0",
            ),
        ),
        sums=(
            "reached[x, min(l * BLOCK, width)]",
            "reached[x, min(min(l, drawn[x] // BLOCK) * BLOCK, width)]",
            "min(l, drawn[x] // BLOCK)",
            "reached[x, min(drawn[x] // BLOCK * BLOCK + l, width)] - reached[x, drawn[x] // BLOCK * BLOCK]",
            "min(l, drawn[x] % BLOCK)",
        ),
    ),
)


@dataclass(frozen=True, eq=False)
class Parameters:
    """The sampler's parameters of n rows, on the GPU: float64 temperatures, all else int64 [n]."""

    temperatures: torch.Tensor
    top_ks: torch.Tensor
    top_ps: torch.Tensor
    min_ps: torch.Tensor
    bits: torch.Tensor
    """As signed integers."""


def draw(logits: torch.Tensor, parameters: Parameters, *, cuts: bool) -> torch.Tensor:
    """[n, 2] int32: for each row of logits [n, width] a token, and DRAWN or REFUSED.

    `cuts` says whether rows have top-k or top-p: all of them, or none. Temperatures are not 0. Raises `PremiseError`
    for tensors that do not fit.
    """
    import torch

    rows, width = logits.shape
    device, blocks = logits.device, -(-width // BLOCK)
    best = logits.amax(1)
    weights = torch.empty(rows, width, dtype=torch.int32, device=device)
    sums = torch.empty(rows, blocks, dtype=torch.int64, device=device)
    out = torch.empty(rows, 2, dtype=torch.int32, device=device)
    common = {"best": best, "rows": rows, "width": width}
    shares = {"temperatures": parameters.temperatures, "min_ps": parameters.min_ps}
    WEIGHTS.launch({**common, **shares, "logits": logits, "weights": weights, "sums": sums}, WEIGHTS_TILE)
    common |= {"sums": sums, "bits": parameters.bits, "out": out, "blocks": blocks}
    if not cuts:
        DRAW_FROM_ALL.launch({**common, "weights": weights}, DRAW_TILE)
        return out
    head = min(width, HEAD)
    largest = logits.topk(head, sorted=False)
    DRAW_FROM_HEAD.launch(
        {
            **common,
            **shares,
            "logits": largest.values,
            "tokens": largest.indices,
            "top_ps": parameters.top_ps,
            "top_ks": parameters.top_ks,
            "head": head,
        },
        Tile((("HEAD", 1 << (head - 1).bit_length()), ("BLOCKS", BLOCKS)), 4, 1),
    )
    if head < width:
        cuts_of = {"top_ps": parameters.top_ps, "top_ks": parameters.top_ks, "bits": parameters.bits}
        whole = {"logits": logits, "weights": weights, "out": out, "rows": rows, "width": width}
        DRAW_BEYOND_HEAD.launch({**whole, **cuts_of}, Tile((("BLOCK", WHOLE_BLOCK),), 16, 1))
    return out
