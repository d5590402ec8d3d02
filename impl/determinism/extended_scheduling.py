"""Extended axes on who runs when: arrivals, preemption, eviction, cancellation, chunks, limits, padding, processes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from vosti.impl.determinism.axes import Axis, Scenario, Stage, case
from vosti.impl.determinism.cases import Bench, Case, Pair, pairs, tokens_of
from vosti.impl.determinism.prompts import SEED
from vosti.impl.determinism.protocol import Ability, Answer, Ask, Piece

COMPANY = frozenset({"company", "packed rows", "padding"})

STEPS = frozenset({Ability.STEPS})
PAGED = frozenset({Ability.STEPS, Ability.PAGES})


def _page_sizes(stage: Stage) -> tuple[int, ...]:
    """The suite's page size, and two more where it is small: so that an axis over residues has enough of them."""
    return (stage.page,) if stage.page >= 16 or stage.quick else (stage.page, 2 * stage.page, 4 * stage.page)


# ---------------------------------------------------------------- preempt-and-recompute


def _preempt(stage: Stage) -> Iterator[Case]:
    """The earlier request needs a third page in step 4; the pool is full, and the later one must give way."""
    for size in _page_sizes(stage):
        for caching in (True,) if stage.quick else (False, True):
            scenarios = [_preempted_at(stage, size, residue, caching) for residue in range(size)]
            yield case(f"page-{size}-{'cached' if caching else 'cold'}", scenarios)


