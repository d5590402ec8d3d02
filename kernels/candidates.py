"""The tiles that are worth trying for an operation, and the one to start from.

`starting_entry` gives the tiles that a table holds before anything was timed: by rules that hold for the shapes that
were timed. `candidates` gives what the tuning tool tries in their place.
"""

from __future__ import annotations

from collections.abc import Iterator

from vosti.kernels.errors import ConfigurationError
from vosti.kernels.shapes import Dimensions
from vosti.kernels.tables import Choice, Entry
from vosti.kernels.tile import Tile

SHARED_MEMORY = {"sm_80": 163 * 1024, "sm_90": 227 * 1024, "sm_100": 227 * 1024}
"""Bytes that one program may use, by architecture."""

MULTIPROCESSORS = 132
"""Of the H100 and H200: programs of the kernels that keep each program busy with tile after tile."""

FEW_ROWS = (16, 32, 64, 128)
"""Upper ends of the ranges of rows that have a tile of their own."""


def make_tile(warps: int, stages: int, **blocks: int) -> Tile:
    """A tile."""
    return Tile(tuple(blocks.items()), warps, stages)


def _block_k(k: int, largest: int) -> int:
    """The largest block that divides k; every k is a multiple of 16."""
    block = largest
    while k % block:
        block //= 2
    if block < 16:
        raise ConfigurationError(f"A chain over {k} elements does not divide into groups of 16.")
    return block


