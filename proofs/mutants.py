"""Mutants of the specification and of the page pool: what the proofs, and what runs, say of them.

A proof that would also go through of a wrong text says little. So each mutant (`vosti.proofs.mutant_lists`) is tried:

1. *Implied*: it is shown that the mutant is no other text in states that can be reached. For a guard, in every state
   that satisfies Inv it is defined, and true exactly if the guard is; an effect is defined and leads to an equal state
   wherever the guard holds; a conjunct of Inv follows from the others. For the pool its own invariants stand for Inv,
   and an effect may differ in hints (`differ_in_hints`), if every obligation is still proved.
2. *Not proved*: some obligation of the theorems is not proved of it. The first one is reported.
3. *Refuted*: a run of the mutated text contradicts a theorem (`vosti.proofs.mutant_runs`, `mutant_pool_runs`). That is
   more than not proved, and is counted apart. An invariant that is left out has no runs of its own.

What is neither implied, nor not proved, nor refuted is *open*: then the theorems do not say what the text is there for.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from typing import Any

from vosti.impl import pool as pools
from vosti.impl.pool_invariants import INVARIANTS
from vosti.impl.pool_state import Pool
from vosti.proofs import mutant_pool_runs, mutant_runs
from vosti.proofs.book import Book, Replaced, state
from vosti.proofs.mutant_lists import pool_mutants, spec_mutants
from vosti.proofs.mutant_texts import INVARIANT, KINDS, Mutant
from vosti.proofs.prove import GROUPS, THEOREMS
from vosti.refinement.smt.compiler import Compiler
from vosti.refinement.smt.obligation import Obligation
from vosti.refinement.smt.solve import LIMITS, Answer, Limits, solve
from vosti.refinement.smt.terms import Term
from vosti.refinement.smt.values import Refused, Value
from vosti.spec.invariants import CONJUNCTS
from vosti.spec.step import RULES

SUBJECTS = ("spec", "pool")

GROUP_OF = {"spec": "spec", "pool": "refinement"}
"""Subject → the theorems that speak of it, a key of `vosti.proofs.prove.GROUPS`."""

APART = ("axioms", "cuts")
"""Theorems that speak of no action and no conjunct, and so of no mutant."""

IMPLIED, NOT_PROVED, OPEN = "implied", "not proved", "open"


@dataclass(frozen=True)
class Result:
    """What came of a mutant."""

    subject: str
    """One of `SUBJECTS`."""

    mutant: Mutant
    verdict: str
    """`IMPLIED`, `NOT_PROVED` or `OPEN`: what proofs say."""

    obligation: str
    """Of a mutant that is not proved: the first obligation that is not. Of one that is open: what does not show that it
    is implied.
    """

    run: str | None
    """The run that refutes it, as text, if one was found."""

    broken: str | None
    """What is false at the end of that run."""

    @property
    def survives(self) -> bool:
        """Whether nothing is wrong with it, and it is another text all the same."""
        return self.verdict == OPEN and self.run is None


@dataclass(frozen=True)
class Report:
    """What came of all mutants."""

    results: tuple[Result, ...]

    @property
    def survivors(self) -> tuple[Result, ...]:
        """The mutants of which nobody has said what is wrong with them."""
        return tuple(result for result in self.results if result.survives)

    @property
    def complete(self) -> bool:
        """Whether there were mutants, and each is implied, not proved, or refuted."""
        return bool(self.results) and not self.survivors

    def counts(self) -> Iterator[tuple[str, str, Mapping[str, int]]]:
        """For each subject and kind: how many mutants, and how many of them are what."""
        for subject in SUBJECTS:
            for kind in KINDS:
                some = [r for r in self.results if (r.subject, r.mutant.kind) == (subject, kind)]
                verdicts = Counter(r.verdict for r in some)
                if some:
                    yield (
                        subject,
                        kind,
                        {
                            "mutants": len(some),
                            "not proved": verdicts[NOT_PROVED],
                            "refuted by a run": sum(r.run is not None for r in some),
                            "implied": verdicts[IMPLIED],
                            "survivors": sum(r.survives for r in some),
                        },
                    )

    def __str__(self) -> str:
        """A line for each subject and kind, and one for each survivor."""
        columns = ("mutants", "not proved", "refuted by a run", "implied", "survivors")
        lines = [f"{'':24}" + "".join(f"{column:>18}" for column in columns)]
        lines += [
            f"{subject + ', ' + kind:24}" + "".join(f"{counts[column]:>18}" for column in columns)
            for subject, kind, counts in self.counts()
        ]
        lines += [f"survivor: {result.subject}, {result.mutant.name}" for result in self.survivors]
        return "\n".join(lines)

    def json(self) -> str:
        """One object for each mutant, in JSON."""
        return json.dumps(
            [
                {
                    "subject": result.subject,
                    "kind": result.mutant.kind,
                    "of": list(result.mutant.subjects),
                    "change": result.mutant.change,
                    "verdict": result.verdict,
                    "obligation": result.obligation,
                    "broken": result.broken,
                    "run": result.run,
                }
                for result in self.results
            ],
            indent=1,
        )


# ---------------------------------------------------------------- implied


class _Twice:
    """A text and its mutant, over the same symbols."""

    def __init__(self, book: Book, replaced: Replaced) -> None:
        self.book = book
        self.other = Compiler(replaced)
        # What one compiler defines the other may speak of: definitions are named by what they say.
        self.other.counter, self.other.definitions = book.compiler.counter, book.compiler.definitions
        self.other.closures = book.compiler.closures

    def same(self, part: str, have: list[Term], f: Callable[..., Any], arguments: Sequence[Value]) -> None:
        """The mutant of f is defined, and has f's value."""
        first, second = self.book.run(f, *arguments), self.other.run(f, *arguments)
        self.book.defined(part, have, second.needs)
        self.book.prove(part, have, self.book.compiler.equal(first.value, second.value))


