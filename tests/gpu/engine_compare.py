"""The cuda backend against the cpu backend, and against itself, on the bundled checkpoints: prints a table.

For each checkpoint: tokens of three sequences, computed in three ways on the GPU (at once, one by one, in chunks),
whose bits must be equal, and once on the CPU in float32, from which logits may differ by what bf16 costs. Then an
engine serves them beside a request with a token whose values are not finite: it fails, and nobody else notices.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from forwards import CHECKPOINTS, NAMES, Computed, Place, run, scattered_pages
from vosti.impl.backends.cpu import CpuBackend
from vosti.impl.backends.cuda.backend import CudaBackend
from vosti.impl.backends.cuda.opening import open_cuda
from vosti.impl.engine import Engine
from vosti.impl.models.model import Model
from vosti.impl.opening import open_backend
from vosti.impl.options import EngineOptions, SamplingParams
from vosti.impl.tokenizer import Tokenizer
from vosti.spec.digests import word_sum

TEXTS = (
    "def read(path):\n    with open(path) as file:\n        return file.read()\n\n" * 6,
    "class Stack:\n    def __init__(self):\n        self.items = []\n" * 2,
    "import os\nfrom pathlib import Path\n",
)

LARGEST_RMS = 0.02
"""Of the difference of a row, relative to the row's."""

MARGIN = 4.0
"""Tokens agree where the gap between the two largest logits is so many times the row's largest difference."""


def schedules(lengths: list[int]) -> dict[str, list[list[int]]]:
    """Orders in which the rows of the sequences run, by name."""
    everything = [number for number, length in enumerate(lengths) for _ in range(length)]
    one_by_one = [[number for number, length in enumerate(lengths) if step < length] for step in range(max(lengths))]
    chunked, left, width = [], list(lengths), 1
    while any(left):
        chunk = []
        for number in range(len(left)):
            taken = min(left[number], width)
            chunk += [number] * taken
            left[number] -= taken
        chunked.append(chunk)
        width = width * 3 % 31 + 1
    return {"at once": [everything], "one by one": one_by_one, "chunks": chunked}


def differing(first: dict[Place, Computed], second: dict[Place, Computed]) -> int:
    """How many rows have other logits or keys and values."""
    return sum(first[place] != second[place] for place in first)


def compare(name: str) -> bool:
    """One checkpoint; returns whether all is well."""
    tokenizer = Tokenizer(CHECKPOINTS / name)
    sequences = [tokenizer.encode(text) for text in TEXTS]
    lengths = [len(sequence) for sequence in sequences]
    gpu = open_cuda(CHECKPOINTS / name)
    results = {}
    for number, (way, steps) in enumerate(schedules(lengths).items()):
        pages = scattered_pages(lengths, (16, 64, 17)[number], seed=number)
        results[way] = run(gpu, sequences, steps, pages)
    first = results["at once"]
    unequal = {way: differing(first, found) for way, found in results.items()}
    slots = [3, 0, 5]
    digests = gpu.slot_digests(slots)()
    digests_equal = digests == [word_sum(data) for data in gpu.slot_bytes(slots)]

    cpu = CpuBackend(Model.load(CHECKPOINTS / name))
    expected = run(cpu, sequences, schedules(lengths)["at once"], scattered_pages(lengths, 16, seed=0))
    worst, near, decided, agreeing = 0.0, 0, 0, 0
    for place, computed in expected.items():
        x = np.frombuffer(computed.logits, np.float32).astype(np.float64)
        y = np.frombuffer(first[place].logits, np.float32).astype(np.float64)
        worst = max(worst, float(np.sqrt(np.mean((x - y) ** 2) / np.mean(x**2))))
        second, best = np.partition(x, -2)[-2:]
        if best - second > MARGIN * np.abs(x - y).max():
            decided += 1
            agreeing += int(x.argmax() == y.argmax())
        else:
            near += 1
    print(
        f"{name}: {len(first)} rows, differing bits {unequal}, digests equal {digests_equal}, "
        f"largest row RMS difference {100 * worst:.2f}%, "
        f"tokens agree {agreeing} of {decided} decided ({near} too near), "
        f"not finite {sum(not computed.finite for computed in first.values())}",
        flush=True,
    )
    return not any(unequal.values()) and digests_equal and worst <= LARGEST_RMS and agreeing == decided


def with_a_sick_token(backend: CudaBackend, token: int) -> CudaBackend:
    """The backend's model with NaN for a token's embedding; a head that shares the table keeps it as it was."""
    parameters = dict(backend.model.parameters)
    parameters |= {alias: parameters[name] for alias, name in backend.model.plan.tied}
    parameters["embedding"] = parameters["embedding"].clone()
    parameters["embedding"][token] = float("nan")
    return CudaBackend(replace(backend.model, parameters=parameters), backend.table)


def serve(backend: CudaBackend, prompts: dict[str, list[int]]) -> dict[str, tuple[tuple[int, ...], str | None]]:
    """Tokens of each request, and how it ended."""
    engine = Engine(backend, EngineOptions(page_size=8, pages=64, max_seqs=8, token_budget=40, poison=True))
    params = SamplingParams(temperature=0.9, seed=7, max_tokens=24, ignore_eos=True)
    for name, prompt in prompts.items():
        engine.add_request(prompt, params, request_id=name)
    found = {}
    while engine.unfinished:
        found.update({output.request_id: (output.token_ids, output.finish_reason) for output in engine.step()})
    return found


def isolate(name: str) -> bool:
    """Whether a request whose values are not finite fails alone."""
    backend = open_backend(name, "cuda")
    assert isinstance(backend, CudaBackend)
    token = backend.vocab_size - 1
    tokenizer = Tokenizer(CHECKPOINTS / name)
    well = {f"well {number}": list(tokenizer.encode(text)) for number, text in enumerate(TEXTS)}
    sick = {"sick": [*well["well 1"], token, *well["well 2"]]}
    alone = serve(backend, well)
    together = serve(with_a_sick_token(backend, token), well | sick)
    failed = together.pop("sick")
    print(f"{name}, beside a sick request, which got {failed}: as without it {alone == together}", flush=True)
    return failed == ((), "error") and alone == together and all(ended == "length" for _, ended in alone.values())


def main() -> int:
    """Both checkpoints."""
    good = [check(name) for check in (compare, isolate) for name in NAMES]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
