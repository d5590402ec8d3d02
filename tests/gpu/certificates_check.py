"""The binaries that run on a GPU are those that certificates name; of one that is edited nothing is used.

    python certificates_check.py [FOLDER]              all of what follows, a process for each line
    python certificates_check.py serve MODEL [FOLDER]  load and serve a model: what is proved, what is launched
    python certificates_check.py edited                launch an edited kernel behind a loaded model's back

MODEL is the name of a shape, such as llama-3.1-8b, with dummy weights, or of a bundled checkpoint. FOLDER has
certificates that `vosti certify llama-3.1-8b` made elsewhere, without a GPU, with the GPU's version of Triton: their
binaries are compared with those that run. Prints a table last; exits with 1 if something is not as it should be.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

LARGE, SMALL = "llama-3.1-8b", "tiny-gemma3"

PROMPTS = (3, 40, 300, 1500)
"""Lengths of prompts that are served one after another, and then together: tiles for few rows and for many."""

SECONDS = 140
"""Of a process, at most."""

VOSTI = ("-c", "import sys; from vosti.impl.cli import main; sys.exit(main())")
TOKEN = ("table + token * WIDTH", "table + token + WIDTH")
"""An edit of the embedding, by one character: another row is read."""


def serve(model: str, carried: Path | None, *, certified_only: bool) -> dict[str, Any]:
    """Load and serve a model: seconds, proofs, and of each kernel binaries, launches, and who names the binaries."""
    from vosti.impl.bundled import shape_names
    from vosti.impl.engine import Engine
    from vosti.impl.opening import open_backend
    from vosti.impl.options import Certification, EngineOptions, SamplingParams
    from vosti.kernels.launch import Kernel
    from vosti.kernels.verifier.certify import default_store

    found: dict[str, Counter[str]] = defaultdict(Counter)
    launch, proofs, times = Kernel.launch, [0.0], [0.0, 0.0]

    def recording(self: Kernel, arguments: Any, tile: Any, **sizes: int) -> Any:
        binary = launch(self, arguments, tile, **sizes)
        if binary is not None:
            found[self.contract.kernel][hashlib.sha256(binary.asm["cubin"]).hexdigest()] += 1
        return binary

    def advance(done: float, total: float) -> None:
        proofs[0] += total if done == 0 else 0
        times[0 if done == 0 else 1] = time.perf_counter()

    Kernel.launch = recording  # type: ignore[method-assign]
    begun = time.perf_counter()
    backend = open_backend(
        model,
        "cuda",
        dummy_weights=0 if model in shape_names() else None,
        certification=Certification(certified_only=certified_only, advance=advance),
    )
    engine = Engine(backend, EngineOptions(page_size=64, pages=256, token_budget=2048))
    loaded = time.perf_counter() - begun
    lengths = [min(length, backend.max_positions - 8) for length in PROMPTS]
    for batch in (*([length] for length in lengths), lengths):
        for length in batch:
            engine.add_request([(7 + 31 * place) % 1000 for place in range(length)], SamplingParams(max_tokens=4))
        while engine.unfinished:
            engine.step()
    kept, elsewhere = named(default_store().folder), named(carried) if carried else set()
    return {
        "load": loaded,
        "proofs": proofs[0],
        "proving": times[1] - times[0],
        "kernels": {
            name: [len(ones), ones.total(), len(kept & set(ones)), len(elsewhere & set(ones))]
            for name, ones in sorted(found.items())
        },
    }


def named(folder: Path) -> set[str]:
    """The binaries that a folder's certificates name."""
    from vosti.kernels.verifier.binding import decode

    return {decode(path.read_text()).binding.cubin for path in folder.glob("*.json")}


def edited() -> str:
    """What is said where a kernel is edited after its model was loaded. Raises `AssertionError` if nothing is."""
    import vosti.kernels.embedding as module
    from vosti.impl.errors import UncertifiedKernelError
    from vosti.impl.llm import LLM
    from vosti.impl.options import SamplingParams

    llm = LLM(SMALL, backend="cuda")
    llm.generate("def ", SamplingParams(max_tokens=2))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "edited_embedding.py")
        path.write_text(edit(Path(module.__file__).read_text()))
        specification = importlib.util.spec_from_file_location(path.stem, path)
        assert specification is not None
        assert specification.loader is not None
        other = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(other)
        object.__setattr__(module.EMBEDDING, "function", other.embedding_kernel)
        # Graphs replay what was launched before: another number of rows is a launch again.
        try:
            llm.generate("def read(self, name):\n" * 3, SamplingParams(max_tokens=2))
        except UncertifiedKernelError as error:
            return str(error)
    raise AssertionError("an edited kernel was launched, and nobody noticed")


def edit(text: str) -> str:
    """The embedding's source with one character edited."""
    assert 1 == text.count(TOKEN[0])
    return text.replace(*TOKEN)


def copy_edited(folder: Path) -> dict[str, str]:
    """A copy of the project in which the embedding is edited; the environment in which it is found."""
    for name in ("spec", "impl", "refinement", "kernels"):
        specification = importlib.util.find_spec(f"vosti.{name}")
        assert specification is not None
        assert specification.submodule_search_locations is not None
        shutil.copytree(specification.submodule_search_locations[0], folder / "vosti" / name)
    path = folder / "vosti" / "kernels" / "embedding.py"
    path.write_text(edit(path.read_text()))
    return {"PYTHONPATH": os.pathsep.join([str(folder), *(path for path in sys.path if path)])}