def _stages(wanted: int, stage: int, memory: int) -> int:
    """As many stages of the given bytes as are wanted and fit, but at least two."""
    return max(2, min(wanted, memory * 7 // 8 // stage))


def _small(rows: int, n: int, k: int, weights: int, memory: int) -> Tile:
    """For few rows: most of the weights' bytes that can be in flight, in one wave of programs where n is small.

    The form of the tiles that were fastest for Llama-3.1-8B's shapes at 4 rows.
    """
    if rows <= 32:
        if weights == 2:
            return make_tile(4, 3, BLOCK_M=rows, BLOCK_N=16, BLOCK_K=_block_k(k, 64))
        block_n = 16
        while block_n < 64 and n / block_n > MULTIPROCESSORS:
            block_n *= 2
        if block_n == 64:
            stages = 6 if n <= 64 * MULTIPROCESSORS else 4
            block_k = _block_k(k, 128)
            stages = _stages(stages, 2 * block_k * (rows + 64), memory)
            return make_tile(4, stages, BLOCK_M=rows, BLOCK_N=64, BLOCK_K=block_k)
        block_k = _block_k(k, 512 if rows <= 16 else 256)
        stages = _stages(4, 2 * block_k * (rows + block_n), memory)
        return make_tile(4, stages, BLOCK_M=rows, BLOCK_N=block_n, BLOCK_K=block_k)
    block_n = 128
    while block_n > 32 and n / block_n < 1.5 * MULTIPROCESSORS:
        block_n //= 2
    block_k = _block_k(k, 128 if rows <= 64 else 64)
    stage = 2 * block_k * (rows + weights * block_n)
    stages = max(2, min(5, memory // 2 // stage))
    return make_tile(8 if rows > 64 and block_n > 64 else 4, stages, BLOCK_M=rows, BLOCK_N=block_n, BLOCK_K=block_k)


def _matrix_choices(operation: str, dimensions: dict[str, int], architecture: str) -> Iterator[Choice]:
    n, k = dimensions["n"], dimensions["k"]
    kernel = "linear" if operation == "head" else operation
    weights = 2 if kernel == "gate_up" else 1
    for rows in FEW_ROWS:
        yield Choice(rows, kernel, _small(rows, n, k, weights, SHARED_MEMORY[architecture]))
    # Logits have float32 elements and few rows.
    descriptors = architecture == "sm_90" and operation != "head"
    wide = 256 // weights
    if descriptors:
        tile = make_tile(
            8,
            3,
            BLOCK_M=128,
            BLOCK_N=wide,
            BLOCK_K=_block_k(k, 64),
            GROUP_M=8,
            PROGRAMS=MULTIPROCESSORS,
        )
        yield Choice(None, f"{kernel}_stream", tile)
    else:
        yield Choice(None, kernel, make_tile(8, 3, BLOCK_M=128, BLOCK_N=128 // weights, BLOCK_K=_block_k(k, 64)))


def _power_of_two(width: int) -> int:
    return 1 << (width - 1).bit_length()


def _extend_tile(head_dim: int, memory: int) -> Tile:
    # The page's number is loaded ahead of the page: five stages keep more than one tile of keys in flight. With heads
    # of 512, queries and keys leave room for one, if they fit at all.
    if head_dim == 512 and memory < SHARED_MEMORY["sm_90"]:
        return make_tile(4, 1, BLOCK_R=32, BLOCK_D=256)
    return make_tile(8, 5 if head_dim <= 256 else 1, BLOCK_R=128, BLOCK_D=min(head_dim, 128))


def _split_tile(head_dim: int, block_r: int) -> Tile:
    warps, stages = (8, 1) if head_dim == 512 else (4, 5)
    return make_tile(warps, stages, BLOCK_R=block_r, BLOCK_D=head_dim)


def starting_entry(operation: str, dimensions: Dimensions, architecture: str) -> Entry:
    """The tiles to start from. Raises `ConfigurationError` for an unknown operation or a size that has none."""
    sizes = dict(dimensions)
    choices: list[Choice]
    if operation in ("linear", "head", "gate_up"):
        choices = list(_matrix_choices(operation, sizes, architecture))
    elif operation == "embedding":
        choices = [Choice(None, operation, make_tile(4, 1, BLOCK=min(1024, _power_of_two(sizes["width"]))))]
    elif operation == "rms_norm":
        block = _power_of_two(sizes["width"])
        choices = [Choice(None, operation, make_tile(2 if block <= 4096 else 4, 1, BLOCK=block))]
    elif operation == "logits":
        choices = [Choice(None, operation, make_tile(4, 1, BLOCK=4096))]
    elif operation == "rotary_store":
        few, many = (2, 8) if sizes["head_dim"] <= 128 else (1, 4)
        choices = [
            Choice(16, operation, make_tile(1, 1, BLOCK_H=few)),
            Choice(None, operation, make_tile(2, 1, BLOCK_H=many)),
        ]
    elif operation == "attention":
        choices = [Choice(None, operation, _extend_tile(sizes["head_dim"], SHARED_MEMORY[architecture]))]
    elif operation == "attention_split":
        group = sizes["heads"] // sizes["kv_heads"]
        # Rows are those of one sequence: one when decoding, more with a draft.
        sizes_r = [block_r for block_r in (16, 32) if block_r >= group]
        choices = [Choice(r // group, operation, _split_tile(sizes["head_dim"], r)) for r in sizes_r]
    elif operation in ("attention_merge", "kv_store"):
        choices = [Choice(None, operation, make_tile(1, 1))]
    elif operation == "digest":
        choices = [Choice(None, operation, make_tile(1, 1, BLOCK=512))]
    elif operation == "digest_merge":
        choices = [Choice(None, operation, make_tile(1, 1, BLOCK=128))]
    else:
        raise ConfigurationError(f"There is no operation {operation}.")
    return Entry(operation, tuple(sorted(dimensions)), tuple(choices))


def candidates(entry: Entry, choice: Choice, architecture: str) -> Iterator[Tile]:
    """Tiles to try in place of one of an entry's, that one first; all of the same kernel."""
    tile, seen = choice.tile, set()
    sizes = dict(entry.dimensions)
    options = [tile]
    if choice.kernel in ("linear", "gate_up"):
        weights = 2 if choice.kernel == "gate_up" else 1
        block_m = tile.block("BLOCK_M")
        for block_n in (16, 32, 64, 128):
            for block_k in (64, 128, 256, 512):
                if sizes["k"] % block_k:
                    continue
                stage = 2 * block_k * (block_m + weights * block_n)
                for warps in (2, 4, 8) if block_m <= 16 else (4, 8):
                    # Too many or too few elements per thread.
                    if not 2 <= weights * block_m * block_n // (32 * warps) <= 128 or stage < 32 * 16 * warps:
                        continue
                    for stages in (3, 4, 6) if block_m <= 16 else (3, 4):
                        if stage * stages <= SHARED_MEMORY[architecture] * 7 // 8:
                            options.append(make_tile(warps, stages, BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k))
    elif choice.kernel in ("linear_stream", "gate_up_stream"):
        fixed = dict(tile.blocks)
        options += [make_tile(8, 3, **{**fixed, "GROUP_M": group}) for group in (4, 8, 16)]
    elif choice.kernel in ("attention", "attention_split"):
        fixed = dict(tile.blocks)
        for warps in (4, 8):
            for stages in (1, 2, 3, 4):
                options.append(make_tile(warps, stages, **fixed))
    elif choice.kernel in ("rms_norm", "embedding", "logits"):
        options += [make_tile(warps, 1, **dict(tile.blocks)) for warps in (1, 2, 4, 8, 16)]
    elif choice.kernel == "rotary_store":
        options += [make_tile(warps, 1, BLOCK_H=heads) for warps in (1, 2, 4) for heads in (1, 2, 4, 8, 16)]
    for option in options:
        if option not in seen:
            seen.add(option)
            yield option
