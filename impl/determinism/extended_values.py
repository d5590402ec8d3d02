"""Extended axes on where values lie and how they are used: pages, hits, drafts, sampling, kernels' variants."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from vosti.impl.determinism.axes import Axis, Scenario, Stage, case
from vosti.impl.determinism.cases import Bench, Case, Pair, tokens_of
from vosti.impl.determinism.protocol import Ability, Answer, Ask, Draft, Sampling
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


def _variants(axis: str, stage: Stage) -> Iterator[Case]:
    """Each way of computing that the engine says changes nothing: in prefill, in decode, alone and in company."""
    asks = [Ask(f"varied-{i}", stage.prompt(stage.page + 9 * i, 26_000 + i), 6) for i in range(6)]
    for name in stage.subject.variants[axis][: 1 if stage.quick else None]:
        settings = replace(stage.settings(), variant=name)
        required = frozenset({"variant"})
        calls = (*_each_alone(asks[:3]), tuple(asks[3:]))
        yield case(name, [Scenario(axis, name, settings, calls, required=required)])


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
    Axis("tiles", "each table entry's tiles and splits", partial(_variants, "tiles"), variant="tiles"),
    Axis("graphs", "captured graphs, and none", partial(_variants, "graphs"), variant="graphs"),
)
