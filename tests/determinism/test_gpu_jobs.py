"""The program that runs suites of several models on one GPU, with a command in the place of `vosti determinism`."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

STAND_IN = """
import json, sys, time
from pathlib import Path
arguments = sys.argv[1:]
if arguments[0] == "--report":
    sys.exit()
given = dict(zip(arguments, arguments[1:]))
model, suite, engine = arguments[0], given["--suite"], given["--engine"]
path = Path(given["--report"]) / f"{model}-dummy-0.{engine}.{suite}.ndjson"
cases = {"batch/fresh-00": ("batch", 2), **{f"prefill-decode/{i}": ("prefill-decode", 30) for i in range(4)}}
done = {json.loads(line)["case"] for line in path.read_text().splitlines()[1:]} if path.exists() else set()
with path.open("a") as file:
    def write(line):
        print(json.dumps(line), file=file, flush=True)
    if not path.stat().st_size:
        write({"fingerprint": "0" * 64, "axes": {c: a for c, (a, _) in cases.items()},
               "counts": {c: n for c, (_, n) in cases.items()}})
    for case, (axis, count) in cases.items():
        if case not in done and axis in given.get("--axes", axis):
            time.sleep(float((Path(__file__).parent / "pace").read_text()))
            state = "mismatch" if engine == "transformers" or model == "qwen3-0.6b" else "match"
            write({"case": case, "seconds": 1.0, "pairs": [{"state": state}] * count})
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program, with the stand-in, in a folder for results."""
    path = Path(__file__).parents[1] / "gpu" / "run_determinism.py"
    specification = importlib.util.spec_from_file_location("run_determinism", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, "run_determinism", module)
    monkeypatch.syspath_prepend(str(path.parent))
    specification.loader.exec_module(module)
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    (tmp_path / "pace").write_text("0.02")
    monkeypatch.setattr(module, "VOSTI", (sys.executable, str(tmp_path / "stand_in.py")))
    monkeypatch.setattr(module, "POLL", 0.02)
    return module


def run(program: Any, folder: Path, *words: str, seconds: float = 60, monkeypatch: pytest.MonkeyPatch) -> int:
    """Its exit code."""
    monkeypatch.setattr(sys, "argv", ["run_determinism.py", str(folder), str(seconds), *words])
    code: int = program.main()
    return code


def times(out: str, what: str) -> Sequence[int]:
    """In which lines something is said."""
    return [number for number, line in enumerate(out.splitlines()) if what in line]


def test_jobs_are_run_and_counted(
    program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those in turn one after the other, the control beside them; a control that fails is no failure."""
    words = ["--in-turn", "paper:llama-3.2-1b", "paper:qwen3-8b", "--beside", "paper:gemma-3-1b:engine=transformers"]

    assert 0 == run(program, tmp_path, *words, monkeypatch=monkeypatch)
    out = capsys.readouterr().out
    assert "llama-3.2-1b-dummy-0.vosti.paper, W 0000000000000000: 122 of 122 equal, 0 differ, 0 compare nothing" in out
    assert "gemma-3-1b-dummy-0.transformers.paper, W 0000000000000000: 0 of 122 equal, 122 differ" in out
    assert "batch 2/2, prefill-decode 120/120" in out
    assert 3 == len(times(out, "ended with 0"))

    assert 0 == run(program, tmp_path, *words, monkeypatch=monkeypatch)
    assert 3 == len(times(capsys.readouterr().out, "done before"))


