"""The kernels by name, and what each compiles to for an entry of a table."""

from __future__ import annotations

import copyreg
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from triton.backends.compiler import GPUTarget

from vosti.kernels.attention import ATTENTION
from vosti.kernels.attention_split import ATTENTION_MERGE, ATTENTION_SPLIT
from vosti.kernels.attention_tiles import ROW_PROGRAM
from vosti.kernels.digest import DIGEST, DIGEST_MERGE
from vosti.kernels.embedding import EMBEDDING
from vosti.kernels.finite import LOGITS
from vosti.kernels.gate_up import GATE_UP, GATE_UP_STREAM
from vosti.kernels.kv_store import KV_STORE
from vosti.kernels.launch import Kernel
from vosti.kernels.linear import LINEAR, LINEAR_STREAM
from vosti.kernels.rms_norm import RMS_NORM
from vosti.kernels.rotary_store import ROTARY_STORE
from vosti.kernels.sample import CHECK_TILE, DRAW_FROM_ALL, DRAW_TILE, WEIGHTS_TILE
from vosti.kernels.sample_cuts import CHECK_CUTS, CUT_WEIGHTS
from vosti.kernels.sample_weights import WEIGHTS
from vosti.kernels.tables import Entry
from vosti.kernels.tile import Tile

KERNELS: Mapping[str, Kernel] = {
    kernel.contract.kernel: kernel
    for kernel in (
        ATTENTION,
        ATTENTION_MERGE,
        ATTENTION_SPLIT,
        DIGEST,
        DIGEST_MERGE,
        EMBEDDING,
        GATE_UP,
        GATE_UP_STREAM,
        KV_STORE,
        LINEAR,
        LINEAR_STREAM,
        LOGITS,
        RMS_NORM,
        ROTARY_STORE,
    )
}

SAMPLER: Mapping[str, Kernel] = {
    kernel.contract.kernel: kernel for kernel in (WEIGHTS, CUT_WEIGHTS, CHECK_CUTS, DRAW_FROM_ALL)
}
"""The exact sampler's kernels, which no table has: `vosti.kernels.sample` fixes their tiles."""


def _named(name: str) -> Kernel:
    return {**KERNELS, **SAMPLER}[name]


def _by_name(kernel: Kernel) -> tuple[Any, ...]:
    name = kernel.contract.kernel
    if {**KERNELS, **SAMPLER}.get(name) is not kernel:
        raise pickle.PicklingError(f"{name} is no kernel of the catalogue, so another process cannot find it.")
    return _named, (name,)


copyreg.pickle(Kernel, _by_name)

TARGETS: Mapping[str, GPUTarget] = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
}
"""Architectures that tables can name. Only sm_90 was run."""

PAGE_SIZES = (64, 16)
"""Page sizes that instances are listed for: one that holds a tile of keys, and one that a tile spans."""


@dataclass(frozen=True)
class Instance:
    """One compiled form of a kernel."""

    kernel: Kernel
    constants: Mapping[str, int]
    tile: Tile
    elements: Mapping[str, str] = field(default_factory=dict)

    def kept(self, target: GPUTarget) -> Any:
        """Compiled in full, if the compiler's cache has it; else None."""
        return self.kernel.kept(self.constants, self.tile, target, self.elements)

    def ttir(self, target: GPUTarget) -> str:
        """Its typed IR."""
        return self.kernel.ttir(self.constants, self.tile, target, self.elements)

    def compiled(self, target: GPUTarget) -> Any:
        """Compiled in full."""
        return self.kernel.compiled(self.constants, self.tile, target, self.elements)


FIXED: tuple[Instance, ...] = (
    Instance(WEIGHTS, {}, WEIGHTS_TILE),
    Instance(CUT_WEIGHTS, {}, WEIGHTS_TILE),
    Instance(CHECK_CUTS, {}, CHECK_TILE),
    Instance(DRAW_FROM_ALL, {}, DRAW_TILE),
)
"""The forms of kernels that no table has: every model launches them."""


def _constants(entry: Entry, kernel: str) -> Iterator[dict[str, int]]:
    sizes = dict(entry.dimensions)
    if entry.operation in ("linear", "head", "gate_up"):
        fixed = {"N": sizes["n"], "K": sizes["k"]}
        yield fixed | ({"ACTIVATION": sizes["activation"]} if entry.operation == "gate_up" else {})
    elif entry.operation == "embedding":
        yield {"WIDTH": sizes["width"], "SCALED": sizes["scaled"]}
    elif entry.operation == "rms_norm":
        fixed = {"WIDTH": sizes["width"], "UNIT_OFFSET": sizes["unit_offset"]}
        yield fixed | {"RESIDUAL": 0, "SCALED": 0, "MAPPED": 0}
        # Only plain norms stand behind a scale.
        for scaled in range(2 - sizes["unit_offset"]):
            yield fixed | {"RESIDUAL": 1, "SCALED": scaled, "MAPPED": 0}
            yield fixed | {"RESIDUAL": 1, "SCALED": scaled, "MAPPED": 1}
    elif entry.operation == "logits":
        yield {"WIDTH": sizes["width"], "CAPPED": sizes["capped"]}
    elif entry.operation in ("digest", "digest_merge"):
        yield {}
    elif entry.operation == "kv_store":
        yield {"KV_HEADS": sizes["kv_heads"], "HEAD_DIM": sizes["head_dim"]}
    else:
        fixed = {"HEADS": sizes["heads"], "KV_HEADS": sizes["kv_heads"], "HEAD_DIM": sizes["head_dim"]}
        if entry.operation == "rotary_store":
            options = {"NORM": sizes["norm"], "VALUE_NORM": sizes["value_norm"], "SHARED": sizes["shared"]}
            yield fixed | options
            return
        fixed |= {"WINDOW": sizes["window"], "SPLIT": ROW_PROGRAM["SPLIT"]}
        if kernel == "attention_merge":
            group = sizes["heads"] // sizes["kv_heads"]
            for block_r in (16, 32):
                if block_r >= group:
                    yield fixed | {"BLOCK_R": block_r}
        else:
            for page in PAGE_SIZES:
                yield fixed | {"TILE": ROW_PROGRAM["TILE"], "PAGE": page}


def instances(entry: Entry) -> Iterator[Instance]:
    """Each form that the engine may launch for an entry: its tiles, with the options that a model may ask for."""
    elements = {"out": "fp32"} if entry.operation == "head" else {}
    for choice in entry.choices:
        for constants in _constants(entry, choice.kernel):
            yield Instance(KERNELS[choice.kernel], constants, choice.tile, elements)
