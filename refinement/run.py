"""What a checker knows in the middle of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from vosti.refinement.codec import NO_VALUES
from vosti.refinement.entries import Header
from vosti.refinement.observations import Observations
from vosti.refinement.outputs import Outputs
from vosti.refinement.positions import Positions
from vosti.refinement.violation import Place
from vosti.refinement.witnesses import Witnesses
from vosti.spec.candidates import Candidates
from vosti.spec.determinism import Admission, Record
from vosti.spec.events import RowBits
from vosti.spec.rows import Rows
from vosti.spec.state import PageId, RequestId, State, initial


@dataclass
class Forward:
    """The last forward, as the settle phase looks back at it."""

    rows: Rows = ()

    yielded: dict[tuple[RequestId, int], RowBits] = field(default_factory=dict)
    """The logits of each request and position."""

    used: set[tuple[RequestId, int]] = field(default_factory=set)
    """Those that were emitted or observed."""

    lengths: dict[RequestId, int] = field(default_factory=dict)
    """Of each request with a row of logits, the length of its history in the forward."""

    values: Mapping[str, bytes] = field(default_factory=lambda: NO_VALUES)
    """In mode "full", the bits behind digests."""


class Run:
    """A run up to some point: the state of the specification with digests for values, and what goes beside it."""

    def __init__(self, header: Header, observations: Observations, trace: str) -> None:
        """The run that a header announces, before its first step."""
        self.header = header
        self.full = header.mode == "full"
        self.drawn_from: Iterator[Candidates] | None = None
        """In mode "candidates", those of the emits of this step that are still to come."""

        self.state: State = initial(frozenset(map(PageId, range(header.pages))), header.page_size)
        self.place = Place(trace)
        self.observations = observations
        self.positions = Positions(observations.prefixes)
        self.witnesses = Witnesses()
        self.outputs = Outputs()
        self.forward = Forward()

        self.children: Counter[PageId] = Counter()
        """How many registered pages have a page as their parent."""

        self.admitted: dict[RequestId, Admission] = {}
        """Every request so far, with what it brought."""

        self.records: dict[RequestId, list[Record]] = {}
        """Every request's view so far."""

        self.failed: set[RequestId] = set()
        """The requests whose view was ended by an error."""

        self.rows = 0
        """Live rows so far."""

    @property
    def step(self) -> int:
        """The step that the run is in."""
        return -1 if self.place.step is None else self.place.step
