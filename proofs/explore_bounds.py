"""Small worlds: how far an exploration goes, and which actions it tries in a state.

Every argument is enumerated: prompts and drafts, pages, blocks, positions, whom to favour, what to claim of logits,
token and sampler state. Arguments that the specification refuses are tried too (a name that is not live, a page that is
not the pool's, an empty prompt, logits of another position), so that a weaker guard shows. Whether an action may happen
is the guard's to say.

Only what is interchangeable is tried once: of names that were never used, the first; of names that were, one; of free
pages, the first; of domains that nothing belongs to, the first. A state that satisfies Inv mentions none of them, so
another choice leads to the same state but for names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from vosti.spec.actions import emitted_logits
from vosti.spec.determinism import Record
from vosti.spec.reference import NON_FINITE, VOCABULARY, forward, kernel_logits, next_sampler, sampled_token
from vosti.spec.sampling import sampler_state
from vosti.spec.state import (
    Domain,
    Logits,
    PageId,
    Request,
    RequestId,
    Sampler,
    State,
    Token,
    cached_values,
    history,
    initial,
    sequence,
)
from vosti.spec.step import (
    Action,
    Admit,
    Allocate,
    Attach,
    Cancel,
    Compute,
    Emit,
    Evict,
    Fail,
    Finish,
    Observe,
    Preempt,
    Propose,
    Publish,
    Retract,
)

Tokens = tuple[Token, ...]

GREEDY, SEEDED = Sampler(sampler_state(temperature=0, seed=0)), Sampler(sampler_state(seed=1))
"""Two samplers that draw differently."""

ONE, OTHER = Domain("one"), Domain("other")


@dataclass(frozen=True)
class Bounds:
    """How far an exploration goes. Within them it leaves nothing out."""

    name: str
    requests: int
    """How many identifiers there are; each is used once."""

    pages: int
    page_size: int
    prompts: tuple[Tokens, ...]
    """What requests may come with."""

    outputs: int
    """How many tokens a request emits at most."""

    drafts: tuple[Tokens, ...] = ()
    """What may be proposed."""

    samplers: tuple[Sampler, ...] = (GREEDY,)
    """Initial sampler states."""

    domains: tuple[Domain, ...] = (ONE,)

    @property
    def start(self) -> State:
        """The state before any request."""
        return initial(frozenset(map(PageId, range(self.pages))), self.page_size)


def tokens(*numbers: int) -> Tokens:
    """Some tokens."""
    return tuple(map(Token, numbers))


DEFAULT = (
    Bounds("sharing", requests=3, pages=4, page_size=1, prompts=(tokens(0, 0),), outputs=1),
    Bounds("competition", requests=3, pages=3, page_size=1, prompts=(tokens(0, 0), tokens(0, 1)), outputs=1),
    Bounds("domains", requests=3, pages=3, page_size=1, prompts=(tokens(0, 0),), outputs=1, domains=(ONE, OTHER)),
    Bounds(
        "drafts",
        requests=2,
        pages=3,
        page_size=1,
        prompts=(tokens(0, 0),),
        outputs=2,
        drafts=(tokens(0, 0), tokens(0, 1), tokens(1)),  # right to the end, wrong after one token, and wrong
    ),
    Bounds(
        "drafts in larger pages",
        requests=2,
        pages=3,
        page_size=2,
        prompts=(tokens(0, 0, 0),),
        outputs=2,
        drafts=(tokens(1, 0), tokens(1, 1)),  # right to the end, and wrong after one token
    ),
    Bounds(
        "competition for larger pages",
        requests=3,
        pages=2,
        page_size=2,
        prompts=(tokens(0, 0, 0),),
        outputs=1,
        drafts=(tokens(1),),
    ),
    Bounds(
        "failures",
        requests=2,
        pages=3,
        page_size=1,
        prompts=(tokens(0, 0), tokens(0, NON_FINITE)),
        outputs=1,
        drafts=(tokens(NON_FINITE),),
        samplers=(GREEDY, SEEDED),
    ),
)
"""What `vosti prove explore` exhausts."""

SMALL = (
    Bounds(
        "a draft",
        requests=1,
        pages=4,
        page_size=1,
        prompts=(tokens(0, 1),),
        outputs=2,
        drafts=(tokens(0, 2), tokens(1)),  # right to the end, and wrong
    ),
    Bounds("a failure", requests=2, pages=2, page_size=1, prompts=(tokens(0, NON_FINITE),), outputs=1),
    Bounds("a second output", requests=2, pages=2, page_size=1, prompts=(tokens(2),), outputs=2),
    Bounds("a shared page", requests=2, pages=3, page_size=1, prompts=(tokens(0, 0),), outputs=1),
    Bounds("two domains", requests=2, pages=2, page_size=1, prompts=(tokens(0, 0),), outputs=1, domains=(ONE, OTHER)),
    Bounds(
        "three prompts",
        requests=2,
        pages=2,
        page_size=1,
        prompts=(tokens(0, 0), tokens(0, 1), tokens(1, 0)),
        outputs=1,
    ),
    Bounds(
        "a larger page",
        requests=2,
        pages=2,
        page_size=2,
        prompts=(tokens(0, 0, 0),),
        outputs=1,
        drafts=(tokens(1),),
    ),
)
"""Where to look for a counterexample first: a specification with a fault is refuted here in a second, as a rule, and
one without is explored to the end in a few.
"""

# Actions of the same arguments are made once: most of an exploration's actions recur in thousands of states.
_propose, _attach, _allocate, _evict = cache(Propose), cache(Attach), cache(Allocate), cache(Evict)
_compute, _retract, _publish, _preempt = cache(Compute), cache(Retract), cache(Publish), cache(Preempt)
_finish, _cancel, _fail = cache(Finish), cache(Cancel), cache(Fail)
_sampled, _next = cache(sampled_token), cache(next_sampler)


def candidates(s: State, bounds: Bounds) -> Iterator[Action]:
    """Every action that is tried in s, a state that satisfies Inv, in a fixed order."""
    live = sorted(s.requests, key=lambda r: s.requests[r].arrival)
    yield from _admissions(s, bounds, live)
    names = [*live, next(_strangers(s))]
    pages = [*sorted(s.pages), *_other_pages(s)]
    for r in names:
        request = s.requests.get(r)
        blocks = len(request.table) if request else 0
        for draft in (*bounds.drafts, ()):
            yield _propose(r, draft)
        for page_id in pages:
            yield _attach(r, page_id)
            yield _allocate(r, page_id)
        yield _compute(r)
        yield from _emissions(s, r, bounds)
        yield from _observations(s, r)
        yield _retract(r)
        for block in range(-1, blocks + 1):
            yield _publish(r, block)
        for other in names:
            yield _preempt(r, other)
        yield _finish(r)
        yield _cancel(r)
        yield _fail(r)
    for page_id in pages:
        yield _evict(page_id)


def _name(number: int) -> RequestId:
    return RequestId(f"r{number}")


def _strangers(s: State) -> Iterator[RequestId]:
    """One name that was used and is not live, if there is one, and one that was never used."""
    yield from sorted(s.seen - s.requests.keys())[:1]
    yield next(name for name in map(_name, range(len(s.seen) + 1)) if name not in s.seen)


def _other_pages(s: State) -> Iterator[PageId]:
    """One free page, if there is one, and one that is not the pool's."""
    yield from sorted(s.capacity - s.pages.keys())[:1]
    yield PageId(len(s.capacity))


