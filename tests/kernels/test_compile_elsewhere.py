"""Kernels compiled for architectures on which none was ever run: untested, but for the compiler's word."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed")

from sass import resources
from vosti.kernels.candidates import starting_entry
from vosti.kernels.catalogue import PAGE_SIZES, Instance, instances
from vosti.kernels.shapes import Dimensions, known_operations
from vosti.kernels.tables import Choice, Entry, load
from vosti.kernels.tile import Tile


def forms(entry: Entry) -> list[Instance]:
    """The entry's, on pages that hold a tile of keys."""
    return [form for form in instances(entry) if form.constants.get("PAGE", PAGE_SIZES[0]) == PAGE_SIZES[0]]


@pytest.mark.slow
@pytest.mark.parametrize("key", known_operations(), ids=str)
@pytest.mark.parametrize("architecture", ["sm_80", "sm_100"])
def test_untested_architectures_compile(architecture: str, key: tuple[str, Dimensions], record_property: Any) -> None:
    """Without tensor descriptors, the tiles to start from yield binaries that fit."""
    lines = resources(forms(starting_entry(*key, architecture)), architecture)
    for number, line in enumerate(lines):
        record_property(f"untested on {architecture} {number}", line)

    assert [] == [line for line in lines if "PROBLEM" in line]
    assert not any("_stream" in line for line in lines)


@pytest.mark.slow
def test_a_binary_that_does_not_fit_is_found() -> None:
    """More stages than an architecture's shared memory holds."""
    entry = load("sm_90").entry("linear", n=4096, k=4096)
    tile = Tile((("BLOCK_M", 128), ("BLOCK_N", 128), ("BLOCK_K", 128)), 8, 4)
    (line,) = resources(forms(replace(entry, choices=(Choice(None, "linear", tile),))), "sm_80")

    assert "PROBLEM: only 166912 B are there" in line
