"""How many steps a second an audit checks.

    python tests/benchmarks/bench_audit.py [--page-size N] [--pages N] [--requests N] [--steps N]

The trace is a digest trace of 8 concurrent requests with contexts to 512 tokens in a pool of 256 pages of 16, with
chunked prefills, shared prefixes, drafts, evictions and preemptions. It is made from the specification and written to a
file first; what is timed is `vosti.refinement.audit.audit` of that file, on one core.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from event_walk import EventWalk, Habits
from vosti.refinement.audit import audit
from vosti.refinement.writer import TraceWriter

TARGET = 200
"""Steps per second that an audit has to reach, for the default sizes."""


def record(path: Path, page_size: int, pages: int, requests: int, steps: int) -> None:
    """Write the trace."""
    habits = Habits(
        page_size=page_size,
        pages=pages,
        max_seqs=requests,
        token_budget=8 * requests,
        live=requests,
        arrive=1.0,
        prompt=(64, 384),
        output=(64, 128),
        alphabet=2,
        stems=4,
        cancel=0.002,
        preempt=0.002,
        rest=0.02,
        chunk=0.05,
        draft=0.2,
        observe=0.02,
    )
    walk = EventWalk(seed=1, habits=habits)
    with TraceWriter(path, walk.header) as writer:
        for event in walk.events(steps):
            writer.record(event)


def main() -> int:
    """Run the benchmark; 1 if the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page-size", type=int, default=16)
    parser.add_argument("--pages", type=int, default=256)
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--steps", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace"
        record(path, options.page_size, options.pages, options.requests, options.steps)
        started = time.process_time()
        verdict = audit([path])
        seconds = time.process_time() - started
        size = path.stat().st_size
    rate = verdict.steps / seconds
    print(verdict)
    print(
        f"{options.requests} requests, {options.pages} pages of {options.page_size}: "
        f"{verdict.steps} steps, {verdict.rows} rows, {size / 1e6:.1f} MB in "
        f"{seconds:.2f} s: {rate:.0f} steps/s (target {TARGET})"
    )
    return 0 if verdict.refines and rate >= TARGET else 1


if __name__ == "__main__":
    raise SystemExit(main())
