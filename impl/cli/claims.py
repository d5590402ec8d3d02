"""The claim behind a verdict, on a page: the theorem, its premises, and what carries each of them.

This is the one place where it is written down, but for a GPU's kernels (`vosti.impl.cli.kernel_claims`): `vosti check`
prints it, and a test compares `docs/proof.md` with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

THEOREM = (
    "Definition 2.1: of two requests with the same prompt and the same sampler state, served under the same "
    "configuration W, the outputs of one are a beginning of the outputs of the other, logits included, bit for bit."
)

PROVED, CHECKED, LAUNCHED = "proved", "checked per step", "checked per launch"
PROBED, ASSUMED = "probed", "assumed"

MEANING = {
    PROVED: "for all states and executions, of any size; by the command that is named, and not again by this one",
    CHECKED: "on every step of the runs at hand, and of no others",
    LAUNCHED: "on every launch of every run, or the first of a binary; by what is named",
    PROBED: "by computing with chosen values on the machine at hand",
    ASSUMED: "nothing here shows it",
}
"""How a premise can be carried."""


@dataclass(frozen=True)
class Premise:
    """Something that the theorem rests on."""

    statement: str
    carried: str
    """A key of `MEANING`."""

    by: str
    """The command that shows it; of what is assumed, why it may be."""

    theorems: tuple[str, ...] = ()
    """Of what is proved: the modules of `vosti.proofs` that state and prove it."""

    backend: str = ""
    """The only backend that it matters for, if that is so."""


PREMISES = (
    Premise(
        "Inv holds of the initial state and after every action, and every action does what it is there for.",
        PROVED,
        "vosti prove spec",
        ("inductive", "definedness", "two_states", "postconditions"),
    ),
    Premise(
        "The logits of every output are Forward(W, history), whatever is shared, evicted, preempted or guessed "
        "(Theorem 4.1).",
        PROVED,
        "vosti prove spec",
        ("canonical_output", "reuse"),
    ),
    Premise(
        "The rows of a forward may be computed in any order, or all at once.",
        PROVED,
        "vosti prove spec",
        ("forward_order",),
    ),
    Premise(
        "Any two executions of the specification satisfy Definition 2.1, and an error ends their views alike.",
        PROVED,
        "vosti prove spec",
        ("determinism",),
    ),
    Premise(
        "What the proofs use of sequences, quotients and finite sets is true of them.",
        PROVED,
        "vosti prove spec",
        ("axioms",),
    ),
    Premise(
        "What is accepted as the end of a row's cuts (top-k, top-p) is the end of what the specification's sampler "
        "keeps.",
        PROVED,
        "vosti prove spec",
        ("cuts",),
    ),
    Premise(
        "The engine's page pool performs the specification's actions only, and the rows that are packed from a plan "
        "are those of the specification.",
        PROVED,
        "vosti prove refinement",
        ("pool_refinement", "pool_composites", "pool_matches", "pool_rows", "pool_consequences"),
    ),
    Premise(
        "Whatever the batch, the forward of each model that is named here puts f_KV of a row's history into its slots, "
        "and Forward of it into its logits, if each kernel keeps its contract.",
        PROVED,
        "vosti prove forward",
        ("forward_rows",),
    ),
    Premise(
        "What the engine decides are actions whose guards hold, its structures afterwards are what their effects say, "
        "and Inv holds of them.",
        CHECKED,
        "vosti check, vosti audit",
    ),
    Premise(
        "The forward gets what the plan says: of each row the token, the position, the slot and the pages.",
        CHECKED,
        "vosti check, vosti audit",
    ),
    Premise(
        "The kernel contract: KV values and logits are functions of the token prefix, wherever they were observed at "
        "least twice.",
        CHECKED,
        "vosti check, vosti audit",
    ),
    Premise(
        "On the CPU, the primitives whose bits torch and the processor decide give the bits that are part of W.",
        PROBED,
        "vosti check, when it loads a model",
        backend="cpu",
    ),
    Premise(
        "On the CPU, the kernel contract holds of arguments that were not observed, too.",
        ASSUMED,
        "the CPU backend runs the row programs of the specification, in tiles whose shapes W fixes",
        backend="cpu",
    ),
    Premise(
        "An engine whose steps are not recorded takes the steps that it would take if they were.",
        ASSUMED,
        "the same calls are made, and what they are given is dropped",
    ),
    Premise(
        "Python, torch, the processor and the memory do what they are documented to do, the same each time.",
        ASSUMED,
        "everything runs on them",
    ),
    Premise(
        "The compiler from the specification to logic is right, and so is Z3 or cvc5.",
        ASSUMED,
        "tested against Python on states of every kind; two solvers agree",
    ),
)


def premises(configuration: Mapping[str, object]) -> tuple[Premise, ...]:
    """What the theorem rests on under a configuration W: of a GPU's kernels, too, if it is one of the cuda backend."""
    backend = configuration.get("backend")
    found = tuple(premise for premise in PREMISES if premise.backend in ("", backend))
    if backend != "cuda":
        return found
    from vosti.impl.cli.kernel_claims import kernel_premises

    return (*found, *kernel_premises(configuration))


def page(assumed: Iterable[str], claimed: Iterable[Premise] = PREMISES) -> Iterator[str]:
    """The claim, line by line.

    Args:
        assumed: what a verdict rests on beside the premises.
        claimed: the premises.
    """
    claimed = tuple(claimed)
    yield "claim"
    yield THEOREM
    for carried in MEANING:
        lines = [f"- {premise.statement} [{premise.by}]" for premise in claimed if premise.carried == carried]
        lines += [f"- {sentence}" for sentence in assumed] if carried == ASSUMED else []
        if lines:
            yield from ("", f"{carried} ({MEANING[carried]})", *lines)


def as_json(claimed: Iterable[Premise]) -> dict[str, Any]:
    """The claim as JSON types."""
    return {"theorem": THEOREM, "premises": [{**asdict(one), "theorems": list(one.theorems)} for one in claimed]}
