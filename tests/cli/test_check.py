"""`vosti check` on both bundled checkpoints, with a pool that is short of pages."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path

import pytest
import torch

import vosti.impl.cli.check as check
from command_line import SMALL, vosti
from engine_faults.edits import applied, fault
from engine_faults.in_forward import FAULTS
from vosti.impl.backend import Batch, ForwardResult
from vosti.impl.backends.cpu import CpuBackend
from vosti.impl.bundled import BUNDLED
from vosti.impl.cli.claims import PREMISES, THEOREM, as_json, page
from vosti.impl.cli.requirements import PROMISED
from vosti.impl.engine import Engine
from vosti.impl.outputs import RequestOutput

PROOF = Path(__file__).parents[2] / "docs" / "proof.md"

SIZES = {"page_size": 4, "pages": 12, "max_seqs": 8, "token_budget": 16}
"""What `SMALL` asks for."""


class Checked:
    """`vosti check` of a checkpoint, once, with all that it writes."""

    def __init__(self, model: str, folder: Path) -> None:
        result, self.verdicts, self.traces = folder / "result.json", folder / "verdicts.xml", folder / "traces"
        files = ("--json", result, "--junit", self.verdicts, "--keep", self.traces)
        self.ended = vosti("check", model, *SMALL, *files, "--require", "hits>=2")
        self.found = json.loads(result.read_text())


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Checked]:
    """The check of each checkpoint."""
    return cache(lambda model: Checked(model, tmp_path_factory.mktemp(model)))


@pytest.mark.parametrize("model", BUNDLED)
def test_both_checkpoints_refine(model: str, checked: Callable[[str], Checked]) -> None:
    """The short workload exercises everything, every step refines, and every record was observed at least twice."""
    one = checked(model)
    ended, found, traces = one.ended, one.found, one.traces
    exercised = found["exercised"]

    assert (0, "") == (ended.code, ended.err), ended.out
    assert found["refines"]
    assert [] == [name for name, least in PROMISED.items() if exercised[name] < least]
    assert (0, exercised["records"]) == (found["audit"]["keys"]["records"]["once"], found["audit"]["records"] // 2)
    assert exercised["records"] == sum(len(one["token_ids"]) for one in found["requests"].values())
    assert "Every record was observed at least twice.\nRefines: " in ended.out
    assert ended.out.endswith("had one value each.\n")
    assert "\n".join(page(found["audit"]["assumed"])) in ended.out
    assert as_json(PREMISES) == found["claim"]
    assert [] == [sentence for sentence in found["audit"]["assumed"] if f"- {sentence}" not in PROOF.read_text()]
    assert '<testsuites tests="22" failures="0" errors="0">' in one.verdicts.read_text()
    assert 11 == len(list(traces.iterdir()))
    assert 0 == vosti("audit", *traces.iterdir()).code


def test_runs_alone_differ_in_all_that_must_not_matter(checked: Callable[[str], Checked]) -> None:
    """Each run alone has an engine of its own: other page sizes and budgets, poisoned pages, permuted."""
    traces = checked("tiny-llama3").traces
    headers = [json.loads(path.open().readline())["header"] for path in sorted(traces.glob("alone-*"))]

    assert {1, 4, 16, 64} == {header["page_size"] for header in headers}
    assert {64, 16, 31} == {header["token_budget"] for header in headers}
    assert 10 == len({header["options"]["page_seed"] for header in headers} - {0})
    assert all(header["options"]["poison"] and not header["options"]["prefix_caching"] for header in headers)
    assert 1 == len({header["fingerprint"] for header in headers})


def test_the_default_workload_must_exercise_what_it_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    """With default options a count of zero ends with 2; with others it is only said."""
    monkeypatch.setattr("vosti.impl.cli.requirements.PROMISED", {"failures": 1, "evictions": 1})
    monkeypatch.setattr(check, "PRESSURE", SIZES)
    monkeypatch.setattr(check, "DEFAULT_WORKLOAD", "short")
    as_default, seeded = vosti("check", "tiny-llama3", *SMALL), vosti("check", "tiny-llama3", *SMALL, "--seed", "1")

    assert (2, "vosti: Required and not met: failures>=1 (there are 0).\n") == (as_default.code, as_default.err)
    assert (0, "") == (seeded.code, seeded.err)
    assert "failures                not exercised" in seeded.out


def test_an_unmet_requirement_is_no_violation() -> None:
    """The run refines, and the exit code says that it was not the run that was asked for."""
    ended = vosti("check", "tiny-llama3", *SMALL, "--require", "evictions>=1", "--require", "preemptions >= 100000")

    assert 2 == ended.code
    assert "Refines: " in ended.out
    assert ended.err.startswith("vosti: Required and not met: preemptions>=100000 (there are ")
    assert "evictions" not in ended.err


def test_records_observed_once_are_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of different configurations do not bind one another: the check does not pass for want of a comparison."""
    honest = CpuBackend.fingerprint
    numbers = count()
    monkeypatch.setattr(CpuBackend, "fingerprint", lambda self: {**honest(self), "run": next(numbers)})
    ended = vosti("check", "tiny-llama3", *SMALL, "--seed", "1")

    assert 2 == ended.code
    assert ended.err.startswith("vosti: Required and not met: every record observed at least twice (")


