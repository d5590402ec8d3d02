"""A run adds what is missing to the results, and mixes nothing."""

from dataclasses import replace
from itertools import count
from pathlib import Path

import msgspec
import numpy as np
import pytest

from hashing_backend import HashingBackend
from hashing_subject import hashing_subject
from vosti.impl.backend import Batch, ForwardResult
from vosti.impl.determinism.cases import Bench, Case, Pair
from vosti.impl.determinism.errors import FreshProcessError, IndifferentEngineError, ResultsError
from vosti.impl.determinism.prompts import geometry_for
from vosti.impl.determinism.results import Header, Results, header, read
from vosti.impl.determinism.runner import run
from vosti.impl.determinism.suites import EXTENDED, plan
from vosti.impl.determinism.summary import as_json, summarize

SUBJECT = hashing_subject()
GEOMETRY = geometry_for(SUBJECT.context)
CASES = plan("extended", SUBJECT, GEOMETRY, ["padding", "drafts", "kv"]).cases


def of_run(cases: tuple[Case, ...] = CASES, **changes: object) -> Header:
    """The header of a run of some cases."""
    made = header(
        suite="extended",
        engine=SUBJECT.name,
        model="hashes",
        configuration=SUBJECT.configuration(),
        environment={},
        scale=GEOMETRY.scale,
        cases=cases,
        skipped={},
    )
    return msgspec.structs.replace(made, **changes)


def test_every_extended_axis_matches(tmp_path: Path) -> None:
    """On real schedules with hashed values: all pairs, each of which differs as its axis wants."""
    everything = plan("extended", SUBJECT, GEOMETRY)
    cases = tuple(case for case in everything.cases if case.axis != "restart")  # which starts processes
    path = tmp_path / "results.ndjson"
    left = run(SUBJECT, GEOMETRY, cases, Results(path, of_run(cases)))
    found = summarize(*read(path)[:2])

    assert (0, "pass") == (left, found.verdict), [cell.first_invalid or cell.first for cell in found.cells]
    assert {axis.name for axis in EXTENDED} - {"restart", *everything.skipped} == {cell.axis for cell in found.cells}
    assert all(cell.total == cell.matched == cell.differed > 250 for cell in found.cells)


def test_a_second_run_takes_only_what_is_missing(tmp_path: Path) -> None:
    """An interrupted run is continued where it stopped; its results stay as they are."""
    path = tmp_path / "results.ndjson"
    begun: list[float] = []
    clock = count(0.0, 1.0)
    left = run(SUBJECT, GEOMETRY, CASES, Results(path, of_run()), seconds=12.0, clock=lambda: next(clock))
    first = path.read_bytes()
    done = len(read(path)[1])
    run(SUBJECT, GEOMETRY, CASES, Results(path, of_run()), advance=lambda now, total: begun.append(now))

    assert 0 < done < len(CASES)
    assert len(CASES) == done + left == len(read(path)[1]) == done + len(begun) - 1
    assert path.read_bytes().startswith(first)
    assert "pass" == summarize(*read(path)[:2]).verdict


class Deaf(HashingBackend):
    """Logits of how much there is to read, and not of what."""

    def _logits(self, read: bytes, *, sick: bool) -> np.ndarray:
        return super()._logits(b"." * len(read), sick=sick)


class Forgetful(HashingBackend):
    """Logits of the last token alone, and its position."""

    def _logits(self, read: bytes, *, sick: bool) -> np.ndarray:
        return super()._logits(self.last, sick=sick)

    def forward(self, batch: Batch) -> ForwardResult:
        """As it is."""
        self.last = f"{batch.tokens[-1]} at {batch.positions[-1]}".encode()
        return super().forward(batch)


@pytest.mark.parametrize("make", [Deaf, Forgetful])
def test_an_engine_that_ignores_its_tokens_is_refused(make: type[HashingBackend], tmp_path: Path) -> None:
    """Before anything is compared: all pairs would be equal."""
    path = tmp_path / "results.ndjson"
    with pytest.raises(IndifferentEngineError, match="differ in one of them have the same logits"):
        run(hashing_subject(make), GEOMETRY, CASES, Results(path, of_run()))

    assert [] == read(path)[1]


