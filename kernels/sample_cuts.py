"""Where top-k and top-p cut a row: a claim is checked, whoever makes it.

What a cut keeps is a beginning of the ranking, so that the last token that is kept tells all of it: a token is kept if
it is `sampling.through` that one, which needs no order but that of two logits. Whether a token is the last is told by
sums (`sampling.cut_ends`): how many tokens are through the one that ends what top-k keeps, what they weigh, and what
those weigh that are kept. `cut_weights` sums up, and makes 0 of the weight of what is not kept; `check_cuts` decides.
So ends that are none leave a row undecided, and no token comes of them. `vosti.kernels.sample_search` finds ends.
"""

from __future__ import annotations

import triton
import triton.language as tl

from vosti.kernels.contract import Access, Buffer, Constant, Contract, Fact, Integer, Output
from vosti.kernels.launch import Kernel
from vosti.kernels.sample_weights import P_UNIT, ROW


@triton.jit
def _through(logit, token, end_logit, end):
    """`sampling.through` of each token; logits and tokens [n]."""
    return (logit > end_logit) | ((logit == end_logit) & (token <= end))


@triton.jit
def _end(ends, place, width):
    """A token that is said to be an end: one of the row's, whatever is said."""
    return tl.minimum(tl.maximum(tl.load(ends + place), 0), width - 1)


@triton.jit(do_not_specialize=["rows", "width"])
def cut_weights_kernel(logits, weights, ends, cut, cut_sums, counts, shares, rows, width, BLOCK: tl.constexpr):
    """See `CUT_WEIGHTS`."""
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    token = block * BLOCK + tl.arange(0, BLOCK)
    live = token < width
    logit = tl.load(logits + row * width + token, mask=live, other=float("-inf"))
    weight = tl.load(weights + row * width + token, mask=live, other=0).to(tl.int64)
    kth = _end(ends, row * 2, width)
    last = _end(ends, row * 2 + 1, width)
    counted = _through(logit, token, tl.load(logits + row * width + kth), kth)
    kept = tl.where(_through(logit, token, tl.load(logits + row * width + last), last), weight, 0)
    one = tl.full((BLOCK,), 1, tl.int64)
    place = row * tl.num_programs(1) + block
    tl.store(cut + row * width + token, kept.to(tl.int32), mask=live)
    tl.store(cut_sums + place, tl.sum(tl.where(live, kept, 0), 0))
    tl.store(counts + place, tl.sum(tl.where(live, tl.where(counted, one, 0), 0), 0))
    tl.store(shares + place, tl.sum(tl.where(live, tl.where(counted, weight, 0), 0), 0))


@triton.jit
def _total(parts, row, blocks, BLOCKS: tl.constexpr):
    """The sum of a row's blocks."""
    place = tl.arange(0, BLOCKS)
    return tl.sum(tl.load(parts + row * blocks + place, mask=place < blocks, other=0), 0)


@triton.jit(do_not_specialize=["rows", "width", "blocks"])
def check_cuts_kernel(
    weights,
    ends,
    sums,
    counts,
    shares,
    cut_sums,
    top_ks,
    top_ps,
    checked,
    rows,
    width,
    blocks,
    BLOCKS: tl.constexpr,
):
    """See `CHECK_CUTS`."""
    row = tl.program_id(0).to(tl.int64)
    everything = _total(sums, row, blocks, BLOCKS)
    counted = _total(counts, row, blocks, BLOCKS)
    shared = _total(shares, row, blocks, BLOCKS)
    reached = _total(cut_sums, row, blocks, BLOCKS)
    own = tl.load(weights + row * width + _end(ends, row * 2 + 1, width)).to(tl.int64)
    top_k = tl.load(top_ks + row)
    limited = (top_k > 0) & (top_k < width)
    enough = tl.load(top_ps + row) * tl.where(limited, shared, everything)
    ends_here = ((reached - own) * P_UNIT < enough) & (enough <= reached * P_UNIT)
    tl.store(checked + row, tl.where(((limited == 0) | (counted == top_k)) & ends_here, 0, 1))


ENDS = Buffer("ends", "i32", ("rows", "2"))
"""Of each row the tokens that are said to end what top-k keeps and what top-p does: anything may be said."""

_END = "min(max(ends[i, {}], 0), width - 1)"
"""`_end`, in contracts."""


def _through_of(token: str, which: int, share: str) -> str:
    """A share, if a token is not behind an end, and 0 else."""
    end = _END.format(which)
    return f"share_through(logits[i, {token}], {token}, logits[i, {end}], {end}, {share})"


