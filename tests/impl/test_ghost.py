"""Ghost events: what they show, that it is read from the arrays and the pool, and that they cost nothing when off."""

import inspect
import tracemalloc
from dataclasses import replace
from random import Random

import numpy as np
import pytest
import torch

from company import Arrival, Recorder, Run, Workload, drive, random_options, random_workload, serve, serve_alone
from hashing_backend import HashingBackend
from vosti.impl import ghost
from vosti.impl import pool as pools
from vosti.impl.backend import Batch, ForwardResult
from vosti.impl.drafting import Script
from vosti.impl.engine import Engine
from vosti.impl.ghost import Ghost, NoGhost, TracedGhost
from vosti.impl.options import EngineOptions, SamplingParams
from vosti.impl.planning import Chunk
from vosti.impl.pool_state import empty
from vosti.spec.digests import sha256
from vosti.spec.events import Event, ForwardEvent, OutputEvent, PlanEvent, SettleEvent
from vosti.spec.state import Domain, Logits, PageId, RequestId, Token
from vosti.spec.step import Attach, Emit, Evict

PARAMS = SamplingParams(max_tokens=6, temperature=0.8, seed=3)
OPTIONS = EngineOptions(page_size=2, pages=12, token_budget=8)


def busy() -> Workload:
    """Hits, evictions, preemptions and drafts."""
    workload = random_workload(Random(17), requests=8, longest=20)
    return replace(workload, scripts={"r1": Script((Token(1),) * 9, 2, 2), "r2": Script((Token(2),) * 9, 3, 0)})


def busy_options(workload: Workload) -> EngineOptions:
    """A pool that is nearly too small."""
    return EngineOptions(page_size=2, pages=workload.pages(2) + 2, token_budget=8)


# ---------------------------------------------------------------- off


def test_nothing_is_read_back_when_nobody_looks() -> None:
    """Without a tracer no slot is read back, and with one many are: outputs are the same."""
    workload = busy()
    backend, traced = HashingBackend(), HashingBackend()
    outputs = drive(Engine(backend, busy_options(workload)), workload)
    plain = replace(workload, scripts={})
    run = serve(plain, busy_options(workload), traced)
    assert 0 == backend.digested
    assert traced.digested > 0
    assert outputs == run.outputs


def _allocated_in_ghost(tracer: Recorder | None) -> int:
    engine = Engine(HashingBackend(), OPTIONS, tracer=tracer)
    for i in range(3):
        engine.add_request((1, 2, i), PARAMS)
    tracemalloc.start(8)
    try:
        for _ in range(4):
            engine.step()
        snapshot = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    assert ghost.__file__ is not None
    filters = [tracemalloc.Filter(True, inspect.getfile(ghost), all_frames=True)]
    return sum(trace.size for trace in snapshot.filter_traces(filters).traces)


def test_nothing_is_allocated_when_nobody_looks() -> None:
    """Over whole steps, not one block that is alive afterwards was allocated below the ghost's module; with a tracer
    there are many.
    """
    assert 0 == _allocated_in_ghost(None)
    assert _allocated_in_ghost(Recorder()) > 10_000


def test_no_event_and_no_digest_is_made_when_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """With everything that ghosts are made of replaced by something that raises, an engine without a tracer serves its
    workload, and one with a tracer does not get through its first step.
    """

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a ghost was made")

    for name in ("PlanEvent", "ForwardEvent", "SettleEvent", "OutputEvent", "Reading", "Row", "RowBits", "SlotBits"):
        monkeypatch.setattr(ghost, name, refuse)
    for name in ("rows_of", "snapshot"):
        monkeypatch.setattr(ghost, name, refuse)
    workload = busy()
    drive(Engine(HashingBackend(), busy_options(workload)), workload)
    with pytest.raises(AssertionError, match="a ghost was made"):
        drive(Engine(HashingBackend(), busy_options(workload), tracer=Recorder()), workload)


def test_the_twins_offer_the_same() -> None:
    """The engine calls one protocol: both twins have its methods with its arguments, and no more of them."""
    protocol = {
        name: inspect.signature(f) for name, f in inspect.getmembers(Ghost, inspect.isfunction) if name[0] != "_"
    }
    for twin in (NoGhost, TracedGhost):
        public = {name: f for name, f in inspect.getmembers(twin, inspect.isfunction) if name[0] != "_"}
        assert protocol == {name: inspect.signature(f) for name, f in public.items()}


# ---------------------------------------------------------------- on


def test_a_step_is_one_plan_one_forward_one_settle_and_its_outputs() -> None:
    """Events come in the order of the phases, steps are numbered from 0 without a gap."""
    run = serve(busy(), busy_options(busy()))
    step, phases = 0, [kind.__name__ for kind in (PlanEvent, ForwardEvent, SettleEvent)]
    names: list[str] = []
    for event in run.events:
        if isinstance(event, PlanEvent) and names:
            step += 1
        assert step == event.step
        names.append(type(event).__name__)
    outputs = [name for name in names if name == "OutputEvent"]
    assert names[:3] == phases
    assert 3 * (step + 1) + len(outputs) == len(names)
    assert run.engine.steps == step + 1