def implied(subject: str, mutant: Mutant) -> Iterator[Obligation]:
    """What shows that a mutant is no other text where it matters."""
    yield from _follows(subject, mutant.subjects[0]) if mutant.kind == INVARIANT else _equals(subject, mutant)


def _equals(subject: str, mutant: Mutant) -> list[Obligation]:
    """Guards and effects have the same values."""
    book = Book("implied", {})
    twice = _Twice(book, mutant.replaced)
    s = state(book) if subject == "spec" else book.symbol("pool", Pool)
    have = [book.term(f, s) for f in ([c.whole for c in CONJUNCTS] if subject == "spec" else INVARIANTS)]
    rules = {rule.effect.__name__: (rule.guard, rule.effect) for rule in RULES.values()}
    for name in mutant.subjects:
        guard, effect = rules[name] if subject == "spec" else (getattr(pools, f"{name}_guard"), getattr(pools, name))
        arguments = [book.compiler.symbolic(ty, n) for n, ty in book.compiler.parameters(guard)[1:]]
        twice.same(f"{name}_guard", have, guard, [s, *arguments])
        allowed = [*have, book.term(guard, s, *arguments)]
        if subject == "spec":
            twice.same(name, allowed, effect, [s, *arguments])
        else:
            _same_but_for_hints(twice, name, allowed, effect, [s, *arguments])
    return book.obligations


def differ_in_hints(first: Pool, second: Pool) -> bool:
    """The pools are equal but for what choices are made by: when a page became free or idle, and what is looked up
    where. Which page is taken, given up or found is nobody's business but the planner's.
    """
    return (
        first.requests == second.requests
        and first.pages == second.pages
        and all(page_id in second.free for page_id in first.free)
        and all(page_id in first.free for page_id in second.free)
        and all(page_id in second.idle for page_id in first.idle)
        and all(page_id in first.idle for page_id in second.idle)
        and first.capacity == second.capacity
        and first.page_size == second.page_size
        and first.key_space == second.key_space
    )


def _same_but_for_hints(
    twice: _Twice, name: str, have: list[Term], effect: Callable[..., Any], arguments: Sequence[Value]
) -> None:
    book = twice.book
    first, second = book.run(effect, *arguments), twice.other.run(effect, *arguments)
    book.defined(name, have, second.needs)
    book.prove(name, have, book.term(differ_in_hints, first.value, second.value))


def _follows(subject: str, name: str) -> list[Obligation]:
    """A conjunct follows from the others."""
    book = Book("implied", {})
    s = state(book) if subject == "spec" else book.symbol("pool", Pool)
    every = [c.whole for c in CONJUNCTS] if subject == "spec" else list(INVARIANTS)
    (dropped,) = [f for f in every if f.__name__ == name]
    book.prove(name, [book.term(f, s) for f in every if f is not dropped], book.term(dropped, s))
    return book.obligations


# ---------------------------------------------------------------- proved or not


@cache
def _as_it_is(theorem: str) -> frozenset[str]:
    """The digests of a theorem's obligations."""
    return frozenset(obligation.digest for obligation in THEOREMS[theorem].obligations(None))


