"""Extended axes on where values lie and how they are used: pages, hits, drafts, sampling, kernels' variants."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

from vosti.impl.determinism.axes import Axis, Scenario, Stage, case
from vosti.impl.determinism.cases import Bench, Case, Pair, pairs, tokens_of
from vosti.impl.determinism.protocol import Ability, Answer, Ask, Draft, Sampling, Settings
from vosti.impl.determinism.schedules import differences

PAGED = frozenset({Ability.PAGES})


def _each_alone(asks: list[Ask]) -> tuple[tuple[Ask, ...], ...]:
    """One call for each."""
    return tuple((ask,) for ask in asks)


# ---------------------------------------------------------------- pages


def _page_order(stage: Stage) -> Iterator[Case]:
    """Free pages are taken in eight other orders, and every slot that nobody wrote is NaN."""
    asks = [Ask(f"paged-{i}", stage.prompt(3 * stage.page + i, 20_000 + i), 8) for i in range(4)]
    for seed in stage.some(range(1, 9), (1,)):
        settings = replace(stage.settings(pages=48), page_seed=seed, poison=True)
        scenario = Scenario("page-order", f"{seed}", settings, _each_alone(asks), required=frozenset({"pages"}))
        yield case(f"{seed}", [scenario])


def _page_size(stage: Stage) -> Iterator[Case]:
    """Pages of 1 to 256 slots."""
    asks = [Ask(f"sized-{i}", stage.prompt(3 * stage.page + 5 * i, 21_000 + i), 8) for i in range(6)]
    for size in stage.some((1, 2, 8, 16, 32, 64, 128, 256), (1,)):
        if size != stage.page:
            settings = stage.settings(page_size=size, pages=-(-8 * tokens_of(asks) // size))
            required = frozenset({"page size"})
            yield case(f"{size}", [Scenario("page-size", f"{size}", settings, _each_alone(asks), required=required)])


def _hits(stage: Stage) -> Iterator[Case]:
    """Prefix hits of every length."""
    size = stage.page
    last = 2 if stage.quick else 12
    lengths = range(size, last * size) if size < 16 else [k * size + d for k in range(1, last + 1) for d in (-1, 0, 1)]
    prompt = stage.prompt(last * size + 3, 22_000)
    settings = replace(stage.settings(), prefix_caching=True)
    for shared in lengths:
        hit = shared // size * size
        if hit:
            calls = ((Ask("donor", prompt[:shared], 1),), (Ask("query", prompt, 6),))
            witness = partial(_found, hit)
            scenario = Scenario(
                "hits", f"{shared}", settings, calls, frozenset({"query"}), frozenset({"hits"}), witness
            )
            yield case(f"{shared}", [scenario])


def _found(hit: int, ask: Ask, answer: Answer) -> str | None:
    return None if answer.hit_tokens == hit else f"{answer.hit_tokens} tokens were found, not {hit}"


def _kv(stage: Stage) -> Iterator[Case]:
    """The stored keys and values themselves, computed in company and in chunks, or shared, against a cold run's."""
    length = max(3 * stage.page, 20 if stage.quick else 40)
    shared = stage.prompt(2 * stage.page, 23_000)
    asks = tuple(Ask(f"stored-{i}", shared + stage.prompt(length + i, 23_001 + i)[1:], 4, at=3 * i) for i in range(4))
    asks = asks[:2] if stage.quick else asks
    for caching in (False, True):
        count = sum(len(ask.prompt) + ask.max_tokens - 1 for ask in asks)
        name = "shared" if caching else "chunked"
        yield Case("kv", f"kv/{name}", tokens_of(asks, asks), count, partial(_kept, stage, asks, name))


def _kept(stage: Stage, asks: tuple[Ask, ...], name: str, bench: Bench) -> Iterator[Pair]:
    settings = replace(stage.settings(token_budget=stage.page + 3), prefix_caching=name == "shared", keep_kv=True)
    (answers,) = bench.serve(settings, asks)
    whole = replace(stage.settings(token_budget=tokens_of(asks)), keep_kv=True)
    for ask, answer, cold in zip(asks, answers, bench.references(asks, whole), strict=True):
        yield from _stored(f"kv/{name}", ask, answer, cold)


def _stored(prefix: str, ask: Ask, answer: Answer, cold: Answer) -> Iterator[Pair]:
    differs = differences(answer, cold, None)
    for position in range(len(ask.prompt) + ask.max_tokens - 1):
        there = position < min(len(answer.kv), len(cold.kv))
        yield Pair(
            name=f"{prefix}/{ask.name}/{position}",
            request=ask.name,
            position=position,
            left=answer.kv[position] if there else b"",
            right=cold.kv[position] if there else b"",
            differs=differs,
            invalid=None if there and differs else "the slot was not read, or the schedules did not differ",
            numbers=False,
        )


