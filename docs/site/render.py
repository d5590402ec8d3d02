"""Render the specification from its own source, with the theorems and the pages of `docs`: `render.py FOLDER`.

The first page is an introduction to Definition 2.1 and the invariants: each with its formula, its code, and the
obligations that prove it, taken from the modules themselves. Nothing in the result refers to a place outside of it.
"""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from pkgutil import walk_packages
from types import ModuleType

import pdoc

import vosti.spec
from vosti.proofs import canonical_output, determinism
from vosti.proofs.prove import THEOREMS, obligations
from vosti.refinement.smt.obligation import Obligation
from vosti.spec import determinism as definition
from vosti.spec import invariants
from vosti.spec.invariants import CONJUNCTS, Conjunct

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent
PAGES = (*sorted(DOCS.glob("*.md"), key=lambda path: (path.stem != "proof", path.stem)), *sorted(DOCS.glob("*/*.md")))
"""What is written in Markdown, in the order of the list of pages."""

INTRODUCTION = "Definition 2.1 and Inv"
"""The title of the first page."""


def documented(f: Callable[..., object] | ModuleType) -> str:
    """The docstring of a function or module without its examples, as Markdown."""
    return re.sub(r"(?m)^>>> (?:.|\n)*?(?=\n\n|\Z)", "", inspect.getdoc(f) or "").rstrip()


def code(*functions: Callable[..., object]) -> str:
    """The functions' code as a block, docstrings left out: they are the text around it."""
    sources = []
    for f in functions:
        source = textwrap.dedent(inspect.getsource(f))
        sources.append(re.sub(r'(?s)\n    """.*?"""', "", source, count=1).rstrip())
    return "```python\n" + "\n\n\n".join(sources) + "\n```"


def proved_by(found: Sequence[Obligation], command: str) -> str:
    """The obligations' names, folded away, and how to prove them."""
    names = "; ".join(escape(o.name.partition("/")[2]) for o in found)
    summary = f"Proved by {len(found)} obligations: <code>{command}</code>"
    return f"<details><summary>{summary}</summary><p>{names}</p></details>"


def introduction() -> str:
    """The first page, as Markdown."""
    return "\n\n".join(_introduction())


def _introduction() -> Iterator[str]:
    every = obligations(name for name in THEOREMS if not name.startswith("pool_"))
    yield f"# {INTRODUCTION}"
    yield (
        "What this project claims, and what the claim rests on. Every formula, every line of code and every name of an "
        "obligation on this page is taken from the source: the functions shown are the ones that run, that judge "
        "recorded runs, and that are translated to logic and proved. The same in the mathematics of the paper, with "
        "what is assumed and what has to be trusted: [proof](proof.html)."
    )
    yield "## What is claimed: Definition 2.1"
    yield documented(definition)
    yield "What an observer sees of one request is its view:"
    yield code(definition.view)
    yield documented(definition.deterministic)
    yield code(definition.is_prefix, definition.prefix_comparable, definition.ends_alike, definition.deterministic)
    yield "### Why it holds"
    yield documented(determinism)
    yield proved_by([o for o in every if o.name.startswith("determinism/")], "vosti prove spec")
    yield "## One output: Theorem 4.1"
    yield documented(canonical_output)
    yield code(canonical_output.emits_forward, canonical_output.reads_canonical)
    yield proved_by([o for o in every if o.name.startswith("canonical_output/")], "vosti prove spec")
    yield "## What holds in every reachable state: Inv"
    yield documented(invariants)
    for group, conjuncts in groupby(CONJUNCTS, key=lambda c: c.group):
        yield f"### {group[0].upper()}{group[1:]}"
        for conjunct in conjuncts:
            yield from _conjunct(conjunct, every)


def _conjunct(conjunct: Conjunct, every: Sequence[Obligation]) -> Iterator[str]:
    """A conjunct of Inv: formula, code, obligations."""
    yield f"#### {conjunct.name}"
    yield documented(conjunct.whole)
    if conjunct.local is not conjunct.whole:
        yield f"Of each {conjunct.kind}: {documented(conjunct.local)}"
    yield code(*dict.fromkeys((conjunct.local, conjunct.whole)))
    about = [o.name.partition("/")[2] for o in every if o.name.startswith("inductive/")]
    actions = [name.removesuffix(f": {conjunct.name}") for name in about if name.endswith(f": {conjunct.name}")]
    command = f"vosti prove spec --conjunct {conjunct.name}"
    yield f"Proved by {len(actions)} obligations of `vosti.proofs.inductive` (`{command}`): {', '.join(actions)}."


def reading_order() -> list[str]:
    """The rendered modules: the specification's as its own docstring lists them, then the theorems'."""
    first = re.findall(r"`(vosti\.spec\.\w+)`", inspect.getdoc(vosti.spec) or "")
    inside = [found.name for found in walk_packages(vosti.spec.__path__, "vosti.spec.")]
    return ["vosti.spec", *dict.fromkeys([*first, *inside]), *_theorems()]


def _theorems() -> list[str]:
    return [f"vosti.proofs.{name}" for name in THEOREMS]


def address(page: Path) -> str:
    """Where a page of `docs` is in the site: all of them side by side."""
    return "-".join(page.relative_to(DOCS).with_suffix(".html").parts)


def title(page: Path) -> str:
    """A page's name in the list of pages."""
    return str(page.relative_to(DOCS).with_suffix(""))


def linked(text: str, names: Sequence[str], folder: Path = DOCS) -> str:
    """A page's text, with links to modules that are rendered, to other pages, and to no file that is not.

    Args:
        text: as it stands in `folder`.
        names: the modules that are rendered.
        folder: `docs`, or a folder in it.
    """

    def to_module(match: re.Match[str]) -> str:
        name = match[1]
        return f"[`{name}`]({name.replace('.', '/')}.html)" if name in names else match[0]

    def to_page(match: re.Match[str]) -> str:
        page = (folder / match[2]).resolve()
        return f"[{match[1]}]({address(page)}{match[3] or ''})" if page in PAGES else match[1]

    text = re.sub(r"\[([^\]\[]+)\]\(([\w./-]+\.(?:md|py))(#[\w-]+)?\)", to_page, text)
    return re.sub(r"(?<!\[)`(vosti(?:\.\w+)+)`", to_module, text)


def render(site: Path) -> None:
    """Write the site into a folder."""
    names = reading_order()
    pdoc.render.configure(template_directory=HERE / "templates", search=False)
    pdoc.render.env.globals.update(
        pages=[(INTRODUCTION, "index.html"), *((title(page), address(page)) for page in PAGES)],
        modules=names,
        title=INTRODUCTION,
        text=linked(introduction(), names),
    )
    pdoc.pdoc("vosti.spec", *_theorems(), output_directory=site)
    template = pdoc.render.env.get_template("index.html.jinja2")
    for page in PAGES:
        text = linked(page.read_text(encoding="utf-8"), names, page.parent)
        (site / address(page)).write_text(template.render(title=title(page), text=text), encoding="utf-8")


if __name__ == "__main__":
    render(Path(sys.argv[1]))