def affected(subject: str, mutant: Mutant) -> Iterator[Obligation]:
    """The obligations that a mutant changes, those about its subjects first."""
    for theorem in GROUPS[GROUP_OF[subject]]:
        if theorem in APART:
            continue
        changed = [o for o in THEOREMS[theorem].obligations(mutant.replaced) if o.digest not in _as_it_is(theorem)]
        yield from sorted(changed, key=lambda o: not _about(o.name, mutant.subjects))


def _about(name: str, subjects: tuple[str, ...]) -> bool:
    words = name.partition("/")[2].replace(":", " ").replace("_guard", "").split()
    return any(subject in words for subject in subjects)


def _proved(obligations: Iterable[Obligation], solver: str, limits: Limits) -> str | None:
    """The name of the first obligation that is not proved, or None. What cannot be stated is not proved."""
    try:
        for obligation in obligations:
            if solve(obligation.script, solver, limits).answer is not Answer.PROVED:
                return obligation.name
    except Refused as refused:
        return f"refused: {refused}"
    return None


# ---------------------------------------------------------------- all of it


@dataclass(frozen=True)
class Trial:
    """How mutants are tried."""

    solver: str = "z3"
    limits: Limits = LIMITS
    actions: int = 12_000
    """How many actions a search for a refuting run makes."""


AS_USUAL = Trial()


def listed(subjects: Iterable[str] = SUBJECTS) -> list[tuple[str, Mutant]]:
    """The mutants of the specification, of the pool, or of both.

    Raises:
        ValueError: for another subject.
    """
    lists = {"spec": spec_mutants, "pool": pool_mutants}
    found: list[tuple[str, Mutant]] = []
    for subject in subjects:
        if subject not in lists:
            raise ValueError(f"nothing is called {subject!r}: {' or '.join(lists)}")
        found += [(subject, mutant) for mutant in lists[subject]()]
    return found


def tried(subject: str, mutant: Mutant, trial: Trial = AS_USUAL) -> Result:
    """What comes of one mutant."""
    missing = _proved(implied(subject, mutant), trial.solver, trial.limits)
    unproved = None
    if missing is not None or (subject == "pool" and mutant.kind != INVARIANT):
        # A pool that differs in hints is still to satisfy every theorem.
        unproved = _proved(affected(subject, mutant), trial.solver, trial.limits)
    if unproved is not None:
        verdict, obligation = NOT_PROVED, unproved
    elif missing is None:
        verdict, obligation = IMPLIED, ""
    else:
        verdict, obligation = OPEN, missing
    refutation = None
    if verdict != IMPLIED and mutant.kind != INVARIANT:
        search = mutant_runs.refutation if subject == "spec" else mutant_pool_runs.refutation
        refutation = search(mutant.replaced, mutant.subjects, most=trial.actions)
    return Result(
        subject,
        mutant,
        verdict,
        obligation,
        None if refutation is None else str(refutation),
        None if refutation is None else refutation.broken,
    )


def mutants(
    subjects: Iterable[str] = SUBJECTS,
    *,
    trial: Trial = AS_USUAL,
    jobs: int = 1,
    chosen: Callable[[str, Mutant], bool] = lambda subject, mutant: True,
    progress: Callable[[Result], None] | None = None,
) -> Report:
    """Try the mutants of the specification and of the page pool.

    Args:
        subjects: of which; both, unless told otherwise.
        trial: solver, limits, and the length of searches.
        jobs: how many processes work at a time.
        chosen: which mutants are tried; all, unless told otherwise.
        progress: called with each result, in the order of the mutants.

    Raises:
        ValueError: for a subject that there is not.
        BrokenProcessPool: if a process dies at work.
    """
    tasks = [(subject, mutant, trial) for subject, mutant in listed(subjects) if chosen(subject, mutant)]
    results: list[Result] = []

    def take(result: Result) -> None:
        results.append(result)
        if progress:
            progress(result)

    if jobs == 1:
        for task in tasks:
            take(tried(*task))
    else:
        # A fresh interpreter for each worker, as in `vosti.proofs.prove`.
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as workers:
            try:
                for result in workers.map(_task, tasks):
                    take(result)
            except BaseException:
                workers.shutdown(wait=False, cancel_futures=True)  # nobody waits for what is left
                raise
    return Report(tuple(results))


def _task(task: tuple[str, Mutant, Trial]) -> Result:
    return tried(*task)
