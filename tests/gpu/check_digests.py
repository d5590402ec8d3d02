"""Digests of slots and of logits: those of the bytes, whatever the tile, and others after one flipped bit."""

from __future__ import annotations

import numpy as np
import torch
from common import DEVICE, Difference, integers, none_of, settle
from torch import Tensor

from vosti.kernels.candidates import make_tile
from vosti.kernels.digest import Layout, digest, fetched, layout, matrix_layout
from vosti.kernels.tables import Choice, Entry, load
from vosti.spec.digests import LENGTH_POSITION, STREAMS, Stream, word_sum

LAYERS, KV_HEADS, HEAD_DIM, SLOTS = 32, 8, 128, 4096
"""A pool of Llama-3.1-8B's, 512 MiB."""


def mixed(x: np.ndarray, stream: Stream) -> np.ndarray:
    """`vosti.spec.digests.mix` of each element, uint64, in a third library."""
    x = x ^ np.uint64(stream.key)
    x = (x ^ x >> np.uint64(stream.first_shift)) * np.uint64(stream.first_factor)
    x = (x ^ x >> np.uint64(stream.second_shift)) * np.uint64(stream.second_factor)
    return x ^ x >> np.uint64(stream.last_shift)


def word_sum_by_numpy(words: Tensor) -> str:
    """The word sum of a row of int32."""
    numbers = words.cpu().numpy().view(np.uint32).astype(np.uint64)
    terms = np.arange(len(numbers), dtype=np.uint64) << np.uint64(32) | numbers
    terms = np.append(terms, np.uint64(LENGTH_POSITION << 32 | 4 * len(numbers)))
    return "".join(f"{int(mixed(terms, stream).sum(dtype=np.uint64)):016x}" for stream in STREAMS)


def entries(block: int, warps: int, merge_block: int) -> tuple[Entry, Entry]:
    """Tiles beside the table's."""
    first = Entry("digest", (), (Choice(None, "digest", make_tile(warps, 1, BLOCK=block)),))
    return first, Entry("digest_merge", (), (Choice(None, "digest_merge", make_tile(1, 1, BLOCK=merge_block)),))


TABLE = load("sm_90").entry("digest"), load("sm_90").entry("digest_merge")


def pool(slots: int) -> tuple[Tensor, Layout]:
    """Keys and values of all layers, one behind the other, as words; and where a slot's lie."""
    memory = torch.randint(-(2**31), 2**31, (LAYERS * 2 * slots * KV_HEADS * HEAD_DIM // 2,), device=DEVICE)
    words = KV_HEADS * HEAD_DIM // 2
    parts = [(part * slots * words, words, words) for part in range(2 * LAYERS)]
    return memory.to(torch.int32), layout(parts, DEVICE)


def digests_section() -> None:
    """The digests are the specification's, for each tile; a flipped bit changes one of them, and no other."""
    memory, rows = pool(SLOTS)
    slots = torch.randperm(SLOTS, device=DEVICE)[:300].to(torch.int32)
    found = digest(memory, rows, slots, TABLE)
    names, table = fetched(found)(), memory.view(2 * LAYERS, SLOTS, -1)
    for number in range(0, 300, 10):
        row = table[:, slots[number].item()].flatten()
        expected = [word_sum_by_numpy(row)] + ([word_sum(row.cpu().numpy().tobytes())] if number < 20 else [])
        if set(expected) != {names[number]}:
            raise Difference(f"slot {number}: {names[number]}, and by the specification {expected}")
    for block, warps, merge_block in ((128, 1, 16), (1024, 4, 64), (4096, 8, 128)):
        none_of(f"tile {block}", digest(memory, rows, slots, entries(block, warps, merge_block)) != found)
    logits = torch.randn(5, 262208, device=DEVICE)
    whole = digest(logits.view(torch.int32), matrix_layout(262208, DEVICE), integers([0, 1, 2, 3, 4]), TABLE)
    if [word_sum_by_numpy(row) for row in logits.view(torch.int32)] != fetched(whole)():
        raise Difference("digests of logits are not the specification's")
    settle()
    table[5, slots[7].item(), 3] ^= 1 << 20
    changed = (digest(memory, rows, slots, TABLE) != found).sum(1).tolist()
    if changed != [2 if number == 7 else 0 for number in range(300)]:
        raise Difference("a flipped bit did not change both streams of one digest alone")
    print("digests: 300 slots of 32 layers, 5 rows of logits: the specification's, 4 tiles equal, a flip found")
