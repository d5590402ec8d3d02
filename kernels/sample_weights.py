"""Weights of tokens, as `vosti.spec.sampling` has them.

A weight is an integer, made by the same sequence of correctly rounded float64 operations as in the specification; what
follows from weights is integer arithmetic.
"""

from __future__ import annotations

import triton
import triton.language as tl

from vosti.kernels.contract import Access, Buffer, Constant, Contract, Integer, Output
from vosti.kernels.launch import Kernel
from vosti.spec import sampling

_COEFFICIENTS = tl.constexpr(sampling.EXPONENTIAL_COEFFICIENTS)
_INVERSE_LN2 = tl.constexpr(sampling.INVERSE_LN2)
_LN2_HIGH = tl.constexpr(sampling.LN2_HIGH)
_LN2_LOW = tl.constexpr(sampling.LN2_LOW)
_LEAST = tl.constexpr(sampling.LEAST_EXPONENT)

P_UNIT = tl.constexpr(sampling.P_UNIT)
_WEIGHT_UNIT = tl.constexpr(sampling.WEIGHT_UNIT)


@triton.jit
def _real(x):
    """A constant of float64: Python's numbers would be rounded to float32 on the way."""
    return tl.full((1,), x, tl.float64)


@triton.jit
def _weigh(logit, best, temperature, min_p):
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
    return tl.where(weight * P_UNIT >= min_p * _WEIGHT_UNIT, weight, 0)


@triton.jit(do_not_specialize=["rows", "width"])
def weights_kernel(logits, best, temperatures, min_ps, weights, sums, rows, width, BLOCK: tl.constexpr):
    """See `WEIGHTS`."""
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    token = block * BLOCK + tl.arange(0, BLOCK)
    one = tl.arange(0, 1)
    live = token < width
    logit = tl.load(logits + row * width + token, mask=live, other=float("-inf"))
    weight = _weigh(
        logit, tl.load(best + row + one), tl.load(temperatures + row + one), tl.load(min_ps + row + one).to(tl.int64)
    )
    tl.store(weights + row * width + token, weight.to(tl.int32), mask=live)
    tl.store(sums + row * tl.num_programs(1) + block, tl.sum(tl.where(live, weight, 0), 0))


ROW = tuple(Integer(name) for name in ("rows", "width"))

_WEIGHT = "kept_weight({}, best[i], temperatures[i], min_ps[i])"

WEIGHTS = Kernel(
    weights_kernel,
    Contract(
        kernel="weights",
        row_program="sampling.weight of sampling.exponent, 0 where not sampling.probable",
        parameters=(
            Buffer("logits", "fp32", ("rows", "width")),
            Buffer("best", "fp32", ("rows",)),
            Buffer("temperatures", "fp64", ("rows",)),
            Buffer("min_ps", "i64", ("rows",), within=("0", "2**20 + 1")),
            Buffer("weights", "i32", ("rows", "width"), Access.WRITE),
            Buffer("sums", "i64", ("rows", "cdiv(width, BLOCK)"), Access.WRITE),
            *ROW,
            Constant("BLOCK"),
        ),
        grid=("rows", "cdiv(width, BLOCK)", "1"),
        premises=("width < 2**19", "BLOCK <= 2**14"),
        row_inputs=("logits[i, :]", "best[i]", "temperatures[i]", "min_ps[i]"),
        outputs=(
            Output(
                "weights",
                ("i", "t"),
                f"narrowed({_WEIGHT.format('logits[i, t]')})",
                program=("i", "t // BLOCK", "0"),
                lanes=("t % BLOCK",),
            ),
            Output(
                "sums",
                ("i", "b"),
                f"total(BLOCK, lambda l: within(b * BLOCK + l < width, {_WEIGHT.format('logits[i, b * BLOCK + l]')}))",
                program=("i", "b", "0"),
            ),
        ),
        conclusion=(
            "weights[i, t] is token t's `sampling.weight`, or 0 if min-p drops it; sums[i, b] is the sum of block b of "
            "the row. Given: best[i] is the row's largest logit, none is NaN, temperatures[i] > 0."
        ),
    ),
)