def ran(*command: str, code: int = 0, **environment: str) -> tuple[bool, str, str]:
    """Run Python: whether it ended with this code, and what it said."""
    paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    run = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        cwd=tempfile.gettempdir(),
        env={**os.environ, **paths, **environment},
    )
    if run.returncode != code:
        print(f"{' '.join(command)[:200]} ended with {run.returncode}:\n{run.stdout[-2000:]}{run.stderr[-2000:]}")
    return run.returncode == code, run.stdout, run.stderr


class Lines:
    """What is run, and the table of what came of it."""

    def __init__(self, store: Path, carried: Path | None) -> None:
        self._store, self._carried = str(store), carried
        self.good = True
        self.rows: list[tuple[str, ...]] = [
            ("what", "load s", "proofs", "proving s", "binaries", "launches", "certified", "carried", "right")
        ]

    def _line(self, what: str, right: bool, *cells: str) -> None:
        self.good &= right
        self.rows.append((what, *cells, *[""] * (7 - len(cells)), "yes" if right else "NO"))

    def served(self, model: str, *, certified_only: bool) -> None:
        """A model is served; where none may be proved, none is, and every binary has a certificate."""
        command = [__file__, "serve", model, *([str(self._carried)] if self._carried else [])]
        ended, out, _ = ran(*command, VOSTI_CERTIFICATES=self._store, CERTIFIED_ONLY="1" if certified_only else "")
        if not ended:
            self._line(model, False)
            return
        found = json.loads(out.splitlines()[-1])
        for name, (binaries, launches, kept, carried) in found["kernels"].items():
            print(f"{model}: {name}: {binaries} binaries, {launches} launches, {kept} certified, {carried} carried")
        binaries, launches, kept, carried = (sum(column) for column in zip(*found["kernels"].values(), strict=True))
        right = kept == binaries and (found["proofs"] == 0 or not certified_only)
        right &= carried == binaries or model != LARGE or self._carried is None
        numbers = (binaries, launches, kept, carried)
        cells = f"{found['load']:.1f}", f"{found['proofs']:.0f}", f"{found['proving']:.1f}", *map(str, numbers)
        self._line(f"{model}, {'certified only' if certified_only else 'proved at load'}", right, *cells)

    def edited_behind_its_back(self) -> None:
        """The binary that the compiler makes at run time is another one."""
        ended, out, _ = ran(__file__, "edited", VOSTI_CERTIFICATES=self._store)
        print(out)
        self._line("edited after loading: refused", ended and "of embedding is a binary that no certificate" in out)

    def edited_project(self, *, certified_only: bool) -> None:
        """A kernel's source is edited, and then a model is loaded."""
        options = ["--certified-only"] if certified_only else []
        with tempfile.TemporaryDirectory() as folder:
            paths = {**copy_edited(Path(folder)), "VOSTI_CERTIFICATES": self._store}
            command = ["generate", SMALL, "--backend", "cuda", "-p", "def ", "--max-tokens", "2", *options]
            ended, _, err = ran(*VOSTI, *command, code=2, **paths)
        print(err)
        expected = "no certificate of embedding .*--certified-only" if certified_only else "embedding .* is not proved"
        self._line(
            "edited before loading: refused" + (", certified only" if certified_only else ""),
            bool(ended and re.search(expected, err)),
        )

    def unverified(self) -> None:
        """Without certificates there is a warning."""
        command = ["generate", SMALL, "--backend", "cuda", "-p", "def ", "--max-tokens", "2", "--unsafe-unverified"]
        ended, _, err = ran(*VOSTI, *command, VOSTI_CERTIFICATES="/nowhere")
        print(err)
        self._line("unverified: a warning", ended and "kernels run of which nothing is proved" in err)

    def checked(self) -> None:
        """`vosti check` prints the claim, and proves nothing of its own."""
        command = ["check", SMALL, "--backend", "cuda"]
        ended, out, _ = ran(*VOSTI, *command, VOSTI_CERTIFICATES=self._store)
        print(out)
        self._line(
            f"check {SMALL}: refines, certificates in the claim", ended and "vosti prove kernels; certificates" in out
        )


def main(carried: Path | None) -> bool:
    """Everything: what is timed by itself, what is not beside each other."""
    with tempfile.TemporaryDirectory() as folder:
        lines = Lines(Path(folder), carried)
        lines.served(LARGE, certified_only=False)
        lines.served(LARGE, certified_only=True)
        lines.served(SMALL, certified_only=False)
        lines.served(SMALL, certified_only=True)
        with ThreadPoolExecutor(3) as pool:
            jobs = [
                pool.submit(lines.checked),
                pool.submit(lines.edited_project, certified_only=True),
                pool.submit(lines.edited_project, certified_only=False),
                pool.submit(lines.edited_behind_its_back),
                pool.submit(lines.unverified),
            ]
            for job in jobs:
                job.result()
    widths = [max(map(len, column)) for column in zip(*lines.rows, strict=True)]
    for row in lines.rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return lines.good


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if arguments[:1] == ["serve"]:
        place = Path(arguments[2]) if len(arguments) > 2 else None
        print(json.dumps(serve(arguments[1], place, certified_only=bool(os.environ.get("CERTIFIED_ONLY")))))
    elif arguments == ["edited"]:
        print(edited())
    elif not main(Path(arguments[0]).resolve() if arguments else None):
        sys.exit(1)
