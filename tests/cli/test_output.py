"""What commands write: generated text, result files, and a progress bar only where somebody watches."""

import io
import json
import re
from pathlib import Path

import pytest

from command_line import vosti
from vosti.impl.cli.files import write_json
from vosti.impl.cli.progress import progress, watched
from vosti.impl.cli.requirements import HITS
from vosti.impl.llm import LLM
from vosti.impl.options import SamplingParams
from vosti.refinement.witnesses import WITNESSES

PROMPT = "import os\n\ndef read_file(path):\n"


def test_generate_prints_the_text() -> None:
    """Greedy text goes to stdout, and nothing else anywhere."""
    ended = vosti("generate", "tiny-llama3", "-p", PROMPT, "--temperature", "0", "--max-tokens", "12")
    (completion,) = LLM("tiny-llama3").generate(PROMPT, SamplingParams(max_tokens=12, temperature=0.0))

    assert (0, completion.text + "\n", "") == (ended.code, ended.out, ended.err)


def test_a_drawn_seed_is_told_on_stderr() -> None:
    """Without a seed one is drawn; with it the same text comes again."""
    arguments = ("generate", "tiny-llama3", "-p", PROMPT, "--max-tokens", "12", "--top-p", "0.9")
    drawn = vosti(*arguments)
    again = vosti(*arguments, "--seed", drawn.err.removeprefix("seed ").strip())

    assert (0, 0, "") == (drawn.code, again.code, again.err)
    assert drawn.out == again.out


def test_a_result_is_written_whole(tmp_path: Path) -> None:
    """A result that cannot be written leaves the old one, and no other file."""
    path = tmp_path / "result.json"
    write_json(path, {"old": 1})
    write_json(None, {"nothing": 1})
    with pytest.raises(TypeError):
        write_json(path, {"new": object()})

    assert {"old": 1} == json.loads(path.read_text())
    assert [path] == list(tmp_path.iterdir())
    assert 0o644 == path.stat().st_mode & 0o755


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """It is."""
        return True


@pytest.mark.parametrize(
    ("stream", "ci", "bar"), [(Terminal, "", True), (Terminal, "1", False), (io.StringIO, "", False)]
)
def test_a_bar_is_shown_to_who_watches(
    stream: type[io.StringIO], ci: str, bar: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Progress is shown on a terminal, and neither in a file nor in continuous integration."""
    shown = stream()
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", shown)
    with progress("counting") as advance:
        advance(1, 2)
        advance(2, 2)

    assert bar == watched()
    assert bar == ("counting" in shown.getvalue())


def test_every_count_is_documented() -> None:
    """README.md names each count that `--require` takes, and no other."""
    text = (Path(__file__).parents[2] / "README.md").read_text()
    paragraph = text.split("`--require` takes")[1].split("With default")[0]

    assert [*WITNESSES, HITS] == re.findall(r"`(\w+)`", paragraph)


def test_every_command_is_documented() -> None:
    """`vosti` lists each command with a sentence that is not cut off, and README.md has a row of it."""
    lines = vosti("--help").out.split("Commands:\n")[1].splitlines()
    text = (Path(__file__).parents[2] / "README.md").read_text()

    assert [] == [line for line in lines if not re.fullmatch(r"  [a-z]+( [a-z]+)?  +[A-Z].*\.", line) or "..." in line]
    names = [re.split("  +", line.strip())[0] for line in lines]
    assert "check" in names
    assert [] == [name for name in names if f"| `vosti {name}" not in text]
