"""How long a model takes to load on a GPU, and where the time goes: with nothing kept, and with everything.

    python load_timing.py [MODEL]          a fresh process for each line; MODEL is a shape's name or a checkpoint's
    python load_timing.py load MODEL       one load, with what VOSTI_CERTIFICATES and TRITON_CACHE_DIR name

Prints a table last: seconds. *Compile* and *prove* are parts of *certificates*, the wait for other processes included;
*start* is what these take to start, measured alone; the rest of *load* is mostly weights.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

MODEL = "llama-3.1-8b"

SECONDS = 40
"""Of a process, at most."""

COLUMNS = ("import", "load", "device", "certificates", "compile", "proofs", "prove", "admit", "weights")


def timed(function: Callable[..., Any], name: str, spent: dict[str, float]) -> Callable[..., Any]:
    """The function, with the seconds of all calls added up."""

    def wrapped(*arguments: Any, **options: Any) -> Any:
        begun = time.perf_counter()
        try:
            return function(*arguments, **options)
        finally:
            spent[name] = spent.get(name, 0.0) + time.perf_counter() - begun

    return wrapped


def load(model: str) -> dict[str, float]:
    """Load a model as everybody does; the seconds of its parts, and how many proofs were made."""
    begun = time.perf_counter()
    from vosti.impl.backends.cuda import certifier, opening, probing
    from vosti.impl.bundled import shape_names
    from vosti.impl.models.model import Model
    from vosti.impl.opening import open_backend
    from vosti.impl.options import Certification
    from vosti.kernels.verifier import certify

    spent: dict[str, float] = {"import": time.perf_counter() - begun}
    marks: list[tuple[float, float]] = []
    for module, function, name in (
        (opening, "find_device", "device"),
        (certifier, "certificates", "certificates"),
        (certify, "compile_ahead", "compile"),
        (probing, "admitted", "admit"),
        (Model, "load", "weights"),
    ):
        setattr(module, function, timed(getattr(module, function), name, spent))
    begun = time.perf_counter()
    open_backend(
        model,
        "cuda",
        dummy_weights=0 if model in shape_names() else None,
        certification=Certification(advance=lambda done, total: marks.append((time.perf_counter(), total))),
    )
    spent["load"] = time.perf_counter() - begun
    return {
        **spent,
        "proofs": marks[0][1] if marks else 0,
        "prove": marks[-1][0] - marks[0][0] if marks else 0.0,
    }


def started() -> float:
    """Seconds until the processes that compile and prove have done nothing."""
    from vosti.kernels.workers import FEW, Workers

    begun = time.perf_counter()
    with Workers() as workers:
        list(workers.do([partial(str)] * FEW))
        return time.perf_counter() - begun


def loaded(model: str, folders: Mapping[str, Path]) -> dict[str, float]:
    """A load by a fresh process, with what these folders hold."""
    environment = {**os.environ, **{name: str(folder) for name, folder in folders.items()}}
    run = subprocess.run(
        [sys.executable, __file__, "load", model],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=SECONDS,
        env=environment,
    )
    found: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    return found


def main(model: str) -> None:
    """Print the table."""
    lines = []
    with tempfile.TemporaryDirectory() as place:
        kept = {"VOSTI_CERTIFICATES": Path(place, "certificates"), "TRITON_CACHE_DIR": Path(place, "compiled")}
        for what, folders in (
            ("nothing kept", kept),
            ("all kept", kept),
            ("certificates kept, nothing compiled", {**kept, "TRITON_CACHE_DIR": Path(place, "other")}),
        ):
            found = loaded(model, folders)
            lines.append([what, *(f"{found.get(name, 0.0):.1f}" for name in COLUMNS)])
            print(what, found, flush=True)
    start = started()
    print(f"\n{model}, {len(os.sched_getaffinity(0))} processors; start: {start:.1f} s")
    for row in (["", *COLUMNS], *lines):
        print("  ".join(cell.ljust(36) if place == 0 else cell.rjust(12) for place, cell in enumerate(row)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["load"]:
        print(json.dumps(load(sys.argv[2])))
    else:
        main(sys.argv[1] if len(sys.argv) > 1 else MODEL)
