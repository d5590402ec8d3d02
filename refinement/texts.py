"""A step as propositional scripts: the specification's texts, compiled once, for the ids of one step."""

from __future__ import annotations

import ast
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from vosti.refinement.candidates import Question
from vosti.refinement.evidence import BY_EVIDENCE, Evidence
from vosti.refinement.smt.compiler import Compiler
from vosti.refinement.smt.components import Ids, Key, flat, parts, resolved
from vosti.refinement.smt.concrete import UNDEFINED, Cases, Work
from vosti.refinement.smt.terms import BOOL, FALSE, INT, TRUE, Term, conj, disj, symbol
from vosti.refinement.smt.unrolling import Candidate, Constraint, Domains, Phase, Unrolling, Write, asserted
from vosti.refinement.smt.values import RecordType, Type, Value, field_types, sort_of, type_of
from vosti.spec import actions
from vosti.spec.rows import ROW_CONJUNCTS, Rows
from vosti.spec.state import PageId, Request, RequestId, State
from vosti.spec.step import RULES, Action, Compute, Observe, arguments
from vosti.spec.step import Phase as When

Replaced = Mapping[str, ast.FunctionDef]
"""Other texts for some functions, by qualified name: how it is tried whether a fault in a text would be noticed."""

STATE, EVIDENCE, ROWS, INDEX = "s", "seen", "rows", "i"
"""The names of the symbolic state, of what is known of values, of the forward's rows, and of one row's index."""


@dataclass(frozen=True)
class Text:
    """A guard and an effect, compiled for parameters that stand for anything."""

    parameters: tuple[tuple[str, Type], ...]
    """Those after the state and the evidence."""

    guard: Term
    after: Value

    def env(self, values: Iterable[object]) -> dict[Term, Hashable]:
        """What the symbols of the parameters stand for, if the parameters have these values."""
        found: dict[Term, Hashable] = {}
        for (name, ty), value in zip(self.parameters, values, strict=True):
            for (part, _), content in flat(ty, name, value):
                found[symbol(part, self.sorts[part])] = content
        return found

    @cached_property
    def sorts(self) -> Mapping[str, str]:
        """The sort of each symbol of the parameters."""
        return dict(sort for name, ty in self.parameters for sort in _sorts(ty, name))


def _sorts(ty: Type, name: str) -> Iterator[tuple[str, str]]:
    """The symbols of a parameter: one, or one for each field."""
    if isinstance(ty, RecordType):
        for field, of in field_types(ty).items():
            yield from _sorts(of, f"{name}.{field}")
    else:
        yield name, sort_of(ty)


class Texts:
    """The compiled texts of all actions that a search tries, of the forward's conditions, and of what a row writes."""

    def __init__(self, replaced: Replaced | None) -> None:
        self.compiler = Compiler(replaced)
        self.s = self.compiler.symbolic(type_of(State), STATE)
        seen = self.compiler.symbolic(type_of(Evidence), EVIDENCE)
        rows, i = self.compiler.symbolic(type_of(Rows), ROWS), self.compiler.symbolic(type_of(int), INDEX)
        self.actions: dict[type, Text] = {}
        for kind, rule in RULES.items():
            if kind not in (Compute, Observe):
                guard, extra = (BY_EVIDENCE[kind], (seen,)) if kind in BY_EVIDENCE else (rule.guard, ())
                self.actions[kind] = self._text(kind.__name__, guard, rule.effect, extra)
        self.rows = tuple(self.compiler.run(conjunct, self.s, rows, i).term for conjunct in ROW_CONJUNCTS)
        self.written = self._text("written", None, actions.written, ())

    def _text(
        self, name: str, guard: Callable[..., bool] | None, after: Callable[..., State], extra: tuple[Value, ...]
    ) -> Text:
        run, symbolic = self.compiler.run, self.compiler.symbolic
        parameters = tuple((f"{name}.{x}", ty) for x, ty in self.compiler.parameters(after)[1:])
        values = [symbolic(ty, x) for x, ty in parameters]
        condition = TRUE if guard is None else run(guard, self.s, *extra, *values).term
        return Text(parameters, condition, run(after, self.s, *values).value)


@lru_cache(maxsize=1)
def _own() -> Texts:
    return Texts(None)


def texts(replaced: Replaced | None = None) -> Texts:
    """The specification's texts, some of them replaced.

    Raises:
        Refused: if a text is outside the subset.
    """
    return Texts(replaced) if replaced else _own()


