"""Requests in company and alone: workloads, recorded runs of the engine, and what of them must be equal.

A run is recorded by a tracer, so what is compared is what the engine did and returned: tokens, digests of logits and
KV, and who had which rows in which forward.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from random import Random

from hashing_backend import HashingBackend
from vosti.impl.backend import Backend
from vosti.impl.drafting import Script, ScriptedDrafter, drafter_of
from vosti.impl.engine import Engine
from vosti.impl.options import EngineOptions, SamplingParams
from vosti.impl.outputs import RequestOutput
from vosti.impl.planning import pages_needed
from vosti.impl.pool_state import KEY_SPACE
from vosti.spec.events import Event, ForwardEvent, OutputEvent, PlanEvent, SettleEvent
from vosti.spec.rows import Row
from vosti.spec.state import Logits, RequestId, Token
from vosti.spec.step import Action, Admit, Emit, Propose, Retract

STEPS_AT_MOST = 5000
"""A run of a test is far shorter; one that is longer has stopped making progress."""


@dataclass(frozen=True)
class Arrival:
    """A request, and the step before which it comes."""

    name: str
    prompt: tuple[int, ...]
    params: SamplingParams
    step: int = 0
    domain: str = ""

    @property
    def length(self) -> int:
        """How many positions it computes at most: its last token's KV is never needed."""
        return len(self.prompt) + self.params.max_tokens - 1


@dataclass(frozen=True)
class Workload:
    """Who comes and who leaves, and when."""

    arrivals: tuple[Arrival, ...]
    cancels: tuple[tuple[int, str], ...] = ()
    """(step, name): called off before this step, if it has come by then."""

    scripts: Mapping[str, Script] = field(default_factory=dict)
    """Drafts, by name."""

    def without_drafts(self) -> Workload:
        """The same requests; nobody guesses."""
        return replace(self, scripts={})

    def only(self, name: str) -> Workload:
        """One of the requests, from the first step on, never called off, without drafts."""
        return Workload(tuple(replace(arrival, step=0) for arrival in self.arrivals if arrival.name == name))

    def pages(self, page_size: int) -> int:
        """The smallest pool that refuses none of the requests."""
        return max(pages_needed(arrival.length, page_size) for arrival in self.arrivals)


class Recorder:
    """A tracer that keeps what it is given."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.events: list[Event] = []

    def record(self, event: Event) -> None:
        """Keep one event."""
        self.events.append(event)


@dataclass(frozen=True)
class Run:
    """What a run showed."""

    engine: Engine
    events: tuple[Event, ...]
    outputs: Mapping[str, RequestOutput]
    """The last output of each request."""

    def actions(self) -> tuple[Action, ...]:
        """All recorded actions, in order."""
        return tuple(a for event in self.events if isinstance(event, PlanEvent | SettleEvent) for a in event.actions)

    def counts(self) -> Counter[str]:
        """How often each kind of action happened."""
        return Counter(type(action).__name__ for action in self.actions())

    def views(self) -> dict[str, tuple[tuple[Logits, Token], ...]]:
        """Definition 2.1's view of each request, from what was returned."""
        views: dict[str, tuple[tuple[Logits, Token], ...]] = dict.fromkeys(self.outputs, ())
        for event in self.events:
            if isinstance(event, OutputEvent):
                views[event.request] += tuple(zip(event.logits, event.tokens, strict=True))
        return views

    def settled(self) -> tuple[SettleEvent, ...]:
        """The states after each step, with what was settled."""
        return tuple(event for event in self.events if isinstance(event, SettleEvent))

    def forwards(self) -> tuple[tuple[Row, ...], ...]:
        """The live rows of each step's forward."""
        return tuple(
            tuple(row for row in event.rows if row.request is not None)
            for event in self.events
            if isinstance(event, ForwardEvent)
        )

    def schedule(self, name: str) -> tuple[tuple[int, int, int], ...]:
        """Each forward with rows of this request, as (first position, rows of its own, all live rows)."""
        own = [([row.position for row in rows if row.request == name], len(rows)) for rows in self.forwards()]
        return tuple((positions[0], len(positions), live) for positions, live in own if positions)

    def observed(self) -> dict[tuple[str, tuple[int, ...]], object]:
        """Every digest by what it must be a function of: ("kv" or "logits", the tokens up to its position).

        Raises:
            AssertionError: if one run observed two digests for one key.
        """
        seen: dict[tuple[str, tuple[int, ...]], object] = {}
        sequences: dict[RequestId, tuple[Token, ...]] = {}
        drafts: dict[RequestId, tuple[Token, ...]] = {}
        for event in self.events:
            if isinstance(event, ForwardEvent):
                found = [(slot.row, "kv", slot.kv) for slot in event.written]
                found += [(bits.row, "logits", str(bits.logits)) for bits in event.logits]
                for i, kind, bits_digest in found:
                    row = event.rows[i]
                    assert row.request is not None
                    tokens = sequences[row.request] + drafts.get(row.request, ())
                    key = (kind, tuple(map(int, tokens[: row.position + 1])))
                    assert bits_digest == seen.setdefault(key, bits_digest), f"two values for {key}"
            elif isinstance(event, PlanEvent | SettleEvent):
                for action in event.actions:
                    match action:
                        case Admit(request=r, prompt=prompt):
                            sequences[r] = prompt
                        case Propose(request=r, draft=draft):
                            drafts[r] = draft
                        case Retract(request=r):
                            drafts[r] = ()
                        case Emit(request=r, record=record):
                            sequences[r] += (record.token,)
                            drafts[r] = drafts.get(r, ())[1:]
        return seen


