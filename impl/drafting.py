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


class _Grown:
    """A history as an array that grows with it, in time proportional to what is new."""

    def __init__(self, prompt: Sequence[Token]) -> None:
        self._prompt = prompt
        self._output: Sequence[Token] = ()
        self._room = np.array(prompt, np.int64)

    def precedes(self, prompt: Sequence[Token], output: Sequence[Token]) -> bool:
        """Whether this history is a beginning of that one."""
        same = prompt is self._prompt or prompt == self._prompt
        return same and output[: len(self._output)] == self._output

    def to(self, output: Sequence[Token]) -> npt.NDArray[np.int64]:
        """The history, gone on to this output."""
        first, length = len(self._prompt) + len(self._output), len(self._prompt) + len(output)
        if length > len(self._room):
            self._room = np.concatenate((self._room[:first], np.empty(length, np.int64)))  # twice what is needed
        self._room[first:length] = output[len(self._output) :]
        self._output = output
        return self._room[:length]


class _Histories:
    """The histories of requests, as arrays. Of those that are asked about no more none is kept: an engine asks once a
    step about each request that lives.
    """

    def __init__(self) -> None:
        self._asked: dict[RequestId, _Grown] = {}
        self._before: dict[RequestId, _Grown] = {}

    def array(self, request: RequestId, prompt: Sequence[Token], output: Sequence[Token]) -> npt.NDArray[np.int64]:
        """prompt + output; for reading only, until the request is asked about again."""
        if request in self._asked:
            self._before, self._asked = self._asked, {}
        known = self._before.pop(request, None)
        if known is None or not known.precedes(prompt, output):
            known = _Grown(prompt)
        self._asked[request] = known
        return known.to(output)


@dataclass(frozen=True)
class PromptLookup:
    """Proposes what followed the history's last tokens where they stood before, in its prompt or output (prompt lookup,
    also called n-gram speculation).

    A function of the history alone. It takes one comparison of the last token with all others, and of what precedes
    them where they are equal.
    """

    length: int
    """How many tokens a draft has, at most."""

    longest: int
    """How many of the last tokens have to stand there, at first."""

    shortest: int
    """How few, at last. Needs 1 ≤ shortest ≤ longest."""

    _histories: _Histories = field(default_factory=_Histories, init=False, repr=False, compare=False)

    def propose(self, request: RequestId, prompt: Sequence[Token], output: Sequence[Token]) -> tuple[Token, ...]:
        """What followed the most of the last tokens: the last time that a whole draft did, or else the first time."""
        tokens = self._histories.array(request, prompt, output)
        ends = _earlier_ends(tokens, self.shortest, self.longest)
        if len(ends) == 0:
            return ()
        whole = ends[ends + self.length < len(tokens)]
        after = int(whole[-1] if len(whole) > 0 else ends[0]) + 1
        return tuple(map(Token, tokens[after : after + self.length].tolist()))


def _earlier_ends(tokens: npt.NDArray[np.int64], shortest: int, longest: int) -> npt.NDArray[np.int64]:
    """Where the last n tokens end before, ascending, for the largest n up to `longest` for which they do; nowhere if
    that is less than `shortest`.
    """
    last = len(tokens) - 1
    found = ends = (tokens[:-1] == tokens[-1]).nonzero()[0]
    n = min(1, len(ends))
    while len(ends) > 0 and n < longest:
        ends = ends[ends >= n]
        ends = ends[tokens[ends - n] == tokens[last - n]]
        if len(ends) > 0:
            found, n = ends, n + 1
    return found if n >= shortest else found[:0]


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
