"""What a caller may choose: the engine's options, the certificates that kernels need, and a request's sampling
parameters. They are checked when they are made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields

from vosti.impl.errors import InvalidOptionError
from vosti.spec.sampling import SamplerState, sampler_state


def _require(condition: bool, name: str, value: object, allowed: str) -> None:
    if not condition:
        raise InvalidOptionError(f"{name} is {value!r}: it must be {allowed}.")


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@dataclass(frozen=True)
class EngineOptions:
    """How an engine runs. None of these may change a value; a test and every trace check that they do not.

    Raises `InvalidOptionError`, naming the option and its range.
    """

    page_size: int = 16
    """Slots per page."""

    pages: int = 512
    """Pages in the pool."""

    max_seqs: int = 16
    """Requests with rows in one forward, at most."""

    token_budget: int = 64
    """Live rows in one forward, at most."""

    prefix_caching: bool = True
    """Whether pages are published and attached."""

    page_seed: int = 0
    """Which free page is taken next: 0 in the order of page numbers, any other number in an order of its own."""

    poison: bool = False
    """Whether the pool is filled with NaN at the start, so that a read of a slot that nobody wrote would show."""

    reread: bool = False
    """Whether a tracer reads every initialised slot again after each step."""

    speculative_tokens: int = 0
    """How many tokens a draft has, at most: what followed a request's last tokens where they stood in it before
    (`vosti.impl.drafting.PromptLookup`); 0 for no drafts.
    """

    prompt_lookup_max: int = 4
    """How many of a request's last tokens are looked up in it, at first."""

    prompt_lookup_min: int = 2
    """How few of them, at last."""

    check_steps: bool = False
    """Whether the engine asserts of each of its steps that it is one of the specification, as far as can be judged
    without values (`vosti.impl.assertions`).
    """

    def __post_init__(self) -> None:
        for name in ("page_size", "pages", "max_seqs", "token_budget"):
            value = getattr(self, name)
            _require(_is_integer(value) and value >= 1, name, value, "an integer of at least 1")
        for name in ("page_seed", "speculative_tokens"):
            value = getattr(self, name)
            _require(_is_integer(value) and value >= 0, name, value, "an integer of at least 0")
        least, most = self.prompt_lookup_min, self.prompt_lookup_max
        _require(_is_integer(least) and least >= 1, "prompt_lookup_min", least, "an integer of at least 1")
        _require(
            _is_integer(most) and most >= least,
            "prompt_lookup_max",
            most,
            f"an integer of at least {least}, the minimum",
        )
        for name in ("prefix_caching", "poison", "reread", "check_steps"):
            value = getattr(self, name)
            _require(isinstance(value, bool), name, value, "True or False")

    @classmethod
    def from_keywords(cls, **keywords: object) -> EngineOptions:
        """Options by name. Raises `InvalidOptionError` for a name that does not exist."""
        names = [field.name for field in fields(cls)]
        unknown = sorted(set(keywords) - set(names))
        if unknown:
            raise InvalidOptionError(f"There is no engine option {unknown[0]!r}: the options are {', '.join(names)}.")
        return cls(**keywords)  # type: ignore[arg-type]  # checked by __post_init__


@dataclass(frozen=True)
class Certification:
    """Which certificates are asked for of the kernels that a GPU runs; where there is none, none of it matters.

    Raises `InvalidOptionError` if both of the first two are asked for.
    """

    certified_only: bool = False
    """Whether a kernel without a certificate is refused, instead of proved when a model is loaded."""

    unsafe_unverified: bool = False
    """Whether kernels run without certificates; the configuration W then says so."""

    page_sizes: tuple[int, ...] = ()
    """Sizes of pages that pools will have. Kernels for other ones are seen to when there is such a pool."""

    advance: Callable[[float, float], None] = field(default=lambda done, total: None, repr=False, compare=False)
    """Told how many proofs are done, and of how many: 0 at first, and all at the end, however it ends."""

    def __post_init__(self) -> None:
        if self.certified_only and self.unsafe_unverified:
            raise InvalidOptionError("certified_only and unsafe_unverified exclude each other: give one of them.")


PROVE_MISSING = Certification()
"""Kernels without a certificate are proved when a model is loaded."""


@dataclass(frozen=True)
class SamplingParams:
    """How one request samples, and when it stops.

    Raises `InvalidOptionError`, naming the parameter and its range.
    """

    max_tokens: int = 16
    """How many tokens it emits, at most."""

    temperature: float = 1.0
    """0 is greedy: the largest logit, of equal ones the lowest token id."""

    top_k: int = 0
    """How many candidates are kept; 0 keeps all."""

    top_p: float = 1.0
    """The mass of candidates that is kept, in (0, 1]."""

    min_p: float = 0.0
    """The least weight that is kept, relative to the largest, in [0, 1]."""

    seed: int | None = None
    """64 bits. If it is missing one is drawn, and returned with the output."""

    stop_token_ids: tuple[int, ...] = ()
    """Tokens that end the request, beside the model's own end-of-sequence tokens."""

    ignore_eos: bool = False
    """Whether the model's end-of-sequence tokens are ordinary tokens."""

    logprobs: int | None = None
    """How many of the most likely tokens are reported with each output, beside the one that was sampled; None for
    nothing.
    """

    prompt_logprobs: int | None = None
    """How many of the most likely tokens are reported with each token of the prompt, beside that token itself; None for
    nothing. What is reported has to be computed, so it is not taken from the prefix cache.
    """

    prompt_logprobs_start: int = 0
    """From which position of the prompt on they are reported; the first token of all has none, for nothing precedes it.
    """

    def __post_init__(self) -> None:
        object.__setattr__(self, "stop_token_ids", tuple(self.stop_token_ids))
        tokens, stops, start = self.max_tokens, self.stop_token_ids, self.prompt_logprobs_start
        _require(_is_integer(tokens) and tokens >= 1, "max_tokens", tokens, "an integer of at least 1")
        _require(all(map(_is_integer, stops)), "stop_token_ids", stops, "a sequence of token ids")
        _require(_is_integer(start) and start >= 0, "prompt_logprobs_start", start, "an integer of at least 0")
        for name in ("logprobs", "prompt_logprobs"):
            asked = getattr(self, name)
            _require(asked is None or (_is_integer(asked) and asked >= 0), name, asked, "0 or more, or None")
        try:
            self.sampler(0 if self.seed is None else self.seed)
        except (TypeError, ValueError) as error:
            raise InvalidOptionError(str(error)) from error

    def sampler(self, seed: int) -> SamplerState:
        """The initial sampler state: what Definition 2.1 calls sampler₀."""
        return sampler_state(
            temperature=self.temperature, top_k=self.top_k, top_p=self.top_p, min_p=self.min_p, seed=seed
        )
