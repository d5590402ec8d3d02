"""The forms of the kernels that are mutated: each operation, with the options that change what it computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from triton import knobs

from kernel_mutants.attributes import attribute_mutants
from kernel_mutants.operators import Mutant, mutants
from launches import Launch
from vosti.kernels.catalogue import KERNELS, SAMPLER, TARGETS, Instance
from vosti.kernels.contract import Contract
from vosti.kernels.tile import Tile
from vosti.kernels.verifier.entries import Case
from vosti.kernels.verifier.interpret import Lanes
from vosti.kernels.verifier.ir import Kernel
from vosti.kernels.verifier.parse import parse
from vosti.kernels.verifier.prove import Proof, prove

ARCHITECTURE = "sm_90"
SUPPORT = Path(__file__).parents[1]
LAUNCHES = 4
"""Of a form, that a mutant is run on at most."""


@dataclass(frozen=True)
class Form:
    """A form of a kernel, at the sizes of a recorded launch (`tests/verifier/recorded.py`)."""

    name: str
    kernel: str
    constants: Mapping[str, int]
    """With which it was launched; those of the tile follow."""

    blocks: Mapping[str, int]
    elements: Mapping[str, str] = field(default_factory=dict)
    """Types of buffers that differ from the contract's."""

    compiled: str = ""
    """The typed IR, if that was compiled elsewhere."""

    @cached_property
    def case(self) -> Case:
        """What there is to prove."""
        kernel, tile = {**KERNELS, **SAMPLER}[self.kernel], Tile(tuple(self.blocks.items()), 4, 1)
        return Case(Instance(kernel, self.constants, tile, self.elements), ARCHITECTURE)

    @property
    def contract(self) -> Contract:
        """The kernel's contract."""
        return self.case.instance.kernel.contract

    @cached_property
    def text(self) -> str:
        """The typed IR, with the lines of the source."""
        if self.compiled:
            return self.compiled
        with knobs.compilation.scope():
            knobs.compilation.disable_line_info = False
            return self.case.instance.ttir(TARGETS[ARCHITECTURE])

    @cached_property
    def ir(self) -> Kernel:
        """The kernel as it is."""
        return parse(self.text)

    @cached_property
    def mutants(self) -> list[Mutant]:
        """All of them, in an order in which neighbours have nothing in common."""
        return sorted([*mutants(self.ir), *attribute_mutants(self.ir, self.text)], key=lambda one: one.rank)

    def prove(self, kernel: Kernel) -> Proof:
        """Prove a kernel of this form. Raises `RefusedError`."""
        case = self.case
        return prove(kernel, self.contract, case.constants, case.instance.elements, case.earlier())

    def launches(self, recorded: Sequence[Launch]) -> list[Launch]:
        """The last few of this form, with numbers of the types that it has."""
        of_form = (self.kernel, dict(self.constants), dict(self.blocks))
        found = [one for one in recorded if (one.kernel, one.constants, dict(one.blocks)) == of_form]
        return [_retyped(one, self.ir) for one in found[-LAUNCHES:]]


def _retyped(launch: Launch, kernel: Kernel) -> Launch:
    """The launch, which was of float32, with bf16 numbers where the kernel has such."""
    buffers = {**launch.pointers, **{name: one.buffer for name, one in launch.descriptors.items()}}
    narrow = {buffers[p.source] for p in kernel.parameters if p.source in buffers and p.value.type.element == "bf16"}
    before = {key: _bf16(array) if key in narrow else array for key, array in launch.before.items()}
    return replace(launch, before=before)


def _bf16(numbers: Lanes) -> Lanes:
    """The upper halves of the bits, rounded to nearest, ties to even."""
    bits = np.asarray(numbers, np.float32).view(np.uint32).astype(np.uint64)
    return np.where(np.isnan(numbers), 0x7FC0, bits + 0x7FFF + (bits >> 16 & 1) >> 16).astype(np.uint16)


