"""Everything that may happen to an engine's state: fourteen actions, each a guard and an effect (sections 4.1 to 4.3
of the paper).

`X_guard(s, ...)` says whether X may happen in s, and `X(s, ...)` is the state afterwards. Who is admitted, which page
is taken or evicted, who is preempted are choices, and choices are arguments: the guards alone decide what is safe.

Five actions touch values: `compute` writes one, and `emit`, `observe`, `publish` and `fail` look at some. Of these
the guard is stated in two parts. The *control part* (`emit_ready`, ...) depends on tokens, pages and lengths; the
*value part* (`emits`, ...) on values. A checker of real runs evaluates the control part as it stands, and interprets
values by the digests it has seen.

| action | what happens | section |
| --- | --- | --- |
| `admit` | a request arrives | 4.3 |
| `propose` | a draft is set: a guess at the continuation, to be verified | 1 |
| `attach` | a prefix hit: one registered page joins a table | 4.1 |
| `allocate` | a free page joins a table | 4.3 |
| `evict` | a registered leaf that nobody holds becomes free | 4.1 |
| `compute` | one position's value is written to one private slot | 4.3 |
| `emit` | logits, a token, and the next sampler state | 4.3 |
| `observe` | logits of an earlier position; no token | 4.3 |
| `retract` | the draft is dropped, and its slots with it | 1 |
| `publish` | a full page of history becomes shareable | 4.1 |
| `preempt` | a request gives its pages back, in favour of an earlier one | - |
| `finish`, `cancel`, `fail` | a request ends | 4.3 |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from vosti.spec.determinism import Record
from vosti.spec.reference import (
    finite_kv,
    finite_logits,
    kernel_kv,
    kernel_logits,
    next_sampler,
    sampled_token,
)
from vosti.spec.state import (
    Domain,
    Logits,
    Page,
    PageId,
    Request,
    RequestId,
    Sampler,
    State,
    Token,
    Value,
    cached_value,
    cached_values,
    history,
    sequence,
)

# ---------------------------------------------------------------- arrival and drafts


def admit_guard(
    s: State, r: RequestId, prompt: tuple[Token, ...], sampler: Sampler, domain: Domain, arrival: int
) -> bool:
    """The identifier is new for ever, and the request comes after everybody who is here."""
    return r not in s.seen and len(prompt) >= 1 and all(request.arrival < arrival for request in s.requests.values())


def admit(s: State, r: RequestId, prompt: tuple[Token, ...], sampler: Sampler, domain: Domain, arrival: int) -> State:
    """A request arrives, with no output and no pages."""
    request = Request(
        prompt=prompt, output=(), draft=(), sampler=sampler, cached=0, table=(), domain=domain, arrival=arrival
    )
    return replace(s, requests={**s.requests, r: request}, seen=s.seen | {r})


def propose_guard(s: State, r: RequestId, draft: tuple[Token, ...]) -> bool:
    """A request verifies one draft at a time."""
    return r in s.requests and s.requests[r].draft == () and len(draft) >= 1


def propose(s: State, r: RequestId, draft: tuple[Token, ...]) -> State:
    """A guess at how the history goes on. It may be wrong: what is emitted does not depend on it."""
    return replace(s, requests={**s.requests, r: replace(s.requests[r], draft=draft)})


# ---------------------------------------------------------------- pages


def attach_guard(s: State, r: RequestId, page_id: PageId) -> bool:
    """An exact match (section 4.1): tokens, depth, physical parent and domain. A hash may have found the page; it
    decides nothing.

    At least one token of the history stays to be computed, so that there is a row to take logits from.
    """
    if r not in s.requests or page_id not in s.pages:
        return False
    request = s.requests[r]
    page = s.pages[page_id]
    start = request.cached
    end = start + s.page_size
    return (
        page.registered
        and start == len(request.table) * s.page_size
        and end < len(history(request))
        and page.parent == (request.table[-1] if request.table else None)
        and page.tokens == history(request)[start:end]
        and page.domain == request.domain
    )


def attach(s: State, r: RequestId, page_id: PageId) -> State:
    """A prefix hit, one page: its positions count as cached from here on."""
    request = s.requests[r]
    page = s.pages[page_id]
    longer = replace(request, cached=request.cached + s.page_size, table=request.table + (page_id,))
    held = replace(page, holders=page.holders | {r})
    return replace(s, requests={**s.requests, r: longer}, pages={**s.pages, page_id: held})


def allocate_guard(s: State, r: RequestId, page_id: PageId) -> bool:
    """Only a free page of the pool."""
    return r in s.requests and page_id in s.capacity and page_id not in s.pages


def allocate(s: State, r: RequestId, page_id: PageId) -> State:
    """A free page joins a table, private to the request, with no slot initialised."""
    request = s.requests[r]
    page = Page(
        prefix=(), tokens=(), kv=(), holders=frozenset({r}), registered=False, parent=None, domain=request.domain
    )
    longer = replace(request, table=request.table + (page_id,))
    return replace(s, requests={**s.requests, r: longer}, pages={**s.pages, page_id: page})


def evict_guard(s: State, page_id: PageId) -> bool:
    """Leaves only: while a retained child refers to its parent, the parent's identifier cannot be recycled (section
    4.1).
    """
    if page_id not in s.pages:
        return False
    page = s.pages[page_id]
    return page.registered and not page.holders and all(child.parent != page_id for child in s.pages.values())


def evict(s: State, page_id: PageId) -> State:
    """A retained page is given up; it is free."""
    return replace(s, pages={other: page for other, page in s.pages.items() if other != page_id})


# ---------------------------------------------------------------- the forward


def compute_guard(s: State, r: RequestId) -> bool:
    """The next position has a token and a slot, and the slot is private."""
    if r not in s.requests:
        return False
    request = s.requests[r]
    return (
        request.cached < len(sequence(request))
        and request.cached < len(request.table) * s.page_size
        and not s.pages[request.table[request.cached // s.page_size]].registered
    )


def compute(s: State, r: RequestId) -> State:
    """One position of history + draft is computed from the values before it, and written to its slot."""
    cached = s.requests[r].cached
    return written(s, r, kernel_kv(cached_values(s, r, cached), sequence(s.requests[r])[: cached + 1]))


def written(s: State, r: RequestId, value: Value) -> State:
    """`value` goes to the request's next slot."""
    request = s.requests[r]
    block = request.cached // s.page_size
    page_id = request.table[block]
    page = s.pages[page_id]
    longer = replace(
        page,
        prefix=sequence(request)[: block * s.page_size],
        tokens=page.tokens + (sequence(request)[request.cached],),
        kv=page.kv + (value,),
    )
    further = replace(request, cached=request.cached + 1)
    return replace(s, requests={**s.requests, r: further}, pages={**s.pages, page_id: longer})


