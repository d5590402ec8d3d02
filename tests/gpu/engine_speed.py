"""How fast the engine is on a GPU: decoding and prefill, Llama-3.1-8B's shape, dummy weights, four requests.

    python engine_speed.py                         everything
    python engine_speed.py 0 4096                  after these contexts only
    python engine_speed.py --requests 64 0 1024    with so many requests

Prints, for each context: milliseconds of one step of the engine, of one forward of the backend, and of the GPU alone.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser
from typing import Any

import torch

from vosti.impl.engine import Engine
from vosti.impl.opening import open_backend
from vosti.impl.options import EngineOptions, SamplingParams

STEPS = 128
WARM = 8
PAGE_SIZE = 64

NEW = 256
"""Tokens of each request that are not in the prefix cache."""


def prompt(number: int, length: int) -> list[int]:
    """Tokens of a request, other than any other request's."""
    return [(number * 7919 + position * 104729 + 17) % 128000 for position in range(length)]


class Watch:
    """Times the backend's forwards: the host's time, and the GPU's."""

    def __init__(self, backend: Any) -> None:
        self.host: list[float] = []
        self.gpu: list[float] = []
        forward = backend.forward

        def timed(batch: object) -> object:
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start = time.perf_counter()
            begin.record()
            result = forward(batch)
            end.record()
            self.host.append(time.perf_counter() - start)
            end.synchronize()
            self.gpu.append(begin.elapsed_time(end) / 1e3)
            return result

        backend.forward = timed

    def clear(self) -> None:
        """Forget."""
        self.host.clear()
        self.gpu.clear()


def median(values: list[float]) -> float:
    """The middle one."""
    return sorted(values)[len(values) // 2]


def decode(
    engine: Engine, watch: Watch, requests: int, context: int, temperature: float = 0.0, top_p: float = 1.0
) -> None:
    """Time steps in which every request decodes one token: until the first one ends."""
    params = SamplingParams(temperature=temperature, top_p=top_p, seed=1, max_tokens=STEPS + WARM, ignore_eos=True)
    names = [engine.add_request(prompt(context + i, max(1, context)), params) for i in range(requests)]
    begin = time.perf_counter()
    seen = 0
    while seen < requests * WARM:
        seen += sum(len(output.new_token_ids) for output in engine.step())
    prefill = time.perf_counter() - begin
    watch.clear()
    steps: list[float] = []
    produced = 0
    ended = False
    begin = time.perf_counter()
    while not ended:
        start = time.perf_counter()
        outputs = engine.step()
        produced += sum(len(output.new_token_ids) for output in outputs)
        ended = any(output.finish_reason for output in outputs)
        steps.append(time.perf_counter() - start)
    elapsed = time.perf_counter() - begin
    while engine.unfinished:
        engine.step()
    print(
        f"decode {len(names)} x {context}, temperature {temperature}, top-p {top_p}: "
        f"{produced / elapsed:.0f} tok/s, step {1e3 * median(steps):.2f} ms, "
        f"forward {1e3 * median(watch.host):.2f} ms, GPU {1e3 * median(watch.gpu):.2f} ms, "
        f"first {WARM} tokens {prefill:.2f} s",
        flush=True,
    )


def extend(engine: Engine, watch: Watch, requests: int, context: int, repeat: int) -> None:
    """Time 256 new tokens for each request behind a context that is in the prefix cache."""
    params = SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True)
    for i in range(requests):
        engine.add_request(prompt(context + i, context) + prompt(77 + requests * repeat + i, NEW), params)
    watch.clear()
    begin = time.perf_counter()
    hits = 0
    while engine.unfinished:
        hits += sum(output.hit_tokens for output in engine.step())
    elapsed = time.perf_counter() - begin
    print(
        f"{requests} x {NEW} new tokens after {context}: {requests * NEW / elapsed / 1e3:.1f} K tok/s, "
        f"{1e3 * elapsed:.1f} ms, GPU {1e3 * sum(watch.gpu):.1f} ms, {hits} tokens from the cache",
        flush=True,
    )


def prefill(engine: Engine, watch: Watch, length: int, repeat: int) -> None:
    """Time one cold prompt."""
    params = SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True)
    engine.add_request(prompt(1000 + repeat, length), params)
    watch.clear()
    begin = time.perf_counter()
    while engine.unfinished:
        engine.step()
    elapsed = time.perf_counter() - begin
    print(
        f"prefill {length}: {length / elapsed / 1e3:.1f} K tok/s, {1e3 * elapsed:.0f} ms, "
        f"forward {1e3 * sum(watch.host):.0f} ms, GPU {1e3 * sum(watch.gpu):.0f} ms",
        flush=True,
    )


def main() -> None:
    """Load, and time."""
    parser = ArgumentParser()
    parser.add_argument("--requests", type=int, default=4)
    parser.add_argument("contexts", type=int, nargs="*", default=[0, 4096, 8192, 16384])
    given = parser.parse_args()
    requests, contexts = given.requests, given.contexts
    begin = time.perf_counter()
    backend = open_backend("llama-3.1-8b", "cuda", dummy_weights=0)
    options = EngineOptions(page_size=PAGE_SIZE, pages=2000, max_seqs=requests, token_budget=8192)
    engine = Engine(backend, options)
    torch.cuda.synchronize()
    print(f"loaded in {time.perf_counter() - begin:.1f} s, {torch.cuda.memory_allocated() / 1e9:.1f} GB", flush=True)
    watch = Watch(backend)
    for repeat in range(3):
        prefill(engine, watch, 8192, repeat)
    for context in contexts:
        decode(engine, watch, requests, context)
        for repeat in range(3):
            extend(engine, watch, requests, context, repeat)
    decode(engine, watch, requests, contexts[0], temperature=1.0)
    decode(engine, watch, requests, contexts[0], temperature=0.8, top_p=0.95)


if __name__ == "__main__":
    main()
