"""`vosti prove`: the theorems about the specification and the page pool, by two solvers; the exploration of small
worlds; the mutants; the kernels.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import click

from vosti.impl.cli.ending import REFINES, VIOLATION, CannotRun
from vosti.impl.cli.files import check_empty, check_writable, write_json
from vosti.impl.cli.parameters import FILE, json_option, junit_option, proof_options
from vosti.impl.cli.statistics import processors

PARTS = ("spec", "refinement", "explore")
KERNELS = "kernels"
SOLVERS = ("z3", "cvc5")
SUBJECT_OF = {"spec": "spec", "refinement": "pool"}
"""Part → whose mutants are tried for it."""


@dataclass(frozen=True)
class Asked:
    """What is to be proved, and how."""

    parts: tuple[str, ...]
    """Of "spec" and "refinement"."""

    action: str | None
    conjunct: str | None
    solvers: tuple[str, ...]
    jobs: int
    cache: Path | None
    export: Path | None
    verbose: bool


@click.command("prove")
@click.argument("parts", nargs=-1, metavar="[spec|refinement|explore]... | kernels [FILE.py]...")
@click.option("--action", metavar="NAME", help="Only obligations about this action, such as evict.")
@click.option("--conjunct", metavar="NAME", help="Only obligations about this conjunct or statement.")
@click.option("--kernel", metavar="NAME", help="With kernels: only this one.")
@click.option("--config", metavar="MODEL|SIZES", help="With kernels: a model's entries, or those with N=4096, …")
@click.option("--every-page-size", is_flag=True, help="With kernels: attention at pages of 1 to 256 slots.")
@click.option("--solver", type=click.Choice([*SOLVERS, "both"]), help="Who is asked: both, and z3 for mutants.")
@click.option("--mutants", is_flag=True, help="Try the mutants of what is proved, instead of proving it.")
@click.option("--export", type=FILE, metavar="DIR", help="A new folder, for what was asked for as files.")
@proof_options
@click.option("-v", "--verbose", is_flag=True, help="A line for each obligation and mutant.")
@json_option
@junit_option
def prove_command(
    parts: tuple[str, ...],
    action: str | None,
    conjunct: str | None,
    kernel: str | None,
    config: str | None,
    every_page_size: bool,
    solver: str | None,
    mutants: bool,
    export: Path | None,
    jobs: int | None,
    cache: Path | None,
    fresh: bool,
    stats: bool,
    verbose: bool,
    json_file: Path | None,
    junit_file: Path | None,
) -> int:
    """Prove that the specification has its property, and that the page pool follows it: for all states, of any size.

    spec: Inv is inductive, Theorem 4.1, Definition 2.1, what they rest on and what follows. refinement: each transition
    of the engine's page pool is its action of the specification. Both are the default. explore: run the specification,
    and the engine's planner, through every state of small worlds.

    A proof that was found is kept, by the hash of all that it depends on, and not searched for again. With --export DIR
    the obligations are written there as SMT-LIB 2, and the counterexamples of an exploration as traces.

    kernels: each kernel at each entry of the table for sm_90 computes its canonical row program, shown on the typed IR
    that the compiler consumes; or each kernel of the files named, a list INSTANCES of them. With --solver cvc5 or both,
    cvc5 repeats every query that Z3's proofs consist of.
    """
    if KERNELS in parts:
        if mutants or action or conjunct or export:
            raise CannotRun("Kernels are proved by themselves: --kernel and --config choose among them.")
        return _kernels(parts, kernel, config, every_page_size, solver, jobs, stats, verbose, json_file, junit_file)
    unknown = [part for part in parts if part not in PARTS]
    if unknown or kernel or config or every_page_size:
        known = ", ".join(map(repr, (*PARTS, KERNELS)))
        wrong = f"{unknown[0]!r} is not one of {known}." if unknown else f"Such an option goes with {KERNELS}."
        raise CannotRun(wrong)
    proving = tuple(dict.fromkeys(part for part in parts or ("spec", "refinement") if part != "explore"))
    if "explore" in parts and (mutants or action or conjunct):
        raise CannotRun("An exploration has no obligations and no mutants: ask for it alone, or beside whole proofs.")
    if mutants and (solver == "both" or export or stats):
        raise CannotRun(
            "Mutants are tried with one solver, and neither exported nor counted: ask for that without them."
        )
    check_writable(json_file)
    check_writable(junit_file)
    check_empty(export)
    asked = Asked(
        parts=proving,
        action=action,
        conjunct=conjunct,
        solvers=(solver,) if solver in SOLVERS else SOLVERS[:1] if mutants else SOLVERS,
        jobs=jobs or processors(),
        cache=None if fresh or stats else cache or default_cache(),
        export=export,
        verbose=verbose,
    )

    from vosti.impl.cli.exploring import explored
    from vosti.impl.cli.junit import write_junit
    from vosti.impl.cli.outcome import Outcome
    from vosti.impl.cli.proving import mutated, proved

    outcomes: list[Outcome] = []
    if mutants:
        outcomes.append(mutated(asked, [SUBJECT_OF[part] for part in proving]))
    elif proving:
        outcomes.append(proved(asked, stats=stats))
    if "explore" in parts:
        outcomes.append(explored(asked))
    write_json(json_file, {name: value for outcome in outcomes for name, value in outcome.json.items()})
    write_junit(junit_file, [suite for outcome in outcomes for suite in outcome.suites])
    return REFINES if all(outcome.good for outcome in outcomes) else VIOLATION


def default_cache() -> Path:
    """Where programs keep what can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vosti" / "proofs"


def _kernels(
    parts: tuple[str, ...],
    kernel: str | None,
    config: str | None,
    every_page: bool,
    solver: str | None,
    jobs: int | None,
    stats: bool,
    verbose: bool,
    json_file: Path | None,
    junit_file: Path | None,
) -> int:
    others = [part for part in parts if part != KERNELS]
    if not all(part.endswith(".py") for part in others):
        raise CannotRun(f"With {KERNELS} go files of kernels, and no other parts: not {' '.join(others)}.")
    check_writable(json_file)
    check_writable(junit_file)

    from vosti.impl.cli.junit import write_junit
    from vosti.impl.cli.proving_kernels import AskedKernels, proved_kernels

    files = tuple(Path(part) for part in others)
    again = solver in ("cvc5", "both")
    asked = AskedKernels(kernel, config, files, every_page, again, jobs or processors())
    outcome = proved_kernels(asked, verbose=verbose, stats=stats)
    write_json(json_file, outcome.json)
    write_junit(junit_file, outcome.suites)
    return REFINES if outcome.good else VIOLATION
