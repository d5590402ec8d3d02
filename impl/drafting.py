"""Where drafts come from: guesses at how a history goes on, which a forward verifies (sections 1 and 2.1 of the
paper).

A drafter may be wrong: what is emitted does not depend on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from vosti.impl.options import EngineOptions
from vosti.spec.state import RequestId, Token


class Drafter(Protocol):
    """Proposes drafts."""

    def propose(self, request: RequestId, prompt: Sequence[Token], output: Sequence[Token]) -> tuple[Token, ...]:
        """A guess at the tokens after prompt + output; () for none."""


class NoDrafter:
    """Proposes nothing."""

    def propose(self, request: RequestId, prompt: Sequence[Token], output: Sequence[Token]) -> tuple[Token, ...]:
        """No guess."""
        return ()


@dataclass(frozen=True)
class PromptLookup:
    """Proposes what followed the history's last tokens where they stood before, in its prompt or output (prompt lookup,
    also called n-gram speculation).

    A function of the history alone, in time linear in it.
    """

    length: int
    """How many tokens a draft has, at most."""

    longest: int
    """How many of the last tokens have to stand there, at first."""

    shortest: int
    """How few, at last. Needs 1 ≤ shortest ≤ longest."""

    def propose(self, request: RequestId, prompt: Sequence[Token], output: Sequence[Token]) -> tuple[Token, ...]:
        """What followed the most of the last tokens: the last time that a whole draft did, or else the first time."""
        tokens = np.array((*prompt, *output), np.int64)
        for n in range(min(self.longest, len(tokens) - 1), self.shortest - 1, -1):
            starts = _earlier_starts(tokens, n)
            if len(starts) > 0:
                whole = starts[starts + n + self.length <= len(tokens)]
                after = int(whole[-1] if len(whole) > 0 else starts[0]) + n
                return tuple(map(Token, tokens[after : after + self.length].tolist()))
        return ()


def _earlier_starts(tokens: npt.NDArray[np.int64], n: int) -> npt.NDArray[np.int64]:
    """Where the last n tokens stand before the end, ascending; other than at the end itself."""
    there = np.ones(len(tokens) - n, bool)
    for i in range(n):
        there &= tokens[i : len(tokens) - n + i] == tokens[len(tokens) - n + i]
    return there.nonzero()[0]


def drafter_of(options: EngineOptions) -> Drafter:
    """What an engine with these options drafts with."""
    if options.speculative_tokens == 0:
        return NoDrafter()
    return PromptLookup(options.speculative_tokens, options.prompt_lookup_max, options.prompt_lookup_min)


@dataclass(frozen=True)
class Script:
    """What a scripted drafter knows of one request."""

    expected: tuple[Token, ...]
    """The tokens that the request emits, from a run without drafts."""

    length: int
    """How many tokens each draft has, at most."""

    right: int
    """How many of them are right, from the first on; the one after them is wrong."""


@dataclass(frozen=True)
class ScriptedDrafter:
    """Proposes drafts that are right for as long as a script says, and then wrong: for tests and workloads."""

    scripts: Mapping[RequestId, Script]
    vocab_size: int
    otherwise: Drafter = field(default_factory=NoDrafter)
    """Proposes for requests without a script."""

    def propose(self, request: RequestId, prompt: Sequence[Token], output: Sequence[Token]) -> tuple[Token, ...]:
        """The script's next tokens; beyond its end, nothing."""
        script = self.scripts.get(request)
        if script is None:
            return self.otherwise.propose(request, prompt, output)
        coming = script.expected[len(output) : len(output) + script.length]
        return tuple(
            token if i < script.right else Token((token + 1) % self.vocab_size) for i, token in enumerate(coming)
        )
