"""A kernel's term against a row program's: by structure, integers by the solver, and by the rules.

Matching goes from the outside in. Both sides are brought to the operation they consist of (`Matcher.head`): choices
whose condition is decided are taken. A condition on integers that is not decided splits the proof in two. Loops are
aligned by their absolute index (`vosti.kernels.verifier.loops`). Where the sides differ, the error names the kernel's
operation and its line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache, partial

from vosti.kernels.verifier import rules
from vosti.kernels.verifier.errors import RefusedError, place_of
from vosti.kernels.verifier.integers import Cond, Int, condition, equal, integer, neg
from vosti.kernels.verifier.ir import Op
from vosti.kernels.verifier.loops import Alignment, entered, iterations, same_cell
from vosti.kernels.verifier.queries import Context, Prover
from vosti.kernels.verifier.rules import Rule
from vosti.kernels.verifier.sums import match_sums, of_words
from vosti.kernels.verifier.terms import (
    Apply,
    Argument,
    Chain,
    Condition,
    Constant,
    Finite,
    Fold,
    Index,
    Joined,
    Load,
    Reduce,
    Result,
    Said,
    Select,
    State,
    Term,
    Test,
    Truth,
    Whole,
    number,
)

Handed = Callable[[Load, Context], Term]
"""For a load from a buffer that an earlier launch wrote: what is there."""


Shown = Callable[[Term, Said, Context], bool]
"""Whether a term of the kernel was shown before to be what the contract says of a cell."""


class MismatchError(RefusedError):
    """A kernel's term is not shown equal to the row program's."""

    def __init__(self, why: str, kernel: Term | None = None, program: Term | None = None) -> None:
        self.kernel = kernel
        place = f"\n  operation: {kernel.op.name} at line {place_of(kernel.op)}" if kernel and kernel.op else ""
        sides = f"\n  kernel: {kernel}\n  row program: {program}" if kernel is not None and program is not None else ""
        super().__init__(why + place + sides)

    def used_by(self, op: Op | None) -> None:
        """Name an operation that takes the deviating one's result, on the way to what is stored."""
        if op is not None and (place := f"{op.name} at line {place_of(op)}\n") not in f"{self}\n":
            self.args = (f"{self}\n  used by: {place}".rstrip(),)


class ConditionsError(MismatchError):
    """Two conditions on numbers differ, as far as nothing is assumed of them."""


