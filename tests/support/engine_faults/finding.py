"""What is found of a fault: a run in company is recorded, each request is replayed alone, and all of it is audited.

It is what `vosti check` does, with the very functions that it uses, on an engine that may be faulty throughout.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from checked import header_of
from engine_faults.scenarios import KnockingEngine, Scenario
from vosti.impl.backend import Backend
from vosti.impl.checking import Run, alone_options, run_alone, serve
from vosti.impl.drafting import Script, ScriptedDrafter
from vosti.refinement.audit import Verdict, audit
from vosti.refinement.writer import TraceWriter
from vosti.spec.state import RequestId, Token

COMPANY = "company"
"""How the trace of the run in company is called."""


@dataclass(frozen=True)
class Finding:
    """What came of a run."""

    verdict: Verdict

    stopped: str | None
    """What the engine raised in company, if it did."""

    @property
    def phase(self) -> str | None:
        """Of the first violation."""
        return self.verdict.violations[0].phase if self.verdict.violations else None

    @property
    def check(self) -> str | None:
        """Of the first violation."""
        return self.verdict.violations[0].check if self.verdict.violations else None

    @property
    def step(self) -> int | None:
        """Of the first violation."""
        return self.verdict.violations[0].step if self.verdict.violations else None

    @property
    def trace(self) -> str | None:
        """Of the first violation: "company", or the run of a request alone."""
        if not self.verdict.violations:
            return None
        name = Path(self.verdict.violations[0].trace).stem
        return name if name == COMPANY else f"{name} alone"


def expected_tokens(scenario: Scenario) -> dict[str, tuple[int, ...]]:
    """What each request with drafts emits without them. The engine should be whole."""
    backend = scenario.backend()
    drafted = [job for job in scenario.jobs if job.draft is not None]
    return {job.id: run_alone(backend, job, alone_options(job, 0)).outputs[job.id].token_ids for job in drafted}


def find(scenario: Scenario, expected: Mapping[str, tuple[int, ...]], folder: Path) -> Finding:
    """Record, replay and audit.

    Args:
        scenario: what is served.
        expected: see `expected_tokens`.
        folder: takes the traces; it is empty.

    Raises:
        IncompleteTrace: if the engine raised something, and nothing that it did before is wrong.
    """
    backend = scenario.backend()
    together = folder / f"{COMPANY}.trace"
    run, stopped = _together(scenario, backend, expected, together)
    paths = [together]
    for number, job in enumerate(scenario.jobs):
        output = None if run is None else run.outputs.get(job.id)
        if output is not None and (output.token_ids or output.finish_reason == "error"):
            options = alone_options(job, number)
            cut = len(output.token_ids) if output.finish_reason == "cancelled" else None
            paths.append(folder / f"{job.id}.trace")
            with TraceWriter(paths[-1], header_of(backend, options)) as tracer:
                run_alone(backend, job, options, tokens=cut, tracer=tracer)
    return Finding(audit(paths), stopped)


def _together(
    scenario: Scenario, backend: Backend, expected: Mapping[str, tuple[int, ...]], path: Path
) -> tuple[Run | None, str | None]:
    scripts = {
        RequestId(job.id): Script(tuple(map(Token, expected[job.id])), job.draft.length, job.draft.right)
        for job in scenario.jobs
        if job.draft is not None
    }
    tracer = TraceWriter(path, header_of(backend, scenario.options, full=scenario.full))
    engine = KnockingEngine(
        backend,
        scenario.options,
        drafter=ScriptedDrafter(scripts, backend.vocab_size),
        tracer=tracer,
        full=scenario.full,
        key_space=scenario.key_space,
    )
    engine.knocks = scenario.knocks
    try:
        with tracer:
            return serve(engine, scenario.jobs), None
    except Exception as error:  # a faulty engine may raise anything: what it recorded before is what counts
        return None, f"{type(error).__name__}: {error}"
