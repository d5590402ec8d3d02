"""Changes of what the text of typed IR has beside operations and operands: hints, flags, promises to the compiler."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial

from kernel_mutants.edits import placed
from kernel_mutants.operators import Mutant
from vosti.kernels.verifier.ir import Kernel, Op
from vosti.kernels.verifier.parse import parse

_FLOATS = " fastmath<fast>"
_INTEGERS = " overflow<nsw>"

ADDED: Mapping[str, tuple[str, ...]] = {
    "tt.load": (" evictionPolicy = evict_first", " cacheModifier = cg", " {isVolatile = true}"),
    "tt.store": (" evictionPolicy = evict_last", " cacheModifier = wb"),
    "tt.descriptor_load": (" evictionPolicy = evict_first",),
    "tt.dot": (", inputPrecision = tf32", " {maxNumImpreciseAcc = 32 : i32}"),
    "tt.reshape": (" allow_reorder", " efficient_layout"),
    "arith.addf": (_FLOATS,),
    "arith.subf": (_FLOATS,),
    "arith.mulf": (_FLOATS,),
    "arith.divf": (_FLOATS,),
    "arith.maxnumf": (_FLOATS,),
    "math.exp": (_FLOATS,),
    "arith.addi": (_INTEGERS,),
    "arith.muli": (_INTEGERS,),
    "arith.divsi": (" exact",),
    "arith.extui": (" nneg",),
    "arith.truncf": (" to_nearest_even",),
}
"""What may stand before an operation's types."""

HINTS = ("tt.num_stages = 2 : i32", "tt.flatten", "tt.disallow_acc_multi_buffer", "tt.warp_specialize")
"""What may stand behind a loop."""


PROMISES = (
    ("a pointer aligned to 32", "divisibility = 16", "divisibility = 32"),
    ("a pointer aligned to 8", "divisibility = 16", "divisibility = 8"),
    ("an integer divisible by 16", r": i32( loc|,|\))", r": i32 {tt.divisibility = 16 : i32}\1"),
    ("noinline", "noinline = false", "noinline = true"),
)
"""What the head of a function says: what it is called, a pattern in it, and what that is replaced by."""


def attribute_mutants(kernel: Kernel, text: str) -> Iterator[Mutant]:
    """The mutants of the text that a kernel was read from. One that the front does not read is refused by it."""
    lines = text.splitlines()

    def mutant(op: Op, number: int, line: str, what: str) -> Mutant:
        changed = "\n".join([*lines[: number - 1], line, *lines[number:]])
        return Mutant("attribute", op, what, partial(parse, changed))

    for op, _ in placed(kernel):
        line = lines[op.line - 1]
        for added in ADDED.get(op.name, ()):
            yield mutant(op, op.line, line.replace(" : ", f"{added} : ", 1), added.strip(" ,"))
        if op.name == "scf.for":
            end = next(i for i in range(op.line, len(lines)) if lines[i].startswith(f"{_indent(line)}}}")) + 1
            for hint in HINTS:
                closing = lines[end - 1]
                old, new = ("} {", f"}} {{{hint}, ") if "} {" in closing else ("}", f"}} {{{hint}}}")
                yield mutant(op, end, closing.replace(old, new, 1), hint)
    start = next(number for number, line in enumerate(lines, 1) if "tt.func" in line)
    function = Op("tt.func", (), (), line=start)
    for what, pattern, other in PROMISES:
        if (changed := re.sub(pattern, other, lines[start - 1], count=1)) != lines[start - 1]:
            yield mutant(function, start, changed, what)


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]