def test_a_case_without_an_answer_stays_missing(tmp_path: Path) -> None:
    """A fresh process that fails stops no other case; the run says so at its end."""
    path = tmp_path / "results.ndjson"

    def fails(bench: Bench) -> list[Pair]:
        bench.serve_fresh(bench.geometry.settings(), [])
        return []

    cases = (CASES[0], replace(CASES[1], run=fails), *CASES[2:4])
    with pytest.raises(FreshProcessError, match="cannot be started"):
        run(SUBJECT, GEOMETRY, cases, Results(path, of_run()))

    assert [case.name for case in (CASES[0], *CASES[2:4])] == [done.case for done in read(path)[1]]


def test_an_unfinished_line_is_dropped(tmp_path: Path) -> None:
    """A run that is killed while it writes loses that case and no other."""
    path = tmp_path / "results.ndjson"
    run(SUBJECT, GEOMETRY, CASES[:3], Results(path, of_run()))
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    again = Results(path, of_run())

    assert 2 == len(again.done)
    run(SUBJECT, GEOMETRY, CASES[:3], again)
    assert [done.case for done in read(path)[1]] == [case.name for case in CASES[:3]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fingerprint": "0" * 64, "configuration": {"vocab_size": 7}}, r"this is W 0000.* \(they differ in backend"),
        ({"suite": "paper"}, "holds results of the suite 'extended', and this is 'paper'"),
        ({"engine": "another"}, "of the engine"),
        ({"model": "another"}, "of the model"),
        ({"scale": 2}, "of the scale"),
        ({"counts": {}, "axes": {}}, "another selection or version"),
    ],
)
def test_results_of_something_else_are_refused(tmp_path: Path, changes: dict, message: str) -> None:
    """With what differs, before anything runs; the file stays as it is."""
    path = tmp_path / "results.ndjson"
    Results(path, of_run())
    before = path.read_bytes()

    with pytest.raises(ResultsError, match=message):
        Results(path, of_run(**changes))
    assert before == path.read_bytes()


def test_two_runs_do_not_share_a_file(tmp_path: Path) -> None:
    """The second is refused while the first goes on, and welcome afterwards."""
    path = tmp_path / "results.ndjson"
    first = Results(path, of_run())
    with pytest.raises(ResultsError, match="Another run is adding"):
        Results(path, of_run())
    first.close()

    assert set() == Results(path, of_run()).names


@pytest.mark.parametrize("content", ["", "{}\n", "no json\n", '{"format": "vosti-determinism-1"}\n'])
def test_other_files_are_refused(tmp_path: Path, content: str) -> None:
    """A file that is no results is not overwritten. An empty one becomes a new one."""
    path = tmp_path / "results.ndjson"
    path.write_text(content)
    if not content:
        Results(path, of_run())
        return
    with pytest.raises(ResultsError, match="holds no results"):
        Results(path, of_run())
    assert content == path.read_text()


def test_cells_that_were_not_run_are_incomplete(tmp_path: Path) -> None:
    """What is missing is counted, and the whole is no pass."""
    path = tmp_path / "results.ndjson"
    run(SUBJECT, GEOMETRY, CASES[:1], Results(path, of_run()))
    found = summarize(*read(path)[:2])
    cells = {cell.axis: cell for cell in found.cells}

    assert "incomplete" == found.verdict == cells["kv"].verdict
    assert cells["kv"].total == cells["kv"].missing
    assert (found.matched, found.total) == (CASES[0].count, sum(case.count for case in CASES))
    assert "incomplete" == as_json(found)["verdict"]


def test_a_case_must_yield_what_it_promises(tmp_path: Path) -> None:
    """A case that loses pairs on the way is a fault of the suite, not a pass."""
    lying = replace(CASES[0], count=CASES[0].count + 1)

    with pytest.raises(AssertionError, match="instead of"):
        run(SUBJECT, GEOMETRY, [lying], Results(tmp_path / "results.ndjson", of_run((lying,))))
