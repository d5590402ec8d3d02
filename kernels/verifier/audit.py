"""What a binary does besides what its typed IR says: nothing, as far as its instructions can show.

Every floating-point instruction of the PTX must be in `ASKED`, and an operation of the typed IR must ask for it. So
there is no multiplication that is contracted with an addition, neither here nor later: those that are rounded (`.rn`)
may not be contracted by the assembler. Nothing is added in the order of arrival, and no launch overlaps another. The
machine code is read too, since it is what runs: where it has products and sums in one, an operation of the PTX is made
of them, as a division is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from vosti.kernels.disassembly import instruction, matrix_classes
from vosti.kernels.verifier.ir import Kernel

_TANH = "tt.extern_elementwise"
_NARROW = r"(?:bf16|f16)(?:x2)?"

ASKED: Mapping[str, frozenset[str]] = {
    # 2 · x is compiled as x + x, which is the same number.
    rf"add\.rn\.(?:f32|f64|{_NARROW})": frozenset({"arith.addf", "arith.mulf", _TANH}),
    rf"sub\.rn\.(?:f32|f64|{_NARROW})": frozenset({"arith.subf"}),
    rf"mul\.rn\.(?:f32|f64|{_NARROW})": frozenset({"arith.mulf", "math.exp", "math.log", _TANH}),
    r"div\.rn\.f32": frozenset({"tt.precise_divf"}),
    r"div\.full\.f32|div\.rn\.f64": frozenset({"arith.divf"}),
    r"sqrt\.rn\.f32": frozenset({"tt.precise_sqrt"}),
    r"sqrt\.approx\.(?:ftz\.)?f32": frozenset({"math.sqrt"}),
    r"rsqrt\.approx\.(?:ftz\.)?f32": frozenset({"math.rsqrt"}),
    r"ex2\.approx\.f32": frozenset({"math.exp", "math.exp2"}),
    r"lg2\.approx\.(?:ftz\.)?f32": frozenset({"math.log", "math.log2"}),
    r"neg\.f32": frozenset({"arith.negf", "arith.subf"}),
    r"abs\.f32": frozenset({"math.absf"}),
    r"(?:max|min)(?:\.NaN)?\.f32": frozenset({"arith.maxnumf", "arith.minnumf", "arith.maximumf", "arith.minimumf"}),
    r"setp\.\w+\.f32": frozenset({"arith.cmpf", _TANH}),
    r"setp\.\w+\.f64": frozenset({"arith.cmpf"}),
    r"fma\.rn\.f32": frozenset({"math.fma"}),
    r"fma\.rn\.ftz\.f32|(?:ex2|rcp)\.approx\.ftz\.f32|abs\.ftz\.f32": frozenset({_TANH}),
    rf"cvt\.f32\.{_NARROW}|cvt\.f64\.f32": frozenset({"arith.extf"}),
    rf"cvt\.rn\.{_NARROW}\.f32": frozenset({"arith.truncf"}),
    r"cvt\.rn\.f32\.[su]\d+": frozenset({"arith.sitofp", "arith.uitofp"}),
    r"cvt\.rzi\.s\d+\.f(?:32|64)": frozenset({"arith.fptosi"}),
    r"cvt\.r[mp]i\.(?:f32\.f32|f64\.f64)": frozenset({"math.floor", "math.ceil"}),
    rf"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.{_NARROW}\.{_NARROW}\.f32": frozenset({"tt.dot"}),
    rf"wgmma\.mma_async\.sync\.aligned\.m64n\d+k16\.f32\.{_NARROW}\.{_NARROW}": frozenset({"tt.dot"}),
    r"redux\.sync\.\w+\.\w+": frozenset({"tt.reduce"}),
}
"""Instruction of the PTX → operations of the typed IR that are made of it."""

_MOVES = re.compile(r"(?:selp|mov|ld|st)\.(?:[\w:]+\.)*f(?:32|64)")
_FLOAT = re.compile(r"\.(?:t?f\d+|bf16|f16x2|bf16x2|e\dm\d\w*)\b|redux")
_NEVER = {
    r"atom|red|multimem|cp\.reduce": "a value that depends on the order of arrival",
    r"griddepcontrol": "a launch that overlaps the one before it",
}
_NEVER_IN_SASS = {
    r"ATOM\w*|RED|REDG|REDS|UTMAREDG|UBLKRED": "a value that depends on the order of arrival",
    r"ACQBULK|PREEXIT": "a launch that overlaps the one before it",
}
_EXPANDED = re.compile(r"(?:div|sqrt|fma|rsqrt)\.\w+\.(?:ftz\.)?f(?:32|64)")
"""Instructions of the PTX that are made of products and sums in one."""

_CONSTANT = re.compile(r"HFMA2\S* \w+, -RZ, RZ, ")
"""How the assembler writes a constant into a register."""


def ptx_instructions(text: str) -> list[str]:
    """The names of a PTX text's instructions, each once, in order."""
    names: dict[str, None] = {}
    for line in text.splitlines():
        for part in line.partition("//")[0].split(";"):
            match = re.match(r"[\s{]*(?:@!?%\w+\s+)?([a-z]\w*(?:[.:]+\w+)*)", part)
            if match:
                names[match[1]] = None
    return list(names)


def ptx_findings(text: str, kernel: Kernel) -> list[str]:
    """What a PTX text has that the typed IR does not ask for, in words; empty if nothing."""
    asking = {op.name for op in kernel.body.walk()}
    found = []
    for name in ptx_instructions(text):
        found += [f"PTX has {name}: {what}" for form, what in _NEVER.items() if re.match(rf"(?:{form})\b", name)]
        if not _FLOAT.search(name) or _MOVES.fullmatch(name):
            continue
        operations = [asked for form, asked in ASKED.items() if re.fullmatch(form, name)]
        if not operations:
            found.append(f"PTX has {name}, which no operation is known to be made of")
        elif not any(asked & asking for asked in operations):
            found.append(f"PTX has {name}, which no operation of the typed IR asks for")
    return found


def sass_findings(text: str, ptx: str, kernel: Kernel) -> list[str]:
    """What a disassembly has that the typed IR and the PTX do not ask for, in words; empty if nothing."""
    lines = (instruction(line) for line in text.splitlines())
    words = [re.sub(r"^@!?\w+ ", "", line) for line in lines if line]
    names = {re.split(r"[ .]", word)[0] for word in words if not _CONSTANT.match(word)}
    found = [
        f"machine code has {name}: {what}"
        for name in sorted(names)
        for form, what in _NEVER_IN_SASS.items()
        if re.fullmatch(form, name)
    ]
    contracted = sorted(names & {"FFMA", "DFMA", "HFMA2"})
    if contracted and not any(_EXPANDED.fullmatch(name) for name in ptx_instructions(ptx)):
        found.append(f"machine code has {contracted[0]}, and no instruction of the PTX is made of it")
    if any(op.name == "tt.dot" for op in kernel.body.walk()) and not matrix_classes(text):
        found.append("machine code has no matrix instruction, and the typed IR has a product of matrices")
    return found
