"""`vosti record` and `vosti audit`: traces on disk, whole, cut, edited and forged."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from command_line import SMALL, Ended, rechained, vosti, vosti_without

ENGINE = ("immutables", "numpy", "tokenizers", "torch", "transformers", "triton")
"""Packages that a base installation does not have."""


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of the short workload. Tests do not change it."""
    path = tmp_path_factory.mktemp("traces") / "short.trace"
    assert 0 == vosti("record", "tiny-llama3", *SMALL, "-o", path).code
    return path


def edited(trace: Path, tmp_path: Path, text: str) -> Path:
    """A trace with other contents, beside the other tests' files."""
    path = tmp_path / "edited.trace"
    path.write_text(text)
    return path


def lines_of(trace: Path) -> list[str]:
    """The lines of a trace."""
    return trace.read_text().splitlines()


def head_of(ended: Ended) -> str:
    """The head that a command printed."""
    return ended.out.split("head")[1].split()[0]


def test_a_recorded_trace_refines(tmp_path: Path) -> None:
    """What is recorded is audited: the counts and the head are those of the recording."""
    path, recorded_as, audited_as = (tmp_path / name for name in ("a.trace", "r.json", "a.json"))
    recorded = vosti("record", "tiny-llama3", *SMALL, "--reread", "-o", path, "--json", recorded_as)
    audited = vosti("audit", path, "--head", head_of(recorded), "--every", "1", "--json", audited_as)
    said, found = json.loads(recorded_as.read_text()), json.loads(audited_as.read_text())

    assert (0, "", 0, "") == (recorded.code, recorded.err, audited.code, audited.err)
    assert f"recorded  {path}: {said['steps']} steps, 10 requests, {said['records']} records\n" in recorded.out
    assert said["head"] == head_of(recorded) == head_of(audited) == found["traces"][0]["head"]
    assert said["fingerprint"] == found["traces"][0]["fingerprint"]
    assert (said["steps"], said["records"]) == (found["steps"], found["records"])
    assert (True, [], []) == (found["refines"], found["violations"], found["unmet"])
    assert 10 == len(said["requests"])
    assert json.loads(lines_of(path)[0])["header"]["reread"]


def test_recording_again_gives_the_same_trace(trace: Path, tmp_path: Path) -> None:
    """A workload, a model and a seed make a trace: byte for byte."""
    again = tmp_path / "again.trace"
    vosti("record", "tiny-llama3", *SMALL, "-o", again)

    assert trace.read_bytes() == again.read_bytes()


def test_traces_of_different_pools_agree(trace: Path, tmp_path: Path) -> None:
    """Traces of one W are audited together: what both observed is the same, and is counted."""
    other = tmp_path / "other.trace"
    vosti("record", "tiny-llama3", *SMALL, "-o", other, "--pages", "40", "--token-budget", "9", "--mode", "full")
    alone, both = vosti("audit", trace), vosti("audit", trace, other)

    assert (0, 0) == (alone.code, both.code)
    assert (tmp_path / "other.trace.values").is_dir()
    assert 40 < observed_once(alone) > 10 + observed_once(both)


def observed_once(ended: Ended) -> int:
    """How many output records were observed only once."""
    (line,) = (line for line in ended.out.splitlines() if line.startswith("output record, by"))
    return int(line.split()[-1])


def test_an_audit_needs_no_engine(trace: Path) -> None:
    """A base installation audits traces: no engine package is imported, directly or through others."""
    ended = vosti_without(ENGINE, "audit", trace)

    assert (0, "") == (ended.code, ended.err)
    assert ended.out.splitlines()[-1].startswith("Refines: ")


@pytest.mark.parametrize(
    "command", [["check"], ["record", "tiny-llama3", "-o", "x"], ["generate", "tiny-llama3", "-p", "x"]]
)
def test_without_the_engine_commands_say_what_is_missing(command: list[str], tmp_path: Path) -> None:
    """A command that needs the engine names the extra that has it, in one sentence."""
    ended = vosti_without(ENGINE, *command, cwd=tmp_path)

    assert (2, "") == (ended.code, ended.out)
    assert ended.err.startswith("vosti: This command needs the engine, and ")
    assert ended.err.endswith(" is not installed: pip install 'vosti[engine]'.\n")
    assert [] == list(tmp_path.iterdir())