# ---------------------------------------------------------------- output


def emitted_logits(s: State, r: RequestId) -> Logits:
    """What the kernels compute for the last position of the history. Needs cached ≥ |history|."""
    tokens = history(s.requests[r])
    return kernel_logits(cached_values(s, r, len(tokens)), tokens)


def history_finite(s: State, r: RequestId) -> bool:
    """Every value of the history is finite. Needs cached ≥ |history|."""
    return all(finite_kv(cached_value(s, r, p)) for p in range(len(history(s.requests[r]))))


def emit_ready(s: State, r: RequestId, token: Token) -> bool:
    """Control part: the whole history is cached, and a draft, if there is one, begins with this token."""
    if r not in s.requests:
        return False
    request = s.requests[r]
    return request.cached >= len(history(request)) and (request.draft == () or request.draft[0] == token)


def emits(s: State, r: RequestId, record: Record, sampler: Sampler) -> bool:
    """Value part: the logits are what the kernels computed and finite, the token and the next state are what the
    sampler says.
    """
    request = s.requests[r]
    return (
        history_finite(s, r)
        and record.logits == emitted_logits(s, r)
        and finite_logits(record.logits)
        and record.token == sampled_token(record.logits, request.sampler, history(request), len(request.prompt))
        and sampler == next_sampler(request.sampler)
    )


def emit_guard(s: State, r: RequestId, record: Record, sampler: Sampler) -> bool:
    """An output of section 2.3: a record, and the sampler state that it leaves behind."""
    return emit_ready(s, r, record.token) and emits(s, r, record, sampler)


def emit(s: State, r: RequestId, record: Record, sampler: Sampler) -> State:
    """The token joins the output. An accepted draft loses its head: history + draft stays what it was, and so do the
    slots.
    """
    request = s.requests[r]
    further = replace(
        request,
        output=request.output + (record.token,),
        draft=request.draft[1:] if request.draft else (),
        sampler=sampler,
    )
    return replace(s, requests={**s.requests, r: further})


def observe_ready(s: State, r: RequestId, position: int) -> bool:
    """Control part: the position belongs to the history and is cached."""
    return r in s.requests and 0 <= position < len(history(s.requests[r])) and position < s.requests[r].cached


def observes(s: State, r: RequestId, position: int, logits: Logits) -> bool:
    """Value part: the logits are what the kernels compute at that position."""
    tokens = history(s.requests[r])[: position + 1]
    return logits == kernel_logits(cached_values(s, r, position + 1), tokens)


def observe_guard(s: State, r: RequestId, position: int, logits: Logits) -> bool:
    """The logits of a position that is not the last: log-probabilities of a prompt, for instance."""
    return observe_ready(s, r, position) and observes(s, r, position, logits)


