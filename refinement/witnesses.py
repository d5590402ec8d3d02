"""What a run exercised: counts of situations in which an engine could go wrong, from the events alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

from vosti.spec.rows import Rows
from vosti.spec.sampling import SamplerState
from vosti.spec.state import Domain, PageId, RequestId, State, history
from vosti.spec.step import (
    Action,
    Admit,
    Allocate,
    Attach,
    Cancel,
    Emit,
    Evict,
    Fail,
    Finish,
    Observe,
    Preempt,
    Retract,
    last_position,
)

WITNESSES: Mapping[str, str] = MappingProxyType(
    {
        "requests": "requests admitted",
        "domains": "domains that they belong to",
        "mixed_batches": "forwards with a prefill and a decode",
        "chunked_prefills": "chunks of a prefill after which more was to come",
        "partial_hits": "prefix matches that reused some pages of those that a history could reuse",
        "full_hits": "prefix matches that reused every page that a history could reuse",
        "shared_attaches": "pages attached while another live request held them",
        "evictions": "retained pages given up",
        "reuses_after_eviction": "evicted pages taken again",
        "preemptions": "requests that gave their pages back to an earlier one",
        "recomputations": "preempted requests that were computed again",
        "cancellations": "requests called off",
        "failures": "requests ended by a value that is not finite",
        "finished": "requests that came to their end",
        "drafts_accepted": "drafted tokens that turned out right",
        "drafts_rejected": "drafts dropped because a token turned out wrong",
        "observations": "logits reported of earlier positions",
        "records": "output records",
        "seeded_samples": "of these, with a token drawn at a temperature above 0",
    }
)
"""Name of a witness count → what is counted."""


class Witnesses:
    """Counts, as a run goes by. Each method takes the state that it happens in."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(WITNESSES, 0))
        self._domains: set[Domain] = set()
        self._evicted: set[PageId] = set()
        self._preempted: set[RequestId] = set()
        self._hit: dict[RequestId, None] = {}

    def action(self, s: State, action: Action) -> None:
        """An action happens in s."""
        count = self.counts
        match action:
            case Admit(domain=domain):
                count["requests"] += 1
                self._domains.add(domain)
                count["domains"] = len(self._domains)
            case Attach(request=r, page=page_id):
                self._hit[r] = None
                count["shared_attaches"] += bool(s.pages[page_id].holders)
            case Allocate(page=page_id):
                count["reuses_after_eviction"] += page_id in self._evicted
                self._evicted.discard(page_id)
            case Evict(page=page_id):
                count["evictions"] += 1
                self._evicted.add(page_id)
            case Preempt(request=r):
                count["preemptions"] += 1
                self._preempted.add(r)
                self._hit.pop(r, None)
            case Cancel(request=r):
                count["cancellations"] += 1
                self._hit.pop(r, None)
            case Emit(request=r):
                sampler = s.requests[r].sampler
                count["records"] += 1
                count["drafts_accepted"] += s.requests[r].draft != ()
                count["seeded_samples"] += isinstance(sampler, SamplerState) and sampler.temperature > 0
            case Retract():
                count["drafts_rejected"] += 1
            case Observe():
                count["observations"] += 1
            case Fail():
                count["failures"] += 1
            case Finish():
                count["finished"] += 1
            case _:
                pass

    def planned(self, s: State) -> None:
        """The plan leads to s."""
        for r in self._hit:
            request = s.requests[r]
            reusable = (len(history(request)) - 1) // s.page_size
            attached = sum(1 for page_id in request.table if s.pages[page_id].registered)
            self.counts["full_hits" if attached == reusable else "partial_hits"] += 1
        self._hit = {}

    def forward(self, s: State, rows: Rows) -> None:
        """A forward computes `rows` in s."""
        spans: dict[RequestId, tuple[int, int]] = {}
        for row in rows:
            if row.request is not None:
                first, _ = spans.get(row.request, (row.position, 0))
                spans[row.request] = (first, row.position)
        prefills = decodes = 0
        for r, (first, last) in spans.items():
            request = s.requests[r]
            end = last_position(request)
            decodes += first >= end and request.output != ()
            prefills += first < end or request.output == ()
            self.counts["chunked_prefills"] += last < end
            if r in self._preempted:
                self.counts["recomputations"] += 1
                self._preempted.discard(r)
        self.counts["mixed_batches"] += prefills > 0 and decodes > 0