def test_a_requirement_of_an_audit(trace: Path) -> None:
    """An audit counts, and a count that is too low ends with 2."""
    ended = vosti("audit", trace, "--require", "hits>=1", "--require", "failures>=1")

    assert (2, "vosti: Required and not met: failures>=1 (there are 0).\n") == (ended.code, ended.err)


# ---------------------------------------------------------------- what tokens are drawn from


@pytest.fixture(scope="module")
def with_candidates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same in mode candidates."""
    path = tmp_path_factory.mktemp("traces") / "candidates.trace"
    assert 0 == vosti("record", "tiny-llama3", *SMALL, "--mode", "candidates", "-o", path).code
    return path


def test_an_audit_draws_tokens_from_candidates(with_candidates: Path, trace: Path) -> None:
    """A trace with candidates refines, alone and beside one with digests, which it equals but for the candidates."""
    ended = vosti("audit", with_candidates, trace)

    assert (0, "") == (ended.code, ended.err)
    assert "- In mode candidates, the candidates follow from the logits" in ended.out
    said = [line for line in lines_of(with_candidates) if '"candidates":[[[' in line]
    assert len(said) == sum('["emit"' in line for line in lines_of(trace)) > 0


def forge_weight(settle: list[Any], candidates: list[Any]) -> None:
    """The most probable candidate of the first emit is less probable."""
    candidates[0][0] = [[token, min(share, 2**23)] for token, share in candidates[0][0]]


def forge_candidate(settle: list[Any], candidates: list[Any]) -> None:
    """The first emit's only candidate is another token."""
    candidates[0] = [[[candidates[0][0][0][0] + 1, 2**24]], None]


def forge_token(settle: list[Any], candidates: list[Any]) -> None:
    """The first emit is of another token."""
    emit = next(action for action in settle if action[0] == "emit")
    emit[3] += 1


@pytest.mark.parametrize(
    ("forge", "check"),
    [(forge_weight, "candidates_are_kept"), (forge_candidate, "sampled_token"), (forge_token, "sampled_token")],
)
def test_forged_candidates_are_a_violation(
    forge: Callable[[list[Any], list[Any]], None], check: str, with_candidates: Path, tmp_path: Path
) -> None:
    """An edited weight, candidate or token is found under a recomputed chain."""
    lines = lines_of(with_candidates)
    number = next(n for n, line in enumerate(lines) if '"candidates":[[[' in line)
    entry = json.loads(lines[number])
    forge(entry["actions"], entry["candidates"])
    lines[number] = json.dumps(entry, separators=(",", ":"), ensure_ascii=False)
    ended = vosti("audit", edited(with_candidates, tmp_path, rechained(lines)))

    assert (1, "") == (ended.code, ended.err), ended.err
    assert f"check     {check}:" in ended.out


# ---------------------------------------------------------------- traces that are none


def test_an_edited_line_breaks_the_chain(trace: Path, tmp_path: Path) -> None:
    """An edit under the recorded chain is found where it is, whatever it says."""
    lines = lines_of(trace)
    lines[7] = lines[7].replace("1", "2", 1)
    ended = vosti("audit", edited(trace, tmp_path, "\n".join(lines) + "\n"))

    assert (3, "") == (ended.code, ended.out)
    assert "line 8: the chain is broken" in ended.err


