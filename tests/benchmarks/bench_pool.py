"""How long the page pool's transitions take, each with its guard, as an engine calls them.

    python tests/benchmarks/bench_pool.py [--pages N ...] [--page-size N ...]

Per pool size three rows: microseconds per transition, decoding with one `advance_each` per step, and a prefix of many
pages attached at once. Garbage collection is off while the clock runs: its pauses are not the pool's.
"""

import argparse
import gc
import itertools
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from vosti.impl import pool as engine
from vosti.impl.pool_state import Pool, empty
from vosti.spec.state import Domain, PageId, RequestId, Token

T = TypeVar("T")
TENANT = Domain("tenant")


class Bench:
    """A pool, its requests' histories, and a clock per transition."""

    def __init__(self, pages: int, page_size: int) -> None:
        """An empty pool."""
        self.pool: Pool = empty(frozenset(map(PageId, range(pages))), page_size)
        self.size = page_size
        self.free = list(map(PageId, range(pages)))
        self.histories: dict[RequestId, tuple[Token, ...]] = {}
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.calls: defaultdict[str, int] = defaultdict(int)
        self.names = (RequestId(f"request-{i}") for i in itertools.count())

    def timed(self, name: str, call: Callable[[], T]) -> T:
        """Run and count."""
        start = time.perf_counter()
        result = call()
        self.seconds[name] += time.perf_counter() - start
        self.calls[name] += 1
        return result

    def take(self, name: str, *args: Any) -> None:
        """A transition, guard first."""
        guard, effect = getattr(engine, name + "_guard"), getattr(engine, name)

        def both() -> Pool:
            if not guard(self.pool, *args):
                raise AssertionError(f"{name} is not allowed")
            return effect(self.pool, *args)

        self.pool = self.timed(name, both)

    def mean(self, name: str) -> float:
        """Seconds per call."""
        return self.seconds[name] / max(1, self.calls[name])

    def admit(self, history: tuple[Token, ...]) -> RequestId:
        """A new request."""
        r = next(self.names)
        self.histories[r] = history
        self.take("admit", r, TENANT)
        return r

    def advance_all(self, counts: dict[RequestId, int]) -> None:
        """One forward: pages for its slots, the slots, and the pages that they fill."""
        for r, n in counts.items():
            holding = self.pool.requests[r]
            for _ in range(len(holding.table), -(-(holding.cached + n) // self.size)):
                self.take("allocate", r, self.free.pop())
        self.take("advance_each", counts, {r: len(self.histories[r]) for r in counts})
        for r, n in counts.items():
            cached = self.pool.requests[r].cached
            for block in range((cached - n) // self.size, cached // self.size):
                tokens = self.histories[r][block * self.size : (block + 1) * self.size]
                self.take("publish", r, block, tokens, len(self.histories[r]))

    def remove(self, r: RequestId) -> None:
        """A request leaves, and every page that nobody holds is given up, leaves first."""
        table = self.pool.requests[r].table
        private = [page for page in table if not self.pool.pages[page].registered]
        self.take("remove", r)
        self.free += private
        for page in reversed(table):
            if page in self.pool.idle and engine.evict_guard(self.pool, page):
                self.take("evict", page)
                self.free.append(page)


def fresh(n: int, salt: int) -> tuple[Token, ...]:
    """n tokens that no other salt has."""
    return tuple(Token(salt * 1_000_003 + i) for i in range(n))


def transitions(pages: int, size: int) -> str:
    """Requests that share their first 8 pages and have 8 of their own come, compute and leave; page by page."""
    bench, shared = Bench(pages, size), fresh(8 * size, 0)
    first = bench.admit((*shared, Token(1)))
    bench.advance_all({first: len(shared) + 1})
    for salt in range(1, 200):
        r = bench.admit((*shared, *fresh(8 * size + 1, salt)))
        for block in range(8):
            tokens = bench.histories[r][block * size : (block + 1) * size]
            table, pool = bench.pool.requests[r].table, bench.pool
            parent = table[-1] if table else None
            found = bench.timed("match_next", partial(engine.match_next, pool, TENANT, parent, tokens))
            bench.take("attach", r, found, tokens, len(bench.histories[r]))
        bench.advance_all({r: 8 * size + 1})
        bench.take("advance", r, 0, len(bench.histories[r]))
        bench.remove(r)
    names = ("admit", "match_next", "attach", "allocate", "advance", "publish", "evict", "remove")
    return "  ".join(f"{name} {bench.mean(name) * 1e6:.1f}" for name in names)


def decoding(pages: int, size: int, live: int = 256, steps: int = 200) -> str:
    """Up to `live` requests decode a token each per step, for as many steps as there are pages for."""
    bench, live = Bench(pages, size), min(live, pages // 4)
    steps = min(steps, (pages // live) * size - 1)
    requests = [bench.admit(fresh(1, salt)) for salt in range(live)]
    seconds = []
    for step in range(steps):
        start = time.perf_counter()
        bench.advance_all(dict.fromkeys(requests, 1))
        seconds.append(time.perf_counter() - start)
        for r in requests:
            bench.histories[r] += (Token(step),)
    mean = sum(seconds) / steps
    return f"{live / mean:,.0f} tokens/s, {mean * 1e3:.2f} ms per step, worst {max(seconds) * 1e3:.2f} ms"


def prefix(pages: int, size: int, repeat: int = 20) -> str:
    """A request finds, attaches and gives back a prefix of up to 1000 pages."""
    bench, n = Bench(pages, size), min(1000, pages // 2)
    history = (*fresh(n * size, 1), Token(0))
    bench.advance_all({bench.admit(history): len(history)})
    for _ in range(repeat):
        r, pool = bench.admit(history), bench.pool
        chain = bench.timed("match", partial(engine.match_prefix, pool, TENANT, history, n * size))
        bench.take("attach_prefix", r, chain, history)
        bench.take("remove", r)
    means = [bench.mean(name) * 1e3 for name in ("match", "attach_prefix", "remove")]
    return f"{n} pages: match {means[0]:.2f} ms, attach_prefix {means[1]:.2f} ms, remove {means[2]:.2f} ms"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pages", type=int, nargs="+", default=[4096, 65536], help="pages of the pool")
    parser.add_argument("--page-size", type=int, nargs="+", default=[16, 64], help="slots per page")
    options = parser.parse_args()
    for pages, size in itertools.product(options.pages, options.page_size):
        print(f"{pages} pages of {size}")
        for label, measure in (("µs each", transitions), ("decoding", decoding), ("prefix", prefix)):
            gc.collect()
            gc.disable()
            row = measure(pages, size)
            gc.enable()
            print(f"  {label:9} {row}", flush=True)


if __name__ == "__main__":
    main()
