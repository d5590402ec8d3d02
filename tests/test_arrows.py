"""The dependency arrows: who may import what.

`ARROWS` is the rule, a row per part of the project: what its modules may import, besides Python's standard library
(of which everybody may import everything). The longest matching row decides, and what no row allows is refused.
`LOADS_NOTHING_OF` is about the whole chain: importing the part must not load any of the named packages, directly or
through others. An import inside a function is allowed to do so (it is how the command line stays light).
"""

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOPS = ("spec", "impl", "refinement", "kernels", "proofs")

BASE = {"click", "msgspec", "rich", "safetensors"}
ENGINE = {"immutables", "numpy", "safetensors", "tokenizers", "torch"}
SOLVERS = {"cvc5", "z3"}

ARROWS: dict[str, set[str]] = {
    "vosti.spec": {"vosti.spec"},
    "vosti.refinement": {"vosti.refinement", "vosti.spec"} | BASE,
    "vosti.refinement.smt.solve": {"vosti.refinement.smt", "vosti.refinement.errors"} | SOLVERS,
    "vosti.kernels": {"vosti.kernels", "vosti.spec", "numpy", "torch", "triton"},
    "vosti.kernels.verifier": {"vosti.kernels", "vosti.spec", "vosti.refinement.smt.solve", "torch", "triton"},
    "vosti.kernels.verifier.interpret": {"vosti.kernels.verifier", "numpy"},
    "vosti.impl": {"vosti.impl", "vosti.kernels", "vosti.spec", "msgspec"} | ENGINE,
    "vosti.impl.abstraction": {"vosti.impl", "vosti.spec", "immutables"},
    "vosti.impl.pool": {"vosti.impl", "vosti.spec", "immutables"},
    "vosti.impl.pool_state": {"vosti.impl", "vosti.spec", "immutables"},
    "vosti.impl.pool_invariants": {"vosti.impl", "vosti.spec", "immutables"},
    "vosti.impl.planning": {"vosti.impl", "vosti.spec", "immutables"},
    "vosti.impl.cli": {"vosti"} | BASE | ENGINE,
    "vosti.impl.determinism.plot": {"vosti.impl.determinism", "svg"},
    "vosti.impl.determinism.report": {"vosti.impl.determinism", "jinja2"},
    "vosti.impl.determinism.transformers_engine": {"vosti.impl", "torch", "transformers"},
    "vosti.proofs": {
        "vosti.proofs",
        "vosti.spec",
        "vosti.refinement",
        "vosti.kernels",
        "vosti.impl.abstraction",
        "vosti.impl.backends.cuda.lowering",
        "vosti.impl.backends.cuda.plan",
        "vosti.impl.backends.programs",
        "vosti.impl.models.plan",
        "vosti.impl.options",
        "vosti.impl.planning",
        "vosti.impl.pool",
        "vosti.impl.pool_state",
        "vosti.impl.pool_invariants",
        "vosti.impl.settling",
        "immutables",
    },
}

LOADS_NOTHING_OF: dict[str, set[str]] = {
    "vosti.spec": BASE | ENGINE | SOLVERS | {"triton"},
    "vosti.refinement": (ENGINE - BASE) | {"triton"},
    "vosti.impl": SOLVERS,
    "vosti.impl.abstraction": {"torch", "triton"},
    "vosti.impl.pool": {"torch", "triton"},
    "vosti.impl.planning": {"torch", "triton"},
    "vosti.impl.settling": {"torch", "triton"},
    "vosti.proofs.explore": {"torch", "triton"} | SOLVERS,
    "vosti.proofs.explore_progress": {"torch", "triton"} | SOLVERS,
    "vosti.proofs.explore_trace": {"torch", "triton"} | SOLVERS,
    "vosti.proofs.prove": {"torch", "triton"},
    "vosti.kernels.verifier.prove": {"torch"},
    "vosti.kernels.verifier.certify": {"torch"} | SOLVERS,
    "vosti.kernels.workers": {"torch", "triton"} | SOLVERS,
    "vosti.impl.cli": (ENGINE - BASE) | SOLVERS | {"triton"},
}

