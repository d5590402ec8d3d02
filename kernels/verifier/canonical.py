"""Row programs as terms: the primitives of `vosti.spec.numerics.ops` over arrays of terms.

The text that runs is that of `vosti.spec.numerics`, as everywhere else; nothing of it is repeated here. What is fixed
here is what its opaque primitives are on a GPU: a chain is a product of tensor cores over the factors' own elements,
sums over weights are such products, with weights rounded to the element of values. Where the text has a Python loop
whose length is not known (`attention`), the loop's body is compiled as a function of the state (`unbounded`), and the
loop becomes a `ProgramLoop`.
"""

from __future__ import annotations
import __future__

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, TypeAlias

from vosti.kernels.verifier.integers import Cond, Int, condition, integer, neg
from vosti.kernels.verifier.ir import Op, float_bits
from vosti.kernels.verifier.queries import Prover
from vosti.kernels.verifier.tensors import as_term
from vosti.kernels.verifier.terms import (
    Apply,
    Chain,
    Condition,
    Constant,
    Finite,
    Index,
    Joined,
    Load,
    Reduce,
    Result,
    Select,
    State,
    Term,
    Test,
)

Scalar: TypeAlias = Term | Int | Cond | Test | Joined
Operand: TypeAlias = "Array | Term | float"


def constant(value: float, element: str = "f32") -> Constant:
    """The number nearest to a Python float."""
    return Constant(float_bits(element, value), element=element)


def widened(term: Term) -> Term:
    """A number as binary32."""
    return term if term.element == "f32" else Apply("extf", (term,), element="f32")


def rounded(term: Term, element: str) -> Term:
    """A number in the element type of where it goes."""
    return term if term.element == element else Apply("truncf", (term,), element=element)


def _kept(function: Callable[[Index], Scalar]) -> Callable[[Index], Scalar]:
    """The function, each value made once."""
    known: dict[Index, Scalar] = {}

    def at(place: Index) -> Scalar:
        if place not in known:
            known[place] = function(place)
        return known[place]

    return at


@dataclass(frozen=True, eq=False)
class Array:
    """Terms, integers or conditions with a shape."""

    shape: tuple[int, ...]
    at: Callable[[Index], Scalar]
    finite: Callable[[Index], Finite] | None = None
    """Of values: what the contract says of each."""

    cached: Callable[[Index], Cond] | None = None
    """Of slots: whether something is stored there."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "at", _kept(self.at))

    def __getitem__(self, key: Any) -> Any:
        """Elements by indices and slices: an integer drops its axis."""
        keys = key if isinstance(key, tuple) else (key,)
        kept = [(axis, one) for axis, one in enumerate(keys) if isinstance(one, slice)]
        shape = tuple(len(range(*one.indices(self.shape[axis]))) for axis, one in kept) + self.shape[len(keys) :]

        def at(place: Index) -> Scalar:
            full = list(keys)
            for (axis, one), index in zip(kept, place, strict=False):
                start, _, step = one.indices(self.shape[axis])
                full[axis] = start + step * index
            return self.at((*(integer(index) for index in full), *place[len(kept) :]))

        return Array(shape, at) if shape else at(())

    @property
    def T(self) -> Array:
        """With the axes in reverse order."""
        return Array(self.shape[::-1], lambda place: self.at(place[::-1]))

    def term(self, place: Index) -> Term:
        """An element of an array of numbers."""
        value = self.at(place)
        assert isinstance(value, Term)
        return value

    def int(self, place: Index) -> Int:
        """An element of an array of integers."""
        value = self.at(place)
        assert isinstance(value, Int)
        return value


@dataclass(frozen=True)
class Cache:
    """Keys and values, each [slots, kv heads, d], of as many slots as there are."""

    keys: Callable[[Int, Int, Int], Term]
    values: Callable[[Int, Int, Int], Term]
    kv_heads: int
    head_dim: int
    place: Callable[[Int, Int, Int], tuple[str, Int]]
    """Where a value is: buffer and offset."""


def _array(value: Operand) -> Array:
    if isinstance(value, Array):
        return value
    term = value if isinstance(value, Term) else constant(float(value))
    return Array((), lambda _: term)


def _broadcast(*arrays: Array) -> tuple[tuple[int, ...], Callable[[Array, Index], Scalar]]:
    """The common shape, and how an element of it is one of an array's."""
    rank = max(len(array.shape) for array in arrays)
    shape = tuple(
        max(array.shape[axis] if -axis <= len(array.shape) else 1 for array in arrays) for axis in range(-rank, 0)
    )
    for array in arrays:
        if any(n not in (1, m) for n, m in zip(array.shape[::-1], shape[::-1], strict=False)):
            raise ValueError(f"Shapes {[array.shape for array in arrays]} do not broadcast.")

    def pick(array: Array, place: Index) -> Scalar:
        own = place[len(place) - len(array.shape) :]
        return array.at(tuple(integer(0) if n == 1 else i for i, n in zip(own, array.shape, strict=True)))

    return shape, pick