def drive(engine: Engine, workload: Workload, *, watch: Recorder | None = None) -> dict[str, RequestOutput]:
    """Serve a workload to the end, and give the last output of each request.

    Raises:
        AssertionError: if it does not end.
    """
    last: dict[str, RequestOutput] = {}
    coming = sorted(workload.arrivals, key=lambda arrival: arrival.step)
    step = 0
    while coming or engine.unfinished:
        while coming and coming[0].step <= step:
            arrival = coming.pop(0)
            engine.add_request(arrival.prompt, arrival.params, request_id=arrival.name, domain=arrival.domain)
        there = {arrival.name for arrival in workload.arrivals if arrival.step <= step}
        for when, name in workload.cancels:
            if when == step and name in there:
                engine.cancel(name)
        for output in engine.step():
            last[output.request_id] = output
        step += 1
        assert step < STEPS_AT_MOST, "the engine makes no progress"
    return last


def serve(
    workload: Workload, options: EngineOptions, backend: Backend | None = None, *, key_space: int = KEY_SPACE
) -> Run:
    """A recorded run of a fresh engine, which asserts its steps."""
    backend = backend or HashingBackend()
    recorder = Recorder()
    scripts = {RequestId(r): script for r, script in workload.scripts.items()}
    drafter = ScriptedDrafter(scripts, backend.vocab_size, otherwise=drafter_of(options))
    checking = replace(options, check_steps=True)
    engine = Engine(backend, checking, drafter=drafter, tracer=recorder, key_space=key_space)
    outputs = drive(engine, workload)
    return Run(engine=engine, events=tuple(recorder.events), outputs=outputs)


REFERENCE = EngineOptions(page_size=7, pages=256, max_seqs=1, token_budget=4096, prefix_caching=False)
"""One request at a time, in one chunk, on pages of an odd size, nothing shared: a cold run."""


def serve_alone(
    workload: Workload, backend: Backend | None = None, options: EngineOptions = REFERENCE
) -> dict[str, Run]:
    """Each request of a workload on an engine of its own. A backend is used again: its pool is made afresh."""
    backend = backend or HashingBackend()
    return {a.name: serve(workload.only(a.name), options, backend) for a in workload.arrivals}


