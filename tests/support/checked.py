"""Runs that are checked in memory: the engine's events go straight to the refinement checker, while it runs."""

from __future__ import annotations

from dataclasses import asdict

from company import Recorder
from vosti.impl.backend import Backend
from vosti.impl.options import EngineOptions
from vosti.refinement.checker import Checker
from vosti.refinement.entries import Header, header
from vosti.refinement.observations import Observations
from vosti.spec.events import Event


def header_of(backend: Backend, options: EngineOptions, *, full: bool = False) -> Header:
    """What a trace of such a run would begin with."""
    fields = asdict(options)
    limits = {name: fields.pop(name) for name in ("page_size", "pages", "max_seqs", "token_budget", "reread")}
    mode = "full" if full else "digest"
    return header(backend.fingerprint(), **limits, options=fields, mode=mode, digest=backend.digest_algorithm)


class CheckingTracer(Recorder):
    """A tracer that keeps every event, and has it checked at once.

    Raises `vosti.refinement.violation.Refuted` out of the engine's step, at the first event that is not explained.
    """

    def __init__(
        self,
        backend: Backend,
        options: EngineOptions,
        *,
        every: int = 8,
        observations: Observations | None = None,
        name: str = "this run",
    ) -> None:
        """A run from its beginning; `observations` are shared with other runs of the same configuration."""
        super().__init__()
        self.checker = Checker(header_of(backend, options), every=every, observations=observations, trace=name)

    def record(self, event: Event) -> None:
        """Keep it and check it."""
        super().record(event)
        self.checker.feed(event)
