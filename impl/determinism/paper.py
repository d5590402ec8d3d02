"""The paper's four axes (sections 2.2 and 6.1): 296 + 90 + 384 + 14 comparisons for each model.

Each call generates two tokens, of which the first one's logits are compared; only the generator of prefill–decode
keeps all rows. A pair is invalid if its witness fails: a hit where nothing is cached, or of another length than the
donor allows; pieces of a prompt that are no chunks. Whether the schedules differed is recorded and not required, since
the paper counts pairs in which they cannot: a prompt below the budget, the first row of prefill–decode.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from vosti.impl.determinism.cases import Bench, Case, Pair, pairs, reason
from vosti.impl.determinism.prompts import Geometry, random_prompt, random_tail, shuffled
from vosti.impl.determinism.protocol import Answer, Ask, Subject, Vocabulary
from vosti.impl.determinism.schedules import contiguous, differences_of_last

AXES = ("batch", "chunk", "prefill-decode", "prefix")


@dataclass(frozen=True)
class Sizes:
    """How much of each axis there is; lengths before scaling."""

    batch_lengths: tuple[int, ...]
    group_sizes: tuple[int, ...]
    fresh: tuple[int, ...]
    """Prompts of the batch axis that are served alone in a fresh process, too."""

    chunk_lengths: tuple[int, ...]
    """Beside each budget and its neighbours."""

    budgets: tuple[int, ...]
    decode_lengths: tuple[int, ...]
    decode_tokens: int
    decode_part: int
    """How many prefills make a case."""

    donors: tuple[int, ...]
    """Of prefix reuse: how many tokens are shared."""

    generated: int
    """How many tokens the donor of a generated prefix generates."""


PAPER = Sizes(
    batch_lengths=(17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513, 767, 1023, 1024, 1025)
    + (1535, 2047, 2048, 2049, 3071, 4095, 4096, 4097, 6143, 8191, 8192, 8193),
    group_sizes=(2, 4, 8),
    fresh=(0, 10, 21, 31),
    chunk_lengths=(2048, 8192, 32_768),
    budgets=(64, 128, 256, 512, 1024),
    decode_lengths=(257, 8192, 32_768),
    decode_tokens=128,
    decode_part=4,
    donors=(15, 16, 17, 127, 128, 129, 1023, 1024, 1025, 8192),
    generated=128,
)

QUICK = Sizes(
    batch_lengths=(33, 257, 513, 767, 1025, 1535, 2048, 2049),
    group_sizes=(2, 4, 8),
    fresh=(7,),
    chunk_lengths=(2048,),
    budgets=(128, 256, 512),
    decode_lengths=(257, 2048),
    decode_tokens=12,
    decode_part=12,
    donors=PAPER.donors[:-1],
    generated=24,
)
"""The same in small, for continuous integration."""

TAIL = 128
"""Tokens of a query beyond what it shares, before scaling."""


def cases(subject: Subject, geometry: Geometry, sizes: Sizes = PAPER) -> list[Case]:
    """The cases of all four axes."""
    vocabulary = subject.vocabulary
    return [
        *_batch(vocabulary, geometry, sizes),
        *_chunk(vocabulary, geometry, sizes, subject.window),
        *_prefix(vocabulary, geometry, sizes, subject.window),
        *_prefill_decode(vocabulary, geometry, sizes),
    ]


def _first(
    prefix: str, ask: Ask, answer: Answer, reference: Answer, invalid: str | None, *, cached: bool = False
) -> Iterator[Pair]:
    """The pair of the first rows."""
    hit = f"{answer.hit_tokens} tokens came from a prefix cache that is off" if answer.hit_tokens else None
    return pairs(prefix, ask, answer, reference, invalid or (None if cached else hit), rows=1, must_differ=False)


# ---------------------------------------------------------------- batch


def _batch(vocabulary: Vocabulary, geometry: Geometry, sizes: Sizes) -> Iterator[Case]:
    asks = [
        Ask(f"prompt-{i:02}", random_prompt(vocabulary, geometry.length(length), i))
        for i, length in enumerate(sizes.batch_lengths)
    ]
    cost = sum(len(ask.prompt) for ask in asks)
    ascending = list(range(len(asks)))
    orders = {
        "ascending": ascending,
        "descending": ascending[::-1],
        "shuffled": shuffled(len(asks), 9000),
    }
    for size in sizes.group_sizes:
        for name, order in orders.items():
            groups = [[asks[i] for i in order[begin : begin + size]] for begin in range(0, len(order), size)]
            run = partial(_groups, asks, groups, f"{size}-{name}")
            yield Case("batch", f"batch/{size}-{name}", cost, len(asks), run)
    largest = max(sizes.group_sizes)
    begins = {i: i // largest * largest for i in sizes.fresh}
    companies = {i: tuple(asks[begin : begin + largest]) for i, begin in begins.items()}
    for i in sizes.fresh:
        run = partial(_fresh, asks, companies, i)
        yield Case("batch", f"batch/fresh-{i:02}", len(asks[i].prompt), 2, run)


def _groups(asks: list[Ask], groups: list[list[Ask]], name: str, bench: Bench) -> Iterator[Pair]:
    alone = dict(zip((ask.name for ask in asks), bench.references(asks, bench.geometry.settings()), strict=True))
    for group, answers in zip(groups, bench.serve(bench.geometry.settings(), *groups), strict=True):
        for ask, answer in zip(group, answers, strict=True):
            yield from _first(f"batch/{name}", ask, answer, alone[ask.name], None)


def _fresh(asks: list[Ask], companies: dict[int, tuple[Ask, ...]], i: int, bench: Bench) -> Iterator[Pair]:
    """One prompt in a fresh process. First what all of these cases need here, so that it is loaded for that once."""
    settings, ask, group = bench.geometry.settings(), asks[i], companies[i]
    alone = bench.references(asks, settings)[i]
    together = bench.companies(settings, companies.values())[group][group.index(ask)]
    (answer,) = bench.serve_fresh(settings, [ask])
    yield from _first("batch/fresh-alone", ask, answer, alone, None)
    yield from _first("batch/fresh-group", ask, answer, together, None)


# ---------------------------------------------------------------- chunk


def _around(geometry: Geometry, lengths: Sequence[int], window: int | None) -> list[int]:
    """Scaled lengths, with a window and its neighbours unless it is among them; the window itself is not scaled."""
    scaled = [geometry.length(length) for length in lengths]
    if window is not None and window not in scaled:
        scaled += [window - 1, window, window + 1]
    return sorted(scaled)


def _chunk(vocabulary: Vocabulary, geometry: Geometry, sizes: Sizes, window: int | None) -> Iterator[Case]:
    beside = [budget + d for budget in sizes.budgets for d in (-1, 0, 1)]
    asks = [
        Ask(f"{length}-tokens-{i}", random_prompt(vocabulary, length, 1000 + i))
        for i, length in enumerate(_around(geometry, [*sizes.chunk_lengths, *beside], window))
    ]
    cost = sum(len(ask.prompt) for ask in asks)
    for budget in map(geometry.boundary, sizes.budgets):
        run = partial(_budget, asks, budget)
        yield Case("chunk", f"chunk/{budget}", cost, len(asks), run)


def _budget(asks: list[Ask], budget: int, bench: Bench) -> Iterator[Pair]:
    unchunked = bench.references(asks, bench.geometry.settings(token_budget=bench.geometry.unchunked))
    served = bench.serve(bench.geometry.settings(token_budget=budget), *([ask] for ask in asks))
    for ask, (answer,), reference in zip(asks, served, unchunked, strict=True):
        yield from _first(f"chunk/{budget}", ask, answer, reference, _no_chunks(ask, answer, budget))


def _no_chunks(ask: Ask, answer: Answer, budget: int) -> str | None:
    """Why a prompt was not cut as the budget wants, if so. An engine that does not show its pieces is believed."""
    if answer.schedule.pieces is None:
        return None
    pieces = tuple(piece for piece in answer.schedule.pieces if piece.start < len(ask.prompt))
    if not contiguous(pieces, budget) or not pieces or pieces[0].start != 0:
        return f"the prompt was not computed in contiguous pieces of at most {budget} tokens"
    if len(pieces) == 1 and len(ask.prompt) > budget:
        return f"a prompt of {len(ask.prompt)} tokens was not cut, although the budget is {budget}"
    return None


# ---------------------------------------------------------------- prefill–decode


def _prefill_decode(vocabulary: Vocabulary, geometry: Geometry, sizes: Sizes) -> Iterator[Case]:
    for i, length in enumerate(map(geometry.length, sizes.decode_lengths)):
        ask = Ask(f"{length}-tokens", random_prompt(vocabulary, length, 2000 + i), max_tokens=sizes.decode_tokens)
        for begin in range(0, sizes.decode_tokens, sizes.decode_part):
            part = range(begin, min(begin + sizes.decode_part, sizes.decode_tokens))
            name = f"prefill-decode/{length}-from-{begin:03}"
            cost = len(part) * (length + begin)
            yield Case("prefill-decode", name, cost, len(part), partial(_decoded, ask, part))


def _decoded(ask: Ask, part: range, bench: Bench) -> Iterator[Pair]:
    """Generated rows against prefills of the same histories, in a separate engine."""
    settings = bench.geometry.settings()
    (generated,) = bench.references([ask], settings)
    histories = [Ask(f"{ask.name}-and-{i}", ask.prompt + generated.tokens[:i]) for i in part]
    served = bench.serve(settings, *([history] for history in histories))
    for i, history, (prefilled,) in zip(part, histories, served, strict=True):
        missing = (
            f"the generator ended after {len(generated.rows)} rows"
            if i >= len(generated.rows)
            else reason(generated, prefilled, 0)
        )
        yield Pair(
            name=f"prefill-decode/{history.name}",
            request=ask.name,
            position=len(history.prompt) - 1,
            left=b"" if missing else generated.rows[i],
            right=b"" if missing else prefilled.rows[0],
            differs=() if missing else differences_of_last(generated, i, prefilled),
            invalid=missing,
        )


# ---------------------------------------------------------------- prefix


def _prefix(vocabulary: Vocabulary, geometry: Geometry, sizes: Sizes, window: int | None) -> Iterator[Case]:
    tail = geometry.boundary(TAIL)
    reuses = []
    for i, shared in enumerate(_around(geometry, sizes.donors, window)):
        query = Ask(f"share-{shared}-{i}", random_prompt(vocabulary, shared + tail, 3000 + i))
        donor = Ask("donor", query.prompt[:shared])
        reuses.append(_Reuse(f"prefix/partial-{shared}-{i}", donor, query, 1 if shared >= tail else 0, shared))
    for i, length in enumerate((129, 1025)):
        query = Ask(f"again-{length}", random_prompt(vocabulary, geometry.length(length), 4000 + i))
        reuses.append(_Reuse(f"prefix/full-{length}", query, query, 1, len(query.prompt) - 1))
    shared_tokens = random_prompt(vocabulary, geometry.boundary(1024), 5000)
    donor, query = (Ask(name, shared_tokens + random_tail(vocabulary, tail, 5001 + i)) for i, name in enumerate("ab"))
    reuses.append(_Reuse("prefix/divergent", donor, query, 1, len(shared_tokens)))
    queries = [reuse.query for reuse in reuses]
    for reuse in reuses:
        cost = len(reuse.donor.prompt) + 2 * len(reuse.query.prompt)
        yield Case("prefix", reuse.name, cost, 1, partial(_warm, queries, reuse))
    teller = Ask("teller", random_prompt(vocabulary, geometry.boundary(1024), 6000), max_tokens=sizes.generated)
    suffix = random_tail(vocabulary, tail, 6001)
    cost = 2 * (len(teller.prompt) + sizes.generated + tail)
    yield Case("prefix", "prefix/generated", cost, 1, partial(_generated, teller, suffix))


@dataclass(frozen=True)
class _Reuse:
    """A query that shares its beginning with a donor that was served before; between which bounds its hit must be."""

    name: str
    donor: Ask
    query: Ask
    least: int
    most: int


def _warm(queries: list[Ask], reuse: _Reuse, bench: Bench) -> Iterator[Pair]:
    """First all references, so that an engine is opened for them once."""
    query = reuse.query
    cold = bench.references(queries, bench.geometry.settings())[queries.index(query)]
    _, (warm,) = bench.serve(bench.geometry.settings(prefix_caching=True), [reuse.donor], [query])
    yield from _first(reuse.name, query, warm, cold, _wrong_hit(warm, reuse.least, reuse.most), cached=True)


def _generated(teller: Ask, suffix: tuple[int, ...], bench: Bench) -> Iterator[Pair]:
    """A follow-up to what an engine generated itself: its pages hold keys and values of decoded tokens."""
    with bench.subject.open(bench.geometry.settings(prefix_caching=True)) as arm:
        (told,) = arm.serve([teller])
        follow_up = Ask("follow-up", teller.prompt + told.tokens[:-1] + suffix)
        (warm,) = arm.serve([follow_up])
    (cold,) = bench.references([follow_up], bench.geometry.settings())
    known = len(teller.prompt) + len(told.tokens) - 1
    invalid = _wrong_hit(warm, len(teller.prompt) + 1, known)
    yield from _first("prefix/generated", follow_up, warm, cold, invalid, cached=True)


def _wrong_hit(warm: Answer, least: int, most: int) -> str | None:
    """Why a hit is not what the donor allows, if so."""
    if warm.hit_tokens is None:
        return "the engine does not show its cache hits"
    if not least <= warm.hit_tokens <= most:
        return f"{warm.hit_tokens} tokens came from the prefix cache, not {least} to {most}"
    return None