def _admissions(s: State, bounds: Bounds, live: list[RequestId]) -> Iterator[Action]:
    """Arrivals: after everybody who is here, and at the rank of the last one."""
    if len(s.seen) == bounds.requests:
        return
    known = {r.domain for r in s.requests.values()} | {page.domain for page in s.pages.values()}
    fresh = [domain for domain in bounds.domains if domain not in known]
    domains = [domain for domain in bounds.domains if domain in known] + fresh[:1]
    last = s.requests[live[-1]].arrival if live else -1
    for r in (*live[:1], *_strangers(s)):
        for sampler in bounds.samplers:
            for domain in domains:
                for prompt in (*bounds.prompts, ()):
                    yield Admit(r, prompt, sampler, domain, last + 1)
                if live:
                    yield Admit(r, bounds.prompts[0], sampler, domain, last)


def _emissions(s: State, r: RequestId, bounds: Bounds) -> Iterator[Action]:
    """Claims of an output: the right one, if the history is cached, and those that differ from it in one respect."""
    request = s.requests.get(r)
    if request is None:
        yield Emit(r, Record(forward(()), Token(0)), GREEDY)
        return
    if len(request.output) == bounds.outputs:
        return
    tokens = history(request)
    if request.cached < len(tokens):
        logits = forward(tokens)
        yield Emit(r, Record(logits, _drawn(request, logits)), _next(request.sampler))
        return
    logits, further = emitted_logits(s, r), _next(request.sampler)
    token = _drawn(request, logits)
    yield Emit(r, Record(logits, token), further)
    for other in map(Token, range(VOCABULARY)):
        if other != token:
            yield Emit(r, Record(logits, other), further)
    earlier = forward(tokens[:-1])
    yield Emit(r, Record(earlier, _drawn(request, earlier)), further)
    yield Emit(r, Record(logits, token), request.sampler)


def _drawn(request: Request, logits: Logits) -> Token:
    return _sampled(logits, request.sampler, history(request), len(request.prompt))


def _observations(s: State, r: RequestId) -> Iterator[Action]:
    """Claims of logits: at every position that is cached the right ones, at the last one also those before it."""
    request = s.requests.get(r)
    if request is None:
        yield Observe(r, 0, forward(()))
        return
    tokens = history(request)
    for position in range(-1, request.cached):
        yield Observe(r, position, kernel_logits(cached_values(s, r, position + 1), tokens[: position + 1]))
    if request.cached:
        yield Observe(r, request.cached - 1, forward(tokens[: request.cached - 1]))
    if request.cached < len(sequence(request)):
        yield Observe(r, request.cached, forward(tokens[: request.cached + 1]))
