"""The documentation: rendered from the source, without the network, and what it says of the proofs is so."""

import doctest
import importlib
import re
import runpy
from html.parser import HTMLParser
from pathlib import Path
from pkgutil import walk_packages

import pytest

import vosti.spec
from vosti.impl.cli.claims import MEANING, PREMISES, PROVED, THEOREM
from vosti.impl.cli.prove import prove_command
from vosti.impl.cli.statistics import counted
from vosti.proofs.prove import GROUPS, THEOREMS
from vosti.spec.invariants import CONJUNCTS
from vosti.spec.step import RULES

ROOT = Path(__file__).parents[1]
PROOF = (ROOT / "docs" / "proof.md").read_text()


class Page(HTMLParser):
    """The addresses and the names of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.names: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what an element refers to, and what it is called."""
        for name, value in attrs:
            if name in ("href", "src", "action", "srcset"):
                self.addresses.append(value or "")
            if name == "id":
                self.names.add(value or "")


def foreign(text: str) -> list[str]:
    """Whatever a page would fetch from, or lead to, outside of the site. Licences in comments lead nowhere."""
    text = re.sub(r"(?s)/\*.*?\*/", "", text)
    text = re.sub(r"xmlns=.http://www\.w3\.org/2000/svg.", "", text)  # a name, and no place
    return re.findall(r"(?:[a-z]+:|[\"'(=])//[\w.-]+", text)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rendered site."""
    folder = tmp_path_factory.mktemp("site")
    runpy.run_path(str(ROOT / "docs" / "site" / "render.py"))["render"](folder)
    return folder


def test_nothing_in_the_site_leads_outside(site: Path) -> None:
    """No page refers to another host, by whatever means."""
    assert {} == {
        path.name: foreign(path.read_text()) for path in site.rglob("*") if path.is_file() and foreign(path.read_text())
    }


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://example.org/x.js">',
        '<a href="//example.org">',
        "<style>@import url(http://example.org/x.css)</style>",
        "<style>p { background: url(//example.org/x) }</style>",
    ],
)
def test_what_leads_outside_is_found(text: str) -> None:
    """Each way to refer to another host."""
    assert foreign(text)


def test_every_link_leads_somewhere(site: Path) -> None:
    """Every address is a page of the site, and a name on that page if it names one."""
    pages = {path: Page(path.read_text()) for path in site.rglob("*.html")}
    dead = []
    for path, page in pages.items():
        for address in page.addresses:
            place, _, name = address.partition("#")
            target = (path.parent / place).resolve() if place else path
            if target not in pages or (name and name not in pages[target].names):
                dead.append(f"{path.relative_to(site)}: {address}")

    assert [] == dead


def test_the_first_page_introduces_the_definition_and_the_invariants(site: Path) -> None:
    """Definition 2.1 first, then each conjunct with its formula, its code, and the obligations that prove it."""
    text = (site / "index.html").read_text()
    places = [text.index(f'id="{conjunct.name.replace(" ", "-")}"') for conjunct in CONJUNCTS]

    assert 0 < text.index("What is claimed: Definition 2.1") < places[0]
    assert sorted(places) == places
    assert all(f"vosti prove spec --conjunct {conjunct.name}" in text for conjunct in CONJUNCTS)
    assert "∀ T₁, T₂ that share W" in text


def test_the_specification_is_there_with_its_code(site: Path) -> None:
    """Every module has a page, and the code of every action's guard is on it, to be seen at once."""
    inside = [found.name for found in walk_packages(vosti.spec.__path__, "vosti.spec.")]
    actions = (site / "vosti" / "spec" / "actions.html").read_text()

    assert [] == [name for name in inside if not (site / f"{name.replace('.', '/')}.html").exists()]
    assert 'id="evict_guard-view-source" class="view-source-toggle-state" type="checkbox"' in actions
    assert re.search(r'id="evict_guard-view-source"[^>]* checked>', actions)


def test_examples_in_the_specification_are_true() -> None:
    """Every doctest passes, and there are some."""
    results = [
        doctest.testmod(importlib.import_module(found.name))
        for found in walk_packages(vosti.spec.__path__, "vosti.spec.")
    ]

    assert 0 == sum(result.failed for result in results)
    assert 5 < sum(result.attempted for result in results)


# ---------------------------------------------------------------- docs/proof.md


def rows(text: str, heading: str) -> list[list[str]]:
    """The rows of the table under a heading, without the table's own."""
    part = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_table_of_premises_is_the_claim() -> None:
    """`vosti check` prints what `docs/proof.md` says, word for word."""
    expected = [[premise.statement, premise.carried, plain(premise.by)] for premise in PREMISES]

    assert expected == [[statement, carried, plain(by)] for statement, carried, by in rows(PROOF, "The claim")]
    assert THEOREM in PROOF


def plain(text: str) -> str:
    """The text without marks of code."""
    return text.replace("`", "")


def test_every_theorem_is_a_premise_and_is_explained() -> None:
    """What is proved is claimed, what is claimed as proved is proved, and `docs/proof.md` has a part for it."""
    claimed = {name: premise.by for premise in PREMISES if premise.carried == PROVED for name in premise.theorems}

    assert set(THEOREMS) == set(claimed)
    assert claimed == {name: f"vosti prove {part}" for part, names in GROUPS.items() for name in names}
    assert [] == [name for name in THEOREMS if f"`vosti.proofs.{name}`" not in PROOF]
    assert all(premise.carried in MEANING for premise in PREMISES)


def test_the_trusted_base_is_counted() -> None:
    """The lines of each trusted part are within a tenth of what `docs/proof.md` says."""
    off = {}
    for modules, _, lines in rows(PROOF, "What has to be trusted"):
        names = tuple(re.findall(r"`([\w/.]+)`", modules))
        if names:
            now = counted(tuple(name.removesuffix(".py") for name in names))
            if not abs(now - int(lines)) <= now / 10:
                off[modules] = now

    assert {} == off


def test_every_command_of_the_proofs_is_one() -> None:
    """Options, actions and statements that `docs/proof.md` names are there."""
    sources = "".join(path.read_text() for folder in ("spec", "proofs") for path in (ROOT / folder).glob("*.py"))
    actions = {None, "initial", *(rule.effect.__name__ for rule in RULES.values())}
    commands = re.findall(r"`vosti prove ([^`]*)`", PROOF)

    assert 10 < len(commands)
    for arguments in commands:
        asked = prove_command.make_context("prove", arguments.split()).params
        assert asked["conjunct"] is None or f"def {asked['conjunct']}(" in sources, arguments
        assert asked["action"] in actions, arguments