# ---------------------------------------------------------------- drafts and sampling


def _drafts(stage: Stage) -> Iterator[Case]:
    """Drafts of every width, right, wrong and right at first; two requests in company."""
    asks = [Ask(f"drafted-{i}", stage.prompt(2 * stage.page + 3 * i, 24_000 + i), 16) for i in range(2)]
    for length in stage.some((1, 2, 3, 4, 7, 15), (4,)):
        for right in sorted({0, length // 2, length})[stage.quick :]:
            cost, count = tokens_of(asks) * (length + 1), sum(ask.max_tokens for ask in asks)
            name = f"drafts/{length}-of-which-{right}"
            yield Case("drafts", name, cost, count, partial(_drafted, stage, asks, length, right, name))


def _drafted(stage: Stage, asks: list[Ask], length: int, right: int, name: str, bench: Bench) -> Iterator[Pair]:
    plain = bench.references(asks)
    drafted = tuple(
        replace(ask, draft=Draft(length, right, answer.tokens)) for ask, answer in zip(asks, plain, strict=True)
    )

    def witness(ask: Ask, answer: Answer) -> str | None:
        widest = max((piece.draft for piece in answer.schedule.pieces or ()), default=0)
        return None if widest == length else f"the widest draft had {widest} tokens, not {length}"

    scenario = Scenario(
        "drafts",
        name.partition("/")[2],
        stage.settings(),
        (drafted,),
        required=frozenset({"drafts"}),
        witness=witness,
    )
    return scenario.pairs(bench)


SAMPLINGS = (
    Sampling(temperature=0.7, top_k=8),
    Sampling(temperature=1.0, top_p=0.9),
    Sampling(temperature=1.3, min_p=0.05),
    Sampling(temperature=1.0),
)


def _sampling(stage: Stage) -> Iterator[Case]:
    """Seeded requests alone, and beside greedy and seeded ones; tokens are compared as well as logits."""
    seeded = [
        Ask(f"seeded-{i}-{seed}", stage.prompt(stage.page + i, 25_000 + i), 12, replace(sampling, seed=seed), at=i)
        for i, sampling in enumerate(SAMPLINGS)
        for seed in stage.some((1, 2, 2**63), (1,))
    ]
    greedy = [Ask(f"greedy-{i}", stage.prompt(stage.page + 3 * i, 25_100 + i), 12, at=2 * i) for i in range(4)]
    settings = stage.settings(token_budget=2 * stage.page)
    yield case("in-company", [Scenario("sampling", "in-company", settings, ((*greedy, *seeded),))])
    if not stage.quick:
        turned = tuple(replace(ask, at=5 - ask.at % 6) for ask in reversed(seeded))
        yield case("turned", [Scenario("sampling", "turned", settings, (turned,))])


# ---------------------------------------------------------------- logits of prompts


def _prompt_logprobs(stage: Stage) -> Iterator[Case]:
    """What a request generated, given as a prompt: its logits at every position against those of decoding."""
    tokens = 8 if stage.quick else 32
    asks = [Ask(f"told-{i}", stage.prompt(stage.page + 5 * i, 27_000 + i), tokens) for i in range(4)]
    for budget in stage.some((stage.geometry.token_budget, 2 * stage.page + 1), (2 * stage.page + 1,)):
        cost, count = 2 * tokens_of(asks), tokens * len(asks)
        name = f"prompt-logprobs/budget-{budget}"
        yield Case("prompt-logprobs", name, cost, count, partial(_reread, stage, asks, budget, name))


def _reread(stage: Stage, asks: list[Ask], budget: int, name: str, bench: Bench) -> Iterator[Pair]:
    told = bench.references(asks)
    again = [
        replace(ask, prompt=ask.prompt + answer.tokens, max_tokens=1, observe=True)
        for ask, answer in zip(asks, told, strict=True)
    ]
    (read,) = bench.serve(stage.settings(token_budget=budget), again)
    for ask, decoded, observed in zip(asks, told, read, strict=True):
        for i, row in enumerate(decoded.rows):
            position = len(ask.prompt) - 1 + i
            there = observed.observed.get(position, b"")
            yield Pair(
                name=f"{name}/{ask.name}/{position}",
                request=ask.name,
                position=position,
                left=there,
                right=row,
                differs=differences(observed, decoded, None),
                invalid=None if there else "the logits of this position were not shown",
            )


# ---------------------------------------------------------------- variants


def _tiles(stage: Stage) -> Iterator[Case]:
    """Each table entry's tile of a number for all rows, where the plain run takes another one: in prefill, in decode,
    alone and in company.
    """
    lengths = (stage.page - 1, 4 * stage.page, 9 * stage.page)
    asks = [Ask(f"tiled-{i}", stage.prompt(lengths[i % 3] + i, 26_000 + i), 12) for i in range(6)]
    for name in stage.subject.variants["tiles"][: 1 if stage.quick else None]:
        settings = replace(stage.settings(), variant=name)
        calls = (*_each_alone(asks[:3]), tuple(asks[3:]))
        yield case(name, [Scenario("tiles", name, settings, calls, required=frozenset({"tiles"}))])


def _splits(stage: Stage) -> Iterator[Case]:
    """Rows that decode, with keys in one pass instead of splits: alone and in company, up to three splits long."""
    lengths = (stage.page, 9 * stage.page, 17 * stage.page)
    asks = tuple(Ask(f"split-{i}", stage.prompt(lengths[i % 3] + i, 29_000 + i), 24) for i in range(6))
    (one_pass,) = stage.subject.variants["splits"]
    settings = replace(stage.settings(), variant=one_pass)
    for group in (*_each_alone(list(asks[:3])), asks[3:], asks)[: 1 if stage.quick else None]:
        name = f"{len(group)}-from-{group[0].name}"
        run = partial(_unsplit, settings, group, name)
        yield Case("splits", f"splits/{name}", tokens_of(group, group), sum(ask.max_tokens - 1 for ask in group), run)


def _unsplit(settings: Settings, asks: tuple[Ask, ...], name: str, bench: Bench) -> Iterator[Pair]:
    (answers,) = bench.serve(settings, asks)
    for ask, answer, reference in zip(asks, answers, bench.references(asks), strict=True):
        _, *decoded = pairs(f"splits/{name}", ask, answer, reference)  # a prompt's rows are in one pass anyway
        yield from _lacking(decoded, "tiles", "the kernels did not differ")


def _lacking(found: Iterable[Pair], word: str, why: str) -> Iterator[Pair]:
    """The pairs, invalid where the word is not among what differed."""
    for pair in found:
        yield replace(pair, invalid=why) if pair.invalid is None and word not in pair.differs else pair


def _graphs(stage: Stage) -> Iterator[Case]:
    """Launched one by one in one engine; captured, and then replayed, in another: alone, and 2 to 17 in company."""
    companies = [range(i, i + 1) for i in range(4)] + [range(live) for live in stage.some((2, 3, 5, 8, 9, 17), (5,))]
    for group in companies:
        asks = tuple(Ask(f"replayed-{i}", stage.prompt(stage.page + 9 * i, 28_000 + i), 6) for i in group)
        name = f"{len(asks)}-from-{group.start}"
        run = partial(_replayed, stage, asks, name)
        yield Case("graphs", f"graphs/{name}", 4 * tokens_of(asks), sum(ask.max_tokens for ask in asks), run)


CAPTURED_AFTER = 3
"""Calls after which all small forwards come from graphs: launched, captured, and once more where memory grew."""


def _replayed(stage: Stage, asks: tuple[Ask, ...], name: str, bench: Bench) -> Iterator[Pair]:
    (eager,) = stage.subject.variants["graphs"]
    settings = stage.settings(token_budget=SMALL)
    (launched,) = bench.serve(replace(settings, variant=eager), asks)
    *_, replayed = bench.serve(settings, *[asks] * CAPTURED_AFTER)
    for ask, answer, reference in zip(asks, replayed, launched, strict=True):
        found = pairs(f"graphs/{name}", ask, answer, reference)
        yield from _lacking(found, "graphs", "no forward was replayed from a graph")


SMALL = 256
"""Rows of a forward that a backend with graphs captures, certainly."""


AXES = (
    Axis("page-order", "pages in other orders, over a pool of NaN", _page_order, PAGED),
    Axis("page-size", "pages of 1 to 256 slots", _page_size, PAGED),
    Axis("hits", "prefix hits of every length", _hits, PAGED),
    Axis("kv", "the bytes of keys and values themselves", _kv, frozenset({Ability.KV, Ability.STEPS})),
    Axis("drafts", "drafts of 1 to 15 tokens, right and wrong", _drafts, frozenset({Ability.DRAFTS})),
    Axis("sampling", "seeded sampling, alone and in company", _sampling, frozenset({Ability.SAMPLING, Ability.STEPS})),
    Axis(
        "prompt-logprobs",
        "logits of prompt positions against those of decoding",
        _prompt_logprobs,
        frozenset({Ability.OBSERVED, Ability.PAGES}),
    ),
    Axis("tiles", "each table entry's tiles and splits", _tiles, variant="tiles"),
    Axis("splits", "attention in splits, and in one pass", _splits, variant="splits"),
    Axis("graphs", "captured graphs, and none", _graphs, variant="graphs"),
)
