"""Sampling where the logits lie, on a GPU: whole batches at once, and one wait for all tokens, one more for cuts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from vosti.kernels.launch import aligned
from vosti.kernels.sample import DRAWN, Parameters, draw
from vosti.spec.sampling import P_UNIT, SamplerState, draw_bits


def tokens(logits: Tensor, states: Sequence[SamplerState]) -> list[int | None]:
    """The token of each row of logits [n, vocabulary], float32; None where another way has to be gone.

    That is so for greedy rows, which take one look, and for rows that the specification refuses.
    """
    groups: dict[bool, list[int]] = {False: [], True: []}
    """By whether there are cuts."""

    for row, state in enumerate(states):
        cuts = state.top_k > 0 or state.top_p < P_UNIT
        if state.temperature > 0:
            groups[cuts].append(row)
    rows = [row for group in groups.values() for row in group]
    results = [_found(logits, states, group, cuts) for cuts, group in groups.items() if group]
    drawn = dict(zip(rows, torch.cat(results).tolist(), strict=True)) if results else {}
    return [drawn[row][0] if row in drawn and drawn[row][1] == DRAWN else None for row in range(len(states))]


def _found(logits: Tensor, states: Sequence[SamplerState], group: Sequence[int], cuts: bool) -> Tensor:
    """[n, 2] Tokens of some rows, and what became of each."""
    chosen = logits if len(group) == len(logits) else logits[torch.tensor(group, device=logits.device)]
    return draw(aligned(chosen), _parameters([states[row] for row in group], logits.device), cuts=cuts)


def _parameters(states: Sequence[SamplerState], device: torch.device) -> Parameters:
    """One copy to the device."""
    # Rows of an even length: every pointer is a multiple of 16 bytes.
    padding = [0] * (len(states) % 2)
    temperatures = torch.tensor([state.temperature for state in states] + padding, dtype=torch.float64)
    integers = [
        [state.top_k for state in states],
        [state.top_p for state in states],
        [state.min_p for state in states],
        [_signed(draw_bits(state)) for state in states],
    ]
    table = torch.tensor([numbers + padding for numbers in integers], dtype=torch.int64)
    there = torch.cat([temperatures.view(torch.int64)[None], table]).to(device)
    columns = there[:, : len(states)]
    return Parameters(columns[0].view(torch.float64), *columns[1:])


def _signed(bits: int) -> int:
    """The 64-bit integer of the same bits."""
    return bits - 2**64 if bits >= 2**63 else bits