class Terms:
    """The instance of `vosti.spec.numerics.ops.Ops` over arrays of terms."""

    def __init__(self, prover: Prover, half: str) -> None:
        self.prover = prover
        self.half = half
        """The element type that weights are rounded to."""

    def _each(self, name: str, *operands: Operand) -> Array:
        arrays = [_array(one) for one in operands]
        shape, pick = _broadcast(*arrays)

        def at(place: Index) -> Term:
            terms = tuple(widened(as_term(pick(array, place), "f32")) for array in arrays)
            return Apply(name, terms, element="f32")

        return Array(shape, at)

    def add(self, x: Operand, y: Operand) -> Array:
        """x + y."""
        return self._each("addf", x, y)

    def sub(self, x: Operand, y: Operand) -> Array:
        """x − y."""
        return self._each("subf", x, y)

    def mul(self, x: Operand, y: Operand) -> Array:
        """x · y."""
        return self._each("mulf", x, y)

    def div(self, x: Operand, y: Operand) -> Array:
        """x / y, rounded to nearest."""
        return self._each("precise_divf", x, y)

    def negate(self, x: Operand) -> Array:
        """−x."""
        return self._each("negf", x)

    def rsqrt(self, x: Operand) -> Array:
        """1 / √x, both rounded to nearest."""
        return self._each("precise_divf", 1.0, self._each("precise_sqrt", x))

    def maximum(self, x: Operand, y: Operand) -> Array:
        """The larger."""
        return self._each("maxnumf", x, y)

    def exp(self, x: Operand) -> Array:
        """The target's eˣ."""
        return self._each("exp", x)

    def tanh(self, x: Operand) -> Array:
        """The target's tanh."""
        return self._each("__nv_tanhf", x)

    def is_zero(self, x: Array) -> Array:
        """Whether each element is zero, of either sign."""
        return Array(x.shape, lambda place: Test("oeq", x.term(place), constant(0.0)))

    def any_lane(self, live: Array) -> Array:
        """Whether any of the last axis is true: implied by the first and by the last, implies a witness."""

        def at(place: Index) -> Cond:
            def lane(index: Int) -> Cond:
                value = live.at((*place[:-1], index))
                assert isinstance(value, Cond)
                return value

            length = live.shape[-1]
            found = condition(str(self.prover.fresh("any")))
            witness = self.prover.ranged("witness", length)
            first, last = lane(integer(0)), lane(integer(length - 1))
            self.prover.state(found, neg(first) | found, neg(last) | found, neg(found) | lane(witness))
            return found

        return Array((*live.shape[:-1], 1), at)

    def select(self, one: Array, x: Operand, y: Operand) -> Array:
        """x where the condition is true, y elsewhere."""
        arrays = one, _array(x), _array(y)
        shape, pick = _broadcast(*arrays)

        def at(place: Index) -> Term:
            test = pick(arrays[0], place)
            assert isinstance(test, Cond | Test | Joined)
            yes, no = (widened(as_term(pick(array, place), "f32")) for array in arrays[1:])
            return Select(test, yes, no, element="f32")

        return Array(shape, at)

    def tree_sum(self, x: Array) -> Array:
        """By halving: each level adds two numbers, so its order is known."""
        length = x.shape[-1]
        width = 1 << (length - 1).bit_length()

        def padded(place: Index) -> Term:
            number = widened(x.term(place))
            return number if width == length else Select(place[-1] < length, number, constant(0.0), element="f32")

        at: Callable[[Index], Term] = padded
        while width > 1:
            width //= 2
            at = _halved(at, width)
        return Array((*x.shape[:-1], 1), at)

    def _chain(self, length: int, left: Callable[[Int], Term], right: Callable[[Int], Term], start: Term) -> Chain:
        element = right(integer(0)).element
        return Chain(
            integer(length),
            lambda k: rounded(left(k), element),
            right,
            start,
            (element, element, "f32"),
            element="f32",
        )

    def chain(self, x: Array, weight: Array) -> Array:
        """x · weight."""
        length, count = weight.shape
        return Array(
            (*x.shape[:-1], count),
            lambda p: self._chain(
                length, lambda k: x.term((*p[:-1], k)), lambda k: weight.term((k, p[-1])), constant(0.0)
            ),
        )

    def scores(self, query: Array, keys: Array) -> Array:
        """query · keysᵀ."""
        return Array(
            (*query.shape[:-1], keys.shape[-2]),
            lambda p: self._chain(
                query.shape[-1],
                lambda k: query.term((*p[:-1], k)),
                lambda k: keys.term((*p[:-2], p[-1], k)),
                constant(0.0),
            ),
        )

    def weighted_sum(self, weights: Array, values: Array, start: Array) -> Array:
        """start + weights · values, one chain."""

        def at(p: Index) -> Chain:
            chain = self._chain(
                weights.shape[-1],
                lambda k: weights.term((*p[:-1], k)),
                lambda k: values.term((*p[:-2], k, p[-1])),
                start.term(p),
            )
            finite = values.finite
            return chain if finite is None else replace(chain, finite=lambda k: finite((*p[:-2], k, p[-1])))

        return Array((*weights.shape[:-1], values.shape[-1]), at)

    def lane_sum(self, x: Array, start: Array) -> Array:
        """start + x · ones, one chain."""
        one = constant(1.0, self.half)
        return Array(
            (*x.shape[:-1], 1),
            lambda p: self._chain(x.shape[-1], lambda k: x.term((*p[:-1], k)), lambda _: one, start.term(p)),
        )

    def lane_max(self, x: Array) -> Array:
        """The largest of the last axis."""
        return Array(
            (*x.shape[:-1], 1),
            lambda p: Reduce("maxnumf", x.shape[-1], lambda k: x.term((*p[:-1], k)), element="f32"),
        )

    def fill(self, like: Array, width: int, value: float) -> Array:
        """`value` everywhere."""
        term = constant(value)
        return Array((*like.shape[:-1], width), lambda _: term)

    def take(self, table: Array, index: Array | Int) -> Array:
        """Rows of a table."""
        if isinstance(index, Int):
            return Array(table.shape[1:], lambda place: table.at((index, *place)))
        rank = len(index.shape)
        return Array((*index.shape, *table.shape[1:]), lambda p: table.at((index.int(p[:rank]), *p[rank:])))

    def halves(self, x: Array) -> tuple[Array, Array]:
        """The first and the second half of the last axis."""
        half = x.shape[-1] // 2
        shape = (*x.shape[:-1], half)
        return Array(shape, x.at), Array(shape, lambda p: x.at((*p[:-1], p[-1] + half)))

    def join(self, x: Array, y: Array) -> Array:
        """One behind the other."""
        half = x.shape[-1]

        def at(place: Index) -> Scalar:
            index = place[-1]
            first = index < half
            if first.value is not None:
                return x.at(place) if first.value else y.at((*place[:-1], index - half))
            yes, no = x.term(place), y.term((*place[:-1], index - half))
            return Select(first, yes, no, element=yes.element)

        return Array((*x.shape[:-1], 2 * half), at)

    def load(self, cache: Cache, slots: Array, live: Array) -> tuple[Array, Array]:
        """Keys and values of one key tile, +0 where not live."""
        shape = (cache.kv_heads, slots.shape[-1], cache.head_dim)

        def of(stored: Callable[[Int, Int, Int], Term]) -> Callable[[Index], Term]:
            def at(place: Index) -> Term:
                head, lane, column = place
                test = live.at((integer(0), integer(0), lane))
                assert isinstance(test, Cond)
                value = stored(slots.int((lane,)), head, column)
                return Select(test, value, constant(0.0, value.element), element=value.element)

            return at

        def finite(place: Index) -> Finite:
            head, lane, column = place
            assert slots.cached is not None
            return Finite(slots.cached((lane,)), *cache.place(slots.int((lane,)), head, column))

        return Array(shape, of(cache.keys)), Array(shape, of(cache.values), finite if slots.cached else None)


