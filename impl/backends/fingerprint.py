"""The configuration W of Definition 2.1, as far as the CPU backend fixes it: what may change a value.

Page size, pool size, batch sizes and limits are left out: across them values must agree.
"""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

import torch

from vosti.impl.backend import ROW_TILE
from vosti.impl.backends.programs import TensorOps
from vosti.impl.backends.torch_ops import fixed_arithmetic
from vosti.impl.fingerprint import row_programs, source_digest
from vosti.impl.models.model import Model

INSTANCE = ("cpu", "lanes", "programs", "torch_ops")
"""Modules of this package that values pass through."""


def fingerprint(model: Model, ops: TensorOps) -> dict[str, object]:
    """W as JSON types; the same on two machines exactly if their values are to be the same."""
    return {
        "backend": "cpu",
        "config": model.config_digest,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "dtype": "float32",
        "machine": platform.machine(),
        "plan": hashlib.sha256(repr(model.plan).encode()).hexdigest(),
        "primitives": probe_digest(ops),
        "row_programs": programs_digest(),
        "row_tile": ROW_TILE,
        "threads": 1,
        "torch": str(torch.__version__),
        "torch_build": hashlib.sha256(torch.__config__.show().encode()).hexdigest(),
        "weights": model.weights_identity,
    }


def programs_digest() -> str:
    """`source_digest` of the row programs and of the torch instance."""
    package = Path(__file__).parent
    return source_digest([*row_programs(), *(package / f"{name}.py" for name in INSTANCE)])


def probe_digest(ops: TensorOps) -> str:
    """SHA-256 of what the opaque primitives yield on fixed operands.

    The libraries below torch choose their code by the processor; this is how such a choice becomes visible.
    """
    with fixed_arithmetic():
        # Exactly representable, irregular numbers: no random generator, whose stream is nobody's promise.
        numbers = torch.arange(ROW_TILE * 320, dtype=torch.int64)
        x = ((numbers * 7919 + 104729) % 65521).float().div(32768.0).sub(1.0).view(ROW_TILE, 320)
        keys = x.view(ROW_TILE, 1, 10, 32)
        values = [
            ops.chain(x, x.t().contiguous()),
            ops.exp(x),
            ops.tanh(x),
            ops.lane_sum(x, x[:, :1]),
            ops.scores(keys, keys),
            ops.weighted_sum(ops.scores(keys, keys), keys, keys),
        ]
        return hashlib.sha256(b"".join(value.contiguous().numpy().tobytes() for value in values)).hexdigest()
