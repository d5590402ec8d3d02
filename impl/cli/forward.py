"""`vosti prove forward`: along a model's launch plan, logits are Forward of the history, and slots hold f_KV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vosti.impl.cli.ending import REFINES, VIOLATION, CannotRun
from vosti.impl.cli.files import check_writable, write_json
from vosti.impl.cli.parameters import json_option, junit_option, proof_options
from vosti.impl.cli.prove import SOLVERS, Asked, default_cache
from vosti.impl.cli.statistics import processors

if TYPE_CHECKING:
    from vosti.impl.cli.outcome import Outcome
    from vosti.proofs.forward import Part


@click.command("forward")
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@click.option("--solver", type=click.Choice([*SOLVERS, "both"]), default="both", help="Who is asked; both by default.")
@proof_options
@click.option("-v", "--verbose", is_flag=True, help="A line for each launch, premise and obligation.")
@json_option
@junit_option
def forward_command(
    models: tuple[str, ...],
    solver: str,
    jobs: int | None,
    cache: Path | None,
    fresh: bool,
    stats: bool,
    verbose: bool,
    json_file: Path | None,
    junit_file: Path | None,
) -> int:
    """Prove that a model's forward computes Forward and f_KV, whatever the batch, if each kernel keeps its contract.

    MODEL is a bundled checkpoint, the name of a shape such as llama-3.1-8b, a checkpoint's folder, or a config.json; no
    weights are read. Without one, it is each of the bundled checkpoints and shapes.

    By induction over layers: a model's launch plan is followed as the CPU backend runs it, and the device's plan by the
    contracts of its kernels, in both forms of attention: before all layers, along a layer of each kind, and from the
    last layer on. Every other layer is compared with its kind. Of every batch, solvers prove that rows, positions and
    slots are those that the contracts speak of.
    """
    check_writable(json_file)
    check_writable(junit_file)
    asked = Asked(
        parts=("forward",),
        action=None,
        conjunct=None,
        solvers=SOLVERS if solver == "both" else (solver,),
        jobs=jobs or processors(),
        cache=None if fresh or stats else cache or default_cache(),
        export=None,
        verbose=verbose,
    )

    from vosti.impl.cli.junit import write_junit
    from vosti.impl.cli.proving import proved

    outcomes = [_followed(models, verbose), proved(asked, stats=stats)]
    write_json(json_file, {name: value for outcome in outcomes for name, value in outcome.json.items()})
    write_junit(junit_file, [suite for outcome in outcomes for suite in outcome.suites])
    return REFINES if all(outcome.good for outcome in outcomes) else VIOLATION


def _followed(models: Sequence[str], verbose: bool) -> Outcome:
    """Follow the plans of some models, and say what came of it. Raises `CannotRun` without Triton."""
    from vosti.impl.bundled import BUNDLED, find_checkpoint, shape_names
    from vosti.impl.cli.junit import Case, suite
    from vosti.impl.cli.outcome import Outcome, counted, table
    from vosti.impl.cli.progress import progress
    from vosti.impl.models.families import STYLES, load_config
    from vosti.impl.models.layers import build_plan

    try:
        from vosti.proofs.forward import device_plans, prove_plan
    except ModuleNotFoundError as error:
        if error.name != "triton":
            raise
        raise CannotRun(
            "Contracts stand beside the kernels, and triton is not installed: pip install 'vosti[gpu]'."
        ) from None

    chosen = tuple(dict.fromkeys(models)) or (*BUNDLED, *shape_names())
    configs = {name: load_config(find_checkpoint(name)) for name in chosen}
    found: dict[str, list[Part]] = {}
    launches: dict[str, list[str]] = {}
    with progress("following plans") as advance:
        for name, config in configs.items():
            plan = build_plan(config, STYLES[config.family])
            devices = device_plans(plan)
            found[name] = prove_plan(plan, devices)
            counts = (len(plan.launches), *(len(device.launches) for device in devices.values()))
            launches[name] = list(map(str, counts))
            advance(len(found), len(chosen))
    heads = ["model", "layers", "kinds", *(f"launches, {one}" for one in ("cpu", "extend", "split")), "shown"]
    click.echo(
        table([heads, *([name, *_layers(found[name]), *launches[name], _shown(found[name])] for name in chosen)])
    )
    for name, parts in found.items():
        for part in parts:
            if verbose:
                click.echo("\n".join([f"{name}, {_title(part)}:", *(f"  {line}" for line in part.launches)]))
            if part.problem is not None:
                click.echo(f"not shown: {name}, {_title(part)}: {part.problem}")
    if verbose:
        _show_premises()
    good = all(part.problem is None for parts in found.values() for part in parts)
    click.echo(f"{counted(len(chosen), 'model')}, and what holds of the rows of every batch:" if good else "")
    cases = [Case(f"forward.{name}", _title(part), part.problem) for name, parts in found.items() for part in parts]
    document = {"models": {name: [asdict(part) for part in parts] for name, parts in found.items()}}
    return Outcome(good, document, (suite("vosti prove forward", cases),))


def _title(part: Part) -> str:
    """What a part is about."""
    match part.layers:
        case [-1]:
            return "before all layers"
        case [layer]:
            return f"layer {layer}"
        case [layer, *others]:
            return f"layer {layer} = ℓ, and {len(others)} like it"
        case _:
            return "the plans"


def _layers(parts: Sequence[Part]) -> list[str]:
    """How many layers there are, and how many kinds of layers, the last one aside."""
    layers = [one for part in parts for one in part.layers if one >= 0]
    kinds = sum(part.layers != [-1] and part.layers != [max(layers)] for part in parts) if layers else 0
    return [str(len(layers)), str(kinds)]


def _shown(parts: Sequence[Part]) -> str:
    return "not" if any(part.problem is not None for part in parts) else "yes"


def _show_premises() -> None:
    """What is assumed of launches, and where it is seen to."""
    from vosti.proofs.forward_premises import FOLLOWED, MEMORY, premises

    for premise in premises(FOLLOWED):
        click.echo(f"{premise.kernel} needs {premise.statement}: {premise.place}")
    for statement, place in MEMORY:
        click.echo(f"all need that {statement}: {place}")
