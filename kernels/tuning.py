"""Finding tiles offline: time candidates on the GPU at hand, and accept only those whose bits are the canonical ones.

    python -m vosti.kernels.tuning --architecture sm_90 linear n=4096 k=4096
    python -m vosti.kernels.tuning --architecture sm_90 --model llama-3.1-8b --rows 16 64
    python -m vosti.kernels.tuning --architecture sm_90 --untimed --known --missing

The canonical tile of an entry is its first, the one for the fewest rows. A candidate is compared with it, bit for bit,
on random and hostile data (`vosti.kernels.hostile`) for numbers of rows that fill no tile, and is refused if a single
bit differs; it is timed with weights that no cache holds. The engine never times anything.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from triton.runtime.errors import OutOfResources

from vosti.kernels.candidates import candidates, starting_entry
from vosti.kernels.catalogue import TARGETS, Instance, instances
from vosti.kernels.errors import ConfigurationError, KernelError
from vosti.kernels.gate_up import gate_up
from vosti.kernels.hostile import KINDS, bits, pair
from vosti.kernels.linear import linear
from vosti.kernels.shapes import SHAPES, Dimensions, known_operations, operations
from vosti.kernels.tables import FOLDER, Choice, Entry, decode, describe, encode, load

TIMED = ("linear", "head", "gate_up")
"""Operations whose tiles are timed; the others keep the tiles that they start from."""

FEWEST = 16
"""Rows that the smallest tile serves; it is timed at 4, a small batch of decoding sequences."""

LARGE = 8192
"""Rows at which a tile for any number of rows is timed."""

CHECKED_ROWS = 199
"""Rows on which bits are compared: no multiple of any tile."""

ROTATION_BYTES = 4e8
"""Weights in rotation while timing: several times what the cache holds."""

WARM_UP_SECONDS = 0.05

WORTH = 0.98
"""A candidate replaces the tile before it if it takes at most this part of its time."""


def run(entry: Entry, choice: Choice, x: Tensor, weight: Tensor) -> Tensor:
    """The operation on the rows of x, by one tile."""
    sizes, stream = dict(entry.dimensions), choice.kernel.endswith("_stream")
    dtype = torch.float32 if entry.operation == "head" else torch.bfloat16
    out = torch.empty(x.shape[0], sizes["n"], dtype=dtype, device=x.device)
    if entry.operation == "gate_up":
        gate_up(x, weight, out, sizes["activation"], choice.tile, stream=stream)
    else:
        linear(x, weight, out, choice.tile, stream=stream)
    return out


def differing_bits(entry: Entry, choices: Iterable[Choice]) -> Iterator[tuple[Choice, str]]:
    """Yield each choice whose bits differ from the canonical tile's, with the kind of data that shows it.

    A tile that does not fit the GPU is yielded too.
    """
    sizes = dict(entry.dimensions)
    stacked = sizes["n"] * (2 if entry.operation == "gate_up" else 1)
    canonical, found = entry.choices[0], set()
    choices = list(choices)
    for kind in KINDS:
        x, weight = pair(kind, CHECKED_ROWS, stacked, sizes["k"], "cuda")
        expected = bits(run(entry, canonical, x, weight))
        for choice in choices:
            if choice in found:
                continue
            try:
                same = torch.equal(bits(run(entry, choice, x, weight)), expected)
            except OutOfResources:
                same = False
            if not same:
                found.add(choice)
                yield choice, kind


def milliseconds(launches: Sequence[Callable[[], object]], repeats: int = 9) -> float:
    """The median time of one of the launches, all of them replayed in order from one CUDA graph.

    Replays first for long enough that the clocks are up.
    """
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for launch in launches:
            launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for launch in launches:
            launch()
    begun = time.perf_counter()
    while time.perf_counter() - begun < WARM_UP_SECONDS:
        graph.replay()
        torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / len(launches))
    return sorted(times)[len(times) // 2]


def _compile(work: tuple[Instance, str]) -> None:
    instance, architecture = work
    instance.compiled(TARGETS[architecture])


def _compile_all(entry: Entry, tiles: list[Choice], architecture: str) -> None:
    """Fill the compiler's cache with several processes; a tile that does not compile is found out later."""
    forms = list(instances(replace(entry, choices=tuple(tiles))))
    with multiprocessing.get_context("spawn").Pool() as pool:
        for result in [pool.apply_async(_compile, [(form, architecture)]) for form in forms]:
            result.wait()


