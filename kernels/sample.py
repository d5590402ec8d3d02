"""The exact sampler where the logits lie: the tokens of `vosti.spec.sampling.sample`, for many rows at once.

`weights` gives every token of a row its weight, an integer, after the same sequence of correctly rounded float64
operations as the specification; what follows is integer arithmetic. `draw_from_all` draws from all tokens of a row.
`draw_from_head` draws where top-k or top-p leave few: from the tokens with the largest logits, which the caller has
found, in any order. It says so if they are not enough to tell: the cut lies behind them, or among tokens that are as
large as the least of them. `draw_beyond_head` then finds the cut by bisection over logits.

What is drawn is checked against the specification on hostile rows (`tests/gpu`) and by audits; no proof covers it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from vosti.kernels.contract import Access, Buffer, Constant, Contract, Integer
from vosti.kernels.launch import Kernel
from vosti.kernels.tile import Tile
from vosti.spec import sampling

BLOCK = 2048
"""Tokens of one program that weighs."""

WHOLE_BLOCK = 8192
"""Tokens of a whole row that one program looks at together."""

HEAD = 1024
"""Tokens with the largest logits, at most, among which top-k and top-p are decided."""

DRAWN, UNDECIDED, REFUSED = 0, 1, 2
"""What becomes of a row: it has its token; the head does not decide it; the specification refuses it."""

_COEFFICIENTS = tl.constexpr(sampling.EXPONENTIAL_COEFFICIENTS)
_INVERSE_LN2 = tl.constexpr(sampling.INVERSE_LN2)
_LN2_HIGH = tl.constexpr(sampling.LN2_HIGH)
_LN2_LOW = tl.constexpr(sampling.LN2_LOW)
_LEAST = tl.constexpr(sampling.LEAST_EXPONENT)
_P_UNIT = tl.constexpr(sampling.P_UNIT)
_WEIGHT_UNIT = tl.constexpr(sampling.WEIGHT_UNIT)
_ID_UNIT = tl.constexpr(2**20)
"""More than any token id."""

_SHARE_UNIT = tl.constexpr(2**25)
"""More than any weight."""


@triton.jit
def _real(x):
    """A constant of float64: Python's numbers would be rounded to float32 on the way."""
    return tl.full((1,), x, tl.float64)


@triton.jit
def _weight(logit, best, temperature, min_p):
    """`sampling.weight` of each token, 0 where min-p drops it; all [n], best and temperature [1]."""
    x = (logit.to(tl.float64) - best.to(tl.float64)) / temperature
    x = tl.where(logit == best, 0.0, x)
    small = x < _LEAST
    x = tl.where(small, 0.0, x)
    n = tl.floor(_real(0.5) - x * _real(_INVERSE_LN2))
    r = (x + n * _real(_LN2_HIGH)) + n * _real(_LN2_LOW)
    power = _real(0.0)
    for k in tl.static_range(13, -1, -1):
        power = power * r + _real(_COEFFICIENTS[k])
    # 2^-n, made of its bits.
    scale = ((1023 - n.to(tl.int64)) << 52).to(tl.float64, bitcast=True)
    weight = tl.floor(power * scale * _real(_WEIGHT_UNIT)).to(tl.int64)
    weight = tl.where(small, 0, weight)
    return tl.where(weight * _P_UNIT >= min_p * _WEIGHT_UNIT, weight, 0)


@triton.jit
def _order(logit):
    """Integers in the order of the logits, [n] int32; the two zeros are one."""
    bits = (logit + 0.0).to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def _drawn_share(bits, total):
    """⌊bits · total / 2⁶⁴⌋."""
    return tl.math.umulhi(bits.to(tl.uint64, bitcast=True), total.to(tl.uint64)).to(tl.int64)


@triton.jit
def _first_beyond(reached, draw):
    """How many of the ascending sums do not exceed the draw."""
    return tl.sum((reached <= draw).to(tl.int32), 0)


