"""Where drafts come from: guesses at how a history goes on, which a forward verifies (sections 1 and 2.1 of the
paper).

A drafter may be wrong: what is emitted does not depend on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

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

    def propose(self, request: RequestId, prompt: Sequence[Token], output: Sequence[Token]) -> tuple[Token, ...]:
        """The script's next tokens; beyond its end, nothing."""
        script = self.scripts.get(request)
        if script is None:
            return ()
        coming = script.expected[len(output) : len(output) + script.length]
        return tuple(
            token if i < script.right else Token((token + 1) % self.vocab_size) for i, token in enumerate(coming)
        )