Forward = Callable[[CpuBackend, Batch], ForwardResult]


def test_company_that_changes_a_bit_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits that depend on how many requests run beside them make the check fail, with a report of where."""
    honest: Forward = CpuBackend.forward

    def forward(self: CpuBackend, batch: Batch) -> ForwardResult:
        result = honest(self, batch)
        return replace(result, logits=result.logits * (1 + 2.0**-20 * (len(batch.tables) > 2)))

    monkeypatch.setattr(CpuBackend, "forward", forward)
    result = tmp_path / "result.json"
    ended = vosti("check", "tiny-llama3", *SMALL, "--json", result)
    found = json.loads(result.read_text())

    assert (1, "") == (ended.code, ended.err)
    assert "logits_are_canonical" == found["audit"]["violations"][0]["check"]
    assert not found["refines"]
    assert "check     logits_are_canonical: " in ended.out
    assert "Violated: " in ended.out
    assert ended.out.endswith("Give --keep DIR to keep the traces.\n")


def test_a_slot_that_nobody_wrote_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read of an unwritten slot meets NaN in a run alone, and is caught there."""
    honest: Forward = CpuBackend.forward

    def forward(self: CpuBackend, batch: Batch) -> ForwardResult:
        result = honest(self, batch)
        free = sorted(set(range(self._pages)) - set(batch.tables.flatten().tolist()))
        extra = self._pool[0][0, 0, free[-1] * self._page_size] if free else torch.zeros(1)
        return replace(result, logits=result.logits + extra.sum() * 0)

    monkeypatch.setattr(CpuBackend, "forward", forward)

    assert 1 == vosti("check", "tiny-llama3", *SMALL).code


