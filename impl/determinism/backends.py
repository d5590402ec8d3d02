"""Backends of one model as the axes want them: plain, with other tiles, with a token whose values are not finite."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vosti.impl.determinism.protocol import Settings

if TYPE_CHECKING:
    from vosti.impl.backend import Backend
    from vosti.impl.backends.cuda.backend import CudaBackend
    from vosti.impl.models.model import Model
    from vosti.impl.options import Certification
    from vosti.kernels.tables import Table


@dataclass(frozen=True)
class Backends:
    """What opens the backends of one model."""

    model: Model
    open: Callable[[Settings], Backend]
    """By a setting's variant and its non-finite token."""

    can_poison: bool
    """Whether it heeds the token."""

    variants: Mapping[str, Sequence[str]] = field(default_factory=dict)


def open_backends(
    path: Path, backend: str, *, dummy_weights: int | None, unsafe_unprobed: bool, certification: Certification
) -> Backends:
    """Load a model for a backend, by the name that `vosti.impl.opening` knows; raises what that raises."""
    from vosti.impl.backends.cpu import CpuBackend
    from vosti.impl.backends.cuda.backend import CudaBackend
    from vosti.impl.opening import open_backend

    plain = open_backend(
        path,
        backend,
        dummy_weights=dummy_weights,
        unsafe_unprobed=unsafe_unprobed,
        certification=certification,
    )
    if isinstance(plain, CpuBackend):
        return _cpu(plain.model)
    assert isinstance(plain, CudaBackend), "there are two backends"
    return _cuda(plain)


def _cpu(model: Model) -> Backends:
    from vosti.impl.backends.cpu import CpuBackend

    def opened(settings: Settings) -> Backend:
        token = settings.non_finite_token
        return CpuBackend(model if token is None else with_non_finite_token(model, token))

    return Backends(model, opened, can_poison=True)


def with_non_finite_token(model: Model, token: int) -> Model:
    """The model with NaN for a token's embedding. A head that shares the table keeps its own view of the old one."""
    from vosti.impl.models.plan import Operation

    embeddings = (Operation.EMBEDDING, Operation.SCALED_EMBEDDING)
    name = next(launch.parameters[0] for launch in model.plan.launches if launch.operation in embeddings)
    table = model.parameters[name].clone()
    table[token] = float("nan")
    return replace(model, parameters={**model.parameters, name: table})


EAGER = "eager"
"""The variant without captured graphs; the plain backend has them."""


def _cuda(plain: CudaBackend) -> Backends:
    from vosti.impl.backends.cuda.backend import CudaBackend

    most = max(len(entry.choices) for entry in plain.table.entries.values())
    tables = {f"tile-{number}": forced(plain.table, number) for number in range(most)}

    def opened(settings: Settings) -> Backend:
        variant = settings.variant
        if not variant:
            return plain
        return CudaBackend(plain.model, tables.get(variant, plain.table), graphs=variant != EAGER, certifier=plain.certifier)

    return Backends(plain.model, opened, can_poison=False, variants={"tiles": tuple(tables), "graphs": (EAGER,)})


def forced(table: Table, number: int) -> Table:
    """The table in which each entry has one tile for all rows: its tile of that number, or else its last."""
    entries = {
        key: replace(entry, choices=(replace(entry.choices[-1], kernel=chosen.kernel, tile=chosen.tile),))
        for key, entry in table.entries.items()
        for chosen in (entry.choices[min(number, len(entry.choices) - 1)],)
    }
    return replace(table, entries=entries)
