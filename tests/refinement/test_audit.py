"""Traces given together bind one another; a verdict says what was checked and what is assumed."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from event_faults import FAULTS
from event_streams import Stream, stream
from event_walk import EventWalk, Habits
from event_worlds import HashWorld, Tokens
from vosti.refinement.audit import audit
from vosti.refinement.checker import Checker
from vosti.refinement.entries import fingerprint_of, header, line_digest
from vosti.refinement.errors import BadTrace, CheckerStopped, IncompleteTrace
from vosti.refinement.violation import Refuted
from vosti.refinement.witnesses import WITNESSES
from vosti.spec.events import ForwardEvent
from vosti.spec.state import Sampler, Token

HABITS = Habits(pages=9, alphabet=2, seeds=1)


class OtherLogits(HashWorld):
    """A model whose logits are others."""

    def logits(self, history: Tokens) -> bytes:
        """Not those of `HashWorld`."""
        return b"other" + super().logits(history)

    def token(self, history: Tokens, sampler: Sampler, prompt_length: int) -> Token:
        """Those of `HashWorld`: only the logits differ."""
        return HashWorld.token(HashWorld(), history, sampler, prompt_length)


def written(folder: Path, *runs: Stream) -> list[Path]:
    """Traces of some runs."""
    paths = [folder / str(n) for n in range(len(runs))]
    for path, run in zip(paths, runs, strict=True):
        run.write(path)
    return paths


def test_runs_of_one_configuration_are_checked_together(tmp_path: Path) -> None:
    """Across page sizes, pools and schedules, what is observed in one run is observed again in the other."""
    runs = [stream(seed, 40, replace(HABITS, page_size=size, pages=36 // size)) for seed, size in ((1, 2), (2, 4))]
    alone = [audit([path]) for path in written(tmp_path, *runs)]
    together = audit([tmp_path / "0", tmp_path / "1"])

    assert together.refines
    assert (80, 80) == (together.steps, sum(verdict.steps for verdict in alone))
    for name in ("kv", "logits"):
        keys = [verdict.keys[name] for verdict in alone]
        assert together.keys[name].once < sum(one.once for one in keys)
        assert together.keys[name].once + together.keys[name].twice < sum(one.once + one.twice for one in keys)


def test_a_model_that_changed_is_found_across_runs(tmp_path: Path) -> None:
    """A run whose logits differ is a run by itself, and no run of the same configuration as the other one."""
    paths = written(tmp_path, stream(1, 20, HABITS), stream(1, 20, HABITS, OtherLogits()))

    assert audit(paths[:1]).refines
    assert audit(paths[1:]).refines
    (violation,) = audit(paths).violations[:1]
    assert ("logits_are_canonical", str(paths[1])) == (violation.check, violation.trace)
    assert str(paths[0]) in violation.expected


def test_runs_of_different_configurations_do_not_bind_each_other(tmp_path: Path) -> None:
    """Nothing is said of two configurations: each is compared with itself."""
    walk = EventWalk(1, HABITS, OtherLogits(), configuration="another model")
    paths = written(tmp_path, stream(1, 20, HABITS), Stream(walk.header, tuple(walk.events(20))))

    assert audit(paths).refines
    assert 2 == len({summary.fingerprint for summary in audit(paths).traces})


def test_exchanged_logits_are_found_by_a_replay(tmp_path: Path) -> None:
    """Logits of two requests, exchanged wherever they are recorded, contradict another run of the same requests."""
    run = stream(1, 20, HABITS)
    first = next(event for event in run.events if isinstance(event, ForwardEvent) and len(event.logits) > 1)
    a, b = (str(bits.logits).encode() for bits in first.logits[:2])
    run.write(tmp_path / "run")
    lines = (tmp_path / "run").read_bytes().replace(a, b"?").replace(b, a).replace(b"?", b).splitlines()
    previous = b"0" * 64
    with (tmp_path / "edited").open("wb") as edited:
        for line in lines:
            fitting = re.sub(rb'"prev":"[0-9a-f]*"', b'"prev":"' + previous + b'"', line, count=1)
            edited.write(fitting + b"\n")
            previous = line_digest(fitting).encode()

    assert a != b
    assert audit([tmp_path / "edited"]).refines
    assert "logits_are_canonical" == audit([tmp_path / "run", tmp_path / "edited"]).violations[0].check


def test_each_trace_is_checked_to_its_first_violation(tmp_path: Path) -> None:
    """A violation ends the check of its trace, and of no other."""
    fault = next(fault for fault in FAULTS if fault.name == "a sampler index is skipped")
    bad = fault.edit(stream(1, 20, HABITS))
    assert bad is not None
    verdict = audit(written(tmp_path, bad, stream(2, 20, HABITS), bad))

    assert [True, False, True] == [summary.violation is not None for summary in verdict.traces]
    assert 20 == verdict.traces[1].steps
    assert verdict.traces[0].steps < 20
    assert not verdict.refines


def test_a_broken_chain_behind_a_violation_is_a_bad_trace(tmp_path: Path) -> None:
    """A violation counts only in a file that is a trace; if that was cut off, both are said."""
    fault = next(fault for fault in FAULTS if fault.name == "a sampler index is skipped")
    bad = fault.edit(stream(1, 20, HABITS))
    assert bad is not None
    (path,) = written(tmp_path, bad)
    lines = path.read_bytes().splitlines(keepends=True)

    path.write_bytes(b"".join(lines[:-2]))
    (summary,) = audit([path]).traces
    assert summary.violation is not None
    assert summary.cut_off is not None
    assert "incomplete" in str(audit([path]))

    path.write_bytes(b"".join([*lines[:-3], *lines[-2:]]))
    with pytest.raises(BadTrace, match="the chain is broken"):
        audit([path])


def test_a_cut_off_trace_is_no_verdict(tmp_path: Path) -> None:
    """A trace that refines the specification as far as it goes, but has no end, is an error; who asks for it gets what
    was found up to there, and not that it refines.
    """
    (path,) = written(tmp_path, stream(1, 20, HABITS))
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))

    with pytest.raises(IncompleteTrace):
        audit([path])
    verdict = audit([path], incomplete=True)
    assert (False, (), 20) == (verdict.refines, verdict.violations, verdict.steps)
    assert "incomplete: " in str(verdict)


def test_a_verdict_is_text_and_json(tmp_path: Path) -> None:
    """Both say the counts, the keys, what was exercised, and what is assumed."""
    verdict = audit(written(tmp_path, stream(1, 20, HABITS)))
    data = json.loads(verdict.to_json())

    assert (True, 20, verdict.rows, verdict.records) == tuple(
        data[name] for name in ("refines", "steps", "rows", "records")
    )
    assert set(WITNESSES) == set(data["witnesses"])
    assert verdict.keys["kv"].once == data["keys"]["kv"]["once"]
    assert "failures: not exercised" in str(verdict)
    assert "without a head" in str(verdict)
    assert "Every recorded step is a step of the specification" in str(verdict)


def test_assumptions_shrink_with_what_is_given(tmp_path: Path) -> None:
    """With a head, and with everything read again after each step, less is assumed."""
    run = stream(1, 20, replace(HABITS, reread=True))
    head = run.write(tmp_path / "reread")
    few, many = audit([tmp_path / "reread"], head), audit(written(tmp_path, stream(1, 20, HABITS)))

    assert 2 == len(many.assumed) - len(few.assumed)


def test_progress_is_reported(tmp_path: Path) -> None:
    """Progress goes from little to all of the bytes of all traces."""
    paths = written(tmp_path, stream(1, 10, HABITS), stream(2, 10, HABITS))
    total = sum(path.stat().st_size for path in paths)
    seen: list[tuple[int, int]] = []
    audit(paths, progress=lambda done, of: seen.append((done, of)))

    assert (total, total) == seen[-1]
    assert seen == sorted(seen)
    assert {total} == {of for _, of in seen}


def test_a_checker_stops_at_the_first_violation() -> None:
    """After a violation, and after the end, a checker takes no event."""
    run = stream(1, 10, HABITS)
    checker = Checker(run.header)
    with pytest.raises(Refuted):
        checker.feed(run.events[1])
    with pytest.raises(CheckerStopped):
        checker.feed(run.events[0])

    checker = Checker(run.header)
    checker.finish()
    with pytest.raises(CheckerStopped):
        checker.feed(run.events[0])


def test_the_fingerprint_is_of_the_fields() -> None:
    """Neither the order of fields nor what stands outside W changes a fingerprint."""
    first = header({"a": 1, "b": [2.5, None]}, page_size=1, pages=1, max_seqs=1, token_budget=1)
    second = header({"b": [2.5, None], "a": 1}, page_size=2, pages=9, max_seqs=3, token_budget=4, context={"x": 1})

    assert first.fingerprint == second.fingerprint == fingerprint_of({"a": 1, "b": [2.5, None]})
    assert first.fingerprint != fingerprint_of({"a": 1, "b": [2.5, 0]})