def _block_sum(buffer: str, which: int, share: str) -> Output:
    """Of each block, the sum over its tokens."""
    token = "b * BLOCK + l"
    value = f"total(BLOCK, lambda l: within({token} < width, {_through_of(token, which, share)}))"
    return Output(buffer, ("i", "b"), value, program=("i", "b", "0"))


_PARTS = ("cut_sums", "counts", "shares")

CUT_WEIGHTS = Kernel(
    cut_weights_kernel,
    Contract(
        kernel="cut_weights",
        row_program="sampling.through",
        parameters=(
            Buffer("logits", "fp32", ("rows", "width")),
            Buffer("weights", "i32", ("rows", "width")),
            ENDS,
            Buffer("cut", "i32", ("rows", "width"), Access.WRITE),
            *(Buffer(name, "i64", ("rows", "cdiv(width, BLOCK)"), Access.WRITE) for name in _PARTS),
            *ROW,
            Constant("BLOCK"),
        ),
        grid=("rows", "cdiv(width, BLOCK)", "1"),
        premises=("1 <= width < 2**19", "BLOCK <= 2**14"),
        row_inputs=("logits[i, :]", "weights[i, :]", "ends[i, :]"),
        outputs=(
            Output(
                "cut",
                ("i", "t"),
                f"narrowed({_through_of('t', 1, 'weights[i, t]')})",
                program=("i", "t // BLOCK", "0"),
                lanes=("t % BLOCK",),
            ),
            _block_sum("cut_sums", 1, "weights[i, b * BLOCK + l]"),
            _block_sum("counts", 0, "1"),
            _block_sum("shares", 0, "weights[i, b * BLOCK + l]"),
        ),
        conclusion=(
            "cut[i, t] is weights[i, t] if token t is `sampling.through` the row's last token, ends[i, 1], and 0 else; "
            "cut_sums[i, b] is the sum of block b of these; counts[i, b] is how many tokens of the block are through "
            "the row's kth token, ends[i, 0], and shares[i, b] the sum of their weights."
        ),
    ),
)

_BY_DEFINITION = "by definition: {0}_to[i, b] is the sum of {0}[i, :] below b"

_SUMMED = ("sums", "counts", "shares", "cut_sums")

CHECK_CUTS = Kernel(
    check_cuts_kernel,
    Contract(
        kernel="check_cuts",
        row_program="sampling.cut_ends",
        parameters=(
            Buffer("weights", "i32", ("rows", "width"), within=("0", "2**24 + 1")),
            ENDS,
            *(Buffer(name, "i64", ("rows", "blocks")) for name in _SUMMED),
            Buffer("top_ks", "i64", ("rows",)),
            Buffer("top_ps", "i64", ("rows",), within=("1", "2**20 + 1")),
            Buffer("checked", "i32", ("rows",), Access.WRITE),
            *ROW,
            Integer("blocks"),
            Constant("BLOCKS"),
        ),
        grid=("rows", "1", "1"),
        premises=("1 <= width", "blocks <= BLOCKS <= 2**14"),
        row_inputs=("weights[i, :]", "ends[i, :]", *(f"{name}[i, :]" for name in _SUMMED), "top_ks[i]", "top_ps[i]"),
        outputs=(
            Output(
                "checked",
                ("i",),
                "0 if cut_ends(width, top_ks[i], top_ps[i], sums_to[i, blocks], counts_to[i, blocks], "
                f"shares_to[i, blocks], cut_sums_to[i, blocks], weights[i, {_END.format(1)}]) else 1",
                program=("i", "0", "0"),
            ),
        ),
        conclusion=(
            "checked[i] is DRAWN if what top-k and top-p keep of row i, so far as it has a weight, is what is through "
            "ends[i, 1], and UNDECIDED else: by `sampling.cut_ends`, from the sums of what `weights` and `cut_weights` "
            "store of the row."
        ),
        context=tuple(Buffer(f"{name}_to", "i64", ("rows", "2**20"), within=("0", "2**43")) for name in _SUMMED),
        facts=(
            *(Fact(("i",), f"{name}_to[i, 0] == 0", kept=_BY_DEFINITION.format(name)) for name in _SUMMED),
            *(
                Fact(
                    ("i", "b"),
                    f"{name}[i, b] == {name}_to[i, b + 1] - {name}_to[i, b]",
                    kept=_BY_DEFINITION.format(name),
                    at=(name,),
                )
                for name in _SUMMED
            ),
        ),
        sums=tuple(f"{name}_to[x, min(l, blocks)]" for name in _SUMMED),
    ),
)
