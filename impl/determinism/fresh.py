"""An engine in a process of its own: `python -m vosti.impl.determinism.fresh ARGUMENTS...`, asked through a pipe.

The process reads one pickled (settings, asks) from its standard input and writes its configuration W and the answers,
pickled, to the file that its last argument names. Both ends are this program on one machine: nothing else is ever
unpickled.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from vosti.impl.determinism.errors import FreshProcessError
from vosti.impl.determinism.protocol import Answer, Ask, Settings


def serve_fresh(
    arguments: Sequence[str],
    settings: Settings,
    asks: Sequence[Ask],
    configuration: Mapping[str, object],
    *,
    cold: bool = False,
) -> list[Answer]:
    """The answers of an engine in a fresh process, each request served alone.

    Args:
        arguments: what makes the engine there.
        settings: of the engine.
        asks: the requests.
        configuration: the W that it must have there, too.
        cold: whether its cache of compiled kernels is empty.

    Raises `FreshProcessError`.
    """
    if not arguments:
        raise FreshProcessError("This engine cannot be started in a process of its own.")
    with tempfile.TemporaryDirectory(prefix="vosti-fresh-") as folder:
        file = Path(folder) / "answers"
        ended = subprocess.run(
            [sys.executable, "-m", "vosti.impl.determinism.fresh", *arguments, str(file)],
            input=pickle.dumps((settings, list(asks))),
            env={**os.environ, "TRITON_CACHE_DIR": str(Path(folder) / "triton")} if cold else None,
            stderr=subprocess.PIPE,
            check=False,
        )
        if ended.returncode != 0 or not file.is_file():
            lines = ended.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
            raise FreshProcessError(f"An engine in a fresh process ended with code {ended.returncode}: {lines[-1]}")
        found: tuple[Mapping[str, object], list[Answer]] = pickle.loads(file.read_bytes())
    there, answers = found
    if there != configuration:
        keys = sorted(key for key in {*there, *configuration} if there.get(key) != configuration.get(key))
        raise FreshProcessError(f"An engine in a fresh process has another W, which differs in {', '.join(keys)}.")
    return answers


def main(arguments: Sequence[str]) -> None:
    """Serve what stands on the standard input."""
    from vosti.impl.determinism.subjects import Choice, open_subject

    settings, asks = pickle.loads(sys.stdin.buffer.read())
    *words, file = arguments
    subject = open_subject(Choice.from_words(words))
    with subject.open(settings) as arm:
        answers = [answer for ask in asks for answer in arm.serve([ask])]
    Path(file).write_bytes(pickle.dumps((subject.configuration(), answers)))


if __name__ == "__main__":
    main(sys.argv[1:])
