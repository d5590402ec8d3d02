"""The cuda backend against the cpu backend, and against itself, on the bundled checkpoints: prints a table.

For each checkpoint: tokens of three sequences, computed in three ways on the GPU (at once, one by one, in chunks),
whose bits must be equal, and once on the CPU in float32, from which logits may differ by what bf16 costs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from forwards import CHECKPOINTS, NAMES, Computed, Place, run, scattered_pages
from vosti.impl.backends.cpu import CpuBackend
from vosti.impl.backends.cuda.opening import open_cuda
from vosti.impl.models.model import Model
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


def main() -> int:
    """Both checkpoints."""
    return 0 if sum(map(compare, NAMES)) == len(NAMES) else 1


if __name__ == "__main__":
    sys.exit(main())