def tuned(entry: Entry, architecture: str, rows: set[int] | None, log: Callable[[str], None]) -> Entry:
    """The entry with each of its tiles replaced by the fastest of its candidates that keeps the bits.

    Only tiles for up to one of `rows` are timed, if given. Raises `KernelError` if the entry's own tiles disagree.
    """
    if entry.operation not in TIMED:
        return entry
    for choice, kind in differing_bits(entry, entry.choices):
        raise KernelError(f"{entry.operation} {describe(entry.dimensions)}: {choice} differs on data '{kind}'.")
    sizes = dict(entry.dimensions)
    stacked = sizes["n"] * (2 if entry.operation == "gate_up" else 1)
    copies = max(2, int(ROTATION_BYTES / (2 * stacked * sizes["k"])))
    weights = [torch.randn(stacked, sizes["k"], device="cuda").to(torch.bfloat16) for _ in range(copies)]
    chosen = []
    for choice in entry.choices:
        if rows is not None and (choice.up_to_rows or LARGE) not in rows:
            chosen.append(choice)
            continue
        options = [replace(choice, tile=tile) for tile in candidates(entry, choice, architecture)]
        _compile_all(entry, options, architecture)
        timed_rows = 4 if choice.up_to_rows == FEWEST else choice.up_to_rows or LARGE
        x = torch.randn(timed_rows, sizes["k"], device="cuda").to(torch.bfloat16)
        times = {}
        for option in options:
            try:
                times[option] = milliseconds([partial(run, entry, option, x, weight) for weight in weights])
            except OutOfResources:
                continue
        ranked = sorted(times, key=lambda option: times[option])
        refused = {option for option, _ in differing_bits(entry, ranked[:6])}
        best = next((option for option in ranked[:6] if option not in refused), choice)
        if times[best] > WORTH * times[choice]:
            best = choice
        chosen.append(best)
        log(
            f"{entry.operation} {describe(entry.dimensions)}, {timed_rows} rows: {times[choice] * 1e3:.1f} us -> "
            f"{times[best] * 1e3:.1f} us of {len(times)} tiles, {len(refused)} of the best 6 refused: {best.tile}"
        )
    return replace(entry, choices=tuple(chosen))


def _wanted(arguments: argparse.Namespace) -> list[tuple[str, Dimensions]]:
    if arguments.known:
        return known_operations()
    if arguments.model:
        if arguments.model not in SHAPES:
            raise ConfigurationError(f"There is no model {arguments.model}; there are {', '.join(SHAPES)}.")
        return sorted(set(operations(SHAPES[arguments.model])))
    if not arguments.operation:
        raise ConfigurationError("Name an operation with its dimensions, or a model, or --known.")
    name, *sizes = arguments.operation
    pairs = [size.partition("=") for size in sizes]
    if any(not (name and value.isdigit()) for name, _, value in pairs):
        raise ConfigurationError(f"Dimensions are given as name=size, not {' '.join(sizes)}.")
    return [(name, tuple((name, int(value)) for name, _, value in pairs))]


def main(words: Sequence[str] | None = None) -> None:
    """The command; `words` are its arguments instead of the process's own."""
    parser = argparse.ArgumentParser(description="Make entries of a table of tiles.")
    parser.add_argument("--architecture", required=True, choices=sorted(TARGETS))
    parser.add_argument("--untimed", action="store_true", help="write the tiles to start from; needs no GPU")
    parser.add_argument("--model", help="all operations of a known model")
    parser.add_argument("--known", action="store_true", help="all operations of all known models")
    parser.add_argument("--missing", action="store_true", help="of those, the ones that the table lacks")
    parser.add_argument("--only", nargs="*", help="of those, these operations alone")
    parser.add_argument("--rows", type=int, nargs="*", help="time only tiles that serve up to these numbers of rows")
    parser.add_argument("--table", type=Path, help="the table to change, instead of the one that is shipped")
    parser.add_argument("operation", nargs="*", help="OPERATION name=size ...")
    arguments = parser.parse_args(words)
    try:
        wanted = _wanted(arguments)
        path = arguments.table or FOLDER / f"{arguments.architecture}.json"
        entries = dict(load(arguments.architecture).entries) if path.exists() and not arguments.table else {}
        if arguments.table and path.exists():
            entries = dict(decode_file(path))
        for operation, dimensions in wanted:
            entry = starting_entry(operation, dimensions, arguments.architecture)
            key = (entry.operation, entry.dimensions)
            if (arguments.only and operation not in arguments.only) or (arguments.missing and key in entries):
                continue
            if not arguments.untimed:
                rows = set(arguments.rows) if arguments.rows else None
                entry = tuned(
                    entries.get(key, entry), arguments.architecture, rows, lambda line: print(line, flush=True)
                )
            entries[key] = entry
            path.write_text(encode(arguments.architecture, entries.values()))
    except KernelError as error:
        sys.exit(str(error))


def decode_file(path: Path) -> dict[tuple[str, Dimensions], Entry]:
    """The entries of a table file."""
    return dict(decode(json.loads(path.read_text())).entries)


if __name__ == "__main__":
    main()
