"""Linear and gated layers: every tile has the bits of the first, on random and hostile data."""

from __future__ import annotations

import torch
from common import DEVICE, entries_of, entry, equal, none_of, run_gate_up, run_linear, settle
from torch import Tensor
from triton.runtime.errors import OutOfResources

from vosti.kernels.candidates import candidates
from vosti.kernels.hostile import KINDS, pair
from vosti.kernels.tables import Choice
from vosti.kernels.tuning import TIMED, differing_bits


def _tile_choices(operation: str, **sizes: int) -> list[Choice]:
    """Every tile of the entry, and some of the candidates."""
    starting = entry(operation, **sizes)
    chosen = []
    for choice in starting.choices:
        options = list(candidates(starting, choice, "sm_90"))
        chosen += [Choice(None, choice.kernel, tile) for tile in (options[0], *options[1 :: max(1, len(options) // 4)])]
    return chosen


def _run(operation: str, x: Tensor, weight: Tensor, sizes: dict[str, int], choice: Choice) -> Tensor:
    if operation == "gate_up":
        return run_gate_up(x, weight, sizes["activation"], choice)
    return run_linear(x, weight, choice, torch.float32 if operation == "head" else torch.bfloat16)


def tiles_section(which: str) -> None:
    """Every tile gives the bits of the first, on random and hostile data, for rows that fill no tile."""
    rows = 199
    if which == "linear":
        shapes = [("linear", {"n": 520, "k": k}) for k in (64, 704, 4096)]
        shapes += [("head", {"n": 1000, "k": 1152})]
    else:
        shapes = [("gate_up", {"n": 264, "k": k, "activation": a}) for k, a in ((64, 0), (1152, 1), (4096, 0))]
    for operation, sizes in shapes:
        choices = _tile_choices(operation, **sizes)
        for kind in KINDS:
            columns = sizes["n"] * (2 if operation == "gate_up" else 1)
            x, weight = pair(kind, rows, columns, sizes["k"], DEVICE)
            results = []
            for choice in list(choices):
                try:
                    results.append(_run(operation, x, weight, sizes, choice))
                except OutOfResources:
                    choices.remove(choice)
            for choice, result in zip(choices, results, strict=True):
                equal(f"{operation} {sizes} {kind} {choice}", result, results[0])
        settle()
        print(f"tiles: {operation} {sizes}: {len(choices)} tiles x {len(KINDS)} kinds of data, equal", flush=True)


def table_matrices_section(model: str) -> None:
    """All tiles of the model's linear, gated and head entries have the bits of the entry's first."""
    mine = entries_of(model, *TIMED)
    for one in mine:
        for choice, kind in differing_bits(one, one.choices):
            none_of(f"{one.operation} {one.dimensions} {choice} on {kind}", torch.ones(1, device=DEVICE))
    settle()
    tiles = sum(len(one.choices) for one in mine)
    print(f"table: {model}: {len(mine)} entries, {tiles} tiles x {len(KINDS)} kinds of data, equal", flush=True)