@triton.jit(do_not_specialize=["rows", "width"])
def weights_kernel(logits, best, temperatures, min_ps, weights, sums, rows, width, BLOCK: tl.constexpr):
    """See `WEIGHTS`."""
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    token = block * BLOCK + tl.arange(0, BLOCK)
    one = tl.arange(0, 1)
    live = token < width
    logit = tl.load(logits + row * width + token, mask=live, other=float("-inf"))
    weight = _weight(
        logit, tl.load(best + row + one), tl.load(temperatures + row + one), tl.load(min_ps + row + one).to(tl.int64)
    )
    tl.store(weights + row * width + token, weight.to(tl.int32), mask=live)
    tl.store(sums + row * tl.num_programs(1) + block, tl.sum(weight, 0))


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
    key = tl.sort(_order(logit).to(tl.int64) * _ID_UNIT + (_ID_UNIT - 1 - token), descending=True)
    token = _ID_UNIT - 1 - (key & (_ID_UNIT - 1))
    order = (key >> 20).to(tl.int32)
    logit = (order ^ ((order >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)

    top_k = tl.load(top_ks + row)
    weight = _weight(
        logit, tl.load(best + row + one), tl.load(temperatures + row + one), tl.load(min_ps + row + one).to(tl.int64)
    )
    weight = tl.where((place < head) & ((top_k == 0) | (place < top_k)), weight, 0)
    within = tl.arange(0, BLOCKS)
    total = tl.sum(tl.load(sums + row * blocks + within, mask=within < blocks, other=0), 0)
    total = tl.where(top_k == 0, total, tl.sum(weight, 0))
    enough = tl.load(top_ps + row).to(tl.int64) * total
    reached = tl.cumsum(weight, 0)
    weight = tl.where((reached - weight) * _P_UNIT < enough, weight, 0)

    everything = head == width
    largest = tl.load(best + row)
    reaches = ((top_k == 0) | (top_k < head)) & (tl.sum(weight, 0) * _P_UNIT >= enough)
    unsure = tl.sum(((weight > 0) & (logit == least)).to(tl.int32), 0) > 0
    undecided = (everything == 0) & ((reaches == 0) | unsure)

    # The draw: in ascending order of ids.
    shares = tl.sort(token * _SHARE_UNIT + weight)
    share = shares & (_SHARE_UNIT - 1)
    total = tl.sum(share, 0)
    draw = _drawn_share(tl.load(bits + row), total)
    index = _first_beyond(tl.cumsum(share, 0), draw)
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
        order = _order(tl.load(logits + token, mask=token < width, other=float("-inf")))
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
        order = _order(tl.load(logits + token, mask=token < width, other=float("-inf")))
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
            low = tl.where(total * _P_UNIT < enough, low, middle + 1)
            high = tl.where(total * _P_UNIT < enough, middle, high)
        _count, total = _above(logits, weights, width, low, BLOCK)
        level, weight = _level(logits, weights, width, low, BLOCK)
        level = tl.where(low == k_bound, k_level, level)
        unit = tl.maximum(weight, 1) * _P_UNIT
        level = tl.minimum(level, (enough - total * _P_UNIT + unit - 1) // unit)
        draw = _drawn_share(tl.load(bits + row), total + level * weight)
        # The draw: in ascending order of ids.
        bound = low.to(tl.int32)
        seen = tl.zeros((), tl.int64)
        reached = tl.zeros((), tl.int64)
        drawn = tl.zeros((), tl.int32)
        for begin in range(0, width, BLOCK):
            token = begin + tl.arange(0, BLOCK)
            order = _order(tl.load(logits + token, mask=token < width, other=float("-inf")))
            tied = ((order == bound) & (token < width)).to(tl.int64)
            before = seen + tl.cumsum(tied, 0) - tied
            kept = ((order > bound) & (token < width)) | ((tied > 0) & (before < level))
            share = tl.where(kept, tl.load(weights + token, mask=token < width, other=0).to(tl.int64), 0)
            drawn += _first_beyond(reached + tl.cumsum(share, 0), draw)
            seen += tl.sum(tied, 0)
            reached += tl.sum(share, 0)
        tl.store(out + row * 2, drawn)
        tl.store(out + row * 2 + 1, 0)


def _contract(kernel: str, parameters: tuple[Buffer | Integer | Constant, ...], grid: str, conclusion: str) -> Contract:
    return Contract(kernel, "sampling.sample", parameters, ("rows", grid, "1"), (), (), (), conclusion)


_ROW = tuple(Integer(name) for name in ("rows", "width"))
_SUMS = ("rows", "blocks")

WEIGHTS = Kernel(
    weights_kernel,
    _contract(
        "weights",
        (
            Buffer("logits", "fp32", ("rows", "width")),
            Buffer("best", "fp32", ("rows",)),
            Buffer("temperatures", "fp64", ("rows",)),
            Buffer("min_ps", "i64", ("rows",)),
            Buffer("weights", "i32", ("rows", "width"), Access.WRITE),
            Buffer("sums", "i64", _SUMS, Access.WRITE),
            *_ROW,
            Constant("BLOCK"),
        ),
        "cdiv(width, BLOCK)",
        "weights[i, t] is token t's `sampling.weight`, or 0 if min-p drops it; sums[i, b] is the sum of block b.",
    ),
)

DRAW_FROM_ALL = Kernel(
    draw_from_all_kernel,
    _contract(
        "draw_from_all",
        (
            Buffer("weights", "i32", ("rows", "width")),
            Buffer("sums", "i64", _SUMS),
            Buffer("best", "fp32", ("rows",)),
            Buffer("bits", "i64", ("rows",)),
            Buffer("out", "i32", ("rows", "2"), Access.WRITE),
            *_ROW,
            Integer("blocks"),
            Constant("BLOCK"),
            Constant("BLOCKS"),
        ),
        "1",
        "out[i, :] is the token drawn from all weights of row i, and DRAWN or REFUSED.",
    ),
)

DRAW_FROM_HEAD = Kernel(
    draw_from_head_kernel,
    _contract(
        "draw_from_head",
        (
            Buffer("logits", "fp32", ("rows", "head")),
            Buffer("tokens", "i64", ("rows", "head")),
            Buffer("sums", "i64", _SUMS),
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
    ),
)


DRAW_BEYOND_HEAD = Kernel(
    draw_beyond_head_kernel,
    _contract(
        "draw_beyond_head",
        (
            Buffer("logits", "fp32", ("rows", "width")),
            Buffer("weights", "i32", ("rows", "width")),
            *(Buffer(name, "i64", ("rows",)) for name in ("top_ps", "top_ks", "bits")),
            Buffer("out", "i32", ("rows", "2"), Access.UPDATE),
            *_ROW,
            Constant("BLOCK"),
        ),
        "1",
        "Where out[i, :] is UNDECIDED, it is the token that row i yields, and DRAWN; every other row stays as it was.",
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


def _power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()


def draw(logits: torch.Tensor, parameters: Parameters, *, cuts: bool) -> torch.Tensor:
    """[n, 2] int32: for each row of logits [n, width] a token, and DRAWN or REFUSED.

    `cuts` says whether rows have top-k or top-p: all of them, or none. Temperatures are not 0. Raises `PremiseError`
    for tensors that do not fit.
    """
    rows, width = logits.shape
    device, blocks = logits.device, -(-width // BLOCK)
    best = logits.amax(1)
    weights = torch.empty(rows, width, dtype=torch.int32, device=device)
    sums = torch.empty(rows, blocks, dtype=torch.int64, device=device)
    out = torch.empty(rows, 2, dtype=torch.int32, device=device)
    common = {"best": best, "rows": rows, "width": width}
    shares = {"temperatures": parameters.temperatures, "min_ps": parameters.min_ps}
    tile = Tile((("BLOCK", BLOCK),), 4, 1)
    WEIGHTS.launch({**common, **shares, "logits": logits, "weights": weights, "sums": sums}, tile)
    common |= {"sums": sums, "bits": parameters.bits, "out": out, "blocks": blocks}
    bound = ("BLOCKS", _power_of_two(blocks))
    if not cuts:
        DRAW_FROM_ALL.launch({**common, "weights": weights}, Tile((("BLOCK", BLOCK), bound), 4, 1))
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
        Tile((("HEAD", _power_of_two(head)), bound), 4, 1),
    )
    if head < width:
        cuts_of = {"top_ps": parameters.top_ps, "top_ks": parameters.top_ks, "bits": parameters.bits}
        whole = {"logits": logits, "weights": weights, "out": out, "rows": rows, "width": width}
        DRAW_BEYOND_HEAD.launch({**whole, **cuts_of}, Tile((("BLOCK", WHOLE_BLOCK),), 16, 1))
    return out
