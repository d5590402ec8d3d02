"""What a mutated engine is put through: `vosti check` itself, on small workloads, with a backend without a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from command_line import Ended, vosti
from hashing_backend import HashingBackend

FOLDER = Path(__file__).parents[2] / "automatic_mutants" / "workloads"
"""The workloads, in the format of docs/workloads.md."""

MODEL = Path(__file__).parents[3] / "impl" / "checkpoints" / "tiny-gemma3"
"""Nothing of it is used but the name and the tokenizer: what computes is a `HashingBackend`."""


@dataclass(frozen=True)
class Check:
    """One call of `vosti check`."""

    workload: str
    """A file of `FOLDER`, without its ending."""

    options: str
    """As on the command line."""

    require: str
    """What is required with `--require`: no less than what the whole engine exercises."""

    backend: Mapping[str, Any] = field(default_factory=dict)
    """The arguments of `HashingBackend`."""


CHECKS = (
    Check(
        "twins",
        "--page-size 2 --pages 11",
        "requests>=4 mixed_batches>=1 partial_hits>=2 full_hits>=1 evictions>=10 reuses_after_eviction>=10 "
        "preemptions>=3 recomputations>=1 finished>=4",
    ),
    Check(
        "chains",
        "--page-size 2 --pages 40 --token-budget 64 --mode full",
        "requests>=10 domains>=3 mixed_batches>=3 partial_hits>=1 full_hits>=3 finished>=10",
    ),
    Check(
        "sick",
        "--page-size 2 --pages 40 --speculative-tokens 2",
        "requests>=7 failures>=5 finished>=2 observations>=8",
        {"sick_tokens": frozenset({10}), "sick_endings": frozenset({9})},
    ),
    Check(
        "fits",
        "--page-size 4 --pages 3 --token-budget 4 --reread",
        "requests>=3",
        {"max_positions": 13},
    ),
    Check(
        "asks",
        "--page-size 2 --pages 9 --max-seqs 4 --token-budget 5 --mode full",
        "requests>=6 mixed_batches>=4 chunked_prefills>=3 partial_hits>=5 full_hits>=4 shared_attaches>=18 "
        "evictions>=13 reuses_after_eviction>=13 preemptions>=4 recomputations>=3 finished>=6 drafts_accepted>=5 "
        "drafts_rejected>=1 observations>=13",
    ),
    Check(
        "busy",
        "--page-size 2 --pages 23 --max-seqs 4 --token-budget 12 --reread --mode candidates",
        "requests>=10 domains>=2 mixed_batches>=7 chunked_prefills>=15 partial_hits>=40 shared_attaches>=131 "
        "evictions>=85 reuses_after_eviction>=85 preemptions>=32 recomputations>=10 cancellations>=1 finished>=9 "
        "drafts_accepted>=13 drafts_rejected>=10",
        {"eos_ids": (5,), "finds_largest": True},
    ),
)
"""In the order in which they are made: short ones first."""


def ended(check: Check, folder: Path) -> Ended:
    """Run the command in this process.

    Args:
        check: what is asked for.
        folder: takes the traces, and what `--json` writes (`result.json`).
    """
    from vosti.impl import opening

    required = [word for requirement in check.require.split() for word in ("--require", requirement)]
    workload, result, traces = FOLDER / f"{check.workload}.json", folder / "result.json", folder / "traces"
    arguments: list[str | Path] = [*check.options.split(), *required, "--workload", workload]
    arguments += ["--json", result, "--keep", traces]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "open_backend", lambda *model, **how: HashingBackend(**check.backend))
        return vosti("check", MODEL, *arguments)
