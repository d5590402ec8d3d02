"""Bad input to the command line: one clear sentence on stderr, a documented exit code, and nothing done."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from command_line import vosti
from vosti.impl.bundled import find_checkpoint

CASES: dict[str, tuple[list[str], str]] = {
    "no such command": (["serve"], "No such command 'serve'."),
    "no such option": (["check", "--pags", "3"], "No such option '--pags'"),
    "no traces": (["audit"], "Missing argument 'FILE...'."),
    "no prompt": (["generate", "tiny-llama3"], "Missing option '-p' / '--prompt'."),
    "no trace's path": (["record", "tiny-llama3"], "Missing option '-o' / '--output'."),
    "no such trace": (["audit", "nothing"], "nothing cannot be read (No such file or directory)"),
    "a folder as trace": (["audit", "."], ". cannot be read (Is a directory)"),
    "as many heads": (["audit", "a", "b", "--head", "0"], "There are 1 heads for 2 traces"),
    "no such model": (["check", "nothing"], "The model nothing does not exist: give a folder with config.json"),
    "a file as model": (["check", "file"], "The model file is no folder"),
    "an empty folder": (["check", "empty"], "empty has no tokenizer.json"),
    "no such model to run": (["generate", "nothing", "-p", "x"], "The model nothing does not exist"),
    "no such backend": (["check", "--backend", "tpu"], "There is no backend 'tpu': the backends are auto, cpu, cuda."),
    "a shape without weights": (
        ["generate", "llama-3.1-8b", "-p", "x"],
        "The model llama-3.1-8b is a shape without weights: give --dummy-weights SEED, or a checkpoint.",
    ),
    "no such workload": (["check", "--workload", "huge"], "There is no workload 'huge'"),
    "a bad workload": (["check", "--workload", "file"], "Workload file is not valid JSON"),
    "no such mode": (["check", "--mode", "half"], "'half' is not one of 'digest', 'candidates', 'full'."),
    "no pages": (["check", "--pages", "0"], "0 is not in the range 1<=x<=1048576."),
    "too many": (["check", "--token-budget", "9999999999"], "9999999999 is not in the range 1<=x<=1048576."),
    "no number": (["check", "--page-size", "x"], "'x' is not a valid integer range."),
    "a negative seed": (["check", "--seed", "-1"], "-1 is not in the range x>=0."),
    "a prompt that cannot fit": (["check", "--pages", "4"], "'first' may need 10 pages of 8 slots, and the pool has 4"),
    "a prompt beyond the model": (
        ["generate", "tiny-llama3", "-p", "x", "--max-tokens", "4096"],
        "may reach 4098 tokens (2 of prompt and max_tokens 4096), and the model takes 4096",
    ),
    "no such parameter": (["generate", "tiny-llama3", "-p", "x", "--top-p", "0"], "top_p is 0.0; it must be above 0"),
    "a negative temperature": (["generate", "tiny-llama3", "-p", "x", "--temperature", "-1"], "temperature is -1.0"),
    "not a number": (["generate", "tiny-llama3", "-p", "x", "--temperature", "nan"], "temperature is nan"),
    "no tokens": (["generate", "tiny-llama3", "-p", "x", "--max-tokens", "0"], "max_tokens is 0"),
    "no requirement": (["check", "--require", "evictions"], "A requirement reads NAME>=N, such as evictions>=1"),
    "another relation": (["audit", "x", "--require", "evictions<3"], "A requirement reads NAME>=N"),
    "no such count": (
        ["check", "--require", "luck>=1"],
        "There is no count 'luck' to require: the counts are requests",
    ),
    "no folder for JSON": (["check", "--json", "no/x.json"], "no/x.json cannot be written: there is no folder no."),
    "a folder for JSON": (["audit", "x", "--json", "empty"], "empty is a folder: give the path of a file."),
    "no folder for a trace": (
        ["record", "tiny-llama3", "-o", "no/x"],
        "no/x cannot be written: there is no folder no.",
    ),
    "a file as folder": (["check", "--keep", "file"], "file is not an empty folder"),
    "more than the memory": (["check", "--pages", "99999", "--page-size", "1048576"], "There is not enough memory"),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with an empty folder and a file that is none of what is wanted."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("{")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_one_sentence(case: str, here: Path) -> None:
    """The sentence says what is wrong, the code is 2, and no file was made."""
    arguments, message = CASES[case]
    ended = vosti(*arguments)

    assert (2, "") == (ended.code, ended.out)
    assert message in ended.err
    assert ended.err.startswith("vosti: ")
    assert 1 == ended.err.count("\n")
    assert ["empty", "file"] == sorted(path.name for path in here.iterdir())


@pytest.mark.parametrize("command", [["check"], ["record", "-o", "x"], ["generate", "-p", "x"]])
def test_without_a_gpu_the_cuda_backend_is_refused(
    command: list[str], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence says what is missing and what to use instead; nothing was loaded, and no file was made."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    ended = vosti(*command, "tiny-llama3", "--backend", "cuda")

    assert (2, "") == (ended.code, ended.out)
    assert ended.err.endswith(" torch finds none: use --backend cpu.\n")
    assert ["empty", "file"] == sorted(path.name for path in here.iterdir())


def copied(folder: Path, name: str) -> Path:
    """A copy of a bundled checkpoint, to be damaged."""
    return Path(shutil.copytree(find_checkpoint(name), folder / name))


@pytest.mark.parametrize("kept", [0, 7, 1000, 100_000])
def test_a_truncated_safetensors_is_refused(tmp_path: Path, kept: int) -> None:
    """A weights file that was cut anywhere is an error that names it."""
    model = copied(tmp_path, "tiny-llama3")
    os.truncate(model / "model.safetensors", kept)
    ended = vosti("check", model)

    assert (2, "", 1) == (ended.code, ended.out, ended.err.count("\n"))
    assert "model.safetensors" in ended.err


def test_an_unsupported_architecture_is_refused(tmp_path: Path) -> None:
    """An architecture that the engine does not compute is named."""
    model = copied(tmp_path, "tiny-llama3")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(
        json.dumps({**config, "model_type": "mamba", "architectures": ["MambaForCausalLM"]})
    )
    ended = vosti("generate", model, "-p", "x")

    assert (2, "", 1) == (ended.code, ended.out, ended.err.count("\n"))
    assert "mamba" in ended.err.lower()


def test_a_checkpoint_without_tokenizer_is_refused(tmp_path: Path) -> None:
    """A checkpoint whose texts cannot be read is an error, before its weights are loaded."""
    model = copied(tmp_path, "tiny-llama3")
    (model / "tokenizer.json").unlink()
    ended = vosti("check", model)

    assert (2, "", 1) == (ended.code, ended.out, ended.err.count("\n"))
    assert "tokenizer.json" in ended.err


SCRIPT = Path(sys.executable).parent / "vosti"


def test_the_console_script_ends_with_the_code(tmp_path: Path) -> None:
    """What the shell sees is what the tests in one process see: code, one sentence, no traceback."""
    run = subprocess.run([SCRIPT, "check", "nothing"], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert (2, "") == (run.returncode, run.stdout)
    assert run.stderr.startswith("vosti: The model nothing does not exist")
    assert 1 == run.stderr.count("\n")


def test_without_arguments_the_commands_are_listed() -> None:
    """`vosti` alone lists its commands on stderr, and `--help` on stdout."""
    bare, asked = vosti(), vosti("--help")

    assert (2, "") == (bare.code, bare.out)
    assert (0, "") == (asked.code, asked.err)
    for name in ("audit", "check", "generate", "record"):
        assert f"  {name}  " in bare.err
        assert f"  {name}  " in asked.out


@pytest.mark.parametrize("arguments", ["--help", "generate tiny-llama3 -p x --seed 1 --max-tokens 4"])
def test_a_reader_that_goes_away_is_no_fault(arguments: str) -> None:
    """A closed pipe ends the command without a word, and is no violation."""
    program = f"{SCRIPT} {arguments} | sleep 0; echo ${{PIPESTATUS[0]}}"
    run = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=False)

    assert ("", "2") == (run.stderr, run.stdout.strip())