def test_tokens_that_change_on_their_way_to_the_caller_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the caller gets in company is compared with what it gets alone, also where no trace can see it."""
    honest = Engine.step

    def step(self: Engine) -> list[RequestOutput]:
        outputs = honest(self)
        if len(outputs) > 1:
            first, second, *rest = outputs
            outputs = [
                replace(first, token_ids=second.token_ids),
                replace(second, token_ids=first.token_ids),
                *rest,
            ]
        return outputs

    monkeypatch.setattr(Engine, "step", step)
    verdicts = tmp_path / "verdicts.xml"
    ended = vosti("check", "tiny-llama3", *SMALL, "--junit", verdicts)

    assert 1 == ended.code
    assert "emitted token" in verdicts.read_text()
    assert THEOREM not in ended.out
    assert "requests got other outputs alone." in ended.out
    assert "Refines" not in ended.out


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    """Traces are kept where nothing else is: no old trace is mistaken for a new one."""
    (tmp_path / "together.trace").touch()
    ended = vosti("check", "--keep", tmp_path)

    assert 2 == ended.code
    assert f"vosti: {tmp_path} is not an empty folder: give one that is, or that does not exist.\n" == ended.err


def test_drafts_and_assertions_on_request(tmp_path: Path) -> None:
    """`--speculative-tokens` drafts for requests without a script, `--check-steps` finds nothing wrong with it, and the
    trace says that both were asked for.
    """
    asked, plain = tmp_path / "asked.trace", tmp_path / "plain.trace"
    flags = ("--speculative-tokens", "3", "--check-steps")
    assert 0 == vosti("record", "tiny-llama3", "-o", plain, *SMALL).code
    assert 0 == vosti("record", "tiny-llama3", "-o", asked, *SMALL, *flags).code
    options = json.loads(asked.open().readline())["header"]["options"]

    assert (3, True) == (options["speculative_tokens"], options["check_steps"])
    assert asked.read_text().count('"propose"') > plain.read_text().count('"propose"')
    assert 0 == vosti("audit", asked, plain).code


def test_an_engine_that_finds_itself_wrong_is_a_violation(tmp_path: Path) -> None:
    """With `--check-steps` a batch that is packed wrong ends the run with the predicate's name, before an audit."""
    (seeded,) = [one for one in FAULTS if one.name == "wrong slot"]
    with applied(seeded):
        ended = vosti("check", "tiny-llama3", *SMALL, "--check-steps")

    assert 1 == ended.code
    assert "is no step of the specification: row_writes_its_slot does not hold of request" in ended.err
    assert ended.out.startswith("Recorded before the error: ")
    assert "not a run of the specification" not in ended.out.lower()


@pytest.mark.parametrize("mode", ["digest", "full"])
def test_what_led_to_an_error_is_found(mode: str, tmp_path: Path) -> None:
    """The engine trips over a page that is counted as held and is not: the command ends with its error, and the audit
    of what was recorded before names the step in which the count went wrong. Result files say both.
    """
    result, verdicts = tmp_path / "result.json", tmp_path / "verdicts.xml"
    miscounted = fault(
        "a page that others hold is not given back",
        ("pool:released", "refcount=pages[page_id].refcount - 1", "refcount=max(2, pages[page_id].refcount) - 1"),
        ("pool:released", "if page.refcount == 0", "if page.refcount == 1"),
    )
    with applied(miscounted):
        ended = vosti("check", "tiny-llama3", *SMALL, "--mode", mode, "--json", result, "--junit", verdicts)
    found = json.loads(result.read_text())

    assert 2 == ended.code
    assert not found["refines"]
    assert "AssertionError: " in found["error"]
    assert ["page_refcount_agrees"] == [violation["check"] for violation in found["audit"]["violations"]]
    assert '<testsuites tests="3" failures="2" errors="0">' in verdicts.read_text()
    assert "Traceback" in ended.err
    assert ended.err.endswith("vosti: This is a fault of vosti itself; what is above says where.\n")
    assert ended.out.startswith("Recorded before the error: ")
    assert "Not a run of the specification:\ncheck     page_refcount_agrees: " in ended.out


def test_an_error_alone_is_no_violation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of steps that were right before an error the audit finds nothing, and the error decides how the command ends,
    also while a request is served alone.
    """
    honest, served = Engine.step, set[int]()

    def step(self: Engine) -> list[RequestOutput]:
        served.add(self.options.max_seqs)
        if self.options.max_seqs == 1 and served == {1, 8} and self.steps == 2:
            raise ZeroDivisionError
        return honest(self)

    monkeypatch.setattr(Engine, "step", step)
    ended = vosti("check", "tiny-llama3", *SMALL, "--keep", tmp_path)

    assert 2 == ended.code
    assert "ZeroDivisionError" in ended.err
    assert "an audit finds each step to be one of the specification" in ended.out
    assert "Not a run" not in ended.out
    assert ["alone-001.trace", "together.trace"] == sorted(path.name for path in tmp_path.iterdir())
