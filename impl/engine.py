"""The engine: continuous batching over a paged, prefix-sharing KV cache, one step at a time (section 4.1 of the
paper).

`Engine` is the one place that holds state. A step plans (`vosti.impl.planning`), packs (`vosti.impl.packing`), runs
one forward of the backend, and settles (`vosti.impl.settling`); what it decides are the specification's own actions.
Batching, chunking, sharing, eviction, preemption and drafts may change when a request gets its tokens, never which.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count

from torch import Tensor

from vosti.impl import pool as pools
from vosti.impl.assertions import StepAssertions
from vosti.impl.backend import Backend, Batch, ForwardResult
from vosti.impl.drafting import Drafter, drafter_of
from vosti.impl.drawing import drawn_together
from vosti.impl.errors import CapacityError, EngineStoppedError, InvalidOptionError, UnknownRequestError
from vosti.impl.fingerprint import fingerprint_of
from vosti.impl.ghost import Ghost, NoGhost, TracedGhost
from vosti.impl.options import EngineOptions, SamplingParams
from vosti.impl.outputs import RequestOutput, of_prompt
from vosti.impl.packing import pack
from vosti.impl.persistent import replace
from vosti.impl.planning import Candidate, Chunk, Limits, Victims, chunk_counts, pages_needed, plan_step
from vosti.impl.pool_state import KEY_SPACE, empty
from vosti.impl.sampling import Logprobs, logprobs, sample_row
from vosti.impl.settling import LiveRecord, Settled, YieldedRow, settle
from vosti.spec.events import Tracer
from vosti.spec.state import Domain, PageId, RequestId, Sampler, Token
from vosti.spec.step import Action, Admit, Cancel


class Engine:
    """Serves requests, a step at a time."""

    def __init__(
        self,
        backend: Backend,
        options: EngineOptions | None = None,
        *,
        drafter: Drafter | None = None,
        tracer: Tracer | None = None,
        full: bool = False,
        candidates: bool = False,
        observer: Ghost | None = None,
        key_space: int = KEY_SPACE,
    ) -> None:
        """An engine with an empty pool.

        Args:
            backend: the model and its pool of values; the engine allocates the pool.
            options: limits and switches.
            drafter: proposes drafts; by default the one that the options ask for.
            tracer: takes ghost events; by default none are made.
            full: whether events carry the bits of logits and KV, and not only their digests.
            candidates: whether events say what each token was drawn from.
            observer: is shown what a tracer's events are made from, in their place: without a tracer only.
            key_space: how many different hashes the prefix index has; a test makes it small, so that they collide.
        """
        self.options = options or EngineOptions()
        self._backend = backend
        self._drafter = drafter or drafter_of(self.options)
        self._limits = Limits(
            max_seqs=self.options.max_seqs,
            token_budget=self.options.token_budget,
            prefix_caching=self.options.prefix_caching,
            page_seed=self.options.page_seed,
        )
        capacity = frozenset(PageId(page) for page in range(self.options.pages))
        self._pool = empty(capacity, self.options.page_size, key_space)
        self._victims = Victims()
        self._assertions = StepAssertions(capacity, self.options.page_size) if self.options.check_steps else None
        self._live: dict[RequestId, LiveRecord] = {}
        self._waiting: dict[RequestId, LiveRecord] = {}
        self._cancelled: list[RequestId] = []
        self._seen: set[RequestId] = set()
        self._steps = 0
        self._stopped = False
        self._fingerprint = fingerprint_of(backend.fingerprint())
        backend.allocate(self.options.pages, self.options.page_size)
        if self.options.poison:
            backend.poison()
        self._ghost: Ghost = (
            (observer or NoGhost())
            if tracer is None
            else TracedGhost(
                tracer,
                backend,
                self.options.page_size,
                full=full,
                candidates=candidates,
                reread=self.options.reread,
            )
        )

    @property
    def unfinished(self) -> bool:
        """Whether some request is waiting or live."""
        return bool(self._waiting or self._live)

    @property
    def steps(self) -> int:
        """How many steps there were."""
        return self._steps

    # ------------------------------------------------------------ requests come and go

    def add_request(
        self,
        prompt_token_ids: Sequence[int],
        params: SamplingParams | None = None,
        *,
        request_id: str | None = None,
        domain: str = "",
    ) -> str:
        """Take a request; the next step admits it.

        Args:
            prompt_token_ids: at least one.
            params: how it samples and when it stops.
            request_id: its name, never used before; one is made if it is missing.
            domain: a tenant key: pages are shared within a domain only.

        Returns:
            The request's identifier.

        Raises:
            InvalidOptionError: for an empty prompt, a token outside the vocabulary, or a name that was used before.
            CapacityError: if the request can never fit, even alone.
        """
        params = params or SamplingParams()
        name = self._unused_name() if request_id is None else RequestId(request_id)
        prompt = tuple(Token(int(token)) for token in prompt_token_ids)
        self._refuse(name, prompt, params)
        seed = params.seed if params.seed is not None else 0 if params.temperature == 0 else secrets.randbits(64)
        ends = () if params.ignore_eos else self._backend.eos_ids
        self._waiting[name] = LiveRecord(
            prompt=prompt,
            output=(),
            draft=(),
            sampler=params.sampler(seed),
            domain=Domain(domain),
            arrival=len(self._seen),
            params=params,
            stop_tokens=frozenset(Token(token) for token in (*params.stop_token_ids, *ends)),
        )
        self._seen.add(name)
        return name

    def _unused_name(self) -> RequestId:
        names = (RequestId(f"request-{number}") for number in count(len(self._seen)))
        return next(name for name in names if name not in self._seen)

    def _refuse(self, name: RequestId, prompt: tuple[Token, ...], params: SamplingParams) -> None:
        if name in self._seen:
            raise InvalidOptionError(f"The request identifier {name!r} was used before: choose another one.")
        if not prompt:
            raise InvalidOptionError(f"The prompt of {name!r} is empty: give at least one token.")
        outside = next((token for token in prompt if not 0 <= token < self._backend.vocab_size), None)
        if outside is not None:
            raise InvalidOptionError(
                f"The prompt of {name!r} holds token {outside}: token ids go from 0 to {self._backend.vocab_size - 1}."
            )
        length = len(prompt) + params.max_tokens
        if length > self._backend.max_positions:
            raise CapacityError(
                f"{name!r} may reach {length} tokens ({len(prompt)} of prompt and max_tokens {params.max_tokens}), and "
                f"the model takes {self._backend.max_positions}: shorten the prompt or lower max_tokens."
            )
        pages = pages_needed(length - 1, self.options.page_size)
        if pages > self.options.pages:
            raise CapacityError(
                f"{name!r} may need {pages} pages of {self.options.page_size} slots, and the pool has "
                f"{self.options.pages}: shorten the prompt, lower max_tokens, or make the pool larger."
            )

    def cancel(self, request_id: str) -> None:
        """Call a request off; the next step ends it. One that has ended already stays as it is.

        Raises:
            UnknownRequestError: for a name that was never given.
        """
        name = RequestId(request_id)
        if name not in self._seen:
            raise UnknownRequestError(f"There is no request {request_id!r} to cancel.")
        if name not in self._cancelled and (name in self._live or name in self._waiting):
            self._cancelled.append(name)

    # ------------------------------------------------------------ a step

    def step(self) -> list[RequestOutput]:
        """Run one engine step, if there is anything to do.

        Returns:
            One output for each request that got tokens or ended: those that were cancelled first, then the others in
            order of arrival.

        Raises:
            BrokenStepError: with the option `check_steps`, if the step is none of the specification.
            EngineStoppedError: if an earlier step was interrupted. What interrupts a step is raised as it is.
        """
        if self._stopped:
            raise EngineStoppedError(
                f"The engine stopped in the middle of step {self._steps} and its state is lost: make a new one."
            )
        if not self.unfinished:
            return []
        self._stopped = True
        outputs = self._step()
        self._stopped = False
        self._steps += 1
        return outputs

    def _step(self) -> list[RequestOutput]:
        actions, gone = self._admit_and_cancel()
        plan = plan_step(self._pool, self._candidates(), self._limits, self._victims)
        assert plan.chunks or not self._live, "the earliest request can always run: it was refused if it could not fit"
        self._pool = plan.pool
        actions += plan.actions
        self._note_plan(plan.chunks)
        self._ghost.planned(self._steps, actions)

        batch, result = self._forward(actions, plan.chunks)
        self._ghost.computed(self._steps, plan.chunks, self._pool, batch, result)

        settled = self._settle(plan.chunks, batch, result)
        done = [action for outcome in settled.values() for action in outcome.actions]
        self._ghost.settled(self._steps, done, self._pool, self._live)
        if self._assertions is not None:
            self._assertions.settled(done, self._pool, self._live)

        outputs = [self._output(r, record, (), "cancelled") for r, record in gone.items()]
        outputs += [
            self._output(r, outcome.record, outcome.rows, outcome.ended)
            for r, outcome in settled.items()
            if outcome.rows or outcome.ended is not None
        ]
        return outputs

    def _admit_and_cancel(self) -> tuple[list[Action], dict[RequestId, LiveRecord]]:
        actions: list[Action] = []
        for r, record in self._waiting.items():
            self._pool = pools.admit(self._pool, r, record.domain)
            self._live[r] = record
            actions.append(Admit(r, record.prompt, Sampler(record.sampler), record.domain, record.arrival))
        self._waiting = {}
        gone: dict[RequestId, LiveRecord] = {}
        for r in self._cancelled:
            if r in self._live:
                self._pool = pools.remove(self._pool, r)
                gone[r] = self._live.pop(r)
                actions.append(Cancel(r))
        self._cancelled = []
        return actions, gone

    def _candidates(self) -> list[Candidate]:
        return [
            Candidate(
                request=r,
                history=record.history,
                proposal=self._drafter.propose(r, record.prompt, record.output)[
                    : record.params.max_tokens - len(record.output) - 1
                ],
                asked=record.asked,
            )
            for r, record in self._live.items()
        ]

    def _note_plan(self, chunks: Sequence[Chunk]) -> None:
        for chunk in chunks:
            record = self._live[chunk.request]
            # Whatever is cached before the first chunk was attached, perhaps in earlier steps that had no room for it.
            hit_tokens = chunk.start if record.hit_tokens is None else record.hit_tokens
            if (hit_tokens, chunk.draft) != (record.hit_tokens, record.draft):
                self._live[chunk.request] = replace(record, hit_tokens=hit_tokens, draft=chunk.draft)

    def _forward(self, actions: Sequence[Action], chunks: Sequence[Chunk]) -> tuple[Batch | None, ForwardResult | None]:
        """Pack and run the forward of a plan."""
        histories = {chunk.request: self._live[chunk.request].history for chunk in chunks}
        asked = {r: self._live[r].asked for r in histories}
        batch = pack(chunks, self._pool, histories, self._backend.row_tile, asked) if chunks else None
        if self._assertions is not None:
            self._assertions.planned(actions, [c.request for c in chunks], batch, self._pool, self._live)
        if batch is None:
            return None, None
        result = self._backend.forward(batch)
        counts = chunk_counts(chunks)
        lengths = {chunk.request: self._live[chunk.request].length + len(chunk.draft) for chunk in chunks}
        assert pools.advance_each_guard(self._pool, counts, lengths)
        self._pool = pools.advance_each(self._pool, counts, lengths)
        return batch, result

    def _settle(
        self, chunks: Sequence[Chunk], batch: Batch | None, result: ForwardResult | None
    ) -> dict[RequestId, Settled]:
        if batch is None or result is None:
            return {}
        outcomes: dict[RequestId, Settled] = {}
        yielded = self._yielded_rows(chunks, batch, result)
        sick: dict[int, list[int]] = {}
        for row in (~result.kv_finite).nonzero()[0].tolist():
            sick.setdefault(int(batch.sequences[row]), []).append(int(batch.positions[row]))
        for sequence, chunk in enumerate(chunks):
            outcome = settle(
                self._pool,
                chunk.request,
                self._live[chunk.request],
                yielded[sequence],
                sick.get(sequence, ()),
                publishing=self.options.prefix_caching,
            )
            self._pool = outcome.pool
            if outcome.ended is None:
                self._live[chunk.request] = outcome.record
            else:
                del self._live[chunk.request]
            outcomes[chunk.request] = outcome
        return outcomes

    def _yielded_rows(
        self, chunks: Sequence[Chunk], batch: Batch, result: ForwardResult
    ) -> Mapping[int, Mapping[int, YieldedRow]]:
        """Rows of logits, by sequence and position."""
        yielded: dict[int, dict[int, YieldedRow]] = {sequence: {} for sequence in range(len(batch.tables))}
        finite = result.logits_finite().tolist()
        rows = batch.logit_rows
        places = list(zip(batch.sequences[rows].tolist(), batch.positions[rows].tolist(), strict=True))
        owners = [(self._live[chunks[sequence].request], position) for sequence, position in places]
        with result.launching():
            drawn = drawn_together(result, finite, owners)
        for i, (row, (sequence, position)) in enumerate(zip(rows.tolist(), places, strict=True)):
            yielded[sequence][position] = YieldedRow(
                row=row,
                logits=self._ghost.logits_of(row),
                finite=finite[i],
                sample=partial(_sample, result, i, drawn.get(i)),
                logprobs=partial(_logprobs, result.logits, i),
            )
        return yielded

    def _output(self, r: RequestId, record: LiveRecord, rows: Sequence[int], ended: str | None) -> RequestOutput:
        new = record.output[len(record.output) - len(rows) :]
        self._ghost.returned(self._steps, r, new, rows, ended)
        return RequestOutput(
            request_id=r,
            prompt_token_ids=record.prompt,
            new_token_ids=new,
            token_ids=record.output,
            finish_reason=ended,
            logprobs=record.logprobs,
            prompt_logprobs=of_prompt(record),
            hit_tokens=record.hit_tokens or 0,
            seed=record.sampler.seed,
            fingerprint=self._fingerprint,
        )


def _sample(result: ForwardResult, i: int, drawn: int | None, record: LiveRecord) -> Token:
    if drawn is not None:
        return Token(drawn)
    with result.launching():
        return Token(sample_row(result.logits[i], record.sampler, record.history, len(record.prompt)))


def _logprobs(logits: Tensor, i: int, token: Token, k: int) -> Logprobs:
    return logprobs(logits[i], k, token)
