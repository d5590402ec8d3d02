"""Every family at full size on a GPU, with dummy weights: prints a table.

    python engine_families.py                    every shape that fits the card
    python engine_families.py gemma-3-1b ...     these

For each shape: rows of two sequences, one longer than any window but those of thousands, computed at once, in chunks,
and one by one with a draft: equal bits; logits finite, not constant, and others after another token. Then the time of
decoding four sequences after 4096 tokens, by the backend alone.
"""

from __future__ import annotations

import gc
import sys
import time
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parent))

from engine_profile import decode_batch

from forwards import Computed, Place, run, scattered_pages
from vosti.impl.backends.cuda.backend import CudaBackend
from vosti.impl.bundled import shape_names
from vosti.impl.opening import open_backend

TOO_LARGE = ("llama-3.3-70b",)
"""Whose bf16 weights leave no room on a card of 141 GB."""

LENGTHS = (1100, 70)
KEPT = 24
"""Rows at the end of each sequence whose logits and stored values are compared."""

Steps = list[list[int]]


def schedules() -> dict[str, Steps]:
    """Orders in which the rows run, by name."""
    first, second = LENGTHS
    chunks: Steps = [[0] * 700 + [1] * 30, [0] * (first - 700 - 3), [0] * 3 + [1] * (second - 30)]
    single: Steps = [
        [0] * (first - KEPT) + [1] * (second - KEPT),
        *([0, 1] for _ in range(KEPT - 3)),
        [0, 0, 0, 1, 1, 1],
    ]
    return {"at once": [[0] * first + [1] * second], "chunks": chunks, "one by one": single}


def tokens(vocabulary: int) -> list[list[int]]:
    """Two sequences."""
    return [[(17 + 7919 * place + number) % vocabulary for place in range(n)] for number, n in enumerate(LENGTHS)]


def computed(backend: CudaBackend, sequences: list[list[int]], steps: Steps, page_size: int) -> dict[Place, Computed]:
    """The last rows of both sequences."""
    wanted = {(number, place) for number, n in enumerate(LENGTHS) for place in range(n - KEPT, n)}
    return run(backend, sequences, steps, scattered_pages(LENGTHS, page_size, seed=page_size), wanted=wanted)


def check(name: str) -> bool:
    """One shape; returns whether all is well."""
    begin = time.perf_counter()
    backend = open_backend(name, "cuda", dummy_weights=0)
    assert isinstance(backend, CudaBackend)
    backend.fingerprint()
    loaded = time.perf_counter() - begin
    sequences = tokens(backend.vocab_size)
    ways = {
        way: computed(backend, sequences, steps, size)
        for (way, steps), size in zip(schedules().items(), (64, 16, 64), strict=True)
    }
    first = ways["at once"]
    differing = sum(found[place] != first[place] for found in ways.values() for place in first)
    changed = [list(sequence) for sequence in sequences]
    for sequence in changed:
        sequence[-KEPT - 2] = (sequence[-KEPT - 2] + 1) % backend.vocab_size
    others = computed(backend, changed, schedules()["at once"], 64)
    same = sum(others[place].logits == first[place].logits for place in first)
    rows = np.stack([np.frombuffer(found.logits, np.float32) for found in first.values()])
    finite = bool(np.isfinite(rows).all()) and all(found.finite for found in first.values())
    batch = decode_batch(4096, backend)
    walls = []
    for _ in range(12):
        begin = time.perf_counter()
        backend.forward(batch)
        walls.append(time.perf_counter() - begin)
    good = differing == 0 and same == 0 and finite and float(rows.std(1).min()) > 0
    print(
        f"{name}: {'ok' if good else 'FAILED'}; {len(first)} rows x {len(ways)} ways, {differing} differ; "
        f"{same} unchanged by another token; finite {finite}; deviation of logits {rows.std():.2f}; "
        f"decode 4 x 4096 {1e3 * sorted(walls)[6]:.2f} ms; {torch.cuda.max_memory_allocated() / 1e9:.0f} GB; "
        f"loaded in {loaded:.0f} s",
        flush=True,
    )
    return good


def main() -> int:
    """All shapes, or those that are named."""
    good = True
    for name in sys.argv[1:] or [name for name in shape_names() if name not in TOO_LARGE]:
        try:
            good &= check(name)
        except Exception as error:  # the next one may do
            print(f"{name}: FAILED; {type(error).__name__}: {error}", flush=True)
            good = False
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
