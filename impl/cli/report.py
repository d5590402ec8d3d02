"""What a verdict says, in lines and tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import click

from vosti.impl.cli.claims import Premise, page
from vosti.refinement.audit import Verdict
from vosti.refinement.witnesses import WITNESSES

FUNCTIONS = {
    "kv": "KV of a position, by its tokens",
    "logits": "logits, by history",
    "tokens": "sampled token, by logits and sampler state",
    "records": "output record, by history and sampler state",
}
"""What was observed, and what it is a function of."""


def show(verdict: Verdict, exercised: Mapping[str, int], claimed: Sequence[Premise] = ()) -> None:
    """Print what was checked, and what was found.

    Args:
        verdict: of an audit.
        exercised: the witness counts to show.
        claimed: what the theorem rests on (`vosti.impl.cli.claims`), if that is to be shown, too, and not only what the
            verdict assumes.
    """
    click.echo()
    counts = [(name, str(exercised[name] or "not exercised"), what) for name, what in WITNESSES.items()]
    _table([("exercised", "", ""), *counts])
    click.echo()
    keys = [(what, str(verdict.keys[name].twice), str(verdict.keys[name].once)) for name, what in FUNCTIONS.items()]
    _table([("observed", "at least twice", "once"), *keys])
    click.echo()
    if verdict.refines:
        lines = page(verdict.assumed, claimed) if claimed else ("assumed", *(f"- {line}" for line in verdict.assumed))
        click.echo("\n".join(lines) + "\n")
    for violation in verdict.violations:
        click.echo(f"Not a run of the specification:\n{violation}\n")
    for summary in verdict.traces:
        if summary.cut_off:
            click.echo(f"incomplete: {summary.cut_off}\n")


def claim(verdict: Verdict) -> str:
    """The verdict in a sentence."""
    size = f"{verdict.steps} steps, {verdict.rows} rows, {verdict.records} records"
    if not verdict.refines:
        return f"Violated: of {size} checked, not all follow the specification."
    twice = sum(keys.twice for keys in verdict.keys.values())
    return (
        f"Refines: {size}; every step is a step of the specification, views agree (Definition 2.1), and {twice} keys "
        "observed at least twice had one value each."
    )


def _table(rows: Iterable[tuple[str, str, str]]) -> None:
    """Print rows of a name, a number and a text or another number, the first row a heading."""
    lines = list(rows)
    first, second = (max(len(line[column]) for line in lines) for column in (0, 1))
    for name, number, rest in lines:
        click.echo(f"{name:<{first}}   {number:>{second}}   {rest}".rstrip())
