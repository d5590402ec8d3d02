"""Backends of one model as the axes want them: plain, with other tiles, with a token whose values are not finite.

They can be let go, weights and all, while another process needs the memory, and are loaded again when one is opened.
"""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vosti.impl.determinism.errors import ResultsError
from vosti.impl.determinism.protocol import Settings
from vosti.impl.determinism.vosti_engine import PLAIN, Ran, Shows, shows_nothing

if TYPE_CHECKING:
    from vosti.impl.backend import Backend, Batch
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

    variants: Mapping[str, Sequence[str]] = field(default_factory=dict)
    shows: Shows = shows_nothing


class Loaded:
    """The backends of a model that is loaded when one is opened, and stays until it is let go."""

    def __init__(self, load: Callable[[], Backends]) -> None:
        """Load nothing yet."""
        self._load = load
        self._backends: Backends | None = None
        self._configuration: Mapping[str, object] | None = None
        """W, once it was let go: it must be the same from then on."""

    @property
    def backends(self) -> Backends:
        """The backends. Raises what loading raises, and `ResultsError` if it yields another W than before."""
        if self._backends is None:
            found = self._load()
            if self._configuration is not None and self._configuration != found.open(PLAIN).fingerprint():
                raise ResultsError("The model was loaded again and has another W: was a file of it, or of us, changed?")
            self._backends = found
        return self._backends

    def open(self, settings: Settings) -> Backend:
        """The backend for some settings."""
        return self.backends.open(settings)

    def release(self) -> None:
        """Let weights, pools and captured graphs go, and give the GPU what they took of its memory."""
        if self._backends is None:
            return
        import torch

        self._configuration = self._backends.open(PLAIN).fingerprint()
        self._backends = None
        gc.unfreeze()  # what was loaded for a GPU was left out of collections
        gc.collect()
        torch.cuda.empty_cache()


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
    return cuda_backends(plain)


def _cpu(model: Model) -> Backends:
    from vosti.impl.backends.cpu import CpuBackend

    def opened(settings: Settings) -> Backend:
        token = settings.non_finite_token
        return CpuBackend(model if token is None else with_non_finite_token(model, token))

    return Backends(model, opened)


def with_non_finite_token(model: Model, token: int) -> Model:
    """The model with NaN for a token's embedding. A head that shares the table keeps the old one, under its alias."""
    from vosti.impl.models.plan import Operation

    embeddings = (Operation.EMBEDDING, Operation.SCALED_EMBEDDING)
    name = next(launch.parameters[0] for launch in model.plan.launches if launch.operation in embeddings)
    table = model.parameters[name].clone()
    table[token] = float("nan")
    aliases = {alias: model.parameters[shared] for alias, shared in model.plan.tied}
    return replace(model, parameters={**aliases, **model.parameters, name: table})


EAGER = "eager"
"""The variant without captured graphs; the plain backend has them."""

ONE_PASS = "one-pass"
"""The variant in which no keys are split: rows that decode run as those of a prompt do."""


def cuda_backends(plain: CudaBackend, device: str = "cuda") -> Backends:
    """Around a CUDA backend. A backend of another variant, or with a non-finite token, has a pool of its own beside it.

    The device is "cpu" where kernels run in Triton's interpreter.
    """
    from vosti.impl.backends.cuda.backend import CudaBackend

    most = max(len(entry.choices) for entry in plain.table.entries.values())
    tables = {f"tile-{number}": forced(plain.table, number) for number in range(most)}

    def opened(settings: Settings) -> Backend:
        variant, token = settings.variant, settings.non_finite_token
        if not variant and token is None:
            return plain
        gc.collect()  # an earlier one may hang on a cycle, and with it its pool
        model = plain.model if token is None else with_non_finite_token(plain.model, token)
        backend = CudaBackend(
            model, tables.get(variant, plain.table), device, graphs=variant != EAGER, certifier=plain.certifier
        )
        if variant == ONE_PASS:
            backend.most_split_rows = 0
        return backend

    variants = {"tiles": tuple(tables), "splits": (ONE_PASS,), "graphs": (EAGER,)}
    return Backends(plain.model, opened, variants=variants, shows=shown)


def shown(backend: Backend, batch: Batch) -> Ran:
    """How a CUDA backend ran its last batch: by which tiles of its table, and whether from a graph."""
    from vosti.impl.backends.cuda.backend import CudaBackend
    from vosti.impl.backends.cuda.binding import choice_of
    from vosti.impl.backends.cuda.forward import LARGEST_GRAPH
    from vosti.impl.backends.cuda.metadata import pack

    assert isinstance(backend, CudaBackend), "other backends show nothing"
    shape = backend.shape_of(pack(batch, backend.limits))
    launches = {
        (launch.operation, launch.sizes, launch.rows): launch for launch in backend.plans[shape.form].launches
    }.values()
    chosen = sorted(
        {f"{launch.operation} {launch.sizes} {choice_of(launch, shape, backend.table)}" for launch in launches}
    )
    return Ran(
        tiles=hashlib.sha256("\n".join(chosen).encode()).hexdigest()[:8],
        replayed=shape.rows <= LARGEST_GRAPH and backend.forward_of(shape).replayed,
    )


def forced(table: Table, number: int) -> Table:
    """The table in which each entry has one tile, of that number or else its last, for all rows.

    Where the entry ends at some number of rows, the tile ends where it did: it can take no more.
    """
    entries = {}
    for key, entry in table.entries.items():
        chosen, last = entry.choices[min(number, len(entry.choices) - 1)], entry.choices[-1]
        up_to_rows = None if last.up_to_rows is None else chosen.up_to_rows
        entries[key] = replace(entry, choices=(replace(chosen, up_to_rows=up_to_rows),))
    return replace(table, entries=entries)