Sources = Mapping[str, str]
"""Module name to source text; a package's name stands for its `__init__`."""


def project_sources() -> dict[str, str]:
    """Read every module of the five folders."""
    sources = {}
    for top in TOPS:
        for path in (ROOT / top).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(("vosti", *(parts[:-1] if parts[-1] == "__init__" else parts)))
            sources[name] = path.read_text()
    return sources


def covers(prefix: str, name: str) -> bool:
    """Whether `name` is `prefix` or lies inside it."""
    return name == prefix or name.startswith(prefix + ".")


def imports(source: str, *, at_load: bool = False) -> Iterator[tuple[int, str]]:
    """Yield (line, dotted name) of each import; `from a import b` yields a.b.

    With `at_load`, leave out what does not run when the module is loaded: function bodies and `if TYPE_CHECKING`.
    """
    pending: list[ast.AST] = [ast.parse(source)]
    while pending:
        node = pending.pop()
        if at_load and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if at_load and isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            pending.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{package}.{alias.name}") for alias in node.names)
        pending.extend(ast.iter_child_nodes(node))


def forbidden_imports(sources: Sources) -> list[str]:
    """Every import that no row of `ARROWS` allows, as 'module:line imports name'."""
    found = []
    for module, source in sources.items():
        rows = [row for row in ARROWS if covers(row, module)]
        allowed = ARROWS[max(rows, key=len)] if rows else set()
        for line, name in imports(source):
            if name.split(".")[0] in sys.stdlib_module_names or any(covers(prefix, name) for prefix in allowed):
                continue
            found.append(f"{module}:{line} imports {name}")
    return sorted(found)


def loaded_by(sources: Sources, start: str) -> dict[str, list[str]]:
    """Everything that importing `start` loads, each with the chain of modules that leads to it."""
    chains = {start: [start]}
    pending = [start]
    while pending:
        module = pending.pop()
        # Importing a.b.c loads a and a.b first; `from a import b` loads a.b if that is a module.
        targets = [module.rpartition(".")[0]]
        targets += [name for _, name in imports(sources[module], at_load=True)] if module in sources else []
        for target in targets:
            while target and target not in chains:
                chains[target] = [*chains[module], target]
                pending.append(target)
                target = target.rpartition(".")[0]
    return chains


def forbidden_loads(sources: Sources) -> list[str]:
    """Every chain of imports by which a part loads a package that `LOADS_NOTHING_OF` forbids it."""
    found = []
    for part, forbidden in LOADS_NOTHING_OF.items():
        for module in (
            name for name in sources if covers(part, name) and not covers("vosti.refinement.smt.solve", name)
        ):
            for name, chain in loaded_by(sources, module).items():
                if name in forbidden:
                    found.append(" -> ".join(chain))
    return sorted(found)


def test_arrows_hold() -> None:
    """No module imports what its row of the table does not allow."""
    assert [] == forbidden_imports(project_sources())


def test_light_parts_stay_light() -> None:
    """The specification, the checker, the control plane and the command line load no heavy package when imported."""
    assert [] == forbidden_loads(project_sources())