class Noting(HashingBackend):
    """A backend that keeps a copy of every batch."""

    def __init__(self) -> None:
        """Nothing yet."""
        super().__init__()
        self.batches: list[Batch] = []
        self.results: list[ForwardResult] = []

    def forward(self, batch: Batch) -> ForwardResult:
        """Keep what was passed and what came out."""
        result = super().forward(batch)
        self.batches.append(batch)
        self.results.append(result)
        return result


def test_rows_are_the_arrays_that_were_passed() -> None:
    """Every row of a forward event is the batch's, padding included; logits are digests of the very rows returned."""
    workload = busy()
    backend = Noting()
    run = serve(workload, busy_options(workload), backend)
    events = [event for event in run.events if isinstance(event, ForwardEvent) and event.rows]
    assert len(events) == len(backend.batches)
    for event, batch, result in zip(events, backend.batches, backend.results, strict=True):
        assert batch.tokens.tolist() == [row.token for row in event.rows]
        assert batch.positions.tolist() == [row.position for row in event.rows]
        slots = [-1 if row.write is None else row.write[0] * 2 + row.write[1] for row in event.rows]
        assert batch.write_slots.tolist() == slots
        for row, sequence in zip(event.rows, batch.sequences.tolist(), strict=True):
            table = [] if sequence < 0 else [page for page in batch.tables[sequence].tolist() if page >= 0]
            assert table == list(row.table)
            assert (0 if sequence < 0 else row.position + 1) == row.readable
        assert batch.logit_rows.tolist() == [bits.row for bits in event.logits]
        for bits, logits in zip(event.logits, result.logits, strict=True):
            assert Logits(sha256(logits.numpy().astype("<f4").tobytes())) == bits.logits


class WritesElsewhere(HashingBackend):
    """A fault: values go to another slot than the batch says."""

    def forward(self, batch: Batch) -> ForwardResult:
        """Write, and then move what was written."""
        result = super().forward(batch)
        for slot in batch.write_slots[batch.write_slots >= 0].tolist():
            self.slots[slot], self.slots[slot ^ 1] = self.slots[slot ^ 1], self.slots[slot]
        return result


def test_values_are_read_back_from_the_pool() -> None:
    """The digest of a written value is that of the bits which lie in the slot after the forward, wherever they came
    from: a backend that writes elsewhere shows.
    """
    workload = Workload((Arrival("r", (1, 2, 3), replace(PARAMS, max_tokens=1)),))

    def written(backend: HashingBackend) -> list[str]:
        run = serve(workload, OPTIONS, backend)
        return [slot.kv for event in run.events if isinstance(event, ForwardEvent) for slot in event.written]

    good = HashingBackend()
    digests = written(good)
    assert [sha256(bits) for bits in good.slots[:3]] == digests
    assert written(WritesElsewhere()) != digests


