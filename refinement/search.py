"""The search for actions that explain a step, when those that were recorded do not.

The guards and effects are the specification's own texts, compiled as for the proofs (`vosti.refinement.smt`), with
every quantifier expanded over the ids that occur in the step. What the solver finds is replayed by the specification's
functions before it is believed. There are three answers, and none stands for another:

- *explained*: these actions lead from the state before to what was recorded after;
- *impossible within N*: no sequence of at most N actions over the ids of the step does;
- *gave up*: there was more to evaluate, or to solve, than was allowed. The limits count work, not time.

The forward is taken as recorded. Its computes are not searched for, and not counted. Who arrived is known of requests
that are live afterwards, and of those whose admission was recorded; of others an admission is not tried.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from importlib import import_module

from vosti.refinement.candidates import Question
from vosti.refinement.errors import RefinementError
from vosti.refinement.evidence import BY_EVIDENCE, Evidence
from vosti.refinement.smt.concrete import Work, WorkExhausted
from vosti.refinement.texts import Replaced, Scripts, texts
from vosti.spec import actions
from vosti.spec.events import PAGE_FIELDS, Snapshot
from vosti.spec.rows import forward_ok
from vosti.spec.state import State
from vosti.spec.step import RULES, Action, Phase, arguments, effect


class Answer(Enum):
    """What came of a search."""

    EXPLAINED = "explained"
    IMPOSSIBLE = "impossible"
    GAVE_UP = "gave up"


@dataclass(frozen=True)
class Outcome:
    """The answer to a question."""

    answer: Answer
    within: int
    """The largest number of actions that was allowed."""

    actions: tuple[Action, ...] = ()
    """Of an explained step: the actions of its plan and its settle, in order; no shorter sequence was found."""

    why: str = ""
    """Of an answer that is no explanation: what it rests on."""

    @property
    def gave_up(self) -> bool:
        """Whether there is no answer."""
        return self.answer is Answer.GAVE_UP

    def __str__(self) -> str:
        """The answer, in a sentence."""
        match self.answer:
            case Answer.EXPLAINED:
                return f"explained by [{', '.join(map(str, self.actions))}]"
            case Answer.IMPOSSIBLE:
                return f"impossible within {self.within} actions ({self.why})"
            case Answer.GAVE_UP:
                return f"gave up before an answer for {self.within} actions was found ({self.why})"


@dataclass(frozen=True)
class Limits:
    """How far a search goes. The two counts of work correspond to about ten seconds together."""

    actions: int = 12
    terms: int = 800_000
    """Terms that are evaluated, and as much of other work."""

    resources: int = 15_000_000
    """Z3's own count, over all its calls."""


LIMITS = Limits()

SHORT = 3
"""Explanations of up to so many actions are looked for first, one length after the other."""


class SolverMissing(RefinementError):
    """A search needs a solver."""

    def __init__(self, name: str | None) -> None:
        super().__init__(
            f"The search for an explanation needs {name}, which is not installed: pip install 'vosti[proofs]'."
        )


def require_solver() -> None:
    """Raises `SolverMissing` if there is no solver, without which nothing can be searched for."""
    try:
        import_module("vosti.refinement.smt.solve")
    except ModuleNotFoundError as error:
        raise SolverMissing(error.name) from error


class ExplanationRefused(RefinementError):
    """What the solver found is no explanation."""

    def __init__(self, found: Iterable[Action]) -> None:
        self.found = tuple(found)
        super().__init__(
            f"The solver's explanation {list(self.found)} does not hold when it is replayed: the compiled texts and "
            "the specification disagree, and nothing is known about the step."
        )


def search(question: Question, limits: Limits = LIMITS, replaced: Replaced | None = None) -> Outcome:
    """Search for at most `limits.actions` actions that explain a step.

    Raises:
        SolverMissing: if there is no solver.
        ExplanationRefused: if what is found does not replay.
        Refused: if a text in `replaced` is outside the subset.
    """
    require_solver()
    from vosti.refinement.smt import solve

    found: tuple[Action, ...] | None = None
    try:
        scripts = Scripts(question, texts(replaced), Work(limits.terms))
        left = limits.resources
        # Most explanations are short. If the full length has none, there is none; if it has one, a shorter one is
        # looked for between what is known to be too short and what was found.
        least, n = 1, min(1, limits.actions)
        while scripts.possible and (found is None or least < len(found)):
            model = solve.model(scripts.script(n), left)
            left -= model.resources
            match model.answer:
                case solve.Answer.NOT_PROVED:
                    found = scripts.happened(n, model.true)
                case solve.Answer.GAVE_UP:
                    raise WorkExhausted
                case solve.Answer.PROVED if n == limits.actions:
                    break
                case solve.Answer.PROVED:
                    least = n + 1
            n = (least + len(found) - 1) // 2 if found is not None else least if least <= SHORT else limits.actions
    except WorkExhausted:
        if found is None:
            return Outcome(Answer.GAVE_UP, limits.actions, why=_universe(question))
    if found is None:
        return Outcome(Answer.IMPOSSIBLE, limits.actions, why=_universe(question))
    if not replays(question, found):
        raise ExplanationRefused(found)
    return Outcome(Answer.EXPLAINED, limits.actions, found)


def _universe(question: Question) -> str:
    """What a search ranges over."""
    unknown = sorted({r for r, _ in question.written} - question.begins.keys())
    gap = f"; rows name {', '.join(unknown)}, of whom no admission is known" if unknown else ""
    return f"over {len(question.requests)} requests and {len(question.pages)} pages{gap}"


# ---------------------------------------------------------------- replay


def replays(question: Question, found: Iterable[Action]) -> bool:
    """Whether the specification's own functions lead by these actions to what was recorded."""
    s, evidence, after = question.before, question.evidence, list(found)
    if question.phase is Phase.PLAN:
        planned = [a for a in after if RULES[type(a)].phase is Phase.PLAN]
        after = after[len(planned) :]
        for action in planned:
            if not _may_happen(s, action, evidence):
                return False
            s = effect(s, action)
        if not forward_ok(s, question.rows):
            return False
        for r, value in question.written:
            if not actions.compute_guard(s, r):
                return False
            s = actions.written(s, r, value)
    for action in after:
        if RULES[type(action)].phase is not Phase.SETTLE or not _may_happen(s, action, evidence):
            return False
        s = effect(s, action)
    return _agrees(s, question.after) and _rereadings_agree(s, question)


def _may_happen(s: State, action: Action, evidence: Evidence) -> bool:
    by_evidence = BY_EVIDENCE.get(type(action))
    if by_evidence is not None:
        return by_evidence(s, evidence, *arguments(action))
    return RULES[type(action)].guard(s, *arguments(action))


def _agrees(s: State, after: Snapshot) -> bool:
    """Whether a state is the recorded one, as far as a snapshot shows it."""
    return (
        dict(s.requests) == dict(after.requests)
        and s.pages.keys() == after.pages.keys()
        and after.free == s.capacity - s.pages.keys()
        and all(
            of(page) == getattr(after.pages[p], name) for p, page in s.pages.items() for name, of in PAGE_FIELDS.items()
        )
    )


def _rereadings_agree(s: State, question: Question) -> bool:
    return all(r.page in s.pages and tuple(map(str, s.pages[r.page].kv)) == r.slots for r in question.rereadings)