def _halved(at: Callable[[Index], Term], width: int) -> Callable[[Index], Term]:
    """S(m, x) from S(m/2, ·): the sum of x(i) and x(i + m/2)."""
    return lambda place: Reduce("addf", 2, lambda b: at((*place[:-1], place[-1] + b * width)), element="f32")


# ---------------------------------------------------------------- loops of unknown length


@dataclass(frozen=True)
class Range:
    """What a loop runs over: item(i) for low ≤ i < high."""

    name: str
    low: Int
    high: Int
    item: Callable[[Int], Any]


class ProgramLoop:
    """A loop of a row program: a `Fold` over all arrays of its state."""

    step = 1
    op: Op | None = None

    def __init__(self, over: Range, body: Callable[..., tuple[Any, ...]], state: tuple[Any, ...]) -> None:
        self.name, self.low, self.high = over.name, over.low, over.high
        self._over, self._body, self._state = over, body, state
        self._arrays = list(_flattened(state))
        self._after: dict[Int, list[Array]] = {}
        self._known: dict[tuple[int, Index, Int], Term] = {}

    def initial(self, cell: int, place: Index) -> Term:
        """The cell before the first iteration."""
        return self._arrays[cell].term(place)

    def after(self, cell: int, place: Index, index: Int) -> Term:
        """The cell after an iteration."""
        if index not in self._after:
            self._after[index] = list(_flattened(self._body(self._over.item(index), *self.state(State))))
        if (cell, place, index) not in self._known:
            self._known[cell, place, index] = self._after[index][cell].term(place)
        return self._known[cell, place, index]

    def state(self, kind: type[State] | type[Result]) -> tuple[Any, ...]:
        """The state as arrays of cells."""
        cells = iter(range(len(self._arrays)))

        def cell(array: Array) -> Array:
            number = next(cells)
            return Array(array.shape, lambda place: kind(self, number, place, element="f32"))

        return tuple(_mapped(part, cell) for part in self._state)

    def first(self) -> tuple[list[Array], list[Array]]:
        """The first iteration from the initial state itself, and as any iteration from a state that equals it."""
        item = self._over.item(self.low)
        copies = tuple(_mapped(part, lambda array: replace(array)) for part in self._state)
        return list(_flattened(self._body(item, *self._state))), list(_flattened(self._body(item, *copies)))


