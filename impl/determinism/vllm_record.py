"""What is read off vLLM while it serves: the rows that tokens are taken from, and the pieces that were scheduled.

A row is kept by how many tokens its request has so far: a row that ends no prompt, or is computed again after a
preemption, is overwritten by the one that the token is taken from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vosti.impl.determinism.errors import SuiteError
from vosti.impl.determinism.protocol import Piece, Schedule, Settings

KEY = "vosti"
"""Of a request's extra arguments: which of its call it is."""


class Record:
    """Of one call: rows, and pieces, by request."""

    def __init__(self) -> None:
        self.begin(0)

    def begin(self, count: int) -> None:
        """Forget the call before; this one has `count` requests."""
        self.requests: dict[str, int] = {}
        self.pieces: list[list[Piece]] = [[] for _ in range(count)]
        self.kept: list[dict[int, tuple[bytes, int]]] = [{} for _ in range(count)]

    def keep(self, request: int, index: int, row: bytes) -> None:
        """Keep the row of what may become the token at `index` of an answer."""
        self.kept[request][index] = row, len(self.pieces[request])

    def rows(self, request: int, tokens: Sequence[int]) -> tuple[bytes, ...]:
        """The row of each token. Raises `SuiteError` if a token has no row, or one in which it is not the largest."""
        rows = []
        for i, token in enumerate(tokens):
            row = self.kept[request].get(i, (b"", 0))[0]
            numbers = np.frombuffer(row, "<f4")
            if token >= len(numbers) or numbers[token] != numbers.max():
                raise SuiteError(
                    f"vLLM's token {i} of request {request} is not the largest of the logits that were read."
                )
            rows.append(row)
        return tuple(rows)

    def schedule(self, request: int, settings: Settings, process: str, names: tuple[str, ...]) -> Schedule:
        """How a request was served; padding of captured graphs is not seen."""
        taken = tuple(pieces for _, (_, pieces) in sorted(self.kept[request].items()))
        return Schedule(settings, process, names, pieces=tuple(self.pieces[request]), taken=taken)


def read_schedules(scheduler: Any, record: Record) -> None:
    """Have vLLM's scheduler write each decision down."""
    decide = scheduler.schedule

    def schedule(*arguments: object) -> Any:
        decided = decide(*arguments)
        new, old = decided.scheduled_new_reqs, decided.scheduled_cached_reqs
        record.requests |= {request.req_id: request.sampling_params.extra_args[KEY] for request in new}
        starts = {request.req_id: request.num_computed_tokens for request in new}
        starts |= zip(old.req_ids, old.num_computed_tokens, strict=True)
        counts = decided.num_scheduled_tokens
        live = decided.total_num_scheduled_tokens
        for name, count in counts.items():
            piece = Piece(starts[name], starts[name] + count, len(counts) - 1, live, live)
            record.pieces[record.requests[name]].append(piece)
        return decided

    scheduler.schedule = schedule


def recorder(processors: Any, record: Record) -> type:
    """A class of logits processors that change nothing and keep every row.

    Args:
        processors: the module `vllm.v1.sample.logits_processor`.
        record: where the rows go.
    """

    def begin(self: Any, *_: object) -> None:
        self.requests = {}

    def update(self: Any, change: Any) -> None:
        processors.process_dict_updates(self.requests, change, _request)

    def apply(self: Any, logits: Any) -> Any:
        for at, (request, tokens) in self.requests.items():
            record.keep(request, len(tokens), logits[at].float().cpu().numpy().astype("<f4", copy=False).tobytes())
        return logits

    members = {
        "__init__": begin,
        "is_argmax_invariant": lambda self: False,  # else it would not be asked where all requests are greedy
        "update_state": update,
        "apply": apply,
    }
    return type("Recorder", (processors.LogitsProcessor,), members)


def _request(params: Any, prompt: object, tokens: list[int]) -> tuple[int, list[int]] | None:
    """The request that is ours, and its tokens so far: the list that vLLM appends to."""
    request = (params.extra_args or {}).get(KEY)
    return None if request is None else (request, tokens)