def _preempted_at(stage: Stage, size: int, residue: int, caching: bool) -> Scenario:
    length = 2 * size + residue
    first = Ask("first", stage.prompt(2 * size - 3, 10_000), max_tokens=6)
    later = Ask(f"later-{residue}", stage.prompt(length - 3, 10_001 + residue), max_tokens=6)
    settings = stage.settings(page_size=size, pages=2 + -(-length // size))

    def witness(ask: Ask, answer: Answer) -> str | None:
        found = answer.schedule.preempted_at
        wanted = (length,) if ask is later else ()
        return None if found == wanted else f"preempted at lengths {found}, not {wanted}"

    return Scenario(
        "preempt",
        f"page-{size}-{'cached' if caching else 'cold'}-{residue}",
        replace(settings, prefix_caching=caching),
        ((first, later),),
        witness=witness,
    )


# ---------------------------------------------------------------- eviction, then reuse


def _evict(stage: Stage) -> Iterator[Case]:
    """Fillers of growing size evict none but the last, the last two and all three of a donor's pages."""
    sizes = _page_sizes(stage)
    for size in sizes:
        scenarios = [
            _evicted(stage, size, evicted, donor)
            for evicted in (1, 2, 3)
            for donor in range(1 if stage.quick else 12 // len(sizes))
        ]
        yield case(f"page-{size}", scenarios)


def _evicted(stage: Stage, size: int, evicted: int, donor: int) -> Scenario:
    prompt = stage.prompt(3 * size + 1, 11_000 + donor)
    filler = stage.prompt((3 + evicted) * size, 11_100 + donor)
    calls = ((Ask("donor", prompt, 1),), (Ask("filler", filler, 1),), (Ask(f"back-{donor}", prompt, 8),))

    def witness(ask: Ask, answer: Answer) -> str | None:
        wanted = (3 - evicted) * size
        return None if answer.hit_tokens == wanted else f"{answer.hit_tokens} tokens were found, not {wanted}"

    # Page order 1 is not that of the reference: recomputed pages are other pages, too.
    settings = replace(stage.settings(page_size=size, pages=6), prefix_caching=True, page_seed=1)
    name = f"page-{size}-{evicted}-pages"
    return Scenario("evict", name, settings, calls, frozenset({f"back-{donor}"}), witness=witness)


# ---------------------------------------------------------------- cancellation and retry


def _cancel(stage: Stage) -> Iterator[Case]:
    """Two requests of a shared prefix are called off and retried while others with the same prefix go on."""
    for step in stage.some(range(2, 9), (3,)):
        shared = stage.prompt(2 * stage.page, 12_000)
        tails = [stage.prompt(stage.page + 1, 12_001 + i)[1:] for i in range(5)]
        called_off = [Ask(f"called-off-{i}", shared + tails[i], 16, cancel_at=step) for i in range(2)]
        bystanders = [Ask(f"bystander-{i}", shared + tails[2 + i], 10) for i in range(2)]
        late = Ask("late", tails[4] + shared, 6, at=step)
        retries = [Ask(f"retry-{i}", shared + tails[i], 6, at=step + 1) for i in range(2)]
        settings = replace(stage.settings(token_budget=2 * stage.page), prefix_caching=True)
        calls = ((called_off[0], bystanders[0], called_off[1], bystanders[1], late, *retries),)
        compared = frozenset(ask.name for ask in (*bystanders, late, *retries))
        yield ending(Scenario("cancel", f"step-{step}", settings, calls, compared), called_off, "cancelled")


def ending(scenario: Scenario, asks: list[Ask], how: str) -> Case:
    """A case of one scenario in which some requests that do not count must end in a certain way."""

    def run(bench: Bench) -> Iterator[Pair]:
        (answers,) = bench.serve(scenario.settings, *scenario.calls)
        named = dict(zip((ask.name for ask in scenario.calls[0]), answers, strict=True))
        other = {ask.name: named[ask.name].ended for ask in asks if named[ask.name].ended != how}
        why = f"some requests were to be {how}, and ended otherwise: {other}" if other else None
        prefix = f"{scenario.axis}/{scenario.name}"
        for ask, reference in zip(scenario.asks, bench.references(scenario.asks), strict=True):
            yield from scenario.judged(pairs(prefix, ask, named[ask.name], reference, why))

    return replace(case(scenario.name, [scenario]), run=run)


def _non_finite(stage: Stage) -> Iterator[Case]:
    """A neighbour ends because its values are not finite; its pages go to others afterwards."""
    vocabulary = stage.subject.vocabulary
    neighbours = [Ask(f"neighbour-{i}", stage.prompt(stage.page + 3 * i, 13_000 + i), 12, at=2 * i) for i in range(4)]
    used = vocabulary.special.union(*(ask.prompt for ask in neighbours))
    token = next(token for token in range(vocabulary.size) if token not in used)
    for arrival in stage.some((0, 1, 3), (0,)):
        for caching in (True,) if stage.quick else (False, True):
            bad = Ask("spoilt", (*stage.prompt(stage.page + 1, 13_100), token), 4, at=arrival)
            settings = replace(
                stage.settings(pages=24, token_budget=stage.page - 1),  # or a prompt of a page would meet nobody
                prefix_caching=caching,
                poison=True,
                non_finite_token=token,
            )
            name = f"from-{arrival}-{'cached' if caching else 'cold'}"
            compared = frozenset(ask.name for ask in neighbours)
            yield ending(Scenario("non-finite", name, settings, ((bad, *neighbours),), compared), [bad], "error")


# ---------------------------------------------------------------- arrivals


def _arrivals(stage: Stage) -> Iterator[Case]:
    """Requests come one by one while others decode; once with room for all, once with too few pages."""
    lengths = [stage.geometry.length(n) for n in (17, 63, 64, 65, 127, 129, 257, 385)]
    asks = tuple(
        Ask(f"arrival-{i}", stage.prompt(length, 14_000 + i), 6 if stage.quick else 16, at=at)
        for i, (length, at) in enumerate(zip(lengths, (0, 0, 2, 4, 8, 12, 16, 20), strict=True))
    )
    settings = stage.settings(token_budget=max(8, stage.geometry.boundary(128)))
    settings = replace(settings, max_seqs=4, prefix_caching=True)
    tight = -(-(max(lengths) + 16) // settings.page_size) + 1

    def squeezed(ask: Ask, answer: Answer) -> str | None:
        return None if answer.schedule.evictions or answer.schedule.preempted_at else "no page had to be taken away"

    yield case("roomy", [Scenario("arrivals", "roomy", replace(settings, pages=128), (asks,))])
    if not stage.quick:
        yield case("tight", [Scenario("arrivals", "tight", replace(settings, pages=tight), (asks,), witness=squeezed)])
        turned = tuple(replace(ask, at=20 - ask.at) for ask in asks)
        yield case(
            "turned", [Scenario("arrivals", "turned", replace(settings, pages=tight), (turned,), witness=squeezed)]
        )


# ---------------------------------------------------------------- cut points


def _cuts(stage: Stage) -> Iterator[Case]:
    """Random budgets, and a neighbour that decodes: cuts fall anywhere, not at pages."""
    stream = random.Random(SEED + 15_000)
    # Even, so that beside a neighbour's row an odd number is left: no page size divides its multiples.
    budgets = [2 * stream.randrange(2, 2 * stage.page) for _ in range(1 if stage.quick else 12)]
    for number, budget in enumerate(budgets):
        asks = [Ask(f"cut-{i}", stage.prompt(6 * stage.page + i, 15_000 + i), 8, at=1) for i in range(3)]
        neighbour = Ask("neighbour", stage.prompt(3, 15_100), 24)
        settings = replace(stage.settings(token_budget=budget), max_seqs=2)
        scenarios = [
            Scenario(
                "cuts",
                f"budget-{budget}-{number}",
                settings,
                ((neighbour, ask),),
                frozenset({ask.name}),
                frozenset({"cuts"}),
                partial(_unaligned, settings.page_size),
            )
            for ask in asks
        ]
        yield case(f"budget-{budget}-{number}", scenarios)


def _unaligned(page_size: int, ask: Ask, answer: Answer) -> str | None:
    pieces: tuple[Piece, ...] = answer.schedule.pieces or ()
    inside = any(piece.start % page_size for piece in pieces if piece.start < len(ask.prompt))
    return None if inside else "no cut fell inside a page"


# ---------------------------------------------------------------- limits and padding


def _limits(stage: Stage) -> Iterator[Case]:
    """Every token budget with every number of requests at once."""
    asks = tuple(Ask(f"limited-{i}", stage.prompt(stage.page + 5 * i + 1, 16_000 + i), 3 + i) for i in range(4))
    for budget in stage.some((1, 3, stage.page, 2 * stage.page + 1, 8 * stage.page), (3,)):
        for most in stage.some((2, 3, 4, 8), (3,)):
            settings = replace(stage.settings(token_budget=budget), max_seqs=most)
            name = f"budget-{budget}-seqs-{most}"
            yield case(name, [Scenario("limits", name, settings, (asks,))])


def _padding(stage: Stage) -> Iterator[Case]:
    """So many requests decode together, whatever the forward is padded to: 5 live rows in 8 or 16, and so on."""
    for live in stage.some(range(2, 18), (5,)):
        tokens = 2 if stage.quick else 6  # enough for a captured graph to be replayed
        asks = tuple(Ask(f"row-{i:02}", stage.prompt(3 + i % 7, 17_000 + i), tokens) for i in range(live))
        scenario = Scenario("padding", f"{live}-rows", stage.settings(), (asks,), required=COMPANY)
        yield case(f"{live}-rows", [scenario if stage.quick else replace(scenario, witness=_replayed)])


def _replayed(ask: Ask, answer: Answer) -> str | None:
    """Of an engine that shows it: why no row came from a captured graph."""
    shown = {piece.replayed for piece in answer.schedule.pieces or ()}
    return "no forward was replayed from a graph" if shown == {False} else None


# ---------------------------------------------------------------- restart


def _restart(stage: Stage) -> Iterator[Case]:
    """The same requests in a fresh process, whose kernel cache is empty."""
    asks = [Ask(f"again-{i}", stage.prompt(stage.page + 7 * i, 18_000 + i), 4 if stage.quick else 16) for i in range(8)]

    def run(number: int, bench: Bench) -> Iterator[Pair]:
        references = bench.references(asks)  # before the fresh process takes the memory
        answers = bench.serve_fresh(stage.settings(), asks, cold=True)
        for ask, answer, reference in zip(asks, answers, references, strict=True):
            yield from pairs(f"restart/{number}", ask, answer, reference)

    for number in stage.some((1, 2), (1,)):
        count = sum(ask.max_tokens for ask in asks)
        yield Case("restart", f"restart/{number}", tokens_of(asks), count, partial(run, number))


AXES = (
    Axis("preempt", "preempted at every length modulo the page size, and recomputed", _preempt, PAGED),
    Axis("evict", "some or all cached pages evicted before they are asked for again", _evict, PAGED),
    Axis("cancel", "neighbours of a shared prefix called off and retried", _cancel, STEPS),
    Axis("non-finite", "a neighbour ends in values that are not finite", _non_finite, STEPS | {Ability.NON_FINITE}),
    Axis("arrivals", "late arrivals, with room and without", _arrivals, PAGED),
    Axis("cuts", "prompts cut at random points inside pages", _cuts, PAGED),
    Axis("limits", "token budgets, and requests at once", _limits, STEPS),
    Axis("padding", "2 to 17 live rows in a padded forward", _padding, STEPS),
    Axis("restart", "a fresh process with a cold kernel cache", _restart),
)
