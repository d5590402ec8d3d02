"""Models and samplers as functions of token sequences, for streams of events that no model makes."""

from __future__ import annotations

import hashlib
import math
from array import array
from dataclasses import dataclass
from typing import Protocol

from vosti.spec.reference import canonical_kv, forward, sampled_token
from vosti.spec.sampling import SamplerState, sample
from vosti.spec.state import Sampler, Token

Tokens = tuple[Token, ...]
SICK = Token(-1)
"""A prefix that holds this token has values that are not finite (as in `vosti.spec.reference`)."""


class World(Protocol):
    """A model and a sampler, as functions of token sequences. All three may look at nothing else."""

    def kv(self, prefix: Tokens) -> bytes:
        """The bits of the KV pairs of the last position."""

    def logits(self, history: Tokens) -> bytes:
        """The bits of the logits after a history."""

    def token(self, history: Tokens, sampler: Sampler, prompt_length: int) -> Token:
        """The token that follows."""


@dataclass(frozen=True)
class HashWorld:
    """Everything is a hash; quick."""

    vocabulary: int = 50

    def kv(self, prefix: Tokens) -> bytes:
        """A hash of the prefix."""
        return hashlib.sha256(b"kv" + array("q", prefix).tobytes()).digest()

    def logits(self, history: Tokens) -> bytes:
        """A hash of the history."""
        return hashlib.sha256(b"logits" + array("q", history).tobytes()).digest()

    def token(self, history: Tokens, sampler: Sampler, prompt_length: int) -> Token:
        """A hash of logits and sampler."""
        seed = self.logits(history) + repr(sampler).encode()
        return Token(int.from_bytes(hashlib.sha256(seed).digest()[:4], "big") % self.vocabulary)


@dataclass(frozen=True)
class SymbolicWorld:
    """Values are those that the specification computes without a model; their bits are their text."""

    def kv(self, prefix: Tokens) -> bytes:
        """The text of the canonical value."""
        return repr(canonical_kv(prefix)).encode()

    def logits(self, history: Tokens) -> bytes:
        """The text of the canonical logits."""
        return repr(forward(history)).encode()

    def token(self, history: Tokens, sampler: Sampler, prompt_length: int) -> Token:
        """The specification's own."""
        return sampled_token(forward(history), sampler, history, prompt_length)


@dataclass(frozen=True)
class FloatWorld:
    """Logits are float32 rows, and tokens are what the exact sampler draws from them: for mode "full"."""

    vocabulary: int = 8

    def kv(self, prefix: Tokens) -> bytes:
        """A hash of the prefix."""
        return HashWorld().kv(prefix)

    def logits(self, history: Tokens) -> bytes:
        """A row with a few different values, so that there are ties."""
        noise = hashlib.sha256(b"floats" + array("q", history).tobytes()).digest()
        row = array("f", [math.nan] * self.vocabulary if SICK in history else [b % 7 - 3.5 for b in noise[:8]])
        return row.tobytes()

    def token(self, history: Tokens, sampler: Sampler, prompt_length: int) -> Token:
        """The exact sampler's."""
        assert isinstance(sampler, SamplerState)
        return Token(sample(array("f", self.logits(history)), sampler, history, prompt_length))
