"""Whole kernels of the catalogue on made-up data: what is run again, and what an interpreter of their IR is run on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from vosti.kernels.attention import Sequences, attention
from vosti.kernels.attention_split import Scratch, attention_split, splits_needed
from vosti.kernels.attention_tiles import ROW_PROGRAM
from vosti.kernels.candidates import make_tile
from vosti.kernels.catalogue import KERNELS, Instance
from vosti.kernels.digest import digest, layout
from vosti.kernels.embedding import embedding
from vosti.kernels.finite import flag_logits
from vosti.kernels.gate_up import gate_up
from vosti.kernels.hostile import pair
from vosti.kernels.kv_store import kv_store
from vosti.kernels.linear import linear
from vosti.kernels.rms_norm import rms_norm
from vosti.kernels.rotary_store import rotary_store
from vosti.kernels.sample import Parameters, draw
from vosti.kernels.tables import Choice, Entry
from vosti.spec.sampling import P_UNIT

Compute = Callable[[], tuple[Tensor, ...]]
"""Launches a kernel, and gives the buffers that it wrote; none of them is used again by another call."""

KNOWN = 50
"""Positions and tokens that tables have."""

_PAGE = 16
"""Slots of a page, for kernels that know nothing of pages."""


@dataclass(frozen=True)
class Data:
    """How much of it there is, and where."""

    rows: int
    device: str
    storage: torch.dtype = torch.bfloat16
    """Of what kernels take as bf16; Triton's interpreter takes float32."""

    keys: int = 1100
    """Of the longest sequence."""

    def pair(self, columns: int, length: int) -> tuple[Tensor, Tensor]:
        """[rows, length] and [columns, length], of a wide range."""
        x, w = pair("wide 8", self.rows, columns, length, self.device)
        return x.to(self.storage), w.to(self.storage)

    def numbers(self, *shape: int) -> Tensor:
        """Normally distributed."""
        return torch.randn(shape, device=self.device).to(self.storage)

    def blank(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """NaN in every place, so that one that is left alone shows."""
        return torch.full(shape, math.nan, device=self.device, dtype=dtype or self.storage)

    def flags(self, *shape: int) -> Tensor:
        """Not raised."""
        return torch.zeros(shape, dtype=torch.int32, device=self.device)

    def integers(self, values: Sequence[int]) -> Tensor:
        """As kernels take them."""
        return torch.tensor(list(values), dtype=torch.int32, device=self.device)

    def below(self, bound: int) -> Tensor:
        """[rows] integers."""
        return torch.randint(0, bound, (self.rows,), dtype=torch.int32, device=self.device)

    def slots(self) -> Tensor:
        """[rows] different slots out of three more; the last row has none."""
        found = torch.randperm(self.rows + 3, device=self.device)[: self.rows].to(torch.int32)
        found[-1] = -1
        return found


def computation(instance: Instance, data: Data) -> Compute:
    """Make data for a form of a kernel of the catalogue, and launch that form on it at each call."""
    return _MAKERS[instance.kernel.contract.kernel](instance, data)


def _linear(instance: Instance, data: Data) -> Compute:
    sizes, stream = instance.constants, instance.kernel.contract.kernel.endswith("_stream")
    x, w = data.pair(sizes["N"], sizes["K"])
    dtype = torch.float32 if instance.elements.get("out") == "fp32" else data.storage

    def compute() -> tuple[Tensor, ...]:
        out = data.blank(data.rows, sizes["N"], dtype=dtype)
        linear(x, w, out, instance.tile, stream=stream)
        return (out,)

    return compute


def _gate_up(instance: Instance, data: Data) -> Compute:
    sizes, stream = instance.constants, instance.kernel.contract.kernel.endswith("_stream")
    x, w = data.pair(2 * sizes["N"], sizes["K"])

    def compute() -> tuple[Tensor, ...]:
        out = data.blank(data.rows, sizes["N"])
        gate_up(x, w, out, sizes["ACTIVATION"], instance.tile, stream=stream)
        return (out,)

    return compute


def _embedding(instance: Instance, data: Data) -> Compute:
    tokens, table = data.below(KNOWN), data.numbers(KNOWN, instance.constants["WIDTH"])

    def compute() -> tuple[Tensor, ...]:
        out = data.blank(data.rows, table.shape[1])
        embedding(tokens, table, out, instance.tile, scale=1.7 if instance.constants["SCALED"] else None)
        return (out,)

    return compute


def _rms_norm(instance: Instance, data: Data) -> Compute:
    sizes, width = instance.constants, instance.constants["WIDTH"]
    (x, y), weight, scale = (data.numbers(2, data.rows, width), data.numbers(width), data.numbers(1))
    row_map = data.below(data.rows)[: data.rows // 2 + 1] if sizes["MAPPED"] else None
    rows = data.rows if row_map is None else len(row_map)

    def compute() -> tuple[Tensor, ...]:
        stream, out = x.clone(), data.blank(rows, width)
        # As in the engine: the sum takes the place of the residual stream, if rows are where they were.
        total = stream if row_map is None else data.blank(rows, width)
        rms_norm(
            stream,
            weight,
            out,
            1e-6,
            instance.tile,
            unit_offset=bool(sizes["UNIT_OFFSET"]),
            residual=(y, total) if sizes["RESIDUAL"] else None,
            scale=scale if sizes["SCALED"] else None,
            row_map=row_map,
        )
        return out, total

    return compute


def _rotary_store(instance: Instance, data: Data) -> Compute:
    sizes = instance.constants
    heads, kv_heads, d = sizes["HEADS"], sizes["KV_HEADS"], sizes["HEAD_DIM"]
    qkv = data.numbers(data.rows, (heads + kv_heads * (1 if sizes["SHARED"] else 2)) * d)
    angle = torch.rand(KNOWN, d // 2, device=data.device) * 6.28
    positions, slots, weight = data.below(KNOWN), data.slots(), data.numbers(heads + kv_heads, d)

    def compute() -> tuple[Tensor, ...]:
        queries, flags = data.blank(data.rows, heads, d), data.flags(data.rows, kv_heads)
        cache = data.blank(data.rows + 3, kv_heads, d), data.blank(data.rows + 3, kv_heads, d)
        rotary_store(
            qkv,
            (angle.cos(), angle.sin()),
            positions,
            slots,
            queries,
            cache,
            flags,
            instance.tile,
            norm=(sizes["NORM"], weight, 1e-6) if sizes["NORM"] or sizes["VALUE_NORM"] else None,
            value_norm=bool(sizes["VALUE_NORM"]),
            shared=bool(sizes["SHARED"]),
        )
        return queries, *cache, flags

    return compute


def _kv_store(instance: Instance, data: Data) -> Compute:
    shape = instance.constants["KV_HEADS"], instance.constants["HEAD_DIM"]
    new, slots = (data.numbers(data.rows, *shape), data.numbers(data.rows, *shape)), data.slots()

    def compute() -> tuple[Tensor, ...]:
        cache = data.blank(data.rows + 3, *shape), data.blank(data.rows + 3, *shape)
        flags = data.flags(data.rows, shape[0])
        kv_store(new, slots, cache, flags, instance.tile)
        return *cache, flags

    return compute


def _logits(instance: Instance, data: Data) -> Compute:
    width, cap = instance.constants["WIDTH"], 30.0 if instance.constants["CAPPED"] else None
    x = torch.randn(data.rows, width, device=data.device) * 20
    x[0, width // 2] = math.inf
    blocks = -(-width // instance.tile.block("BLOCK"))

    def compute() -> tuple[Tensor, ...]:
        logits, flags = x.clone(), torch.full((data.rows, blocks), -1, dtype=torch.int32, device=data.device)
        flag_logits(logits, flags, instance.tile, cap=cap)
        return logits, flags

    return compute


def _digest(instance: Instance, data: Data) -> Compute:
    words = torch.randint(-(1 << 31), 1 << 31, (3000 * (KNOWN + 1),), device=data.device).to(torch.int32)
    rows, sources = layout([(0, 2000, 2000), (2000 * KNOWN, 700, 650)], data.device), data.below(KNOWN)
    tiles = {"digest": make_tile(1, 1, BLOCK=512), "digest_merge": make_tile(1, 1, BLOCK=128)}
    tiles[instance.kernel.contract.kernel] = instance.tile
    first, second = (Entry(name, (), (Choice(None, name, tile),)) for name, tile in tiles.items())
    return lambda: (digest(words, rows, sources, (first, second)),)


# ---------------------------------------------------------------- attention


def _attention(instance: Instance, data: Data) -> Compute:
    """Both forms: what the first launch of the split form leaves is given too."""
    sizes, kernel = instance.constants, instance.kernel.contract.kernel
    heads, kv_heads, d = sizes["HEADS"], sizes["KV_HEADS"], sizes["HEAD_DIM"]
    window, scale, page = sizes["WINDOW"] or None, d**-0.5, sizes.get("PAGE", _PAGE)
    most = data.rows if kernel == "attention" else _tile_rows(instance) // (heads // kv_heads)
    counts = (min(data.rows, most), min(3, most), 0, 1)
    lengths = (max(data.keys, counts[0]), 70, 5, data.keys // 2)
    cache, tables = _paged(lengths, page, (kv_heads, d), data)
    # A row before each sequence that nobody owns.
    starts = [1 + number + sum(counts[:number]) for number in range(len(counts))]
    queries = data.numbers(sum(counts) + len(counts), heads, d)
    sequences = Sequences(
        tables, data.integers(starts), data.integers(counts), data.integers(lengths), max(counts), page
    )

    def compute() -> tuple[Tensor, ...]:
        out, flags = data.blank(*queries.shape), data.flags(len(queries), heads, 4)
        if kernel == "attention":
            attention(queries, cache, sequences, out, flags, scale, instance.tile, window=window)
            return out, flags
        merges = kernel == "attention_merge"
        tile = split_before(instance).tile if merges else instance.tile
        merge_tile = instance.tile if merges else make_tile(1, 1)
        splits = splits_needed(max(lengths), max(counts), window)
        scratch = Scratch.allocate(len(counts), kv_heads, splits, _tile_rows(instance), d, data.device)
        states = scratch.maxima, scratch.totals, scratch.outputs
        for state in states:
            state.fill_(math.nan)
        attention_split(queries, cache, sequences, scratch, splits, out, flags, scale, tile, merge_tile, window=window)
        return out, flags, *states

    return compute


def split_before(merge: Instance) -> Instance:
    """The form of `attention_split` that is launched before a form of `attention_merge`."""
    sizes = {name: size for name, size in merge.constants.items() if name != "BLOCK_R"}
    tile = make_tile(4, 1, BLOCK_R=_tile_rows(merge), BLOCK_D=sizes["HEAD_DIM"])
    return Instance(KERNELS["attention_split"], sizes | {"TILE": ROW_PROGRAM["TILE"], "PAGE": _PAGE}, tile)


def _tile_rows(instance: Instance) -> int:
    """Of the split form's tiles; the merge has it as a constant."""
    return {**instance.constants, **dict(instance.tile.blocks)}["BLOCK_R"]


def _paged(
    lengths: Sequence[int], page: int, shape: tuple[int, int], data: Data
) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Keys and values of sequences on shuffled pages, NaN where there is none of them; and the tables."""
    needed = [-(-length // page) for length in lengths]
    pages = torch.randperm(sum(needed) + 1)
    ends = list(accumulate(needed))
    cache = data.blank(len(pages) * page, *shape), data.blank(len(pages) * page, *shape)
    tables = torch.full((len(lengths), max(needed) + 1), -1, dtype=torch.int32)
    for number, length in enumerate(lengths):
        mine = pages[ends[number] - needed[number] : ends[number]]
        tables[number, : len(mine)] = mine.to(torch.int32)
        place = torch.arange(length)
        slots = (mine[place // page] * page + place % page).to(data.device)
        for part in cache:
            part[slots] = data.numbers(length, *shape)
    return cache, tables.to(data.device)


_MAKERS: Mapping[str, Callable[[Instance, Data], Compute]] = {
    "attention": _attention,
    "attention_merge": _attention,
    "attention_split": _attention,
    "digest": _digest,
    "digest_merge": _digest,
    "embedding": _embedding,
    "gate_up": _gate_up,
    "gate_up_stream": _gate_up,
    "kv_store": _kv_store,
    "linear": _linear,
    "linear_stream": _linear,
    "logits": _logits,
    "rms_norm": _rms_norm,
    "rotary_store": _rotary_store,
}


# ---------------------------------------------------------------- sampling


def samplers(data: Data, width: int = 3000) -> dict[str, Compute]:
    """The kernels that draw, which are in no table: without cuts, and with cuts that some rows' heads do not show."""
    logits = torch.randn(data.rows, width, device=data.device) * 3
    logits[::3] = logits[::3].round()
    logits[1::3] = 1.0

    def whole(bound: int) -> Tensor:
        return torch.randint(0, bound, (data.rows,), device=data.device)

    parameters = Parameters(
        temperatures=torch.rand(data.rows, dtype=torch.float64, device=data.device) + 0.5,
        top_ks=whole(2 * width),
        top_ps=whole(P_UNIT) + 1,
        min_ps=whole(P_UNIT // 20),
        bits=torch.randint(-(1 << 63), (1 << 63) - 1, (data.rows,), device=data.device),
    )
    return {
        "weights, draw_from_all": lambda: (draw(logits, parameters, cuts=False),),
        "weights, cut_weights, check_cuts, draw_from_all": lambda: (draw(logits, parameters, cuts=True),),
    }
