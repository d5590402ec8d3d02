"""The hot kernels, compiled in full for sm_90 without a GPU: registers, spills, shared memory, instruction class."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed")

from sass import Usage, parse, resources, usage
from vosti.kernels.candidates import SHARED_MEMORY
from vosti.kernels.catalogue import PAGE_SIZES, TARGETS, Instance, instances
from vosti.kernels.disassembly import compiled_classes, listing, matrix_classes
from vosti.kernels.shapes import Dimensions
from vosti.kernels.tables import load
from vosti.kernels.tile import Tile

HOT: dict[str, tuple[str, dict[str, int], tuple[str, ...]]] = {
    "qkv": ("linear", {"n": 6144, "k": 4096}, ("mma", "wgmma")),
    "gate and up": ("gate_up", {"n": 14336, "k": 4096, "activation": 0}, ("mma", "wgmma")),
    "head": ("head", {"n": 128256, "k": 4096}, ("mma",)),
    "attention, 128": ("attention", {"heads": 32, "kv_heads": 8, "head_dim": 128, "window": 0}, ("wgmma",)),
    "attention, 256, window": ("attention", {"heads": 8, "kv_heads": 4, "head_dim": 256, "window": 1024}, ("wgmma",)),
    "attention_split, 128": ("attention_split", {"heads": 32, "kv_heads": 8, "head_dim": 128, "window": 0}, ("mma",)),
    "attention_split, 512": ("attention_split", {"heads": 16, "kv_heads": 1, "head_dim": 512, "window": 0}, ("mma",)),
    "attention_merge": ("attention_merge", {"heads": 32, "kv_heads": 8, "head_dim": 128, "window": 0}, ()),
    "rms_norm": ("rms_norm", {"width": 4096, "unit_offset": 0}, ()),
    "rotary_store": (
        "rotary_store",
        {"heads": 32, "kv_heads": 8, "head_dim": 128, "norm": 0, "value_norm": 0, "shared": 0},
        (),
    ),
}
"""Name: operation, dimensions, instruction classes: the first for the fewest rows, the last for the most."""


def ends(name: str) -> list[tuple[Instance, tuple[str, ...]]]:
    """The instances for the fewest and for the most rows, with the instruction classes expected."""
    operation, dimensions, classes = HOT[name]
    forms = list(instances(load("sm_90").entry(operation, **dimensions)))
    if operation == "attention":
        # Those for the first page size: one tile of keys on one page.
        assert forms[0].constants["PAGE"] == PAGE_SIZES[0]
        return [(forms[0], classes)]
    if len(classes) == 2:
        return [(forms[0], classes[:1]), (forms[-1], classes[1:])]
    return [(forms[0], classes)]


def problems(found: Usage) -> list[str]:
    """What a hot kernel must not do: store spilled registers in a loop, or ask for more than there is."""
    result = [f"a loop of {loop.instructions} spills" for loop in found.loops if loop.innermost and loop.spill_stores]
    if found.shared > SHARED_MEMORY["sm_90"]:
        result.append(f"{found.shared} bytes of shared memory")
    if not any(loop.products for loop in found.loops) and found.stack:
        result.append("a kernel without products spills")
    return result


SLOW = ("attention, 256, window", "attention_split, 512", "gate and up")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in sorted(HOT)]
)
def test_hot_kernels_spill_nothing_where_it_counts(name: str, record_property: Any) -> None:
    """No innermost loop stores a spilled register; shared memory fits; products use the expected instructions.

    Attention's state of the merged splits is set aside while a split runs, outside the loops over key tiles.
    """
    for instance, classes in ends(name):
        found = usage(instance.compiled(TARGETS["sm_90"]))
        text = f"{name}: {dict(instance.tile.blocks)}, {instance.tile.warps} warps: "
        record_property(name, text + f"{found.registers} registers, {found.stack} B stack, {found.shared} B shared")

        assert [] == problems(found), (instance, found)
        assert classes == found.matrix_classes
        assert found.registers <= 255


@pytest.mark.slow
@pytest.mark.parametrize("key", list(load("sm_90").entries), ids=str)
def test_every_entry_of_the_table_compiles(key: tuple[str, Dimensions], record_property: Any) -> None:
    """Every tile, in every form that a model may ask for, yields a binary that fits; what it takes is reported."""
    lines = resources(instances(load("sm_90").entries[key]), "sm_90")
    for number, line in enumerate(lines):
        record_property(f"{number}", line)

    assert [] == [line for line in lines if "PROBLEM" in line]


@pytest.mark.slow
def test_a_spill_is_found() -> None:
    """A tile that is too large for its threads spills in its loop."""
    (instance, _), *_ = ends("attention_split, 512")
    large = replace(instance, tile=Tile(instance.tile.blocks, 4, 1))

    assert [] != problems(usage(large.compiled(TARGETS["sm_90"])))


def test_loops_are_read_from_a_disassembly() -> None:
    """Backward branches are loops, innermost ones are told apart, and the branch to itself at the end is none."""
    listing = """
    .L_x_1:
        /*0000*/                   MOV R1, R2 ;
    .L_x_2:
        /*0010*/                   LDL R3, [R1] ;
        /*0020*/                   HMMA.16816.F32.BF16 R4, R8, R10, R4 ;
        /*0030*/               @P0 BRA `(.L_x_2) ;
        /*0040*/                   STL [R1], R3 ;
        /*0050*/               @P1 BRA `(.L_x_1) ;
    .L_x_3:
        /*0060*/                   BRA `(.L_x_3);
    """
    _, loops = parse(listing)

    assert [(True, 3, 0, 1, 1), (False, 6, 1, 1, 1)] == [
        (loop.innermost, loop.instructions, loop.spill_stores, loop.spill_loads, loop.products) for loop in loops
    ]


def test_instruction_classes_are_found_as_words() -> None:
    """A class is an instruction of the listing, not a part of a word; what is remembered is what was found."""
    text = """
        /*0010*/             @!P0  HGMMA.64x128x16.F32.BF16 R24, gdesc[UR4], R24, gsb0 ;
        /*0020*/                   UTCHMMA gdesc[UR4], gdesc[UR6], tmem[UR8] ;
        /*0030*/                   WHMMA R1 ; // HMMA in a comment
    """
    (instance, classes), *_ = ends("qkv")
    compiled = instance.compiled(TARGETS["sm_90"])

    assert ("tcgen05", "wgmma") == matrix_classes(text)
    assert () == matrix_classes("")
    assert [classes, classes] == [compiled_classes(compiled) for _ in range(2)]


def test_multiplication_and_addition_stay_apart() -> None:
    """Where the compiler may contract them it does; the options of every compilation forbid it."""
    (instance, _), *_ = ends("rotary_store")
    plain = instance.compiled(TARGETS["sm_90"])
    source = instance.kernel.source({**instance.constants, **dict(instance.tile.blocks)}, {})

    import triton

    options = {**instance.tile.options(), "enable_fp_fusion": True}
    fused = triton.compile(source, target=TARGETS["sm_90"], options=options)
    assert "FFMA" not in parse(listing(plain.asm["cubin"]))[0]
    assert "FFMA" in parse(listing(fused.asm["cubin"]))[0]


def test_binaries_hold_no_line_information() -> None:
    """A binary's bytes do not depend on where the kernel is installed."""
    (instance, _), *_ = ends("rms_norm")
    compiled = instance.compiled(TARGETS["sm_90"])

    assert ".loc" not in compiled.asm["ptx"]
    assert b"rms_norm.py" not in compiled.asm["cubin"]
