"""Faults seeded into the front: what each would make of a kernel's typed IR, as an edit of its text."""

from __future__ import annotations

import re

FAULTS = {
    "operands of a subtraction swapped": ("rotary_store", r"(arith\.subf) (%\w+), (%\w+)", r"\1 \3, \2"),
    "operands of a division swapped": ("rms_norm", r"(tt\.precise_divf) (%\w+), (%\w+)", r"\1 \3, \2"),
    "operands of a signed comparison swapped": ("linear", r"(cmpi slt), (%\w+), (%\w+)", r"\1, \3, \2"),
    "predicate with equality": ("linear", r"cmpi slt", "cmpi sle"),
    "predicate without equality": ("attention", r"cmpi sle", "cmpi slt"),
    "predicate unsigned": ("kv_store", r"cmpi sge", "cmpi uge"),
    "predicate inverted": ("attention_merge", r"cmpf oeq", "cmpf une"),
    "mask of a load dropped": ("linear", r"(tt\.load %\w+), %\w+, %\w+", r"\1"),
    "fill of a load dropped": ("rms_norm", r"(tt\.load %\w+, %\w+), %\w+", r"\1"),
    "mask of a store dropped": ("linear", r"(tt\.store %\w+, %\w+), %\w+", r"\1"),
    "arms of a selection swapped": ("attention", r"(arith\.select %\w+), (%\w+), (%\w+)", r"\1, \3, \2"),
    "halves of a split swapped": ("gate_up", r"(%\w+), (%\w+) = tt\.split", r"\2, \1 = tt.split"),
    "wrong axis of a reduction": (
        "attention_split",
        r'(= "tt\.reduce"\(%[\w#]+\) <\{axis = )1( : i32\}> [^}]*\}\) : \(tensor<16x16xf32>)',
        r"\g<1>0\2",
    ),
    "wrong axis of the grid": ("linear", r"tt\.get_program_id y", "tt.get_program_id x"),
    "range that starts too late": ("embedding", r"end = (\d+) : i32, start = 0", r"end = 33 : i32, start = 1"),
    "bits of a constant lost": ("attention", r"dense<0xFF800000>", "dense<0x7F800000>"),
    "maximum for minimum": ("attention_split", r"arith\.minsi", "arith.maxsi"),
    "quotient for remainder": ("rotary_store", r"cmpi slt, %\w+, (%\w+)", r"cmpi slt, \1, \1"),
    "another combination": ("rms_norm", r"arith\.addf %arg", "arith.maxnumf %arg"),
    "bounds of a loop swapped": ("linear", r"= (%\w+) to (%\w+) step", r"= \2 to \1 step"),
    "step of a loop lost": ("linear", r"step %\w+", "step %c16_i32"),
    "blocks of a branch swapped": ("attention", r"(cmpi) slt, (%\w+), (%\w+ : i32)", r"\1 sge, \2, \3"),
    "indices of a descriptor swapped": ("linear_stream", r"(load %x)\[(%\w+), (%\w+)\]", r"\1[\3, \2]"),
    "exclusive or for or": ("digest", r"arith\.xori", "arith.ori"),
    "an unsigned number taken as signed": ("digest", r"arith\.extui", "arith.extsi"),
    "another function": ("attention", r"math\.exp ", "math.exp2 "),
    "values that a loop carries swapped": ("attention_merge", r"scf\.yield (%\w+), (%\w+),", r"scf.yield \2, \1,"),
    "rounding dropped": ("gate_up", r"dense<0\.797884583>", "dense<0.797>"),
}
"""Fault of a front → the kernel whose text shows it, and the edit that does to the text what the fault would do."""


def edited(text: str, fault: str) -> str:
    """The text as the faulty front would take it; the text itself if it has nothing that the fault is about."""
    _, pattern, replacement = FAULTS[fault]
    return re.sub(pattern, replacement, text, count=1, flags=re.DOTALL)
