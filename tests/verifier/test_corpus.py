"""The corpus: tiny kernels in twins one step apart, of which one is proved and the other refused, for its reason."""

from __future__ import annotations

import difflib
import re
from dataclasses import replace

import pytest

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed")

from corpus import FOLDER, load, names
from vosti.kernels.catalogue import TARGETS
from vosti.kernels.launch import Kernel
from vosti.kernels.tile import Tile
from vosti.kernels.verifier.errors import RefusedError
from vosti.kernels.verifier.parse import parse
from vosti.kernels.verifier.prove import prove


@pytest.mark.parametrize("name", names("accepted"))
def test_what_is_right_is_proved(name: str) -> None:
    """Its values, and where they go."""
    obligations = load(FOLDER / "accepted" / f"{name}.py").prove().obligations

    assert {"value", "bounds", "coverage"} <= set(obligations)


@pytest.mark.parametrize("name", names("refused"))
def test_what_is_wrong_is_refused(name: str) -> None:
    """With the finding that the file states, at the line that it marks."""
    case = load(FOLDER / "refused" / f"{name}.py")

    with pytest.raises(RefusedError, match=case.finding) as error:
        case.prove()
    assert case.place is None or f"{case.place}" in str(error.value)


@pytest.mark.parametrize("name", names("refused"))
def test_a_refused_kernel_has_an_accepted_twin(name: str) -> None:
    """A step away: a few lines of the kernel, or the contract, and not both."""
    case, twin = (
        load(FOLDER / "refused" / f"{name}.py"),
        load(FOLDER / "accepted" / f"{load(FOLDER / 'refused' / f'{name}.py').twin}.py"),
    )
    lines = list(difflib.unified_diff(twin.source, case.source, lineterm="", n=0))[2:]
    changed = [line for line in lines if line[0] in "+-"]

    assert case.finding
    assert (changed != []) != (case.contract is not twin.contract)
    assert sum(line.startswith("+") for line in changed) <= 7


def test_every_kind_of_finding_occurs() -> None:
    """The refused ones fall to each obligation of a proof, and to the parser."""
    findings = {load(FOLDER / "refused" / f"{name}.py").finding for name in names("refused")}
    kinds = (
        "is not understood",
        "An integer leaves its type",
        "is out of bounds",
        "goes to no cell",
        "is written by another than the contract says",
        "misses its cell",
        "Two stores write one cell",
        "has two names",
        "is not written",
        "is read and written",
        "may be read after it is written",
        "A program reads what another one writes",
        "A lane reads what another one writes",
        "is read by a lane that does not write it",
        "The premises contradict one another",
        "reads another element",
        "reads another buffer",
        "Two constants differ",
        "A chain of another length",
        "not products like the row program's chain",
        "computes something else than the row program",
    )

    assert [] == [kind for kind in kinds if not any(kind in finding for finding in findings)]


def test_the_index_names_every_refused_kernel() -> None:
    """Each once, in one of the tables of what people ship and of what can be wrong."""
    rows = re.findall(r"^\|.*\|$", (FOLDER / "README.md").read_text(), re.MULTILINE)

    assert names("refused") == sorted(re.findall(r"`([a-z0-9_]+)`", "\n".join(rows)))


@pytest.mark.parametrize("name", ["attend", "exchange", "norm"])
def test_names_and_orders_mean_nothing(name: str) -> None:
    """Values of the typed IR, and the function, by other names, premises and facts in another order: the same proof."""
    case = load(FOLDER / "accepted" / f"{name}.py")
    text = Kernel(case.function, case.contract).ttir(case.constants, Tile((), 4, 1), TARGETS["sm_90"])
    renamed = re.sub(r"%([A-Za-z_0-9]+)", r"%other_\1", text).replace("@kernel", "@another")
    contract = replace(case.contract, premises=case.contract.premises[::-1], facts=case.contract.facts[::-1])
    first, second = (prove(parse(one), case.contract, case.constants) for one in (text, renamed))
    third = prove(parse(text), contract, case.constants)

    assert text != renamed
    assert first.tally.scripts == [script.replace("other_", "") for script in second.tally.scripts]
    assert first.obligations == second.obligations == third.obligations
    assert first.rules == second.rules == third.rules