def assert_same(company: Run, alone: Mapping[str, Run], *, merely_prefix: Iterable[str] = ()) -> None:
    """Every request got the bits, the tokens and the end that it gets alone; one that was called off got a beginning
    of them. Every value that both runs observed is the same.

    Args:
        company: the run of all.
        alone: a run of each.
        merely_prefix: requests that may have got less for another reason.
    """
    views, observed = company.views(), company.observed()
    assert set(alone) == set(views)
    for name, run in alone.items():
        expected, got = run.views()[name], views[name]
        if company.outputs[name].finish_reason == "cancelled" or name in merely_prefix:
            assert expected[: len(got)] == got, name
        else:
            assert (expected, run.outputs[name].finish_reason) == (got, company.outputs[name].finish_reason), name
        reported = run.outputs[name].logprobs
        assert reported[: len(company.outputs[name].logprobs)] == company.outputs[name].logprobs, name
        of_prompt = run.outputs[name].prompt_logprobs
        assert of_prompt[: len(company.outputs[name].prompt_logprobs)] == company.outputs[name].prompt_logprobs, name
        for key, bits in run.observed().items():
            assert bits == observed.get(key, bits), (name, key)


def differing(company: Run, alone: Mapping[str, Run]) -> int:
    """How many requests had another schedule in company than alone."""
    return sum(company.schedule(name) != run.schedule(name) for name, run in alone.items())


def assert_at_rest(run: Run) -> None:
    """Nobody lives, nobody holds a page, and every page is either free or retained."""
    after = run.settled()[-1].after
    assert {} == after.requests
    assert all(page.registered and page.refcount == 0 for page in after.pages.values())
    assert set(range(run.engine.options.pages)) == set(after.free) | set(after.pages)
    assert set() == set(after.free) & set(after.pages)


# ---------------------------------------------------------------- random workloads


def tokens(*, seed: int, count: int, vocab_size: int = 11) -> tuple[int, ...]:
    """A prompt."""
    random = Random(seed)
    return tuple(random.randrange(vocab_size) for _ in range(count))


def random_workload(random: Random, *, requests: int = 10, vocab_size: int = 11, longest: int = 40) -> Workload:
    """Requests whose prompts begin alike, of every length, in two domains, some called off."""
    base = [random.randrange(vocab_size) for _ in range(longest)]
    arrivals = []
    for i in range(requests):
        shared = base[: random.randrange(longest)]
        tail = [random.randrange(vocab_size) for _ in range(random.randrange(1, longest // 2))]
        arrivals.append(
            Arrival(
                name=f"r{i}",
                prompt=tuple((shared + tail)[:longest]),
                params=SamplingParams(
                    max_tokens=random.randrange(1, longest // 2),
                    temperature=random.choice((0, 0.8)),
                    seed=random.randrange(5),
                    stop_token_ids=random.choice(((), (3,))),
                    logprobs=random.choice((None, 2)),
                    prompt_logprobs=1 if i % 5 == 4 else None,
                    prompt_logprobs_start=3 * i,
                ),
                step=random.randrange(12),
                domain=random.choice(("", "", "other")),
            )
        )
    cancels = tuple((random.randrange(1, 30), f"r{random.randrange(requests)}") for _ in range(2))
    return Workload(tuple(arrivals), cancels)


def with_drafts(workload: Workload, alone: Mapping[str, Run], random: Random) -> Workload:
    """Drafts of any length for half of the requests, right for as long as chance has it."""
    scripts = {
        name: Script(tuple(map(Token, run.outputs[name].token_ids)), random.choice((1, 2, 3, 7)), random.randrange(6))
        for name, run in alone.items()
        if random.random() < 0.5
    }
    return replace(workload, scripts=scripts)


def random_options(random: Random, workload: Workload, page_size: int) -> EngineOptions:
    """Limits from the tightest that serve the workload to roomy ones."""
    return EngineOptions(
        page_size=page_size,
        pages=workload.pages(page_size) + random.choice((0, 0, 1, 3, 8, 100)),
        max_seqs=random.choice((1, 2, 3, 8)),
        token_budget=random.choice((1, 2, 3, 8, 32)),
        page_seed=random.randrange(3),
        prefix_caching=random.random() < 0.9,
        reread=random.random() < 0.2,
    )