def _flattened(part: Any) -> Iterator[Array]:
    if isinstance(part, Array):
        yield part
    elif is_dataclass(part):
        for one in fields(part):
            yield from _flattened(getattr(part, one.name))
    else:
        for one in part:
            yield from _flattened(one)


def _mapped(part: Any, function: Callable[[Array], Array]) -> Any:
    if isinstance(part, Array):
        return function(part)
    return replace(part, **{one.name: _mapped(getattr(part, one.name), function) for one in fields(part)})


def recompiled(
    function: Callable[..., Any], rewriting: ast.NodeTransformer, names: Mapping[str, object]
) -> Callable[..., Any]:
    """The function's text, rewritten. `names` replaces what it refers to."""
    tree = ast.fix_missing_locations(rewriting.visit(ast.parse(textwrap.dedent(inspect.getsource(function)))))
    code = compile(tree, f"<{function.__name__}>", "exec", flags=__future__.annotations.compiler_flag)
    scope = {**function.__globals__, **names}
    exec(code, scope)
    found: Callable[..., Any] = scope[function.__name__]
    return found


@dataclass
class Unbounded:
    """Compiles functions of row programs so that their loops may run over a `Range`."""

    loops: list[ProgramLoop] = field(default_factory=list)
    """Those whose first iteration the text treats apart: to be shown like any other."""

    _made: dict[tuple[object, ...], tuple[ProgramLoop, object]] = field(default_factory=dict)
    """With what their key refers to, so that no identity is used twice."""

    def compiled(self, function: Callable[..., Any], names: Mapping[str, object]) -> Callable[..., Any]:
        """The function with `for item in over: body` as a loop over the variables that body rebinds.

        `names` replaces what the function refers to.
        """
        return recompiled(function, _Loops(), {**names, "__fold__": self._fold})

    def _fold(
        self, over: object, body: Callable[..., tuple[Any, ...]], state: tuple[Any, ...], apart: bool
    ) -> tuple[Any, ...]:
        if not isinstance(over, Range):
            raise TypeError("a row program's loop of unknown length runs over something that is no range")
        # The same body, over the same range, from the same state, is the same loop.
        captured = tuple(cell.cell_contents for cell in body.__closure__ or ())
        key = (body.__code__, *map(id, (over, *state, *captured)))
        if key not in self._made:
            loop = ProgramLoop(over, body, state)
            self._made[key] = loop, (over, state, captured)
            if apart:
                self.loops.append(loop)
        return self._made[key][0].state(Result)