@pytest.mark.parametrize(
    ("module", "source", "finding"),
    [
        ("vosti.spec.state", "import msgspec", "vosti.spec.state:1 imports msgspec"),
        ("vosti.spec.state", "from vosti.impl import engine", "vosti.spec.state:1 imports vosti.impl.engine"),
        ("vosti.spec.state", "def f():\n    import torch", "vosti.spec.state:2 imports torch"),
        ("vosti.spec.state", "from . import actions", "vosti.spec.state:1 imports ..actions"),
        ("vosti.refinement.audit", "import torch.nn", "vosti.refinement.audit:1 imports torch.nn"),
        (
            "vosti.refinement.audit",
            "from vosti.impl.pool import f",
            "vosti.refinement.audit:1 imports vosti.impl.pool.f",
        ),
        ("vosti.refinement.smt.terms", "import z3", "vosti.refinement.smt.terms:1 imports z3"),
        ("vosti.kernels.linear", "import vosti.refinement", "vosti.kernels.linear:1 imports vosti.refinement"),
        ("vosti.kernels.verifier.match", "import cvc5", "vosti.kernels.verifier.match:1 imports cvc5"),
        ("vosti.impl.engine", "import vosti.refinement.trace", "vosti.impl.engine:1 imports vosti.refinement.trace"),
        ("vosti.impl.engine", "import transformers", "vosti.impl.engine:1 imports transformers"),
        ("vosti.impl.pool", "import torch", "vosti.impl.pool:1 imports torch"),
        ("vosti.impl.clients", "import vosti.refinement", "vosti.impl.clients:1 imports vosti.refinement"),
        ("vosti.proofs.inv", "import vosti.impl.engine", "vosti.proofs.inv:1 imports vosti.impl.engine"),
        ("vosti.other", "import vosti.spec", "vosti.other:1 imports vosti.spec"),
    ],
)
def test_an_import_against_the_arrows_is_found(module: str, source: str, finding: str) -> None:
    """Each rule refuses the import that it exists to refuse, also inside a function."""
    assert [finding] == forbidden_imports({module: source})


def test_imports_along_the_arrows_are_accepted() -> None:
    """The rules allow what the design asks for."""
    sources = {
        "vosti.spec.state": "from dataclasses import dataclass\nfrom vosti.spec.words import Id",
        "vosti.refinement.smt.solve": "import z3",
        "vosti.kernels.verifier.match": "from vosti.refinement.smt.solve import prove",
        "vosti.impl.pool": "import immutables\nfrom vosti.impl.errors import EngineError",
        "vosti.impl.cli.audit": "def run():\n    from vosti.refinement import audit",
        "vosti.proofs.pool": "from vosti.impl.pool import release",
    }

    assert [] == forbidden_imports(sources)
    assert [] == forbidden_loads(sources)


@pytest.mark.parametrize(
    ("sources", "chain"),
    [
        (
            {"vosti.impl.pool": "from vosti.impl.errors import E", "vosti.impl.errors": "import torch"},
            "vosti.impl.pool -> vosti.impl.errors -> torch",
        ),
        ({"vosti.impl.pool": "", "vosti.impl": "import torch"}, "vosti.impl.pool -> vosti.impl -> torch"),
        (
            {"vosti.impl.cli": "import vosti.refinement", "vosti.refinement": "import numpy"},
            "vosti.impl.cli -> vosti.refinement -> numpy",
        ),
    ],
)
def test_a_heavy_package_behind_others_is_found(sources: Sources, chain: str) -> None:
    """A forbidden package counts also when another module, or a parent package, loads it."""
    assert chain in forbidden_loads(sources)


@pytest.mark.parametrize("name", ["vosti.spec", "vosti.refinement"])
def test_importing_loads_no_torch(name: str) -> None:
    """In a fresh interpreter, importing every module of the part leaves torch and the engine unloaded."""
    modules = sorted(module for module in project_sources() if covers(name, module) and "smt" not in module)
    forbidden = sorted((ENGINE - BASE) | SOLVERS | {"triton", "vosti.impl", "vosti.kernels"})
    found = f"[name for name in {forbidden} if name in sys.modules]"
    program = f"import sys\nfor name in {modules}: __import__(name)\nprint({found})"
    run = subprocess.run([sys.executable, "-c", program], cwd="/", capture_output=True, text=True, check=False)

    assert (0, "[]") == (run.returncode, run.stdout.strip()), run.stderr
