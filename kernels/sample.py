"""The exact sampler where the logits lie: the tokens of `vosti.spec.sampling.sample`, for many rows at once.

One launch weighs all tokens of all rows (`sample_weights`), another draws from all of a row. With top-k or top-p, there
are two in between, which set the weights of what is not kept to 0 (`sample_cuts`). All four are proved. Where a row is
cut is searched before (`sample_search`), by what nobody need trust: it is checked, and a row without its cut has no
token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import triton
import triton.language as tl

from vosti.kernels.contract import Access, Buffer, Constant, Contract, Fact, Integer, Output
from vosti.kernels.errors import PremiseError, UndecidedRowError
from vosti.kernels.launch import Kernel
from vosti.kernels.sample_cuts import CHECK_CUTS, CUT_WEIGHTS
from vosti.kernels.sample_search import boundaries
from vosti.kernels.sample_weights import ROW, WEIGHTS
from vosti.kernels.tile import Tile

if TYPE_CHECKING:
    import torch

BLOCK = 2048
"""Tokens of one program that weighs."""

WEIGHTS_TILE = Tile((("BLOCK", BLOCK),), 4, 1)
"""Of the launches that weigh and that cut."""

BLOCKS = 256
"""Blocks of a row, at most: a vocabulary is smaller than `sampling.VOCABULARY_LIMIT`."""

CHECK_TILE = Tile((("BLOCKS", BLOCKS),), 4, 1)
"""Of the launch that checks cuts."""

DRAW_TILE = Tile((("BLOCK", BLOCK), ("BLOCKS", BLOCKS)), 4, 1)
"""Of the launch that draws from all tokens."""

HEAD = 1024
"""Tokens with the largest logits, at most, among which cuts are searched first."""

DRAWN, UNDECIDED, REFUSED = 0, 1, 2
"""What becomes of a row: it has its token; its cut was not found; the specification refuses it."""


@triton.jit
def _drawn_share(bits, total):
    """⌊bits · total / 2⁶⁴⌋."""
    return tl.math.umulhi(bits.to(tl.uint64, bitcast=True), total.to(tl.uint64)).to(tl.int64)


@triton.jit
def _first_beyond(reached, draw):
    """How many of the ascending sums do not exceed the draw."""
    return tl.sum((reached <= draw).to(tl.int32), 0)


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
    draw = _drawn_share(tl.load(bits + row), total)
    block = tl.minimum(_first_beyond(reached, draw), blocks - 1)
    before = tl.sum(tl.where(place < block, partial, 0), 0)
    token = block * BLOCK + tl.arange(0, BLOCK)
    weight = tl.load(weights + row * width + token, mask=token < width, other=0).to(tl.int64)
    drawn = block * BLOCK + _first_beyond(before + tl.cumsum(weight, 0), draw)
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
                kept="by `weights`, or `cut_weights`, the launch before: no weight is negative",
            ),
            Fact(
                ("i", "b"),
                "sums[i, b] == reached[i, min((b + 1) * BLOCK, width)] - reached[i, b * BLOCK]",
                kept="by `weights`, or `cut_weights`, the launch before",
            ),
            Fact(
                ("i",),
                f"reached[i, drawn[i]] <= {_DRAW} < reached[i, drawn[i] + 1]",
                kept="by `weights`: the most probable token of a row that is not refused weighs something, and is "
                "through whatever ends its cut, so that the draw is below the sum of the weights",
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


@dataclass(frozen=True, eq=False)
class _Weighed:
    """Rows and what their tokens weigh."""

    logits: torch.Tensor
    """[n, width] float32."""

    best: torch.Tensor
    """[n]: the largest logit of each."""

    weights: torch.Tensor
    """[n, width] int32."""

    sums: torch.Tensor
    """[n, blocks] int64."""

    top_ks: torch.Tensor
    top_ps: torch.Tensor
    bits: torch.Tensor

    def some(self, rows: torch.Tensor) -> _Weighed:
        """Of the rows with these numbers."""
        return _Weighed(**{name: one[rows] for name, one in vars(self).items()})


def draw(logits: torch.Tensor, parameters: Parameters, *, cuts: bool) -> torch.Tensor:
    """[n, 2] int32: for each row of logits [n, width] a token, and DRAWN or REFUSED.

    `cuts` says whether rows have top-k or top-p: all of them, or none; with cuts, the device is waited for.
    Temperatures are not 0. Raises `PremiseError` for tensors that do not fit, and `UndecidedRowError` if a cut is not
    found in a whole row.
    """
    for name, one in vars(parameters).items():
        _check_shape(name, one, logits.shape[:1])
    weighed, width = _weighed(logits, parameters), logits.shape[1]
    if not cuts:
        return _drawn(weighed, weighed.weights, weighed.sums)
    out = _drawn_of_cut(weighed, min(width, HEAD))
    if len(rows := (out[:, 1] == UNDECIDED).nonzero()[:, 0]):
        out[rows] = _drawn_of_cut(weighed.some(rows), width)
        if left := int((out[:, 1] == UNDECIDED).sum()):
            raise UndecidedRowError(
                f"Where top-k and top-p cut {left} of {len(out)} rows was searched among all tokens, and what was "
                "found is no cut, so nothing is drawn: the search (vosti.kernels.sample_search) or the device is at "
                "fault."
            )
    return out


def _check_shape(name: str, tensor: torch.Tensor, shape: tuple[int, ...]) -> None:
    if tensor.shape != shape:
        raise PremiseError(f"The sampler's {name} have the shape {tuple(tensor.shape)}, not {tuple(shape)}.")


def _weighed(logits: torch.Tensor, parameters: Parameters) -> _Weighed:
    """The launch that weighs."""
    import torch

    rows, width = logits.shape
    best = logits.amax(1)
    weights = torch.empty(rows, width, dtype=torch.int32, device=logits.device)
    sums = torch.empty(rows, -(-width // BLOCK), dtype=torch.int64, device=logits.device)
    WEIGHTS.launch(
        {
            "logits": logits,
            "best": best,
            "temperatures": parameters.temperatures,
            "min_ps": parameters.min_ps,
            "weights": weights,
            "sums": sums,
            "rows": rows,
            "width": width,
        },
        WEIGHTS_TILE,
    )
    return _Weighed(logits, best, weights, sums, parameters.top_ks, parameters.top_ps, parameters.bits)


def _drawn(weighed: _Weighed, weights: torch.Tensor, sums: torch.Tensor) -> torch.Tensor:
    """[n, 2] int32: what is drawn by weights [n, width] whose sums are [n, blocks]."""
    rows, width = weights.shape
    out = weights.new_empty(rows, 2)
    DRAW_FROM_ALL.launch(
        {
            "weights": weights,
            "sums": sums,
            "best": weighed.best,
            "bits": weighed.bits,
            "out": out,
            "rows": rows,
            "width": width,
            "blocks": sums.shape[1],
        },
        DRAW_TILE,
    )
    return out


def _drawn_of_cut(weighed: _Weighed, head: int) -> torch.Tensor:
    """[n, 2] int32: what is drawn of rows whose cuts are searched among as many of the largest logits."""
    import torch

    rows, width = weighed.weights.shape
    ends = boundaries(weighed.logits, weighed.weights, weighed.sums, weighed.top_ks, weighed.top_ps, head)
    _check_shape("ends", ends, (rows, 2))
    cut, checked = torch.empty_like(weighed.weights), weighed.weights.new_empty(rows)
    sums = {name: torch.empty_like(weighed.sums) for name in ("cut_sums", "counts", "shares")}
    common = {"weights": weighed.weights, "ends": ends, **sums, "rows": rows, "width": width}
    CUT_WEIGHTS.launch({**common, "logits": weighed.logits, "cut": cut}, WEIGHTS_TILE)
    own = {"sums": weighed.sums, "top_ks": weighed.top_ks, "top_ps": weighed.top_ps, "checked": checked}
    CHECK_CUTS.launch({**common, **own, "blocks": weighed.sums.shape[1]}, CHECK_TILE)
    out = _drawn(weighed, cut, sums["cut_sums"])
    # A row that is refused is so whatever its cut, and one whose cut is none has no token.
    out[:, 1] = torch.maximum(out[:, 1], checked)
    return out
