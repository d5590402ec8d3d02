"""How the suite drives an engine: requests of token ids in; logit rows, tokens and schedule out.

An engine that is measured is a `Subject`; it is opened with `Settings` and then serves. One is open at a time, so that
a subject needs memory for one pool; while another process has its turn, for none. What a subject cannot do it leaves
out of `abilities`, and the axes that need it are reported as not applicable; what it cannot show it leaves None, and a
pair then counts on what was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Protocol


class Ability(Enum):
    """What an engine can do or show beyond serving batches of greedy requests."""

    STEPS = "arrivals between steps"
    PAGES = "a choice of pages"
    SAMPLING = "seeded sampling"
    DRAFTS = "scripted drafts"
    KV = "bytes of keys and values"
    OBSERVED = "logits of prompt positions"
    NON_FINITE = "a token whose values are not finite"


@dataclass(frozen=True)
class Sampling:
    """How a request samples; temperature 0 is greedy."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class Draft:
    """A draft before each step: `length` tokens, of which the first `right` are right and the next one is wrong."""

    length: int
    right: int
    expected: tuple[int, ...]
    """The tokens that the request emits without drafts."""


@dataclass(frozen=True)
class Ask:
    """A request of the suite. It goes on after end-of-sequence tokens."""

    name: str
    prompt: tuple[int, ...]
    max_tokens: int = 2
    sampling: Sampling = Sampling()
    at: int = 0
    """Before which step it arrives, counted from the call that serves it."""

    cancel_at: int | None = None
    """Before which step it is called off."""

    draft: Draft | None = None
    observe: bool = False
    """Whether logits of all its prompt's positions are wanted, too."""


@dataclass(frozen=True)
class Settings:
    """How an engine is opened. None of these may change a value."""

    token_budget: int
    """Rows of one forward, at most; as large as the longest prompt, it means: no chunks."""

    max_seqs: int
    page_size: int
    pages: int
    prefix_caching: bool = False
    page_seed: int = 0
    poison: bool = False
    """Whether the pool starts full of NaN."""

    keep_kv: bool = False
    """Whether answers hold the bytes of keys and values."""

    non_finite_token: int | None = None
    """A token whose embedding is NaN."""

    variant: str = ""
    """One of the subject's `variants`, or none."""


@dataclass(frozen=True)
class Piece:
    """The part of a request that one forward computed."""

    start: int
    stop: int
    """Positions start .. stop - 1."""

    company: int
    """Other requests in the forward."""

    live: int
    """Rows of the forward that belong to some request."""

    rows: int
    """All rows of the forward: padding included."""

    draft: int = 0
    """How many of the positions are a draft's."""

    tiles: str = ""
    """Names the tiles that the kernels ran with, where the engine shows them."""

    replayed: bool | None = None
    """Whether the forward was replayed from a captured graph, where the engine shows it."""


@dataclass(frozen=True)
class Schedule:
    """How a request was served, as the engine showed it; None where it does not show it."""

    settings: Settings
    process: str
    """Differs between processes."""

    asked_with: tuple[str, ...]
    """The names of the requests of the same call."""

    pieces: tuple[Piece, ...] | None = None
    taken: tuple[int, ...] = ()
    """For each token of the answer, after how many pieces its logits were taken."""

    pages: tuple[int, ...] | None = None
    """The pages of its positions, in order."""

    preempted_at: tuple[int, ...] | None = None
    """Slots that were initialised when it was preempted, each time."""

    evictions: int | None = None
    """Pages that were evicted while it was served."""


@dataclass(frozen=True)
class Answer:
    """What became of a request."""

    tokens: tuple[int, ...]
    rows: tuple[bytes, ...]
    """For each token the logits that it was taken from: float32, little-endian, the whole vocabulary."""

    hit_tokens: int | None
    """Tokens of the prompt that came from the prefix cache."""

    ended: str
    """"length", "stop", "cancelled" or "error"."""

    schedule: Schedule
    observed: Mapping[int, bytes] = field(default_factory=dict)
    """Of an `observe`: by position the logits of the token after it."""

    kv: tuple[bytes, ...] = ()
    """Of `keep_kv`: by position the bytes of its keys and values, read through its page table when it ended."""


@dataclass(frozen=True)
class Vocabulary:
    """What prompts are made of."""

    size: int
    bos: int | None
    special: frozenset[int]
    """Added, special, beginning, padding and end tokens: no prompt holds them, but for its beginning."""


class Arm(Protocol):
    """An opened engine; what it caches, it keeps from call to call."""

    def serve(self, asks: Sequence[Ask]) -> list[Answer]:
        """Serve requests together, and answer them in order."""

    def __enter__(self) -> Arm:
        """Itself."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let its memory go."""


class Subject(Protocol):
    """An engine with a model."""

    @property
    def name(self) -> str:
        """Of the engine, as tables show it."""

    @property
    def abilities(self) -> frozenset[Ability]:
        """What it can do."""

    @property
    def variants(self) -> Mapping[str, Sequence[str]]:
        """Ways to compute that must not change a value, by axis: such as the tiles that a kernel may use."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The model's vocabulary."""

    @property
    def context(self) -> int:
        """The longest sequence, in tokens."""

    @property
    def window(self) -> int | None:
        """The sliding window of the model's local layers, if there is one."""

    def configuration(self) -> Mapping[str, object]:
        """W: what may change a value, as JSON types."""

    def environment(self) -> Mapping[str, str]:
        """Versions and hardware, for the report."""

    def open(self, settings: Settings) -> Arm:
        """An engine with an empty pool. Takes memory again that was let go."""

    def release(self) -> None:
        """Let the memory go that the same engine needs in another process: weights and pool. No arm may be open."""

    def fresh(self) -> Sequence[str]:
        """The arguments of `python -m vosti.impl.determinism.fresh` that make the same subject in another process."""
