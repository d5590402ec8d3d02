"""What the caller of an engine gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vosti.impl.settling import LiveRecord

if TYPE_CHECKING:
    from vosti.impl.sampling import Logprobs


@dataclass(frozen=True)
class RequestOutput:
    """What the caller gets about one request at the end of a step."""

    request_id: str
    prompt_token_ids: tuple[int, ...]

    new_token_ids: tuple[int, ...]
    """The tokens of this step."""

    token_ids: tuple[int, ...]
    """All tokens so far, without the prompt."""

    finish_reason: str | None
    """"stop", "length", "cancelled" or "error"; None while it goes on."""

    logprobs: tuple[Logprobs, ...]
    """One for each token, of the raw logits, if they were asked for."""

    prompt_logprobs: tuple[Logprobs | None, ...]
    """One for each token of the prompt, of the raw logits, if they were asked for: None for the first one, for those
    that were not asked for, and where a logit is not finite. Shorter if the request ended before its prompt did.
    """

    hit_tokens: int
    """How many tokens of the prompt were found in the prefix cache when it was first scheduled."""

    seed: int
    """The sampler's seed: the one that was given, or the one that was drawn."""

    fingerprint: str
    """The configuration W: equal prompts, parameters and seeds give equal outputs where it is equal."""


def of_prompt(record: LiveRecord) -> tuple[Logprobs | None, ...]:
    """The log-probabilities of a request's prompt, as its caller gets them."""
    if record.params.prompt_logprobs is None:
        return ()
    return ((None,) * record.first_reported + record.prompt_logprobs)[: len(record.prompt)]