_ATTENTION = {"HEADS": 4, "KV_HEADS": 2, "HEAD_DIM": 32}
_TILES = {"TILE": 64, "SPLIT": 1024}
_NORM = {"WIDTH": 40, "RESIDUAL": 0, "SCALED": 0, "UNIT_OFFSET": 0, "MAPPED": 0}
_ROTARY = {"HEADS": 6, "KV_HEADS": 2, "HEAD_DIM": 16, "NORM": 0, "VALUE_NORM": 0, "SHARED": 0}
_PRODUCT = {"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16}
_LINEAR = {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 32}

FORMS = (
    Form("embedding", "embedding", {"WIDTH": 40, "SCALED": 0}, {"BLOCK": 32}),
    Form("embedding, scaled", "embedding", {"WIDTH": 40, "SCALED": 1}, {"BLOCK": 32}),
    Form("norm", "rms_norm", _NORM, {"BLOCK": 64}),
    Form("norm, 1 + weight", "rms_norm", {**_NORM, "UNIT_OFFSET": 1}, {"BLOCK": 64}),
    Form("norm of a sum", "rms_norm", {**_NORM, "WIDTH": 64, "RESIDUAL": 1}, {"BLOCK": 64}),
    Form("norm of a scaled sum", "rms_norm", {**_NORM, "WIDTH": 64, "RESIDUAL": 1, "SCALED": 1}, {"BLOCK": 64}),
    Form("norm of chosen rows", "rms_norm", {**_NORM, "WIDTH": 32, "RESIDUAL": 1, "MAPPED": 1}, {"BLOCK": 32}),
    Form("linear", "linear", {"N": 40, "K": 64}, _LINEAR),
    Form("head", "linear", {"N": 40, "K": 64}, _LINEAR, {"out": "fp32"}),
    Form(
        "linear, persistent",
        "linear_stream",
        {"N": 48, "K": 32},
        {**_LINEAR, "BLOCK_K": 16, "GROUP_M": 2, "PROGRAMS": 3},
    ),
    Form("gate and up, silu", "gate_up", {"N": 24, "K": 32, "ACTIVATION": 0}, _PRODUCT),
    Form("gate and up, gelu", "gate_up", {"N": 24, "K": 32, "ACTIVATION": 1}, _PRODUCT),
    Form(
        "gate and up, persistent",
        "gate_up_stream",
        {"N": 24, "K": 32, "ACTIVATION": 0},
        {**_PRODUCT, "GROUP_M": 2, "PROGRAMS": 2},
    ),
    Form("rotary and store", "rotary_store", _ROTARY, {"BLOCK_H": 4}),
    Form("rotary and store, norms", "rotary_store", {**_ROTARY, "NORM": 2}, {"BLOCK_H": 2}),
    Form(
        "rotary and store, shared", "rotary_store", {**_ROTARY, "NORM": 2, "VALUE_NORM": 1, "SHARED": 1}, {"BLOCK_H": 4}
    ),
    Form("store of keys and values", "kv_store", {"KV_HEADS": 2, "HEAD_DIM": 32}, {}),
    Form("logits", "logits", {"WIDTH": 50, "CAPPED": 0}, {"BLOCK": 32}),
    Form("logits, capped", "logits", {"WIDTH": 50, "CAPPED": 1}, {"BLOCK": 32}),
    Form("digest", "digest", {}, {"BLOCK": 64}),
    Form("digest of parts", "digest_merge", {}, {"BLOCK": 4}),
    Form("weights of a sampler", "weights", {}, {"BLOCK": 2048}),
    Form("weights that are cut", "cut_weights", {}, {"BLOCK": 2048}),
    Form("check of a cut", "check_cuts", {}, {"BLOCKS": 256}),
    Form("draw from all tokens", "draw_from_all", {}, {"BLOCK": 2048, "BLOCKS": 256}),
    Form("merge", "attention_merge", {**_ATTENTION, "WINDOW": 0, "SPLIT": 1024, "BLOCK_R": 16}, {}),
    Form("merge, window", "attention_merge", {**_ATTENTION, "WINDOW": 150, "SPLIT": 1024, "BLOCK_R": 16}, {}),
    Form(
        "attention",
        "attention",
        {**_ATTENTION, "PAGE": 24, "WINDOW": 0, **_TILES},
        {"BLOCK_R": 16, "BLOCK_D": 32},
    ),
    Form(
        "attention, window",
        "attention",
        {**_ATTENTION, "PAGE": 64, "WINDOW": 150, **_TILES},
        {"BLOCK_R": 16, "BLOCK_D": 32},
    ),
    Form(
        "split attention",
        "attention_split",
        {**_ATTENTION, "PAGE": 24, "WINDOW": 0, **_TILES},
        {"BLOCK_R": 16, "BLOCK_D": 32},
    ),
    Form(
        "split attention, window",
        "attention_split",
        {**_ATTENTION, "PAGE": 64, "WINDOW": 150, **_TILES},
        {"BLOCK_R": 16, "BLOCK_D": 32},
    ),
)
"""Small sizes that no tile divides, where the launches have such: where masks matter, fewer mutants change nothing."""