@pytest.mark.parametrize(("sequence", "position", "write"), [(-1, 0, 3), (-1, 0, 0), (0, 5, 3), (0, 9, 2)])
def test_wrong_rows_are_shown(sequence: int, position: int, write: int) -> None:
    """A padding row that writes, and a row beyond its table, are shown with what they wrote: a fault of the engine is
    the checker's to judge, and never hidden by a ghost that fails itself.
    """
    backend, recorder, r = HashingBackend(), Recorder(), RequestId("r")
    backend.allocate(3, 2)
    backend.slots = [bytes([i]) * 16 for i in range(6)]
    pool = pools.admit(empty(frozenset(map(PageId, range(3))), 2), r, Domain(""))
    pool = pools.allocate(pool, r, PageId(0))
    batch = Batch(
        tokens=np.array([7]),
        positions=np.array([position]),
        write_slots=np.array([write]),
        sequences=np.array([sequence]),
        tables=np.array([[0]]),
        logit_rows=np.zeros(0, np.int64),
    )
    result = ForwardResult(torch.empty(0, 11), np.ones(1, bool))
    tracer = TracedGhost(recorder, backend, 2, full=False, reread=False)
    tracer.computed(0, (Chunk(r, position, 1, ()),), pool, batch, result)
    tracer.settled(0, (), pool, {})
    event, _ = recorder.events
    assert isinstance(event, ForwardEvent)
    assert (write // 2, write % 2) == event.rows[0].write
    assert [sha256(bytes([write]) * 16)] == [slot.kv for slot in event.written]


class Garbling(Recorder):
    """A tracer that changes a value of the pool between two steps."""

    def __init__(self, backend: HashingBackend, step: int) -> None:
        """Garble page 0 after this step."""
        super().__init__()
        self._backend, self._step = backend, step

    def record(self, event: Event) -> None:
        """Keep the event; garble when it is time."""
        super().record(event)
        if isinstance(event, OutputEvent) and event.step == self._step:
            self._backend.slots[0] = b"garbled"


@pytest.mark.parametrize("reread", [False, True])
def test_attached_and_evicted_pages_are_read_again(reread: bool) -> None:
    """A page is read at the moment when it is attached or evicted, and with `reread` after every step: a value that
    changed in between shows there.
    """
    backend = HashingBackend()
    tracer = Garbling(backend, step=0)
    engine = Engine(backend, replace(OPTIONS, reread=reread), tracer=tracer)
    workload = Workload(
        (
            Arrival("a", (1, 2, 3), replace(PARAMS, max_tokens=1)),
            Arrival("b", (1, 2, 4), replace(PARAMS, max_tokens=2), step=1),
        )
    )
    drive(engine, workload)
    garbled = sha256(b"garbled")
    plans = [event for event in tracer.events if isinstance(event, PlanEvent)]
    assert (0, garbled) == (plans[1].readings[0].page, plans[1].readings[0].slots[0])
    settled = [event for event in tracer.events if isinstance(event, SettleEvent)]
    shown = [any(garbled in reading.slots for reading in event.rereadings) for event in settled]
    assert [False, reread, reread] == shown


def test_readings_belong_to_attaches_and_evictions() -> None:
    """One reading of a whole page for each attach and each evict, in their order."""
    workload = busy()
    run = serve(workload, busy_options(workload))
    kinds = set()
    for event in run.events:
        if isinstance(event, PlanEvent):
            read = [action for action in event.actions if isinstance(action, Attach | Evict)]
            kinds |= {type(action) for action in read}
            assert [action.page for action in read] == [reading.page for reading in event.readings]
            assert all(2 == len(reading.slots) for reading in event.readings)
    assert {Attach, Evict} == kinds


def _full(workload: Workload, *, full: bool) -> list[ForwardEvent]:
    recorder = Recorder()
    drive(Engine(HashingBackend(), OPTIONS, tracer=recorder, full=full), workload)
    return [event for event in recorder.events if isinstance(event, ForwardEvent)]


def test_full_events_carry_the_bits() -> None:
    """In mode full a forward event has the bits behind each of its digests, and otherwise none."""
    workload = Workload(tuple(Arrival(f"r{i}", (1, 2, i), PARAMS) for i in range(3)))
    for event in _full(workload, full=True):
        names = {slot.kv for slot in event.written} | {str(bits.logits) for bits in event.logits}
        assert names == set(event.values)
        assert all(sha256(data) == name for name, data in event.values.items())
    assert all({} == event.values for event in _full(workload, full=False))
    assert any(event.logits for event in _full(workload, full=True))


def test_outputs_are_taken_where_the_caller_takes_them() -> None:
    """An output event has the tokens that the caller got, and the digests of the rows that these were sampled from."""
    random = Random(5)
    workload = random_workload(random)
    run = serve(workload, random_options(random, workload, 2))
    last: dict[str, tuple[int, ...]] = {}
    for event in run.events:
        if isinstance(event, OutputEvent):
            assert len(event.tokens) == len(event.logits)
            last[event.request] = last.get(event.request, ()) + event.tokens
    assert {name: output.token_ids for name, output in run.outputs.items()} == last
    emitted = [action.record.logits for action in run.actions() if isinstance(action, Emit)]
    returned = [bits for event in run.events if isinstance(event, OutputEvent) for bits in event.logits]
    assert sorted(map(str, emitted)) == sorted(map(str, returned))


class NegativeZero(HashingBackend):
    """Logits of which the first is zero, and negative if asked."""

    def __init__(self, zero: float) -> None:
        """With this zero."""
        super().__init__()
        self._zero = zero

    def _logits(self, read: bytes, *, sick: bool) -> np.ndarray:
        row = super()._logits(read, sick=sick)
        row[0] = self._zero
        return row


def test_digests_are_of_bits() -> None:
    """Logits that compare equal and differ in a bit have different digests: minus zero is not zero."""
    workload = Workload((Arrival("r", (1,), replace(PARAMS, max_tokens=1)),))

    def logits(run: Run) -> set[str]:
        return {str(bits.logits) for event in run.events if isinstance(event, ForwardEvent) for bits in event.logits}

    assert torch.tensor(0.0).equal(torch.tensor(-0.0))
    assert logits(serve(workload, OPTIONS, NegativeZero(0.0))) != logits(serve(workload, OPTIONS, NegativeZero(-0.0)))


def test_finiteness_is_shown_as_the_backend_says() -> None:
    """A value or a row that is not finite is marked so, row by row."""
    backend = HashingBackend(sick_tokens=frozenset({10}), sick_endings=frozenset({9}))
    workload = Workload((Arrival("a", (1, 10, 2), PARAMS), Arrival("b", (1, 2, 9), PARAMS), Arrival("c", (3,), PARAMS)))
    run = serve(workload, OPTIONS, backend)
    first = next(event for event in run.events if isinstance(event, ForwardEvent))
    assert [True, False, True, True, True, True, True] == [slot.finite for slot in first.written]
    assert [True, False, True] == [bits.finite for bits in first.logits]
    assert {"a": "error", "b": "error"} == {n: o.finish_reason for n, o in run.outputs.items() if n in "ab"}
    assert set(serve_alone(workload, backend)) == set(map(RequestId, "abc"))