class Scripts:
    """The scripts of one step, for any number of actions."""

    def __init__(self, question: Question, compiled: Texts, work: Work) -> None:
        """Find what can happen in each phase. Raises `WorkExhausted` if that is more than is allowed."""
        self.question, self.compiled = question, compiled
        evidence = question.evidence
        self._values = bool(evidence.sick_values or question.rereadings)
        self.ids = Ids({"RequestId": question.requests, "PageId": question.pages}, self._width)
        before = {key: value for key, value in flat(type_of(State), STATE, question.before) if self._occurs(key)}
        constants = {
            **{key: value for key, value in before.items() if key[0] in ("s.capacity.has", "s.page_size")},
            **dict(flat(type_of(Evidence), EVIDENCE, evidence)),
            **dict(flat(type_of(Rows), ROWS, question.rows)),
        }
        self.unrolling: Unrolling[Action] = Unrolling(self.ids, constants, work, self._allowed)
        self._now = dict(parts(compiled.s, STATE, self.ids))
        self._after: dict[type, dict[Key, Term]] = {}
        start: Domains = {
            key: {before.get(key, False if term.sort == BOOL else UNDEFINED): None}
            for key, term in self._now.items()
            if key not in constants and self._occurs(key)
        }
        self.phases: list[Phase[Action]] = []
        self.between: list[str] = []
        if question.phase is When.PLAN:
            self.phases.append(self.unrolling.phase(start, self._candidates(question.plan())))
            formulas, after = self.unrolling.forward(self.phases[0].domains, self._constraints(), self._writes())
            start = {key: dict.fromkeys(cases) for key, cases in after.items()}
            settle = self.unrolling.phase(start, self._candidates(question.settle()))
            self.between.append(asserted([*formulas, *self.unrolling.link(after, settle.domains)], "b"))
            self.phases.append(settle)
        else:
            formulas = []
            self.phases.append(self.unrolling.phase(start, self._candidates(question.settle())))
        self.goal = self._goal()
        free = question.before.capacity - question.after.pages.keys()
        self.possible = FALSE not in (*formulas, *self.goal) and free == question.after.free
        """Whether there is something to ask a solver."""

    def script(self, n: int) -> str:
        """The script for at most n actions."""
        return self.unrolling.script(n, self.phases, self.between, self.goal)

    def happened(self, n: int, true: frozenset[str]) -> tuple[Action, ...]:
        """The actions of a model, in order."""
        return tuple(action for phase in self.unrolling.happened(n, self.phases, true) for action in phase)

    # ---------------------------------------------------------------- ids

    def _width(self, key: Key) -> int:
        """How long tables and pages may be in this step."""
        name, (of, *_) = key
        if name == "s.requests.table.len":
            return self.question.blocks[RequestId(str(of))]
        return self.question.before.page_size if name == "s.pages.kv.len" and self._values else 0

    def _occurs(self, key: Key) -> bool:
        """Whether a component is about pages of this step, and not about values that nobody looks at."""
        name, params = key
        if name.startswith("s.pages.kv"):
            return self._values and params[0] in self.ids.by_sort["PageId"]
        return not name.startswith("s.pages.") or params[0] in self.ids.by_sort["PageId"]

    def _allowed(self, key: Key, value: Hashable) -> bool:
        """Tables have the blocks that occur in the step, and no more."""
        return key[0] != "s.requests.table.len" or not isinstance(value, int) or value <= self._width(key)

    # ---------------------------------------------------------------- phases

    def _candidates(self, some_actions: Iterable[Action]) -> list[Candidate[Action]]:
        return [self._candidate(action) for action in dict.fromkeys(some_actions)]

    def _candidate(self, action: Action) -> Candidate[Action]:
        text = self.compiled.actions[type(action)]
        env = text.env(arguments(action))
        return Candidate(action, text.guard, self._changed(type(action), text, env), env)

    def _changed(self, kind: type, text: Text, env: Mapping[Term, Hashable]) -> dict[Key, Term]:
        """The components that an effect may change, for these parameters: the others' terms are the state's own."""
        if kind not in self._after:
            self._after[kind] = {key: t for key, t in parts(text.after, STATE, self.ids) if self._occurs(key)}
        changed = ((key, resolved(term, env, self.ids)) for key, term in self._after[kind].items())
        return {key: term for key, term in changed if term is not self._now[key]}

    def _constraints(self) -> Iterator[Constraint]:
        i = symbol(INDEX, INT)
        for conjunct in self.compiled.rows:
            yield from (Constraint(conjunct, {i: number}) for number in range(len(self.question.rows)))

    def _writes(self) -> Iterator[Write]:
        text = self.compiled.written
        for pair in self.question.written:
            env = text.env(pair)
            yield Write(self._changed(State, text, env), env)

    # ---------------------------------------------------------------- what was recorded

    def _goal(self) -> list[Term]:
        """What was recorded of the state afterwards, as formulas about the end."""
        frame = self.unrolling.frame(self.phases[-1].domains)
        return [frame.get(key, {UNDEFINED: TRUE}).get(value, FALSE) for key, value in self._recorded()] + [
            self._count(frame, page_id, view.refcount)
            for page_id, view in self.question.after.pages.items()
            if page_id in self.ids.by_sort["PageId"]
        ]

    def _recorded(self) -> Iterator[tuple[Key, Hashable]]:
        question = self.question
        for r in question.requests:
            yield ("s.requests.has", (r,)), r in question.after.requests
        for r, request in question.after.requests.items():
            yield from flat(type_of(Request), "s.requests", request, (r,))
        for p in question.pages:
            yield ("s.pages.has", (p,)), p in question.after.pages
            if p in question.after.pages:
                view = question.after.pages[p]
                yield ("s.pages.registered", (p,)), view.registered
                yield from flat(type_of(PageId | None), "s.pages.parent", view.parent, (p,))
                yield ("s.pages.domain", (p,)), view.domain
                yield ("s.pages.tokens", (p,)), view.tokens
        for reading in question.rereadings:
            if reading.page in question.pages:
                yield ("s.pages.kv.len", (reading.page,)), len(reading.slots)
                for slot, value in enumerate(reading.slots):
                    yield ("s.pages.kv.at", (reading.page, slot)), value

    def _count(self, frame: Mapping[Key, Cases], page_id: PageId, refcount: int) -> Term:
        """A page has so many holders."""
        counts: dict[int, Term] = {0: TRUE}
        for r in self.question.requests:
            cases, longer = frame["s.pages.holders.has", (page_id, r)], dict[int, Term]()
            for n, when in counts.items():
                for held, condition in cases.items():
                    k = n + bool(held)
                    longer[k] = disj(longer.get(k, FALSE), conj(when, condition))
            counts = longer
        return counts.get(refcount, FALSE)
