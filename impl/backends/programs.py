"""How a launch of a plan calls its row program: from names and tuples to arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from torch import Tensor

from vosti.impl.models.plan import Launch, Operation
from vosti.spec.numerics import activations, norms, projections, rotary
from vosti.spec.numerics.ops import Ops

TensorOps: TypeAlias = Ops[Tensor, Tensor]

Run: TypeAlias = Callable[[TensorOps, Launch, Sequence[Tensor], Sequence[Tensor]], tuple[Tensor, ...]]
"""(ops, launch, inputs, parameters) → results, for one tile of rows."""


def _plain(program: Callable[..., Tensor]) -> Run:
    """A row program of (ops, *inputs, *parameters, *constants) with one result."""

    def run(
        ops: TensorOps, launch: Launch, inputs: Sequence[Tensor], parameters: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        return (program(ops, *inputs, *parameters, *launch.constants),)

    return run


def _table_first(program: Callable[..., Any]) -> Run:
    """A row program of (ops, *parameters, *inputs, *constants)."""

    def run(
        ops: TensorOps, launch: Launch, inputs: Sequence[Tensor], parameters: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        result = program(ops, *parameters, *inputs, *launch.constants)
        return result if isinstance(result, tuple) else (result,)

    return run


def _norm(program: Callable[..., Any]) -> Run:
    """A row program of (ops, *inputs, *parameters, width, epsilon)."""

    def run(
        ops: TensorOps, launch: Launch, inputs: Sequence[Tensor], parameters: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        (epsilon,) = launch.constants
        result = program(ops, *inputs, *parameters, inputs[0].shape[-1], epsilon)
        return result if isinstance(result, tuple) else (result,)

    return run


PROGRAMS: dict[Operation, Run] = {
    Operation.EMBEDDING: _table_first(projections.embedding),
    Operation.SCALED_EMBEDDING: _table_first(projections.scaled_embedding),
    Operation.ANGLES: _table_first(rotary.angles),
    Operation.LINEAR: _plain(projections.linear),
    Operation.RMS_NORM: _norm(norms.rms_norm),
    Operation.RMS_NORM_UNIT_OFFSET: _norm(norms.rms_norm_unit_offset),
    Operation.UNWEIGHTED_RMS_NORM: _norm(norms.unweighted_rms_norm),
    Operation.RESIDUAL_RMS_NORM: _norm(norms.residual_rms_norm),
    Operation.RESIDUAL_RMS_NORM_UNIT_OFFSET: _norm(norms.residual_rms_norm_unit_offset),
    Operation.SCALED_RESIDUAL_RMS_NORM: _norm(norms.scaled_residual_rms_norm),
    Operation.ROTATE: _plain(rotary.rotate),
    Operation.SILU_MUL: _plain(activations.silu_mul),
    Operation.GELU_TANH_MUL: _plain(activations.gelu_tanh_mul),
    Operation.SOFTCAP: _plain(activations.softcap),
}
"""Each operation that maps rows to rows. `STORE` and `ATTENTION` reach into the pool; the backend runs them."""