def test_a_forged_output_is_a_violation(trace: Path, tmp_path: Path) -> None:
    """An edit under a recomputed chain is found by what it says: the report names check, step, phase and request."""
    lines = lines_of(trace)
    number = next(n for n, line in enumerate(lines) if '"kind":"output"' in line and '"tokens":[' in line)
    entry = json.loads(lines[number])
    lines[number] = lines[number].replace(f'"tokens":[{entry["tokens"][0]}', f'"tokens":[{entry["tokens"][0] + 1}')
    result = tmp_path / "result.json"
    ended = vosti("audit", edited(trace, tmp_path, rechained(lines)), "--json", result)
    (violation,) = json.loads(result.read_text())["violations"]

    assert (1, "") == (ended.code, ended.err)
    assert ("output_tokens_agree", "output") == (violation["check"], violation["phase"])
    assert (entry["step"], entry["request"]) == (violation["step"], violation["request"])
    for text in ("check     output_tokens_agree", f"request   {entry['request']}", "expected", "actual"):
        assert text in ended.out
    assert ended.out.splitlines()[-1].startswith("Violated: ")


def test_an_unchanged_trace_survives_the_forger(trace: Path, tmp_path: Path) -> None:
    """The forger's chain is the recorded one if nothing is edited: what is found is the edit."""
    assert trace.read_text() == rechained(lines_of(trace))


def test_a_trace_with_another_head_is_another_trace(trace: Path) -> None:
    """`--head` says which trace is meant, also if everything in the given one is in order."""
    ended = vosti("audit", trace, "--head", "0" * 64)

    assert (3, "") == (ended.code, ended.out)
    assert "this is another trace" in ended.err


@pytest.mark.parametrize("keep", [0, 1, 40])
def test_a_trace_that_was_cut_off_is_incomplete(trace: Path, tmp_path: Path, keep: int) -> None:
    """A trace without its end is an error, be it empty or valid as far as it goes."""
    ended = vosti("audit", edited(trace, tmp_path, "".join(line + "\n" for line in lines_of(trace)[:keep])))

    assert (3, "") == (ended.code, ended.out)
    assert ("the file is empty" if keep == 0 else "the run that wrote it was cut off") in ended.err


def test_a_recording_that_fails_leaves_a_prefix_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash in the middle leaves what was recorded, and an audit calls it incomplete."""
    from vosti.impl.backends.cpu import CpuBackend

    honest, calls = CpuBackend.forward, iter(range(60))

    def forward(self: CpuBackend, batch: object) -> object:
        if next(calls, None) is None:
            raise RuntimeError("the machine is on fire")
        return honest(self, batch)  # type: ignore[arg-type]

    monkeypatch.setattr(CpuBackend, "forward", forward)
    path = tmp_path / "a.trace"
    crashed, audited = vosti("record", "tiny-llama3", *SMALL, "-o", path), vosti("audit", path)

    assert 2 == crashed.code
    assert "the machine is on fire" in crashed.err
    assert crashed.err.endswith("vosti: This is a fault of vosti itself; what is above says where.\n")
    assert (3, "") == (audited.code, audited.out)
    assert "without an `end` entry" in audited.err
    assert len(lines_of(path)) > 20


def test_a_trace_counts_once(trace: Path, tmp_path: Path) -> None:
    """A trace given twice, or its copy, is no second observation."""
    copy = tmp_path / "copy.trace"
    copy.write_bytes(trace.read_bytes())
    ended = vosti("audit", trace, copy)

    assert (2, "") == (ended.code, ended.out)
    assert "vosti: A trace is given twice, and would count as two observations: give each one once.\n" == ended.err


def test_a_trace_never_replaces_a_file(trace: Path) -> None:
    """Recording over a file is refused, and the file is as it was."""
    before = trace.read_bytes()
    ended = vosti("record", "tiny-llama3", *SMALL, "-o", trace)

    assert 2 == ended.code
    assert "a trace never replaces a file" in ended.err
    assert before == trace.read_bytes()


def test_an_interrupted_recording_is_no_violation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends with 130, and what was recorded says that it is incomplete."""
    from vosti.impl.engine import Engine

    honest, calls = Engine.step, iter(range(60))

    def step(self: Engine) -> object:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return honest(self)

    monkeypatch.setattr(Engine, "step", step)
    path = tmp_path / "a.trace"
    interrupted, audited = vosti("record", "tiny-llama3", *SMALL, "-o", path), vosti("audit", path)

    assert (130, "", 3) == (interrupted.code, interrupted.out, audited.code)