def observe(s: State, r: RequestId, position: int, logits: Logits) -> State:
    """To look changes nothing."""
    return s


def retract_guard(s: State, r: RequestId) -> bool:
    """There is a draft to drop."""
    return r in s.requests and s.requests[r].draft != ()


def retract(s: State, r: RequestId) -> State:
    """The draft is dropped, and its slots count as uninitialised again. It comes before the emit of a token that
    differs.
    """
    request = s.requests[r]
    kept = min(request.cached, len(history(request)))
    return replace(
        s,
        requests={**s.requests, r: replace(request, draft=(), cached=kept)},
        pages={
            page_id: shortened(page, kept) if r in page.holders and not page.registered else page
            for page_id, page in s.pages.items()
        },
    )


def shortened(page: Page, kept: int) -> Page:
    """The page without its slots from position `kept` on."""
    slots = max(0, min(len(page.tokens), kept - len(page.prefix)))
    return replace(page, tokens=page.tokens[:slots], kv=page.kv[:slots])


# ---------------------------------------------------------------- sharing


def publish_ready(s: State, r: RequestId, block: int) -> bool:
    """Control part: the page is full, holds verified history and no draft, and the page before it is shareable
    already.
    """
    if r not in s.requests or not 0 <= block < len(s.requests[r].table):
        return False
    request = s.requests[r]
    return (
        (block + 1) * s.page_size <= request.cached
        and (block + 1) * s.page_size <= len(history(request))
        and not s.pages[request.table[block]].registered
        and (block == 0 or s.pages[request.table[block - 1]].registered)
    )


def publishes(s: State, r: RequestId, block: int) -> bool:
    """Value part: a page that holds a value that is not finite is never shared."""
    return page_finite(s.pages[s.requests[r].table[block]])


def page_finite(page: Page) -> bool:
    """Every value of the page is finite."""
    return all(finite_kv(value) for value in page.kv)


def publish_guard(s: State, r: RequestId, block: int) -> bool:
    """A full page of verified history, once its values have been computed: later steps may reuse it (section 4.1)."""
    return publish_ready(s, r, block) and publishes(s, r, block)


def publish(s: State, r: RequestId, block: int) -> State:
    """The page becomes registered: immutable, and attachable by others."""
    table = s.requests[r].table
    page_id = table[block]
    parent = table[block - 1] if block > 0 else None
    return replace(s, pages={**s.pages, page_id: replace(s.pages[page_id], registered=True, parent=parent)})


# ---------------------------------------------------------------- giving pages back


def released(pages: Mapping[PageId, Page], r: RequestId) -> Mapping[PageId, Page]:
    """Registered pages outlive their holders; private pages go with their owner."""
    return {
        page_id: replace(page, holders=page.holders - {r}) if r in page.holders else page
        for page_id, page in pages.items()
        if page.registered or r not in page.holders
    }


def ended(s: State, r: RequestId) -> State:
    """A request is gone, whatever the reason."""
    others = {other: request for other, request in s.requests.items() if other != r}
    return replace(s, requests=others, pages=released(s.pages, r))


def preempt_guard(s: State, r: RequestId, in_favour_of: RequestId) -> bool:
    """Only an earlier arrival may be favoured: the earliest request never loses a page, so it gets to its end."""
    return r in s.requests and in_favour_of in s.requests and s.requests[in_favour_of].arrival < s.requests[r].arrival


def preempt(s: State, r: RequestId, in_favour_of: RequestId) -> State:
    """The request gives its pages back and starts over; its history and its sampler state stay what they are."""
    waiting = replace(s.requests[r], draft=(), cached=0, table=())
    return replace(s, requests={**s.requests, r: waiting}, pages=released(s.pages, r))


def finish_guard(s: State, r: RequestId) -> bool:
    """A request that has emitted something may be done. (When it is done is its stop condition's business.)"""
    return r in s.requests and len(s.requests[r].output) >= 1


def finish(s: State, r: RequestId) -> State:
    """The request is done."""
    return ended(s, r)


def cancel_guard(s: State, r: RequestId) -> bool:
    """Anybody who is here may leave, at any time between two forwards."""
    return r in s.requests


def cancel(s: State, r: RequestId) -> State:
    """The request was called off."""
    return ended(s, r)


def fail_guard(s: State, r: RequestId) -> bool:
    """Some value of its history, or the row of logits after it, is not finite. All of it is a value part."""
    if r not in s.requests:
        return False
    request = s.requests[r]
    length = len(history(request))
    return any(not finite_kv(cached_value(s, r, p)) for p in range(min(request.cached, length))) or (
        request.cached >= length and not finite_logits(emitted_logits(s, r))
    )


def fail(s: State, r: RequestId) -> State:
    """An error ends the view of this request, and of no other."""
    return ended(s, r)
