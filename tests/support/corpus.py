"""The corpus of the verifier: tiny kernels in twins, accepted and refused, and the contracts that they share.

A file is a module with `kernel`, a Triton function, `CONTRACT` and `CONSTANTS`. One that is refused has `TWIN` besides,
the name of the accepted one that it is a step away from, and `FINDING`, what the verifier says, a regular expression;
a line that ends in `# found here` is the one that it names.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from vosti.kernels.catalogue import TARGETS
from vosti.kernels.contract import Access, Buffer, Constant, Contract, Fact, Integer, Output, Real
from vosti.kernels.launch import Kernel
from vosti.kernels.tile import Tile
from vosti.kernels.verifier.front import located
from vosti.kernels.verifier.prove import Proof, prove

FOLDER = Path(__file__).parents[1] / "verifier" / "corpus"

MARK = "# found here"


@dataclass(frozen=True)
class Case:
    """A file of the corpus."""

    path: Path
    function: Any
    contract: Contract
    constants: Mapping[str, int]
    twin: str = ""
    finding: str = ""

    def prove(self) -> Proof:
        """Prove the kernel. Raises what the verifier raises."""
        kernel = located(Kernel(self.function, self.contract), self.constants, Tile((), 4, 1), TARGETS["sm_90"])
        return prove(kernel, self.contract, self.constants)

    @property
    def source(self) -> list[str]:
        """The lines of the function, without marks."""
        function = self.function
        while hasattr(function, "fn"):
            function = function.fn
        lines = inspect.getsource(function).splitlines()
        return [line.removesuffix(MARK).rstrip() for line in lines]

    @property
    def place(self) -> str | None:
        """Where the finding is, if a line is marked."""
        lines = self.path.read_text().splitlines()
        marked = [number for number, line in enumerate(lines, 1) if line.endswith(MARK)]
        return f"{self.path.name}:{marked[0]}" if marked else None


@cache
def load(path: Path) -> Case:
    """The case of a file, made once."""
    specification = importlib.util.spec_from_file_location(f"corpus_{path.parent.name}_{path.stem}", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    names = vars(module)
    assert re.match(r"[A-Z]", names["__doc__"] or ""), f"{path.name} does not say what it is"
    return Case(
        path, names["kernel"], names["CONTRACT"], names["CONSTANTS"], names.get("TWIN", ""), names.get("FINDING", "")
    )


def names(kind: str) -> list[str]:
    """The accepted or the refused ones."""
    return sorted(path.stem for path in (FOLDER / kind).glob("*.py"))


# ---------------------------------------------------------------- contracts


def contract(
    parameters: tuple[Any, ...], grid: tuple[str, str, str], outputs: tuple[Output, ...], *premises: str, **more: Any
) -> Contract:
    """A contract that says in words only that it is one of the corpus."""
    return Contract("kernel", "", parameters, grid, premises, (), outputs, "See the outputs.", **more)


COPY = contract(
    (
        Buffer("x", "bf16", ("rows", "WIDTH")),
        Buffer("out", "bf16", ("rows", "WIDTH"), Access.WRITE),
        Integer("rows"),
        Constant("WIDTH"),
        Constant("BLOCK"),
    ),
    ("rows", "cdiv(WIDTH, BLOCK)", "1"),
    (Output("out", ("i", "j"), "x[i, j]", ("i", "j // BLOCK", "0"), ("j % BLOCK",)),),
)
"""Rows copied."""

COPY_IN_PLACE = replace(COPY, in_place=(("out", "x", "True"),))
"""Rows copied, maybe to where they are."""

REVERSED = contract(
    COPY.parameters[:-1],
    ("rows", "1", "1"),
    (Output("out", ("i", "j"), "x[i, WIDTH - 1 - j]", ("i", "0", "0"), ("j",)),),
)
"""Rows with their elements in reverse."""

REVERSED_IN_PLACE = replace(REVERSED, in_place=COPY_IN_PLACE.in_place)
"""Rows with their elements in reverse, maybe where they are."""

LINEAR = contract(
    (
        Buffer("x", "bf16", ("rows", "K")),
        Buffer("weight", "bf16", ("N", "K")),
        Buffer("out", "bf16", ("rows", "N"), Access.WRITE),
        Integer("rows"),
        Constant("N"),
        Constant("K"),
        Constant("BLOCK_M"),
        Constant("BLOCK_N"),
        Constant("BLOCK_K"),
    ),
    ("cdiv(rows, BLOCK_M)", "cdiv(N, BLOCK_N)", "1"),
    (
        Output(
            "out",
            ("i", "j"),
            "linear(x[i, :], weight.T)[j]",
            ("i // BLOCK_M", "j // BLOCK_N", "0"),
            ("i % BLOCK_M", "j % BLOCK_N"),
        ),
    ),
    "rows <= 2**30",
)
"""A linear layer."""

LINEAR_OF_FEW = replace(LINEAR, premises=("rows <= 2**18",))
"""The same of few rows."""

COPY_IN_LOOP = contract(
    COPY.parameters,
    ("rows", "1", "1"),
    (Output("out", ("i", "j"), "x[i, j]", ("i", "0", "0"), ("j % BLOCK",), ("j // BLOCK",)),),
)
"""Rows copied, by a loop over blocks of columns."""

COPY_COUNTED = replace(
    COPY_IN_LOOP,
    parameters=(
        *COPY.parameters[:2],
        Buffer("steps", "i32", ("rows * WIDTH",), within=("0", "2")),
        Buffer("words", "i32", ("rows * WIDTH",), words=True),
        *COPY.parameters[2:],
    ),
)
"""The same, with numbers that are 0 or 1 and words, on which nothing may depend."""

LINEAR_ON_A_LINE = contract(
    LINEAR.parameters,
    ("cdiv(rows, BLOCK_M) * cdiv(N, BLOCK_N)", "1", "1"),
    (
        replace(
            LINEAR.outputs[0],
            program=("i // BLOCK_M * cdiv(N, BLOCK_N) + j // BLOCK_N", "0", "0"),
        ),
    ),
    "rows <= 2**24",
)
"""A linear layer over a grid of one axis."""

LINEAR_IN_PARTS = replace(LINEAR, parameters=(*LINEAR.parameters[:4], Integer("parts", "1"), *LINEAR.parameters[4:]))
"""A linear layer with a further number, on which nothing may depend."""

SUM = contract(
    (
        Buffer("x", "fp32", ("rows", "WIDTH")),
        Buffer("y", "fp32", ("rows", "WIDTH")),
        Buffer("out", "fp32", ("rows", "WIDTH"), Access.WRITE),
        Integer("rows"),
        Constant("WIDTH"),
    ),
    ("rows", "1", "1"),
    (Output("out", ("i", "j"), "residual_add(x[i, :], y[i, :])[j]", ("i", "0", "0"), ("j",)),),
)
"""Sums of rows."""

NORM = contract(
    (
        Buffer("x", "bf16", ("rows", "WIDTH")),
        Buffer("weight", "bf16", ("WIDTH",)),
        Buffer("out", "bf16", ("rows", "WIDTH"), Access.WRITE),
        Integer("rows"),
        Real("epsilon"),
        Constant("WIDTH"),
        Constant("BLOCK"),
    ),
    ("rows", "1", "1"),
    (Output("out", ("i", "j"), "rms_norm(x[i, :], weight, WIDTH, epsilon)[j]", ("i", "0", "0"), ("0", "j")),),
    "WIDTH <= BLOCK < 2 * WIDTH",
)
"""Norms of rows."""

GATHER = contract(
    (
        Buffer("tokens", "i32", ("rows",), within=("0", "vocabulary")),
        Buffer("table", "bf16", ("vocabulary", "WIDTH")),
        Buffer("out", "bf16", ("rows", "WIDTH"), Access.WRITE),
        Integer("rows"),
        Constant("WIDTH"),
    ),
    ("rows", "1", "1"),
    (Output("out", ("i", "j"), "embedding(table, tokens[i])[j]", ("i", "0", "0"), ("j",)),),
)
"""Rows of a table."""

STORE = contract(
    (
        Buffer("x", "bf16", ("rows", "WIDTH")),
        Buffer("slots", "i32", ("rows",), within=("-1", "slots_known")),
        Buffer("cache", "bf16", ("slots_known", "WIDTH"), Access.WRITE),
        Integer("rows"),
        Constant("WIDTH"),
    ),
    ("rows", "1", "1"),
    (
        Output(
            "cache",
            ("slots[i]", "j"),
            "x[i, j]",
            ("i", "0", "0"),
            ("j",),
            names=(("i", "x"),),
            when="0 <= i < rows and slots[i] >= 0",
        ),
    ),
    facts=(Fact(("i", "k"), "i == k or slots[i] < 0 or slots[i] != slots[k]", kept="where a batch is made"),),
)
"""Rows stored in slots of their own; a row whose slot is -1 is not stored."""

EVEN = "0 <= i < rows and i % 2 == 0 and slots[i] >= 0"

EXCHANGE = contract(
    (
        *STORE.parameters[:2],
        Buffer("cache", "bf16", ("slots_known", "WIDTH"), Access.UPDATE),
        Buffer("old", "bf16", ("rows", "WIDTH"), Access.WRITE),
        *STORE.parameters[3:],
    ),
    STORE.grid,
    (
        replace(STORE.outputs[0], when=EVEN),
        Output("old", ("i", "j"), "cache[slots[i], j]", ("i", "0", "0"), ("j",), when=EVEN),
    ),
    facts=(replace(STORE.facts[0], holds=f"i % 2 == 1 or k % 2 == 1 or {STORE.facts[0].holds}"),),
)
"""Even rows stored in slots of their own, and what was there; the slots of odd rows may be any."""

FLAGS = contract(
    (
        Buffer("x", "bf16", ("rows", "WIDTH")),
        Buffer("out", "i32", ("rows",), Access.WRITE),
        Integer("rows"),
        Constant("WIDTH"),
    ),
    ("rows", "1", "1"),
    (Output("out", ("i",), "over(WIDTH, lambda k: flag(not_finite(x[i, k])))", ("i", "0", "0")),),
)
"""Whether any number of a row is not finite."""

DIGEST = contract(
    (
        Buffer("words", "i32", ("rows * WIDTH",), words=True),
        Buffer("out", "i64", ("rows",), Access.WRITE, words=True),
        Integer("rows"),
        Constant("WIDTH"),
        Constant("BLOCK"),
    ),
    ("rows", "1", "1"),
    (Output("out", ("i",), "share(stretch(words, i * WIDTH, WIDTH), 0, stream(1))", ("i", "0", "0")),),
)
"""Sums over mixed words."""

PREFIX = contract(
    (
        Buffer("x", "i64", ("rows", "WIDTH"), words=True),
        Buffer("out", "i64", ("rows", "WIDTH"), Access.WRITE, words=True),
        Integer("rows"),
        Constant("WIDTH"),
    ),
    ("rows", "1", "1"),
    (Output("out", ("i", "j"), "total(j + 1, lambda k: x[i, k])", ("i", "0", "0"), ("j",)),),
)
"""Running sums of words."""

RUNNING = contract(
    (
        Buffer("x", "i32", ("rows", "WIDTH"), within=("0", "2**24")),
        Buffer("out", "i64", ("rows", "WIDTH"), Access.WRITE),
        Integer("rows"),
        Constant("WIDTH"),
    ),
    ("rows", "1", "1"),
    (Output("out", ("i", "j"), "reached[i, j + 1]", ("i", "0", "0"), ("j",)),),
    context=(Buffer("reached", "i64", ("rows", "2**20")),),
    facts=(
        Fact(("i",), "reached[i, 0] == 0", kept="by definition"),
        Fact(("i", "j"), "x[i, j] == reached[i, j + 1] - reached[i, j]", kept="by definition", at=("x",)),
    ),
    sums=("reached[x, l]",),
)
"""Running sums of exact integers."""

RUNNING_OF_NEXT = replace(RUNNING, sums=("reached[x, l + 1] - reached[x, 1]",))
"""The same, said to come to something else."""

RUNNING_AND_MORE = replace(
    RUNNING,
    facts=(*RUNNING.facts, replace(RUNNING.facts[1], holds="x[i, j] == reached[i, j + 1] - reached[i, j] + 1")),
)
"""Running sums that are also others."""

RUNNING_FROM_ONE = replace(RUNNING, facts=(replace(RUNNING.facts[0], holds="reached[i, 0] == 1"), RUNNING.facts[1]))
"""Running sums that begin with 1."""

DRAWN = contract(
    (
        Buffer("shares", "i32", ("rows", "width"), within=("0", "2**24")),
        Buffer("bits", "i64", ("rows",)),
        Buffer("out", "i32", ("rows",), Access.WRITE),
        Integer("rows"),
        Integer("width", "1"),
        Constant("BLOCK"),
    ),
    ("rows", "1", "1"),
    (
        Output(
            "out",
            ("i",),
            "choice(width, lambda j: shares[i, j], lambda j: reached[i, j], bits[i])",
            ("i", "0", "0"),
        ),
    ),
    "width <= BLOCK <= 2**14",
    context=(
        Buffer("reached", "i64", ("rows", "2**20"), within=("0", "2**43")),
        Buffer("drawn", "i64", ("rows",), within=("0", "width")),
    ),
    facts=(
        RUNNING.facts[0],
        Fact(("i", "j"), "shares[i, j] == reached[i, j + 1] - reached[i, j]", kept="by definition", at=("shares",)),
        Fact(("i", "j", "k"), "reached[i, j] <= reached[i, k] or k < j", kept="by definition"),
        Fact(
            ("i",),
            "reached[i, drawn[i]] <= (bits[i] if bits[i] >= 0 else bits[i] + 2**64) * reached[i, width] // 2**64 "
            "< reached[i, drawn[i] + 1]",
            kept="by definition",
        ),
    ),
    sums=("reached[x, min(l, width)]", "min(l, drawn[x])"),
)
"""Draws by shares: the first place at which their sum exceeds the draw."""

DRAWN_OF_UNKNOWN_ORDER = replace(DRAWN, facts=(*DRAWN.facts[:2], DRAWN.facts[3]))
"""The same of sums of which nobody says that they ascend."""


def mean(ops: Any, state: Any) -> Any:
    """What a running softmax comes to: the weighted values over the sum of weights."""
    return ops.div(state.output, state.total)


ATTEND = contract(
    (
        Buffer("queries", "bf16", ("rows", "HEADS", "WIDTH")),
        Buffer("keys", "bf16", ("pages * PAGE", "1", "WIDTH")),
        Buffer("values", "bf16", ("pages * PAGE", "1", "WIDTH")),
        Buffer("tables", "i32", ("rows", "table_width"), within=("-1", "pages")),
        Buffer("lengths", "i32", ("rows",), within=("1", "table_width * PAGE + 1")),
        Buffer("out", "bf16", ("rows", "HEADS", "WIDTH"), Access.WRITE),
        Integer("longest", "1"),
        Integer("table_width"),
        Real("scale"),
        *(Constant(name) for name in ("HEADS", "WIDTH", "PAGE", "TILE")),
    ),
    ("rows", "1", "1"),
    (
        Output(
            "out",
            ("i", "h", "d"),
            "mean(over_split(grouped(queries[i, :, :], 1), cache(keys, values), split_of(0, lengths[i] - 1, 0, "
            "lambda j: tables[i, j // PAGE] * PAGE + j % PAGE, lengths[i]), scale, WIDTH))[0, h, d]",
            ("i", "0", "0"),
            ("h", "d"),
        ),
    ),
    "TILE == 64",
    "longest <= table_width * PAGE <= 1024",
    facts=(
        Fact(("i",), "lengths[i] <= longest", kept="where a batch is made"),
        Fact(("i", "c"), "tables[i, c] >= 0 or lengths[i] <= c * PAGE", kept="by the page pool"),
    ),
    own_programs=(mean,),
)
"""Heads of one query over up to 1,024 paged keys, of which it is the last; the longest sequence's length is known."""

ATTEND_WINDOW = replace(
    ATTEND,
    parameters=(*ATTEND.parameters, Constant("WINDOW")),
    outputs=(replace(ATTEND.outputs[0], value=ATTEND.outputs[0].value.replace("- 1, 0,", "- 1, WINDOW,")),),
)
"""The same over the last positions alone."""
