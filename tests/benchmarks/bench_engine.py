"""What an engine step costs the host: everything but the forward.

    python tests/benchmarks/bench_engine.py [decode | lookup | evict | checked]...

The backend computes nothing and is asked what a model would be. Processor time of `Engine.step`, per step: the median,
and the least of `ROUNDS` medians, since other processes can only add to it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch

from vosti.impl.backend import Backend, Batch, ForwardResult
from vosti.impl.engine import Engine
from vosti.impl.options import EngineOptions, SamplingParams

ROUNDS = 5
STEPS = 60


class Idle:
    """A backend without a model: each row's largest logit is that of token 0, and everything is finite."""

    vocab_size = 128256
    eos_ids = ()
    max_positions = 131072
    row_tile = 1
    digest_algorithm = "none"

    def allocate(self, pages: int, page_size: int) -> None:
        """Allocate nothing."""

    def fingerprint(self) -> dict[str, object]:
        """Configurations do not matter."""
        return {}

    def forward(self, batch: Batch) -> ForwardResult:
        """Compute nothing."""
        n = len(batch.logit_rows)
        return ForwardResult(
            logits=torch.zeros(n, 1),
            kv_finite=np.ones(len(batch.tokens), bool),
            flagged_logits=np.zeros(n, bool),
            largest=np.zeros(n, np.int64),
        )


def prompt(number: int, length: int) -> list[int]:
    """Tokens that no other prompt begins with, and of which few occur twice."""
    return [(number * 7919 + p * 104729 + 17) % 128000 for p in range(length)]


def engine(requests: int, context: int, tokens: int, **options: Any) -> Engine:
    """An engine with requests that have their prompts computed."""
    made = Engine(cast(Backend, Idle()), EngineOptions(max_seqs=requests, token_budget=8192, **options))
    for number in range(requests):
        params = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)
        made.add_request(prompt(number, context), params)
    for _ in range(-(-requests * context // 8192) + 1):
        made.step()
    return made


def decode(requests: int, **options: Any) -> Callable[[], Engine]:
    """Each request gets a token a step."""
    return lambda: engine(requests, 200, STEPS + 20, page_size=64, pages=5 * requests, **options)


def lookup(context: int) -> Callable[[], Engine]:
    """A request drafts from its own history; few of its tokens stood there before."""
    return lambda: engine(1, context, 8 * STEPS, page_size=64, pages=context // 64 + 16, speculative_tokens=4)


def evict(pages: int) -> Callable[[], Engine]:
    """In a pool full of what earlier requests left, each step of 4 requests takes a page from them."""

    def full() -> Engine:
        made = engine(4, 4, 1, page_size=4, pages=pages)
        for number in range(pages // 250 + 2):
            made.add_request(prompt(number, 1000), SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True))
            while made.unfinished:
                made.step()
        for number in range(4):
            params = SamplingParams(temperature=0.0, max_tokens=STEPS + 20, ignore_eos=True)
            made.add_request(prompt(900 + number, 4 + 2 * number), params)
            made.step()
        return made

    return full


CASES: dict[str, tuple[tuple[str, Callable[[], Engine]], ...]] = {
    "decode": tuple((f"decode of {n} requests", decode(n)) for n in (4, 8, 64)),
    "lookup": tuple((f"drafts of 4 from a history of {n} tokens", lookup(n)) for n in (512, 8192)),
    "evict": tuple((f"decode of 4 requests, evictions in a pool of {n} pages", evict(n)) for n in (256, 4096)),
    "checked": tuple((f"decode of {n} requests, steps checked", decode(n, check_steps=True)) for n in (8, 64)),
}


def medians(make: Callable[[], Engine]) -> list[float]:
    """Milliseconds of a step: the median of each round."""
    found = []
    for _ in range(ROUNDS):
        made = make()
        times = []
        for _ in range(STEPS):
            start = time.process_time()
            made.step()
            times.append(1e3 * (time.process_time() - start))
        found.append(statistics.median(times))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", choices=[[], *CASES], metavar="CASE", help=", ".join(CASES))
    chosen = parser.parse_args(arguments).cases or CASES
    torch.set_num_threads(1)
    for case in chosen:
        for what, make in CASES[case]:
            found = medians(make)
            print(f"{what:60} {statistics.median(found):8.3f} ms, least {min(found):8.3f} ms")


if __name__ == "__main__":
    main()
