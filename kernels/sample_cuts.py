"""Draws where top-k or top-p leave few tokens: from the largest logits, or, where those do not tell, by bisection.

The tokens that are kept are the beginning of the ranking: those whose logits are above a bound, and of those that are
level with it the first by id. `draw_from_head` ranks a few tokens with the largest logits, which the caller has found,
and says so if they are not enough: the cut lies behind them, or among tokens that are as large as the least of them.
`draw_beyond_head` finds the bound by bisection over all logits.
"""

from __future__ import annotations

import triton
import triton.language as tl

from vosti.kernels.contract import Access, Buffer, Constant, Contract, Fact, Integer, Output
from vosti.kernels.launch import Kernel
from vosti.kernels.sample_weights import (
    COMPARED,
    P_UNIT,
    ROW,
    SUMS,
    drawn_share,
    first_beyond,
    order_of,
    sampling_contract,
    weigh,
)

_ID_UNIT = tl.constexpr(2**20)
"""More than any token id."""

_SHARE_UNIT = tl.constexpr(2**25)
"""More than any weight."""


@triton.jit(do_not_specialize=["rows", "head", "width", "blocks"])
def draw_from_head_kernel(
    logits,
    tokens,
    sums,
    best,
    temperatures,
    min_ps,
    top_ps,
    top_ks,
    bits,
    out,
    rows,
    head,
    width,
    blocks,
    HEAD: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """See `DRAW_FROM_HEAD`."""
    row = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, HEAD)
    one = tl.arange(0, 1)
    present = place < head
    logit = tl.load(logits + row * head + place, mask=present, other=float("-inf")) + 0.0
    least = tl.min(tl.where(present, logit, float("inf")), 0)
    token = tl.load(tokens + row * head + place, mask=present, other=_ID_UNIT - 1)

    # The ranking: by descending logit, then by ascending id, in one integer.
    key = tl.sort(order_of(logit).to(tl.int64) * _ID_UNIT + (_ID_UNIT - 1 - token), descending=True)
    token = _ID_UNIT - 1 - (key & (_ID_UNIT - 1))
    order = (key >> 20).to(tl.int32)
    logit = (order ^ ((order >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)

    top_k = tl.load(top_ks + row)
    weight = weigh(
        logit, tl.load(best + row + one), tl.load(temperatures + row + one), tl.load(min_ps + row + one).to(tl.int64)
    )
    weight = tl.where((place < head) & ((top_k == 0) | (place < top_k)), weight, 0)
    within = tl.arange(0, BLOCKS)
    total = tl.sum(tl.load(sums + row * blocks + within, mask=within < blocks, other=0), 0)
    total = tl.where(top_k == 0, total, tl.sum(weight, 0))
    enough = tl.load(top_ps + row).to(tl.int64) * total
    reached = tl.cumsum(weight, 0)
    weight = tl.where((reached - weight) * P_UNIT < enough, weight, 0)

    everything = head == width
    largest = tl.load(best + row)
    reaches = ((top_k == 0) | (top_k < head)) & (tl.sum(weight, 0) * P_UNIT >= enough)
    unsure = tl.sum(((weight > 0) & (logit == least)).to(tl.int32), 0) > 0
    undecided = (everything == 0) & ((reaches == 0) | unsure)

    # The draw: in ascending order of ids.
    shares = tl.sort(token * _SHARE_UNIT + weight)
    share = shares & (_SHARE_UNIT - 1)
    total = tl.sum(share, 0)
    draw = drawn_share(tl.load(bits + row), total)
    index = first_beyond(tl.cumsum(share, 0), draw)
    drawn = tl.sum(tl.where(place == index, shares >> 25, 0), 0)
    accepted = largest > float("-inf")
    tl.store(out + row * 2, drawn.to(tl.int32))
    tl.store(out + row * 2 + 1, tl.where(accepted, undecided.to(tl.int32), 2))


@triton.jit
def _above(logits, weights, width, bound, BLOCK: tl.constexpr):
    """Of the tokens whose order exceeds the bound: how many there are, and the sum of their weights."""
    count = tl.zeros((BLOCK,), tl.int64)
    total = tl.zeros((BLOCK,), tl.int64)
    for begin in range(0, width, BLOCK):
        token = begin + tl.arange(0, BLOCK)
        order = order_of(tl.load(logits + token, mask=token < width, other=float("-inf")))
        above = (order > bound.to(tl.int32)) & (token < width)
        count += above.to(tl.int64)
        total += tl.where(above, tl.load(weights + token, mask=token < width, other=0).to(tl.int64), 0)
    return tl.sum(count, 0), tl.sum(total, 0)


@triton.jit
def _level(logits, weights, width, bound, BLOCK: tl.constexpr):
    """Of the tokens whose order is the bound: how many there are, and their weight, which is one."""
    count = tl.zeros((BLOCK,), tl.int64)
    weight = tl.zeros((BLOCK,), tl.int64)
    for begin in range(0, width, BLOCK):
        token = begin + tl.arange(0, BLOCK)
        order = order_of(tl.load(logits + token, mask=token < width, other=float("-inf")))
        level = (order == bound.to(tl.int32)) & (token < width)
        count += level.to(tl.int64)
        weight = tl.maximum(
            weight, tl.where(level, tl.load(weights + token, mask=token < width, other=0).to(tl.int64), 0)
        )
    return tl.sum(count, 0), tl.max(weight, 0)


@triton.jit(do_not_specialize=["rows", "width"])
def draw_beyond_head_kernel(logits, weights, top_ps, top_ks, bits, out, rows, width, BLOCK: tl.constexpr):
    """See `DRAW_BEYOND_HEAD`."""
    row = tl.program_id(0).to(tl.int64)
    if tl.load(out + row * 2 + 1) == 1:
        logits += row * width
        weights += row * width
        top_k = tl.load(top_ks + row)
        # The ranking's first k tokens: those above a bound, and the first of those that are level with it.
        low = tl.full((), -(2**31), tl.int64)
        high = tl.full((), 2**31 - 1, tl.int64)
        if (top_k > 0) & (top_k < width):
            for _ in range(32):
                middle = (low + high) >> 1
                count, _total = _above(logits, weights, width, middle, BLOCK)
                low = tl.where(count < top_k, low, middle + 1)
                high = tl.where(count < top_k, middle, high)
        k_bound = low
        count, total = _above(logits, weights, width, k_bound, BLOCK)
        level, weight = _level(logits, weights, width, k_bound, BLOCK)
        k_level = level
        if (top_k > 0) & (top_k < width):
            k_level = top_k - count
        enough = tl.load(top_ps + row) * (total + k_level * weight)
        # Of these, the beginning that reaches top-p: a token belongs to it if those before it do not reach it.
        high = tl.full((), 2**31 - 1, tl.int64)
        for _ in range(32):
            middle = (low + high) >> 1
            _count, total = _above(logits, weights, width, middle, BLOCK)
            low = tl.where(total * P_UNIT < enough, low, middle + 1)
            high = tl.where(total * P_UNIT < enough, middle, high)
        _count, total = _above(logits, weights, width, low, BLOCK)
        level, weight = _level(logits, weights, width, low, BLOCK)
        level = tl.where(low == k_bound, k_level, level)
        unit = tl.maximum(weight, 1) * P_UNIT
        level = tl.minimum(level, (enough - total * P_UNIT + unit - 1) // unit)
        draw = drawn_share(tl.load(bits + row), total + level * weight)
        # The draw: in ascending order of ids.
        bound = low.to(tl.int32)
        seen = tl.zeros((), tl.int64)
        reached = tl.zeros((), tl.int64)
        drawn = tl.zeros((), tl.int32)
        for begin in range(0, width, BLOCK):
            token = begin + tl.arange(0, BLOCK)
            order = order_of(tl.load(logits + token, mask=token < width, other=float("-inf")))
            tied = ((order == bound) & (token < width)).to(tl.int64)
            before = seen + tl.cumsum(tied, 0) - tied
            kept = ((order > bound) & (token < width)) | ((tied > 0) & (before < level))
            share = tl.where(kept, tl.load(weights + token, mask=token < width, other=0).to(tl.int64), 0)
            drawn += first_beyond(reached + tl.cumsum(share, 0), draw)
            seen += tl.sum(tied, 0)
            reached += tl.sum(share, 0)
        tl.store(out + row * 2, drawn)
        tl.store(out + row * 2 + 1, 0)


DRAW_FROM_HEAD = Kernel(
    draw_from_head_kernel,
    sampling_contract(
        "draw_from_head",
        (
            Buffer("logits", "fp32", ("rows", "head")),
            Buffer("tokens", "i64", ("rows", "head")),
            Buffer("sums", "i64", SUMS),
            Buffer("best", "fp32", ("rows",)),
            Buffer("temperatures", "fp64", ("rows",)),
            *(Buffer(name, "i64", ("rows",)) for name in ("min_ps", "top_ps", "top_ks", "bits")),
            Buffer("out", "i32", ("rows", "2"), Access.WRITE),
            Integer("rows"),
            Integer("head"),
            Integer("width"),
            Integer("blocks"),
            Constant("HEAD"),
            Constant("BLOCKS"),
        ),
        "1",
        "out[i, :] is the token that row i's head yields, and DRAWN; or UNDECIDED, if it does not tell; or REFUSED.",
        f"it sorts, and that a sorted row is the ranking is no rule of the verifier; {COMPARED}",
    ),
)


DRAW_BEYOND_HEAD = Kernel(
    draw_beyond_head_kernel,
    sampling_contract(
        "draw_beyond_head",
        (
            Buffer("logits", "fp32", ("rows", "width")),
            Buffer("weights", "i32", ("rows", "width")),
            *(Buffer(name, "i64", ("rows",)) for name in ("top_ps", "top_ks", "bits")),
            Buffer("out", "i32", ("rows", "2"), Access.UPDATE),
            *ROW,
            Constant("BLOCK"),
        ),
        "1",
        "Where out[i, :] is UNDECIDED, it is the token that row i yields, and DRAWN; every other row stays as it was.",
        f"it searches by bisection, whose correctness is no rule of the verifier; {COMPARED}",
    ),
)


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
