"""What becomes of a request after a forward: drafts are judged, tokens emitted, pages published, requests ended.

Pure functions over the pool and one request's record; the sampler is a function of a row of logits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from vosti.impl import pool as pools
from vosti.impl.history import History, Tokens
from vosti.impl.options import SamplingParams
from vosti.impl.persistent import replace
from vosti.impl.pool_state import Pool
from vosti.spec.determinism import Record
from vosti.spec.sampling import SamplerState
from vosti.spec.state import Domain, Logits, RequestId, Sampler, Token
from vosti.spec.step import Action, Emit, Fail, Finish, Observe, Publish, Retract

if TYPE_CHECKING:
    from vosti.impl.sampling import Logprobs


@dataclass(frozen=True)
class LiveRecord:
    """What the engine keeps of a live request, beside what the pool keeps."""

    prompt: tuple[Token, ...]
    output: tuple[Token, ...]
    draft: tuple[Token, ...]
    sampler: SamplerState
    domain: Domain
    arrival: int
    params: SamplingParams
    stop_tokens: frozenset[Token]
    """Tokens that end it: the parameters' and, unless they are ignored, the model's."""

    hit_tokens: int | None = None
    """How many tokens its first prefix match found; None before it was scheduled."""

    logprobs: tuple[Logprobs, ...] = ()
    """One for each output, if the parameters ask for them."""

    prompt_logprobs: tuple[Logprobs | None, ...] = ()
    """One for each token of the prompt from `first_reported` on, as far as they were computed, if the parameters ask
    for them; None where a logit is not finite.
    """

    @property
    def history(self) -> History:
        """Prompt and output."""
        return History(self.prompt, self.output)

    @property
    def length(self) -> int:
        """Of the history."""
        return len(self.prompt) + len(self.output)

    @property
    def first_reported(self) -> int:
        """The first token of the prompt whose log-probability can be, and is to be, reported."""
        return max(1, self.params.prompt_logprobs_start)

    @property
    def asked(self) -> int:
        """The first position whose logits are still asked for; those of the history's last position always are."""
        last = self.length - 1
        if self.params.prompt_logprobs is None:
            return last
        first = self.first_reported + len(self.prompt_logprobs) - 1
        return first if first < len(self.prompt) - 1 else last


class YieldedRow(NamedTuple):
    """One row of logits of a forward, as settling sees it."""

    row: int
    """Which packed row yielded it."""

    logits: Logits
    """Its digest, if somebody looks."""

    finite: bool
    sample: Callable[[LiveRecord], Token]
    logprobs: Callable[[Token, int], Logprobs]


class Settled(NamedTuple):
    """What became of one request."""

    pool: Pool
    record: LiveRecord
    actions: tuple[Action, ...]
    rows: tuple[int, ...]
    """The packed rows that this step's tokens were sampled from, in order."""

    ended: str | None
    """"stop", "length" or "error"; None while it goes on."""


def settle(
    pool: Pool,
    r: RequestId,
    record: LiveRecord,
    yielded: Mapping[int, YieldedRow],
    non_finite: Sequence[int],
    *,
    publishing: bool,
) -> Settled:
    """Settle one request after a forward in which it had rows.

    Args:
        pool: after the forward's slots were counted.
        r: the request.
        record: what the engine keeps of it.
        yielded: rows of logits, by position.
        non_finite: the positions whose KV of this forward is not finite.
        publishing: whether full pages become shareable.
    """
    rows: list[int] = []
    ended: str | None = None
    record, actions = observed(r, record, yielded, non_finite)
    while ended is None:
        length = record.length
        cached = pool.requests[r].cached  # a rejected draft's slots are no longer among them
        if non_finite and min(non_finite) < min(cached, length):
            ended = "error"
            break
        if cached < length:
            break
        row = yielded[length - 1]
        if not row.finite:
            ended = "error"
            break
        token = row.sample(record)
        if record.draft and record.draft[0] != token:
            pool = pools.retract(pool, r, length)
            record = replace(record, draft=())
            actions.append(Retract(r))
        record = emitted(record, token, row)
        actions.append(Emit(r, Record(row.logits, token), Sampler(record.sampler)))
        rows.append(row.row)
        ended = stop_reason(record)
    if ended == "error":
        actions.append(Fail(r))
        return Settled(pools.remove(pool, r), record, tuple(actions), tuple(rows), ended)
    if publishing:
        pool, published = publish_full(pool, r, record.history)
        actions += published
    if ended is not None:
        pool = pools.remove(pool, r)
        actions.append(Finish(r))
    return Settled(pool, record, tuple(actions), tuple(rows), ended)


def observed(
    r: RequestId, record: LiveRecord, yielded: Mapping[int, YieldedRow], non_finite: Sequence[int]
) -> tuple[LiveRecord, list[Action]]:
    """The record with the log-probabilities of its prompt that this forward yielded, up to a value that is not finite:
    how far a request gets that fails does not depend on its chunks.
    """
    actions: list[Action] = []
    k = record.params.prompt_logprobs
    if k is None:
        return record, actions
    stop = min((len(record.prompt) - 1, *non_finite))
    while (position := record.asked) < stop and position in yielded:
        row = yielded[position]
        found = row.logprobs(record.prompt[position + 1], k) if row.finite else None
        record = replace(record, prompt_logprobs=(*record.prompt_logprobs, found))
        actions.append(Observe(r, position, row.logits))
    return record, actions


def emitted(record: LiveRecord, token: Token, row: YieldedRow) -> LiveRecord:
    """The record with one token more; of an accepted draft the head is gone."""
    asked = record.params.logprobs
    return replace(
        record,
        output=record.output + (token,),
        draft=record.draft[1:],
        sampler=replace(record.sampler, index=record.sampler.index + 1),  # `advanced`, and nothing checked again
        logprobs=record.logprobs if asked is None else record.logprobs + (row.logprobs(token, asked),),
    )


def stop_reason(record: LiveRecord) -> str | None:
    """Why the request is done, or None."""
    if record.output[-1] in record.stop_tokens:
        return "stop"
    return "length" if len(record.output) == record.params.max_tokens else None


def publish_full(pool: Pool, r: RequestId, history: Tokens) -> tuple[Pool, list[Action]]:
    """Publish every full page of the history that is not yet registered, in order."""
    table = pool.requests[r].table
    stop = min(pool.requests[r].cached, len(history)) // pool.page_size
    start = stop
    while start > 0 and not pool.pages[table[start - 1]].registered:
        start -= 1
    published: list[Action] = []
    for block in range(start, stop):
        tokens = history[block * pool.page_size : (block + 1) * pool.page_size]
        assert pools.publish_guard(pool, r, block, tokens, len(history))
        pool = pools.publish(pool, r, block, tokens, len(history))
        published.append(Publish(r, block))
    return pool, published
