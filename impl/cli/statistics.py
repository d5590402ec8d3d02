"""How much there is of what: lines of code, and on what machine something was measured."""

from __future__ import annotations

import ast
import io
import os
import platform
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The folder, or the package, that `spec`, `impl` and the others lie in."""

NO_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)

VERSIONS = ("z3-solver", "cvc5")


@dataclass(frozen=True)
class Part:
    """A line of the table: some folders or modules, relative to `ROOT`, in each of its columns."""

    name: str
    implementation: tuple[str, ...] = ()
    specification: tuple[str, ...] = ()
    proof: tuple[str, ...] = ()
    without: tuple[str, ...] = ()


COMPILER = tuple(
    f"refinement/smt/{name}" for name in ("compiler", "comprehensions", "operations", "source", "symbols", "values")
)
"""The compiler from Python to logic; beside it stand terms, theory, solvers, and the search for explanations."""

PARTS = (
    Part(
        "engine and model execution",
        implementation=("impl",),
        specification=("spec",),
        proof=("proofs",),
        without=("impl/cli", "spec/numerics", "proofs/explore", "proofs/mutant", "proofs/vacuity"),
    ),
    Part("of which page pool", implementation=("impl/pool",), proof=("proofs/pool_",)),
    Part("kernels and row programs", implementation=("kernels",), specification=("spec/numerics",)),
    Part("compiler to logic, solvers", implementation=("refinement/smt",)),
    Part("of which compiler", implementation=COMPILER),
    Part("audit of traces", implementation=("refinement",), without=("refinement/smt",)),
    Part("explorer, mutants", implementation=("proofs/explore", "proofs/mutant", "proofs/vacuity")),
    Part("command line", implementation=("impl/cli",)),
)
"""Our half of Table 2 of the paper (section 6.3). A name stands for all modules whose path begins with it."""


def code_lines(source: str) -> int:
    """Lines of a module that hold code: no blanks, no comments, no docstrings."""
    text: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            text.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - text)


def counted(names: tuple[str, ...], without: tuple[str, ...] = (), root: Path = ROOT) -> int:
    """The code lines of all modules whose path begins with one of some names, and with none of others."""
    return sum(code_lines(path.read_text(encoding="utf-8")) for path in _modules(names, without, root))


def _modules(names: tuple[str, ...], without: tuple[str, ...], root: Path) -> Iterator[Path]:
    for top in sorted({name.partition("/")[0] for name in names}):
        for path in sorted((root / top).rglob("*.py")):
            place = path.relative_to(root).as_posix()
            if place.startswith(names) and not place.startswith(without):
                yield path


def sizes() -> Mapping[str, tuple[int, int, int]]:
    """Part → code lines of implementation, specification and proof."""
    return {
        part.name: (
            counted(part.implementation, part.without),
            counted(part.specification, part.without),
            counted(part.proof, part.without),
        )
        for part in PARTS
    }


def hardware() -> str:
    """The machine, how busy it is (or times say little), and the versions that matter to a proof."""
    found = [f"{package} {_version(package)}" for package in VERSIONS]
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return f"{_processor()}, {processors()} processors{load}; Python {platform.python_version()}, {', '.join(found)}"


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"
