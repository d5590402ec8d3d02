"""The sampler's kernels on small rows: their tile IR, interpreted, in tiles of a few lanes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import accumulate, pairwise
from typing import Any
from unittest.mock import patch

import torch

from vosti.kernels import sample
from vosti.kernels.catalogue import SAMPLER, TARGETS
from vosti.kernels.errors import UndecidedRowError
from vosti.kernels.launch import Kernel
from vosti.kernels.sample_search import boundaries
from vosti.kernels.tile import Tile
from vosti.kernels.verifier import interpret, ir
from vosti.kernels.verifier.parse import parse
from vosti.spec.sampling import P_UNIT, SamplerState, choose, kept

Edits = tuple[tuple[str, str], ...]
"""Of a kernel's typed IR: what stands there once, and what is put in its place."""

Case = tuple[tuple[float, ...], SamplerState, int]
"""A row of logits, a state, and the bits of a draw."""

Ends = tuple[int, int]
"""What a search says that it found: the last token that top-k keeps, and the last of all that are kept."""

SIZES: dict[str, Any] = {
    "BLOCK": 2,
    "WEIGHTS_TILE": Tile((("BLOCK", 2),), 4, 1),
    "BLOCKS": 4,
    "CHECK_TILE": Tile((("BLOCKS", 4),), 4, 1),
    "DRAW_TILE": Tile((("BLOCK", 2), ("BLOCKS", 4)), 4, 1),
    "HEAD": 2,
}
"""Instead of the sizes that `vosti.kernels.sample` fixes: a row of a few tokens has several blocks, and a tail."""


@cache
def text(kernel: str, tile: Tile) -> str:
    """The typed IR of one of the sampler's kernels."""
    return SAMPLER[kernel].ttir({}, tile, TARGETS["sm_90"])


@contextmanager
def interpreted(kernel: str = "", edits: Edits = ()) -> Iterator[None]:
    """Within, what is launched is interpreted, in small tiles; the edits are made in one kernel."""

    def launch(self: Kernel, arguments: dict[str, Any], tile: Tile, **sizes: int) -> None:
        name = self.contract.kernel
        values = {**arguments, **dict(tile.blocks), **sizes}
        self.contract.check_launch(values)
        flat = {key: one.view(-1).numpy() if isinstance(one, torch.Tensor) else one for key, one in arguments.items()}
        parsed = _parsed(name, tile, edits if name == kernel else ())
        interpret.run(parsed, flat, self.contract.programs(values))

    with patch.multiple(sample, **SIZES), patch.object(Kernel, "launch", launch):
        yield


@cache
def _parsed(name: str, tile: Tile, edits: Edits) -> ir.Kernel:
    changed = text(name, tile)
    for old, new in edits:
        assert changed.count(old) == 1, (name, old)
        changed = changed.replace(old, new)
    return parse(changed)


def deciding_bits(row: Sequence[float], state: SamplerState) -> list[int]:
    """Of each token that may be drawn, the lowest and the highest bits by which it is."""
    reached = [0, *accumulate(share for _, share in kept(row, state))]
    borders = [-(-(total << 64) // reached[-1]) for total in reached]
    return sorted({bits for low, high in pairwise(borders) for bits in (low, high - 1)})


def lying(lies: Sequence[Ends]) -> Callable[..., torch.Tensor]:
    """A search that finds these ends, of as many rows, and what is there when it is asked again."""
    found = iter([torch.tensor(lies, dtype=torch.int32)])

    def search(*arguments: Any) -> torch.Tensor:
        told = next(found, None)
        return boundaries(*arguments) if told is None else told

    return search


def differing(
    cases: Sequence[Case], kernel: str = "", edits: Edits = (), lies: Sequence[Ends] | None = None
) -> list[Case]:
    """The cases in which the kernels do not draw what the text draws; where they refuse one, all of its length.

    Of each case the search may first lie; all of them have cuts, then.
    """
    found: list[Case] = []
    groups: dict[tuple[int, bool], list[int]] = {}
    for place, (row, state, _) in enumerate(cases):
        groups.setdefault((len(row), state.top_k > 0 or state.top_p < P_UNIT), []).append(place)
    for (_, cuts), places in groups.items():
        group = [cases[place] for place in places]
        numbers = [(s.top_k, s.top_p, s.min_p, bits - (bits >> 63 << 64)) for _, s, bits in group]
        parameters = sample.Parameters(
            torch.tensor([state.temperature for _, state, _ in group], dtype=torch.float64),
            *torch.tensor(numbers, dtype=torch.int64).T.contiguous(),
        )
        search = boundaries if lies is None else lying([lies[place] for place in places])
        with interpreted(kernel, edits), patch.object(sample, "boundaries", search):
            try:
                drawn = sample.draw(torch.tensor([row for row, _, _ in group]), parameters, cuts=cuts).tolist()
            except UndecidedRowError:
                drawn = [None] * len(group)
        wanted = [[choose(kept(row, state), bits), sample.DRAWN] for row, state, bits in group]
        found += [case for case, one, other in zip(group, drawn, wanted, strict=True) if one != other]
    return found
