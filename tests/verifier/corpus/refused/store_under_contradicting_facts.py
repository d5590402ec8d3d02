"""What is said of the slots contradicts itself."""

from dataclasses import replace

import triton
import triton.language as tl

from corpus import STORE
from vosti.kernels.contract import Fact

CONTRACT = replace(STORE, facts=(*STORE.facts, Fact(("i",), "slots[i] > slots[i]", kept="nowhere")))
CONSTANTS = {"WIDTH": 32}
TWIN = "store"
FINDING = r"A store never takes place"


@triton.jit(do_not_specialize=["rows"])
def kernel(x, slots, cache, rows, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    slot = tl.load(slots + row).to(tl.int64)
    present = (slot >= 0) & (column >= 0)
    value = tl.load(x + row * WIDTH + column)
    tl.store(cache + slot * WIDTH + column, value, mask=present)  # found here
