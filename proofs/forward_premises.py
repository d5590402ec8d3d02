"""What the contracts assume of a launch, and where each of it is seen to.

A contract (`vosti.kernels.contract`) has four kinds of premises. Those over sizes, and that buffers do not overlap, the
launcher checks of every launch (`vosti.kernels.launch`). The range of each integer, and that the rows of a sequence
stand together, the backend checks on the host's copy of a batch, before anything is launched
(`vosti.impl.backends.cuda.metadata`). What integers say of each other is a theorem of every batch that the engine may
ask for (`vosti.proofs.forward_rows`). That numbers are finite is found on the device.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from vosti.kernels.catalogue import KERNELS
from vosti.kernels.contract import Buffer, Contract

LAUNCHER = "checked by the launcher: PremiseError before anything is launched"
PACKED = "checked on the host's copy: BatchError before anything is launched"
MADE = "by construction: the backend computes it from rows that it has checked"

INTEGERS: Mapping[str, str] = {
    "tokens": PACKED,
    "positions": PACKED,
    "slots": PACKED,
    "row_map": PACKED,
    "tables": PACKED,
    "starts": MADE,
    "counts": MADE,
    "lengths": MADE,
}
"""Where the range of each buffer of integers is seen to."""

FACTS: Mapping[str, str] = {
    "0 <= counts[b] <= lengths[b]": "proved: counts_fit",
    "starts[b] + counts[b] <= rows": "proved: rows_fit",
    "b == c or starts[b] + counts[b] <= starts[c] or starts[c] + counts[c] <= starts[b]": "proved: ranges_differ",
    "tables[b, c] >= 0 or lengths[b] <= c * PAGE": "proved: tables_reach; and " + PACKED,
    "i == k or slots[i] < 0 or slots[i] != slots[k]": "proved: slots_differ, flat_is_unique; and " + PACKED,
    "counts[b] <= tiles * BLOCK_Q": "by construction: the launcher takes ⌈most_rows / BLOCK_Q⌉ tiles",
    "counts[b] <= BLOCK_Q": LAUNCHER + " (most_rows · GROUP ≤ BLOCK_R)",
    "counts[b] <= most_rows": "by construction: the backend takes the most rows of a sequence, or more",
    "lengths[b] <= 2**30": "checked by the launcher of attention_split (table_width · PAGE ≤ 2^30)",
}
"""Where each fact about the contents of integer buffers is seen to, by its text; theorems are of `forward_rows`."""

SPLITS = "by construction: `splits_needed`, of the longest sequence and the most rows"

MEMORY: tuple[tuple[str, str], ...] = (
    (
        "keys and values that are read are finite",
        "flagged on the device where they are stored: the request fails in that step, its pages are never published",
    ),
    ("slots that are read hold f_KV of their positions", "proved: cached_is_found, computed_is_found, from Inv"),
    ("slots that are written are read by no other sequence", "proved: cached_is_left, from forward_ok"),
    ("no launch is skipped, and none overtakes another", "assumed: one stream, in the order of the plan"),
    ("each kernel keeps its contract", "what vosti.kernels.verifier is for"),
)
"""What holds of the contents of other buffers, and of launches."""


@dataclass(frozen=True)
class Premise:
    """One premise of one kernel's contract."""

    kernel: str
    statement: str
    place: str
    """Where it is seen to; empty if nowhere."""


FOLLOWED = (
    "attention",
    "attention_merge",
    "attention_split",
    "embedding",
    "gate_up",
    "gate_up_stream",
    "linear",
    "linear_stream",
    "logits",
    "rms_norm",
    "rotary_store",
)
"""The kernels of launch plans."""


def premises(kernels: Iterable[str]) -> list[Premise]:
    """All premises of some kernels' contracts."""
    return [one for kernel in sorted(set(kernels)) for one in _premises(KERNELS[kernel].contract)]


def _premises(contract: Contract) -> Iterator[Premise]:
    for statement in (*contract.premises, "buffers do not overlap, but where the contract says so"):
        yield Premise(contract.kernel, statement, LAUNCHER)
    for parameter in contract.parameters:
        if isinstance(parameter, Buffer) and parameter.within is not None:
            low, high = parameter.within
            statement = f"{low} <= {parameter.name}[...] < {high}"
            yield Premise(contract.kernel, statement, INTEGERS.get(parameter.name, ""))
    for fact in contract.facts:
        place = SPLITS if fact.holds.startswith("splits >= ") else FACTS.get(fact.holds, "")
        yield Premise(contract.kernel, fact.holds, place)
