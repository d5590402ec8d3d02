"""Exploring small worlds: what is done, and how it is shown."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING

import click

from vosti.impl.cli.junit import Case, suite
from vosti.impl.cli.outcome import Outcome, counted
from vosti.impl.cli.progress import progress

if TYPE_CHECKING:
    from vosti.impl.cli.prove import Asked
    from vosti.proofs.explore import Exploration
    from vosti.proofs.explore_bounds import Bounds
    from vosti.proofs.explore_engine import EngineBounds
    from vosti.proofs.explore_progress import EngineExploration


def explored(asked: Asked) -> Outcome:
    """Explore small worlds, and say what was found."""
    from vosti.proofs.explore_bounds import DEFAULT
    from vosti.proofs.explore_progress import ENGINES
    from vosti.proofs.explore_report import explore_all
    from vosti.proofs.explore_trace import write_trace

    began, done = time.perf_counter(), 0
    with progress("exploring") as advance:

        def take(_: object) -> None:
            nonlocal done
            done += 1
            advance(done, len(DEFAULT) + len(ENGINES))

        report = explore_all(jobs=asked.jobs, done=take)
    seconds = time.perf_counter() - began
    for bounds in (*DEFAULT, *ENGINES):
        click.echo(f"{bounds.name}: {', '.join(_extent(bounds))}")
    click.echo(f"\n{report}")
    good = report.exhausted and not report.counterexamples
    every: list[Exploration | EngineExploration] = [*report.explorations, *report.engines]
    explorations = [
        {
            "name": one.bounds.name,
            "bounds": ", ".join(_extent(one.bounds)),
            "states": one.states,
            "transitions": one.transitions,
            "depth": one.depth,
            "taken": dict(one.taken),
            "exhausted": one.exhausted,
            "counterexample": None if one.counterexample is None else str(one.counterexample),
            "seconds": round(one.seconds, 3),
        }
        for one in every
    ]
    if asked.export is not None:
        asked.export.mkdir(parents=True, exist_ok=True)
        for one in every:
            if one.counterexample is not None:
                path = asked.export / f"{one.bounds.name.replace(' ', '-')}.trace"
                write_trace(path, one.counterexample.run)
                click.echo(f"The counterexample of {one.bounds.name} is written to {path}.")
    click.echo()
    click.echo(
        f"Explored: {report.states:,} distinct states, nothing left out, nothing wrong; {seconds:.1f} s."
        if good
        else f"Found: {counted(len(report.counterexamples), 'counterexample')}."
        if report.counterexamples
        else "Not explored: something within the bounds was left out."
    )
    cases = [Case("explore", one.bounds.name, _wrong(one), one.seconds) for one in every]
    cases.append(
        Case("explore", "views of all of them (Definition 2.1)", None if report.views is None else str(report.views))
    )
    return Outcome(good, {"explorations": explorations}, (suite("vosti prove explore", cases),))


def _extent(bounds: Bounds | EngineBounds) -> Iterator[str]:
    """How far an exploration goes, field by field; what there is none of is left out."""
    for field in fields(bounds):
        value = getattr(bounds, field.name)
        name = field.name.replace("_", " ")
        if isinstance(value, int) or name in ("samplers", "domains"):
            yield f"{name} {value if isinstance(value, int) else len(value)}"
        elif field.name != "name" and value:
            yield f"{name} {'; '.join(map(_brief, value))}"


def _brief(value: object) -> str:
    """One of the things that may come: a sequence of tokens, or a job."""
    if isinstance(value, tuple):
        return f"⟨{' '.join(map(str, value))}⟩"
    if is_dataclass(value):
        return " ".join(f"{field.name} {_brief(getattr(value, field.name))}" for field in fields(value))
    return str(value)


def _wrong(exploration: Exploration | EngineExploration) -> str | None:
    if exploration.counterexample is not None:
        return str(exploration.counterexample)
    return None if exploration.exhausted else "not exhausted"
