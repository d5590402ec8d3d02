"""The configuration W of Definition 2.1, as far as the CPU backend fixes it: what may change a value.

Page size, pool size, batch sizes and limits are left out: across them values must agree.
"""

from __future__ import annotations

import ast
import hashlib
import platform
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import torch

import vosti.spec.numerics
from vosti.impl.backend import ROW_TILE
from vosti.impl.backends.programs import TensorOps
from vosti.impl.backends.torch_ops import fixed_arithmetic
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
    """SHA-256 of the row programs' and the torch instance's syntax trees, docstrings left out."""
    package = Path(__file__).parent
    names = sorted(module.name for module in iter_modules(vosti.spec.numerics.__path__))
    files = [import_module(f"vosti.spec.numerics.{name}").__file__ for name in names if name != "floats"]
    files += [str(package / f"{name}.py") for name in INSTANCE]
    digest = hashlib.sha256()
    for file in files:
        tree = ast.parse(Path(str(file)).read_text(encoding="utf-8"))
        digest.update(ast.dump(_without_docstrings(tree)).encode())
    return digest.hexdigest()


def _without_docstrings(tree: ast.Module) -> ast.Module:
    """The tree less every statement that is only a string; comments never were in it."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            body[:] = [statement for statement in body if not _is_text(statement)]
    return tree


def _is_text(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


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
