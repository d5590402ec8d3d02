"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Any, Literal

import click

Command = Callable[..., Any]

Mode = Literal["digest", "candidates", "full"]


@dataclass(frozen=True)
class ModelOptions:
    """What computes, with which weights."""

    backend: str
    dummy_weights: int | None
    unsafe_unprobed: bool
    certified_only: bool
    unsafe_unverified: bool


@dataclass(frozen=True)
class RunOptions:
    """What is run, and how."""

    workload: str
    seed: int
    mode: Mode

    engine: Mapping[str, Any]
    """Options of the engine, by name."""


DEFAULT_WORKLOAD = "default"
DEFAULT_MODEL = "tiny-gemma3"

PRESSURE = {"page_size": 8, "pages": 24, "max_seqs": 8, "token_budget": 32}
"""Engine options under which the default workload is short of everything: pages, rows and sequences."""

ENGINE = (*PRESSURE, "reread", "speculative_tokens", "check_steps")
"""The options of the engine that a run has."""

LARGEST = 2**20
"""No engine on one machine is larger; what is, is a slip of the keyboard."""

FILE = click.Path(path_type=Path)

_MODEL = (
    click.option(
        "--backend",
        default="auto",
        show_default=True,
        help="What computes: cpu, cuda, or auto, which is cuda where there is a GPU.",
    ),
    click.option(
        "--dummy-weights",
        type=click.IntRange(min=0),
        metavar="SEED",
        help="Make up the weights; MODEL may then be the name of a shape, such as llama-3.1-8b, or a config.json.",
    ),
    click.option(
        "--unsafe-unprobed", is_flag=True, help="Use a GPU on which the kernels' arithmetic was never checked."
    ),
    click.option(
        "--certified-only", is_flag=True, help="Refuse a GPU's kernel that has no certificate, instead of proving it."
    ),
    click.option("--unsafe-unverified", is_flag=True, help="Run a GPU's kernels without certificates."),
)

_SIZES = tuple(
    click.option(
        f"--{name.replace('_', '-')}", type=click.IntRange(1, LARGEST), default=default, show_default=True, help=text
    )
    for (name, default), text in zip(
        PRESSURE.items(),
        (
            "Slots per page.",
            "Pages in the pool.",
            "Requests with rows in one forward, at most.",
            "Rows in one forward, at most.",
        ),
        strict=True,
    )
)

_RUN = (
    click.option(
        "--workload",
        default=DEFAULT_WORKLOAD,
        show_default=True,
        metavar="NAME|FILE",
        help="What is served: a built-in workload (default, long, short), or a file (docs/workloads.md).",
    ),
    click.option(
        "--seed",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help="Chooses random prompts, and the sampling seeds that the workload leaves open.",
    ),
    *_SIZES,
    click.option(
        "--mode",
        type=click.Choice(["digest", "candidates", "full"]),
        default="digest",
        show_default=True,
        help="What a trace holds of logits and KV: digests, also what each token was drawn from, or all bits.",
    ),
    click.option("--reread", is_flag=True, help="Read every initialised slot again after each step."),
    click.option(
        "--speculative-tokens",
        type=click.IntRange(0, LARGEST),
        default=0,
        show_default=True,
        help="Tokens of a draft that is looked up in the request itself; 0 for no drafts but the workload's.",
    ),
    click.option(
        "--check-steps", is_flag=True, help="Let the engine check each plan, too, before it computes anything."
    ),
)

_PROOF = (
    click.option(
        "--jobs", type=click.IntRange(1, 1024), metavar="N", help="Processes at a time: one for each processor."
    ),
    click.option(
        "--cache", type=FILE, envvar="VOSTI_CACHE", metavar="DIR", help="Where proofs are kept (VOSTI_CACHE)."
    ),
    click.option("--fresh", is_flag=True, help="Prove everything anew, and keep nothing."),
    click.option("--stats", is_flag=True, help="Print lines of code and times, measured in this run. Implies --fresh."),
)

json_option = click.option("--json", "json_file", type=FILE, metavar="FILE", help="Write the result as JSON, too.")
junit_option = click.option(
    "--junit", "junit_file", type=FILE, metavar="FILE", help="Write the verdicts as JUnit test cases, too."
)
require_option = click.option(
    "--require",
    multiple=True,
    metavar="NAME>=N",
    help="A count that must be reached, such as evictions>=1 (README.md lists the names); may be given several times.",
)


def _with(command: Command, options: Sequence[Callable[[Any], Any]]) -> Command:
    """The command with options, in this order."""
    for option in reversed(options):
        command = option(command)
    return command


def model_options(command: Command) -> Command:
    """Add the options that say what computes, with which weights: the argument `computing`."""

    @wraps(command)
    def gathered(**given: Any) -> Any:
        chosen = {field.name: given.pop(field.name) for field in fields(ModelOptions)}
        return command(computing=ModelOptions(**chosen), **given)

    return _with(gathered, _MODEL)


def run_options(command: Command) -> Command:
    """Add the options that say what is run, and how: the argument `asked`. They come after those of the model."""

    @wraps(command)
    def gathered(**given: Any) -> Any:
        engine = {name: given.pop(name) for name in ENGINE}
        chosen = {name: given.pop(name) for name in ("workload", "seed", "mode")}
        return command(asked=RunOptions(**chosen, engine=engine), **given)

    return model_options(_with(gathered, _RUN))


def proof_options(command: Command) -> Command:
    """Add the options that say how much is proved at a time, and what is kept of it."""
    return _with(command, _PROOF)
