"""The claim of the cuda backend: each premise once, and carried by what the configuration W says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed")

from vosti.impl.cli.claims import ASSUMED, LAUNCHED, MEANING, PREMISES, PROBED, PROVED, Premise, as_json, page, premises
from vosti.impl.cli.kernel_claims import seen_to
from vosti.kernels.catalogue import FIXED
from vosti.kernels.contract import Buffer
from vosti.kernels.verifier.rules import RULES
from vosti.proofs.forward_premises import FOLLOWED, MEMORY
from vosti.proofs.forward_premises import premises as of_contracts

W: dict[str, Any] = {
    "backend": "cuda",
    "certificates": "c3rt",
    "probe": "pr0be",
    "probed": True,
}


def one(claimed: Iterable[Premise], begin: str) -> Premise:
    """The only premise whose statement begins like this."""
    (found,) = (premise for premise in claimed if premise.statement.startswith(begin))
    return found


def test_other_backends_claim_what_is_documented() -> None:
    """The claim of the cpu backend is the table of docs/proof.md."""
    assert PREMISES == premises({"backend": "cpu"})


def test_nothing_about_the_cpu_is_claimed_of_a_gpu() -> None:
    """And all else is."""
    claimed = premises(W)

    assert [premise for premise in PREMISES if premise.backend != "cpu"] == [
        premise for premise in claimed if premise in PREMISES
    ]
    assert not any("CPU" in premise.statement for premise in claimed)


def test_every_premise_of_every_contract_is_there() -> None:
    """With the kernel that needs it, and what sees to it; so is what holds of memory and launches."""
    claimed = premises(W)

    for premise in of_contracts(FOLLOWED):
        carried, by = seen_to(premise.place)
        found = [
            other
            for other in claimed
            if premise.kernel in other.statement.partition(": ")[0].replace(",", "").split()
            and premise.statement in other.statement.partition(": ")[2].removesuffix(".").split("; ")
        ]
        assert [(carried, by)] == [(other.carried, other.by) for other in found], premise
        assert by
    assert len(MEMORY) - 1 == sum(premise.statement.startswith("Launches of all: ") for premise in claimed)
    assert all(premise.carried in MEANING for premise in claimed)


def test_the_premises_of_sampling_are_there() -> None:
    """Those that the launcher checks, facts that are no definitions, what is said of each buffer's contents, and that
    the launches are about the same."""
    claimed = premises(W)
    assert ASSUMED == one(claimed, "Tokens are drawn from").carried
    for contract in (instance.kernel.contract for instance in FIXED):
        of = [one for one in claimed if one.statement.startswith(f"Launches of {contract.kernel}: ")]
        checked = one([premise for premise in of if premise.carried == LAUNCHED], "Launches")
        assert all(premise in checked.statement for premise in contract.premises)
        facts = {fact.holds: fact.kept for fact in contract.facts if "by definition" not in fact.kept}
        # A definition says what something is, by an equation.
        assert all(fact.holds in facts or ("==" in fact.holds and "<" not in fact.holds) for fact in contract.facts)
        stated = {premise.statement.partition(": ")[2].removesuffix("."): premise.by for premise in of}
        assert facts.items() <= stated.items()
        for buffer in (*contract.parameters, *contract.context):
            if isinstance(buffer, Buffer) and buffer.within:
                low, high = buffer.within
                assert any(f"{low} <= {buffer.name}[...] < {high}" in premise.statement for premise in of)
        apart = one([premise for premise in claimed if premise.statement.endswith("buffers do not overlap.")], "Launch")
        assert (True, ASSUMED) == (contract.kernel in apart.statement, apart.carried)


@pytest.mark.parametrize(
    ("place", "carried", "by"),
    [
        ("proved: rows_fit", PROVED, "vosti prove forward: rows_fit"),
        ("checked by the launcher: PremiseError", LAUNCHED, "the launcher: PremiseError"),
        ("checked on the host's copy: BatchError", LAUNCHED, "on the host's copy: BatchError"),
        ("flagged on the device", LAUNCHED, "flagged on the device"),
        ("by construction: it takes the most", ASSUMED, "by construction: it takes the most"),
        ("assumed: one stream", ASSUMED, "one stream"),
    ],
)
def test_how_a_place_carries(place: str, carried: str, by: str) -> None:
    """What is not proved or checked is assumed."""
    assert (carried, by) == seen_to(place)


def test_certificates_carry_the_kernels() -> None:
    """With them the kernels are proved, the binaries checked, and those without are named; without them, nothing is."""
    claimed, unverified = premises(W), premises({**W, "certificates": "unverified"})

    assert (PROVED, "vosti prove kernels; certificates c3rt") == (
        one(claimed, "Each kernel that").carried,
        one(claimed, "Each kernel that").by,
    )
    assert LAUNCHED == one(claimed, "The binaries that are launched").carried
    assert ASSUMED == one(unverified, "Each kernel that").carried
    assert "--unsafe-unverified" in one(unverified, "Each kernel that").by
    assert not any(premise.statement.startswith("The binaries that are launched") for premise in unverified)


def test_a_record_carries_the_rules() -> None:
    """They are probed if there is a record that passed, and assumed otherwise; each is named."""
    begin = "The GPU follows the numerical rules"
    probed, listed, neither = (
        one(premises({**W, **changed}), begin) for changed in ({}, {"probe": None}, {"probed": False})
    )

    assert (PROBED, "vosti probe, record pr0be") == (probed.carried, probed.by)
    assert (ASSUMED, ASSUMED) == (listed.carried, neither.carried)
    assert "--unsafe-unprobed" in neither.by
    assert all(rule.name in probed.statement for rule in RULES.values() if rule.probed)


def test_the_page_has_each_premise() -> None:
    """Under how it is carried, and what a verdict assumes at the end; JSON has the same."""
    claimed = premises(W)
    lines = list(page(["something else"], claimed))

    assert [f"{how} ({meaning})" for how, meaning in MEANING.items()] == [
        line for line in lines if line.partition(" (")[0] in MEANING
    ]
    assert len(claimed) + 1 == sum(line.startswith("- ") for line in lines)
    assert "- something else" == lines[-1]
    found = as_json(claimed)["premises"]
    assert [premise.statement for premise in claimed] == [premise["statement"] for premise in found]