class _Loops(ast.NodeTransformer):
    """for item in over: body → state = __fold__(over, body as a function of item and state, state, …)."""

    def __init__(self) -> None:
        self._bound: list[set[str]] = []
        self._count = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Of each statement, the names bound before it."""
        self._bound.append({argument.arg for argument in node.args.args})
        node.body = self._statements(node.body)
        self._bound.pop()
        return node

    def _statements(self, body: list[ast.stmt]) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for statement in body:
            found += self._loop(statement) if isinstance(statement, ast.For) else [self.visit(statement)]
            self._bound[-1] |= assigned([statement])
        return found

    def _loop(self, node: ast.For) -> list[ast.stmt]:
        assert isinstance(node.target, ast.Name)
        assert not node.orelse
        carried = sorted(assigned(node.body) & self._bound[-1])
        apart = any(isinstance(one, ast.Is | ast.IsNot) for part in node.body for one in ast.walk(part))
        name = f"__body{self._count}__"
        self._count += 1
        state = ast.Tuple([ast.Name(one, ast.Load()) for one in carried], ast.Load())
        self._bound.append(set(self._bound[-1]) | {node.target.id})
        inner = self._statements(node.body)
        self._bound.pop()
        text = f"def {name}({', '.join([node.target.id, *carried])}): pass"
        definition = ast.parse(text).body[0]
        assert isinstance(definition, ast.FunctionDef)
        definition.body = [*inner, ast.Return(state)]
        call = ast.Call(
            ast.Name("__fold__", ast.Load()),
            [node.iter, ast.Name(name, ast.Load()), state, ast.Constant(apart)],
            [],
        )
        target = ast.Tuple([ast.Name(one, ast.Store()) for one in carried], ast.Store())
        return [definition, ast.Assign([target], call)]


def assigned(body: list[ast.stmt]) -> set[str]:
    """The names that statements bind, those within functions excepted."""
    found: set[str] = set()
    pending: list[ast.AST] = list(body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            found |= {node.name} if isinstance(node, ast.FunctionDef) else set()
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        pending += ast.iter_child_nodes(node)
    return found


def not_finite(term: Term) -> Condition:
    """Whether a number is ±∞ or NaN: whether all bits of its exponent, as binary32, are set."""
    exponent = as_term(integer(0x7F800000), "i32")
    bits = Apply("bitcast:i32", (widened(term),), element="i32")
    return Test("eq", Apply("andi", (bits, exponent), element="i32"), exponent)


def the_load(buffer: str, element: str) -> Callable[[Int], Load]:
    """Elements of a buffer of numbers, by offset."""
    return lambda offset: Load(buffer, offset, element=element)
