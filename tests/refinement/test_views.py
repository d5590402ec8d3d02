"""Comparing each view with the longest of its group is Definition 2.1."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from event_streams import stream
from event_walk import Habits
from vosti.refinement.checker import Checker
from vosti.refinement.views import Served, disagreement
from vosti.spec.determinism import Admission, Execution, Record, deterministic, view
from vosti.spec.events import SettleEvent
from vosti.spec.state import Logits, RequestId, Sampler, Token
from vosti.spec.step import Step, output


def record(n: int) -> Record:
    """Some record."""
    return Record(Logits(f"logits {n}"), Token(n))


def served(random: Random) -> list[Served]:
    """Requests that mostly agree."""
    reference = tuple(record(n) for n in range(5))
    found = []
    for n in range(random.randint(0, 6)):
        length = random.randint(0, 5)
        records = list(reference[:length])
        if records and random.random() < 0.15:
            records[random.randrange(length)] = record(9)
        admission = Admission((Token(random.randint(0, 1)),), Sampler("greedy"))
        failed = random.random() < 0.2
        found.append(
            Served(f"trace {n % 2}", random.choice("WV"), RequestId(f"r{n}"), admission, tuple(records), failed)
        )
    return found


@given(seed=st.integers(0, 2**32))
@settings(max_examples=500)
def test_the_longest_view_stands_for_all(seed: int) -> None:
    """A disagreement is found exactly when `deterministic` is false of all the executions."""
    requests = served(Random(seed))

    assert deterministic([one.execution for one in requests]) == (disagreement(requests) is None)


def test_a_disagreement_is_named() -> None:
    """The report says which record differs, and of whom; or whose view an error ended."""
    one = Served("a", "W", RequestId("r"), Admission((Token(1),), Sampler("greedy")), (record(1), record(2)), False)
    other = replace(one, trace="b", request=RequestId("q"), view=(record(1), record(3), record(4)))
    failed = replace(one, trace="c", failed=True, view=(record(1),))

    assert None is disagreement([one, replace(one, trace="b")])
    found = disagreement([one, other])
    assert found is not None
    assert ("prefix_comparable", "a", "r") == (found.check, found.trace, found.request)
    assert "record 1" in found.expected
    found = disagreement([one, failed])
    assert found is not None
    assert ("ends_alike", "c") == (found.check, found.trace)


def test_a_request_alone_has_the_view_that_it_has_in_company() -> None:
    """The part of an execution that is compared for a request has its view in the whole one."""
    run = stream(1, 20, Habits(pages=9))
    checker = Checker(run.header)
    for event in run.events:
        checker.feed(event)
    outputs = tuple(output(Step((), (), event.actions)) for event in run.events if isinstance(event, SettleEvent))
    execution = Execution("W", checker.run.admitted, outputs)

    for r, admission in checker.run.admitted.items():
        one = Served("", "W", r, admission, checker.records[r], failed=False)
        assert view(execution, r) == view(one.execution, r)