def test_a_pair_that_differs_is_a_failure(program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of this engine."""
    assert 1 == run(program, tmp_path, "--beside", "paper:qwen3-0.6b", monkeypatch=monkeypatch)


def test_what_is_stopped_is_continued(
    program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job whose own time is up, and one that the end of all finds running, keep what they have."""
    (tmp_path / "pace").write_text("0.5")
    words = ["--in-turn", "paper:qwen3-8b", "--beside", "paper:llama-3.2-1b:seconds=0.8"]
    run(program, tmp_path, *words, seconds=1.4, monkeypatch=monkeypatch)
    out = capsys.readouterr().out

    assert [True, False] == ["llama" in line for line in out.splitlines() if "stopped" in line]
    (tmp_path / "pace").write_text("0")
    run(program, tmp_path, *words, monkeypatch=monkeypatch)
    out = capsys.readouterr().out
    assert 2 == out.count("122 of 122 equal")


def test_jobs_of_other_axes_share_a_file(
    program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They run side by side, each in a folder of its own; jobs that have cases in common wait for each other."""
    axes = [f"paper:qwen3-8b{axes}" for axes in (":axes=batch", ":axes=prefill-decode", "")]
    assert 0 == run(program, tmp_path, "--lanes", "3", "--beside", *axes, monkeypatch=monkeypatch)
    out = capsys.readouterr().out

    assert "122 of 122 equal" in out
    assert times(out, "ended with 0: qwen3-8b paper vosti prefill-decode") < times(out, "qwen3-8b paper vosti, ")
    assert [] == list((tmp_path / "parts").iterdir())


def test_cases_of_one_axis_may_be_shared_out(program: Any, tmp_path: Path) -> None:
    """Jobs of other beginnings run side by side, and each counts what it has to do."""
    jobs = [program.Job.parse(f"paper:qwen3-8b:axes={axes}") for axes in ("chunk/5,prefix", "chunk/6", "chunk", "")]
    first, second, axis, everything = jobs

    assert not first.overlaps(second)
    assert all(a.overlaps(b) and b.overlaps(a) for a in jobs[:2] for b in (axis, everything))
    assert "qwen3-8b_paper_vosti_chunk_5,prefix" == first.slug
    cases = {"chunk/512": "chunk", "chunk/64": "chunk", "prefix/full-129": "prefix"}
    progress = sys.modules["determinism_jobs"].Progress([{"axes": cases, "counts": dict.fromkeys(cases, 18)}])
    assert [("chunk/512", 18), ("prefix/full-129", 18)] == progress.missing(first.axes)
    assert 3 == len(progress.missing(everything.axes))


@pytest.mark.parametrize(("job", "fits"), [("paper:gemma-3-27b", True), ("paper:gemma-4-31b", False)])
def test_the_card_is_shared(program: Any, tmp_path: Path, job: str, fits: bool) -> None:
    """27B fit beside 12B, 85 and 49 GB, and 31B do not. A fresh process takes what the one that starts it lets go."""
    jobs = program.Jobs(tmp_path)
    jobs.running = [program.Running(program.Job.parse("paper:gemma-3-12b:axes=chunk"), None, 0.0)]

    assert (None if fits else program.ROOM) == jobs.obstacle(program.Job.parse(job))


def test_who_waits_for_room_comes_before_the_next_in_turn(
    program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job beside that finds no room starts when the one in turn ends, not after all of them."""
    monkeypatch.setattr(program, "CARD", 100.0)
    words = ["--in-turn", "paper:qwen3-8b:axes=prefill-decode", "paper:gemma-3-12b:axes=prefill-decode"]
    run(program, tmp_path, *words, "--beside", "paper:gemma-4-12b:axes=batch", monkeypatch=monkeypatch)
    out = capsys.readouterr().out

    assert times(out, "started: gemma-4-12b") < times(out, "started: gemma-3-12b")


def test_what_never_fits_is_refused(
    program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is run, with how much it takes."""
    with pytest.raises(SystemExit):
        run(program, tmp_path, "--beside", "paper:llama-3.3-70b", monkeypatch=monkeypatch)

    assert "llama-3.3-70b paper vosti takes 163 of 142 GB" in capsys.readouterr().err


def test_a_job_that_found_nothing_leaves_nothing(program: Any, tmp_path: Path) -> None:
    """No empty file of results, which no report could read."""
    assert sys.modules["determinism_jobs"].merge(tmp_path / "part", tmp_path / "whole")
    assert not (tmp_path / "whole").exists()


def test_few_load_at_once(program: Any, tmp_path: Path) -> None:
    """A model is compiled for once, and by no third process while two are at it."""
    parse, jobs = program.Job.parse, program.Jobs(tmp_path)
    jobs.running = [program.Running(parse("paper:qwen3-8b:axes=chunk"), None, 0.0)]

    assert "others load" == jobs.obstacle(parse("paper:qwen3-8b:axes=prefix"))
    assert jobs.obstacle(parse("paper:llama-3.2-1b")) is None
    jobs.running.append(program.Running(parse("paper:llama-3.2-1b"), None, 0.0))
    assert "others load" == jobs.obstacle(parse("paper:llama-3.2-3b"))
    file = parse("paper:qwen3-8b").file(jobs.part(jobs.running[0].job))
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    assert jobs.obstacle(parse("paper:llama-3.2-3b")) is None


def test_sizes_are_those_of_the_models(program: Any) -> None:
    """Weights in bf16 and 49,152 slots, in GB: 8.03 B parameters and 131 KB a slot."""
    assert 16.1 + 6.4 == pytest.approx(sys.modules["determinism_jobs"].size("llama-3.1-8b"), abs=0.1)
