"""What a forward does on the GPU, by torch's profiler: exactly the launches of the plan, and where the time goes.

    python engine_profile.py                       a bundled checkpoint: only the comparison with the plan
    python engine_profile.py llama-3.1-8b 8192     a shape with dummy weights, contexts of 8192: times, too

Prints one line for each forward compared, and for shapes a table of the kernels' times; exits with 1 if some forward
launches something else than its plan between the copy of its metadata and its logits.
"""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from forwards import make_batch, scattered_pages
from vosti.impl.backend import Batch
from vosti.impl.backends.cuda.backend import CudaBackend
from vosti.impl.backends.cuda.plan import Form
from vosti.impl.models.plan import Rows
from vosti.impl.opening import open_backend
from vosti.kernels.catalogue import KERNELS

REQUESTS = 4
PAGE_SIZE = 64
BEFORE = ("Memcpy HtoD", "Memset")
"""What comes before the plan's launches: the metadata, and zeros for the flags."""


def planned(backend: CudaBackend, batch: Batch, form: Form) -> list[str]:
    """The functions that a forward launches, in order."""
    names = []
    for launch in backend.plans[form].launches:
        rows = len(batch.tokens if launch.rows is Rows.TOKENS else batch.logit_rows)
        rows = 1 if launch.operation == "attention_split" else rows
        choice = backend.table.entry(launch.operation, **dict(launch.sizes)).choice(rows)
        names.append(KERNELS[choice.kernel].function.__name__)
    return names


def events(backend: CudaBackend, batch: Batch) -> list[tuple[str, float, float]]:
    """(name, start and duration in microseconds) of everything that the GPU does in one forward, in order."""
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as found:
        backend.forward(batch)
        torch.cuda.synchronize()
    times = [(event, event.time_range) for event in found.events() if event.device_type.name == "CUDA"]
    seen = [(event.name, when.start, when.elapsed_us()) for event, when in times]
    return sorted(seen, key=lambda event: event[1])


def compare(backend: CudaBackend, what: str, batch: Batch, form: Form) -> bool:
    """Whether a forward's launches are those of its plan, and nothing stands between or before them but what must."""
    expected = planned(backend, batch, form)
    found = [name for name, _, _ in events(backend, batch)]
    ours = {kernel.function.__name__ for kernel in KERNELS.values()}
    places = [i for i, name in enumerate(found) if name in ours]
    inside = found[places[0] : places[-1] + 1] if places else []
    before = [name for name in found[: places[0]] if not name.startswith(BEFORE) and "fill" not in name.lower()]
    after = Counter(name.split("<")[0].split("(")[0][:40] for name in found[places[-1] + 1 :])
    equal = inside == expected and not before
    print(f"{what}: {len(expected)} launches planned, {len(inside)} found, equal {equal}; after them {dict(after)}")
    if not equal:
        strangers = [name for name in before + inside if name not in ours]
        print(f"  of nobody's plan: {strangers[:5]}; missing {list((Counter(expected) - Counter(inside)).items())[:5]}")
    return equal


def table(backend: CudaBackend, what: str, batch: Batch) -> None:
    """Where the time of a forward goes, on the GPU and outside."""
    for _ in range(5):
        backend.forward(batch)
    walls = []
    for _ in range(9):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        backend.forward(batch)
        walls.append(time.perf_counter() - begin)
    seen = events(backend, batch)
    total: dict[str, float] = defaultdict(float)
    for name, _, duration in seen:
        total[name[:48]] += duration
    span = seen[-1][1] + seen[-1][2] - seen[0][1]
    busy = sum(duration for _, _, duration in seen)
    print(
        f"{what}: wall {1e3 * sorted(walls)[4]:.3f} ms without profiler; on the GPU {len(seen)} events, "
        f"busy {busy / 1e3:.3f} ms of {span / 1e3:.3f} ms"
    )
    counts = Counter(name[:48] for name, _, _ in seen)
    for name, duration in sorted(total.items(), key=lambda item: -item[1])[:14]:
        print(f"  {duration / 1e3:9.3f} ms  {counts[name]:4d} x {duration / counts[name]:8.1f} us  {name}")


def decode_batch(context: int, backend: CudaBackend) -> Batch:
    """One row for each request, after so many others."""
    pages = scattered_pages([context + 1] * REQUESTS, PAGE_SIZE, seed=0)
    backend.allocate(pages.pages, PAGE_SIZE)
    tokens = [range(1, context + 2)] * REQUESTS
    rows = [(number, context) for number in range(REQUESTS)]
    return make_batch(tokens, rows, pages, range(REQUESTS))


def prefill_batch(length: int, backend: CudaBackend) -> Batch:
    """One request from its beginning."""
    pages = scattered_pages([length], PAGE_SIZE, seed=0)
    backend.allocate(pages.pages, PAGE_SIZE)
    return make_batch([range(length)], [(0, p) for p in range(length)], pages, [length - 1])


def main() -> int:
    """Compare, and time if asked."""
    name = sys.argv[1] if len(sys.argv) > 1 else "tiny-gemma3"
    contexts = [int(text) for text in sys.argv[2:]]
    backend = open_backend(name, "cuda", dummy_weights=0 if contexts else None)
    assert isinstance(backend, CudaBackend)
    good = True
    for make, size, form, what in (
        (decode_batch, 100, Form.SPLIT, "decode"),
        (prefill_batch, 256, Form.EXTEND, "prefill of 256"),
    ):
        batch = make(size, backend)
        # What is met for the first time is launched, then captured, then replayed.
        for way in ("launched", "captured and replayed", "replayed"):
            good &= compare(backend, f"{what}, {way}", batch, form)
    good &= compare(backend, "prefill of 600, launched", prefill_batch(600, backend), Form.EXTEND)
    for context in contexts:
        table(backend, f"decode {REQUESTS} x {context}", decode_batch(context, backend))
    if contexts:
        table(backend, "prefill 8192", prefill_batch(8192, backend))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
