"""One mutant: what recording, replaying and auditing find of an engine that has it inside.

It is tried in a process of its own, on a copy of the package: the checkout is never touched. What is run is `vosti
check`'s machinery (`vosti.impl.checking`, `vosti.refinement.audit`) on fixed scenarios and a backend without a model.
Processor time and memory are limited, so that a mutant that runs for ever ends, whatever the machine's load.
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

SECONDS = 20
"""Processor seconds for one mutant, several times what a whole engine takes."""

BYTES = 4 * 2**30
"""Memory for one mutant beyond what the process has at its start."""

SURVIVED = "survived"

WALKS = 80
"""How many walks the pool makes beside its model."""

DOOR = "door"
"""The scenario in which nothing is recorded: it is what callers are answered."""


@dataclass(frozen=True)
class Verdict:
    """What came of one mutant."""

    killed_by: str
    """The check that failed first, what the engine raised, or `SURVIVED`."""

    scenario: str
    detail: str

    @property
    def killed(self) -> bool:
        """Whether anything was found."""
        return self.killed_by != SURVIVED


@dataclass(frozen=True)
class Reference:
    """What a whole engine does in a scenario."""

    drafts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """What requests with drafts emit without."""

    outputs: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    """What was returned of each request, in company."""

    steps: int = 0
    exercised: tuple[str, ...] = ()
    """What happened at all: hits, evictions, preemptions."""

    answers: tuple[str, ...] = ()
    """At the door: what callers are answered."""


def package_copy(folder: Path) -> Path:
    """A copy of the engine's package, checkpoints left out. What was compiled stays valid: times are copied, too."""
    import vosti.impl

    source = Path(vosti.impl.__file__).parent
    return Path(shutil.copytree(source, folder / "impl", ignore=shutil.ignore_patterns("checkpoints")))


def limit() -> None:
    """Limit this process's processor time and memory."""
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    seconds = int(used) + SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def tried(module: str, source: str | None, references: Mapping[str, Reference], scenarios: Sequence[str]) -> Verdict:
    """Try one mutant in this process, which must not have imported the engine's modules yet.

    Args:
        module: below `vosti.impl`.
        source: its text; None for the engine as it is.
        references: what a whole engine does, by scenario.
        scenarios: what is served, in order; the first in which something is found ends the trial.
    """
    import vosti.impl

    loaded = [name for name in sys.modules if name.startswith("vosti.impl.")]
    assert not loaded, f"the engine is here already: {loaded}"
    with TemporaryDirectory(prefix="vosti-mutant-") as name:
        copy = package_copy(Path(name))
        if source is not None:
            (copy / f"{module}.py").write_text(source, encoding="utf-8")
        vosti.impl.__path__ = [str(copy)]
        sys.dont_write_bytecode = True
        limit()
        try:
            return _found(module, references, scenarios, Path(name))
        except Exception as error:  # at import, say
            return Verdict(f"raises {type(error).__name__}", "", str(error))


def _found(module: str, references: Mapping[str, Reference], scenarios: Sequence[str], folder: Path) -> Verdict:
    for scenario in (name for name in scenarios if name != DOOR):
        found = served(scenario, references[scenario], folder / scenario.replace(" ", "-"))
        if found is not None:
            return found
    answers = reference_of(DOOR).answers
    if answers != references[DOOR].answers:
        expected, actual = next(
            pair for pair in zip(references[DOOR].answers, answers, strict=True) if len({*pair}) > 1
        )
        return Verdict("answers at the door", DOOR, f"expected {expected}, actual {actual}")
    if module == "pool":
        disagreement = beside_its_model()
        if disagreement is not None:
            return Verdict("pool and model agree", "lockstep", disagreement)
    return Verdict(SURVIVED, "", "")