class Matcher:
    """Matches, and keeps the rules that were used."""

    def __init__(self, prover: Prover, handed: Mapping[str, Handed] | None = None) -> None:
        self.prover = prover
        self.shown: Shown = lambda kernel, said, context: False
        self.handed = handed or {}
        self.used: Counter[str] = Counter()
        self._alignments: list[Alignment] = []
        self.head: Callable[[Term, Context], Term] = cache(self._head)
        self.collapsed: Callable[[Term, Context], Term] = cache(self._collapse)
        self._matched: set[tuple[Term, Term, Context]] = set()
        self._truths: dict[Test, Cond] = {}
        """Of comparisons that were assumed, or their opposite, in some context: the symbol that stands for each."""

    def use(self, rule: Rule) -> None:
        """Take down that a rule was used."""
        self.used[rule.name] += 1

    # ------------------------------------------------------------ heads

    def _head(self, term: Term, context: Context) -> Term:
        """The same number, with every choice taken that the context decides, down to an operation."""
        while isinstance(term, Select):
            decided = self.decide(term.condition, context)
            if decided is None:
                return term
            self.use(rules.SELECTION)
            term = term.yes if decided else term.no
        if isinstance(term, Load) and term.buffer in self.handed:
            self.use(rules.HANDED_OVER)
            return self.head(self.handed[term.buffer](term, context), context)
        if isinstance(term, Apply) and term.element != "i1":
            arguments = [self.head(one, context) for one in term.arguments] if term.name in _FOLDED else []
            constants = tuple(one for one in arguments if isinstance(one, Constant))
            if arguments and len(constants) == len(arguments):
                found = rules.folded(term.name, constants, term.element)
                if found is not None:
                    self.use(rules.CONSTANTS)
                    return found
            if term.name == "mulf" and term.element == "f32" and constants and constants[-1].bits == rules.ONE:
                self.use(rules.CONSTANTS)
                return next(one for one in arguments if one is not constants[-1])
        return term

    def decide(self, one: Condition, context: Context) -> bool | None:
        """Whether a condition holds or fails, if that is known."""
        if isinstance(one, Cond):
            return context.decide(one)
        if isinstance(one, Joined):
            parts = [self.decide(part, context) for part in one.parts]
            decisive = one.name == "or"
            return decisive if decisive in parts else None if None in parts else not decisive
        assumed = self._truths.get(one)
        if assumed is not None and (assumed in context.assumed or neg(assumed) in context.assumed):
            return assumed in context.assumed
        left, right = (self.collapsed(side, context) for side in (one.left, one.right))
        if isinstance(left, Constant) and isinstance(right, Constant) and one.predicate in rules.COMPARISONS:
            self.use(rules.CONSTANTS)
            return rules.COMPARISONS[one.predicate](number(left), number(right))
        return None

    def _collapse(self, term: Term, context: Context) -> Term:
        """The same number; a loop that leaves a cell alone is what the cell started from."""
        term = self.head(term, context)
        while isinstance(term, Result):
            index, inside = entered(self.prover, term.fold, context)
            if not (inside.contradictory or self.keeps(term.fold, term.cell, term.place, index, inside)):
                return term
            self.use(rules.IDENTITY)
            term = self.head(term.fold.initial(term.cell, term.place), context)
        if isinstance(term, Reduce) and term.name == "maxnumf":
            lane = self.collapsed(term.body(self.prover.ranged("lane", term.length)), context)
            if isinstance(lane, Constant):
                self.use(rules.FREE_MAXIMUM)
                return lane
        return term

    def keeps(self, fold: Fold, cell: int, place: Index, index: Int, context: Context) -> bool:
        """Whether an iteration leaves a cell alone."""
        after = self.head(fold.after(cell, place, index), context)
        return isinstance(after, State) and same_cell(after, fold, cell, place, context)

    # ------------------------------------------------------------ matching

    def match(self, kernel: Term, program: Term, context: Context) -> None:
        """Show that the two are one number.

        Raises:
            MismatchError: naming the operation of the kernel that deviates.
        """
        key = kernel, program, context
        if kernel is program or key in self._matched:
            return
        k, c = self.head(kernel, context), self.head(program, context)
        try:
            if not any(self.cases(one, context, partial(self.match, k, c)) for one in (c, k)):
                self._match(k, c, context)
        except MismatchError as error:
            error.used_by(k.op)
            error.used_by(kernel.op)
            raise
        self._matched.add(key)

    def attempt(self, then: Callable[[], None]) -> RefusedError | None:
        """Try to show something; if it fails, forget what was assumed or shown on the way, and say why."""
        alignments, matched = [(one, dict(one.pairs)) for one in self._alignments], set(self._matched)
        try:
            then()
        except RefusedError as error:
            self._alignments, self._matched = [one for one, _ in alignments], matched
            for one, pairs in alignments:
                one.pairs = pairs
            return error
        return None

    def split(self, one: Cond, context: Context, then: Callable[[Context], None]) -> None:
        """Both cases of a condition, as far as they are possible."""
        for case in (one, neg(one)):
            inner = context.given(case)
            if not inner.contradictory:
                then(inner)

    def proved(self, goal: Cond, claim: str, context: Context, kernel: Term, program: Term) -> None:
        """Show what has to hold for two terms to be one number."""
        try:
            context.prove(goal, claim)
        except RefusedError as error:
            raise MismatchError(str(error), kernel, program) from None

    def integers(self, left: Int, right: Int, claim: str, context: Context, kernel: Term, program: Term) -> None:
        """Show that two integers are equal."""
        left, right = context.simplified(left), context.simplified(right)
        if left is not right:
            self.proved(equal(left, right), claim, context, kernel, program)

    def cases(self, term: Term, context: Context, then: Callable[[Context], None]) -> bool:
        """Where a term is a choice by a condition on integers: both cases."""
        if not (isinstance(term, Select) and isinstance(term.condition, Cond)):
            return False
        self.split(term.condition, context, then)
        return True

    def _match(self, k: Term, c: Term, context: Context) -> None:
        match k, c:
            case _, Said():
                if not self.shown(k, c, context):
                    self.match(k, c.term, context)
            case Reduce(name="maxnumf"), _ if not isinstance(c, Reduce):
                self._equal_lanes(k, c, context)
            case Apply(name="addf"), Reduce(name="addf", length=2):
                self.use(rules.TWO_LANES)
                for lane, argument in enumerate(k.arguments):
                    self.match(argument, c.body(integer(lane)), context)
            case _ if of_words(c) or (of_words(k) and isinstance(c, Whole)):
                match_sums(self, k, c, context)
            case Result(), Chain():
                self._loop_of_chains(k, c, context)
            case Result(), Result():
                self._cells(k, c, context)
            case State(), State():
                self._cells(k, c, context)
            case _ if type(k) is not type(c) or k.element != c.element:
                raise MismatchError("The kernel computes something else than the row program.", k, c)
            case Constant(), Constant():
                if k.bits != c.bits:
                    raise MismatchError("Two constants differ.", k, c)
            case Argument(), Argument():
                if k.name != c.name:
                    raise MismatchError("Two parameters differ.", k, c)
            case Load(), Load():
                if k.buffer != c.buffer:
                    raise MismatchError("The kernel reads another buffer.", k, c)
                self.integers(k.offset, c.offset, f"The kernel reads another element of {k.buffer}", context, k, c)
            case Whole(), Whole():
                self.integers(k.value, c.value, "Two integers differ", context, k, c)
            case Truth(), Truth():
                self._conditions(k.condition, c.condition, context, k, c)
            case Apply(), Apply():
                self._apply(k, c, context)
            case Select(), Select():
                self._select(k, c, context)
            case Reduce(), Reduce():
                self._reduce(k, c, context)
            case Chain(), Chain():
                self._chain(k, c, context)
            case _:
                raise AssertionError(f"{type(k)} is matched by nothing")

    def _apply(self, k: Apply, c: Apply, context: Context) -> None:
        if k.name != c.name or len(k.arguments) != len(c.arguments):
            raise MismatchError(f"The kernel has {k.name} where the row program has {c.name}.", k, c)
        if k.name in rules.FUNCTIONS:
            self.use(rules.FUNCTION)
        if k.name in rules.CONVERSIONS and k.element != "f64":
            self.use(rules.CONVERSION)
        if k.name == "exp":
            match self.head(k.arguments[0], context), self.head(c.arguments[0], context):
                case Apply(name="subf", arguments=(zero, x)), Apply(name="negf", arguments=(y,)):
                    zero = self.head(zero, context)
                    if isinstance(zero, Constant) and zero.bits == 0:
                        self.use(rules.ZERO_EXPONENT)
                        self.match(x, y, context)
                        return
        for left, right in zip(k.arguments, c.arguments, strict=True):
            self.match(left, right, context)

    def _select(self, k: Select, c: Select, context: Context) -> None:
        self._conditions(k.condition, c.condition, context, k, c)
        for yes, left, right in ((True, k.yes, c.yes), (False, k.no, c.no)):
            if not isinstance(k.condition, Test):
                self.match(left, right, context)
            elif (error := self.attempt(partial(self.match, left, right, context))) is not None:
                # What is chosen may hold a choice by the same comparison again, which is then decided.
                one = self._truths.setdefault(k.condition, condition(str(self.prover.fresh("test"))))
                decided = context.given(one if yes else neg(one))
                if (again := self.attempt(partial(self.match, left, right, decided))) is not None:
                    raise again if isinstance(error, ConditionsError) else error

    def _conditions(self, k: Condition, c: Condition, context: Context, kernel: Term, program: Term) -> None:
        """Show that two conditions are equal, at least one of which depends on numbers."""
        if isinstance(k, Test) and isinstance(c, Test) and k.predicate == c.predicate:
            self.match(k.left, c.left, context)
            self.match(k.right, c.right, context)
        elif isinstance(k, Joined) and isinstance(c, Joined) and k.name == c.name:
            for left, right in zip(k.parts, c.parts, strict=True):
                self._conditions(left, right, context, kernel, program)
        elif isinstance(k, Cond) and isinstance(c, Cond):
            claim = "Two conditions differ"
            self.split(k, context, lambda one: self.proved(c if one.holds(k) else neg(c), claim, one, kernel, program))
        else:
            raise ConditionsError("Two conditions differ.", kernel, program)

    def _reduce(self, k: Reduce, c: Reduce, context: Context) -> None:
        over, other = f"{k.name} over {k.length} lanes", f"{c.name} over {c.length}"
        if (k.name, k.length) != (c.name, c.length):
            raise MismatchError(f"The kernel has {over} where the row program has {other}.", k, c)
        if (k.name, k.length) == ("addf", 2):
            self.use(rules.TWO_LANES)
        elif k.name in _FREE:
            self.use(rules.FREE_MAXIMUM)
        else:
            raise MismatchError(f"{over} has an order that depends on the layout: not in a row program.", k, c)
        lane = self.prover.ranged("lane", k.length)
        self.match(k.body(lane), c.body(lane), context)

    def _equal_lanes(self, k: Reduce, c: Term, context: Context) -> None:
        """A maximum of lanes that are all one number."""
        self.match(k.body(self.prover.ranged("lane", k.length)), k.body(integer(0)), context)
        self.use(rules.FREE_MAXIMUM)
        self.match(k.body(integer(0)), c, context)

    # ------------------------------------------------------------ chains

    def _chain(self, k: Chain, c: Chain, context: Context) -> None:
        if k.elements != c.elements or k.elements[0] not in rules.CHAINED:
            raise MismatchError(f"A product of {k.elements} where the row program has one of {c.elements}.", k, c)
        self.use(rules.CHAIN)
        self.integers(k.length, c.length, "A chain of another length", context, k, c)
        self.match(k.start, c.start, context)
        index = self.prover.ranged("k", k.length)
        self._factors(k, c, index, index, context)

    def _loop_of_chains(self, k: Result, c: Chain, context: Context) -> None:
        """A loop, each iteration of which goes on with the product, is one chain."""
        fold = k.fold
        index, inside = entered(self.prover, fold, context)
        body = self.head(fold.after(k.cell, k.place, index), inside)
        if not isinstance(body, Chain) or body.elements != c.elements or body.elements[0] not in rules.CHAINED:
            raise MismatchError("The loop's iterations are not products like the row program's chain.", body, c)
        length = body.length.constant
        if length is None or length % rules.GROUP:
            raise MismatchError(f"A product of {body.length} factors is not made of groups of {rules.GROUP}.", body, c)
        start = self.head(body.start, inside)
        if not (isinstance(start, State) and same_cell(start, fold, k.cell, k.place, inside)):
            raise MismatchError("A product does not start from the sum before it.", body, c)
        self.use(rules.CHAIN)
        context.prove(fold.low <= fold.high, "A loop runs backwards")
        number, times = iterations(fold, index)
        self.integers(length * times, c.length, "A chain of another length", context, body, c)
        self.match(fold.initial(k.cell, k.place), c.start, context)
        lane = self.prover.ranged("k", length)
        self._factors(body, c, lane, length * number + lane, inside)

    def _factors(self, k: Chain, c: Chain, own: Int, place: Int, context: Context) -> None:
        """One product of a chain. If both left factors are +0, the right ones need only be finite."""
        finite = c.finite(place) if c.finite else None
        b, right = k.right(own), c.right(place)

        def product(a: Term, left: Term, context: Context) -> None:
            a, left = self.head(a, context), self.head(left, context)
            for inner in (left, a, *(self._under_conversion(one, context) for one in (left, a))):
                if self.cases(inner, context, partial(product, a, left)):
                    return
            if all(isinstance(one, Constant) and one.bits == 0 for one in (a, left)):
                self.use(rules.MASKED_PRODUCT)
                for one in (b, right):
                    self._finite(one, finite, context)
                return
            self.match(a, left, context)
            self.match(b, right, context)

        product(k.left(own), c.left(place), context)

    def _under_conversion(self, term: Term, context: Context) -> Term:
        """What a conversion converts."""
        while isinstance(term, Apply) and term.name in rules.CONVERSIONS:
            term = self.head(term.arguments[0], context)
        return term

    def _finite(self, term: Term, premise: Finite | None, context: Context) -> None:
        """Show that a factor of a masked product is finite."""
        term = self.head(term, context)
        if self.cases(term, context, partial(self._finite, term, premise)):
            return
        if isinstance(term, Load) and premise is not None and term.buffer == premise.buffer:
            goal = premise.when & equal(term.offset, premise.offset)
            self.proved(goal, "A masked product's factor need not be finite", context, term, term)
        elif not (isinstance(term, Constant) and rules.finite(term)):
            raise MismatchError("A masked lane multiplies 0 by what is not known to be finite.", term, term)

    # ------------------------------------------------------------ loops

    def _cells(self, k: Result | State, c: Result | State, context: Context) -> None:
        if k.fold is c.fold and same_cell(k, c.fold, c.cell, c.place, context):
            return
        for one in reversed(self._alignments):
            if one.concerns(k, c) and context.within(one.context):
                break
        else:
            if not (isinstance(k, Result) and isinstance(c, Result)):
                raise MismatchError("States of loops that do not correspond.", k, c)
            one = Alignment(self, k, c, context)
            self._alignments.append(one)
        one.require(k.fold, k.cell, k.place, c.cell, c.place)

    def first_iteration(self, first: Term, generic: Term, context: Context) -> None:
        """Show that a merge with the initial state is what a row program takes for its first iteration."""
        merged = self.head(generic, context)
        taken = self.head(first, context)
        if isinstance(merged, Select) and isinstance(merged.condition, Test) and isinstance(taken, Result):
            total, zero = merged.condition.left, self.head(merged.condition.right, context)
            of_zero = merged.condition.predicate == "oeq" and isinstance(zero, Constant) and number(zero) == 0
            if of_zero and isinstance(total, Result) and total.cell == TOTAL:
                self.use(rules.EMPTY_TOTAL)
                self.match(total, Result(taken.fold, TOTAL, (*taken.place[:-1], integer(0)), element="f32"), context)
                self.match(merged.no, taken, context)
                self.match(merged.yes, taken.fold.initial(taken.cell, taken.place), context)
                return
        self.match(merged, taken, context)


TOTAL = 1
"""The cell of a running softmax's state that is its total: the second field of `Partial`."""

_FOLDED = frozenset({"addf", "subf", "mulf"}) | rules.CONVERSIONS
_FREE = frozenset({"maxnumf", "maxsi"})