def served(name: str, reference: Reference, folder: Path) -> Verdict | None:
    """Record, replay and audit one scenario. What is wrong first, if anything is."""
    from automatic_mutants.scenarios import SCENARIOS
    from vosti.impl.checking import difference
    from vosti.refinement.errors import RefinementError

    folder.mkdir()
    scenario = SCENARIOS[name]()
    try:
        observed, run, verdict, alone = _recorded(scenario, reference.drafts, folder)
    except _Stopped as stopped:
        return _audited(name, stopped, folder)
    except RefinementError as error:
        return Verdict(f"refused: {type(error).__name__}", name, str(error))
    if not verdict.refines:
        return Verdict(verdict.violations[0].check, name, str(verdict.violations[0]))
    for r, output in alone.items():
        different = difference(run.outputs[r], output)
        if different is not None:
            return Verdict("prefix_comparable", name, str(different))
    for what in ("outputs", "exercised", "steps"):
        expected, actual = getattr(reference, what), getattr(observed, what)
        if expected != actual:
            return Verdict(f"{what} of the whole engine", name, f"expected {expected}, actual {actual}"[:2000])
    return None


class _Stopped(Exception):
    """The engine raised something. The trace so far may say why."""


def _audited(name: str, stopped: _Stopped, folder: Path) -> Verdict:
    from vosti.refinement.audit import audit
    from vosti.refinement.errors import RefinementError

    raised = f"raises {type(stopped.__cause__).__name__}"
    try:
        verdict = audit([folder / "together.trace"])
    except RefinementError:
        return Verdict(raised, name, str(stopped))
    if verdict.violations:
        return Verdict(verdict.violations[0].check, name, str(verdict.violations[0]))
    return Verdict(raised, name, str(stopped))


def _recorded(scenario: Any, drafts: Mapping[str, tuple[int, ...]], folder: Path) -> tuple[Reference, Any, Any, Any]:
    from checked import header_of
    from vosti.impl.checking import alone_options, run_alone, run_together
    from vosti.refinement.audit import audit
    from vosti.refinement.writer import TraceWriter

    backend = scenario.backend()
    paths, alone = [folder / "together.trace"], {}
    try:
        with TraceWriter(paths[0], header_of(backend, scenario.options, full=scenario.full)) as tracer:
            run = run_together(backend, scenario.jobs, scenario.options, drafts, tracer=tracer, full=scenario.full)
        for number, job in enumerate(scenario.jobs):
            output = run.outputs[job.id]
            if output.token_ids or output.finish_reason == "error":
                options = alone_options(job, number)
                cut = len(output.token_ids) if output.finish_reason == "cancelled" else None
                paths.append(folder / f"{job.id}.trace")
                with TraceWriter(paths[-1], header_of(backend, options)) as tracer:
                    alone[job.id] = run_alone(backend, job, options, tokens=cut, tracer=tracer).outputs[job.id]
    except Exception as error:
        raise _Stopped(f"{type(error).__name__}: {error}") from error
    verdict = audit(paths)
    observed = Reference(
        drafts=drafts,
        outputs={r: _shown(output) for r, output in run.outputs.items()},
        steps=run.steps,
        exercised=tuple(sorted(w for w, count in verdict.traces[0].witnesses.items() if count)),
    )
    return observed, run, verdict, alone


def _shown(output: Any) -> tuple[object, ...]:
    """What a caller sees of a request, as JSON's types."""
    return tuple(json.loads(json.dumps(asdict(output), default=str)).items())


def beside_its_model() -> str | None:
    """The page pool and its naive model, step by step: where they differ, if they do."""
    from collections import Counter

    from pool_model import Disagreement
    from pool_walk import walk

    for seed in range(WALKS):
        try:
            walk(Random(seed), 100, Counter())
        except Disagreement as disagreement:
            return str(disagreement)
    return None


def reference_of(name: str) -> Reference:
    """What the engine as it is does in a scenario."""
    from automatic_mutants.scenarios import SCENARIOS, at_the_door
    from vosti.impl.checking import alone_options, run_alone

    if name == DOOR:
        return Reference(answers=tuple(at_the_door()))
    scenario = SCENARIOS[name]()
    backend = scenario.backend()
    drafted = [job for job in scenario.jobs if job.draft is not None]
    drafts = {job.id: run_alone(backend, job, alone_options(job, 0)).outputs[job.id].token_ids for job in drafted}
    with TemporaryDirectory(prefix="vosti-mutant-") as folder:
        observed, _, verdict, _ = _recorded(scenario, drafts, Path(folder))
    assert verdict.refines, str(verdict)
    return observed
