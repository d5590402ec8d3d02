"""A request's history without a copy of it: prompt and output, seen as one sequence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias, overload

from vosti.spec.state import Token


class History(Sequence[Token]):
    """prompt + output, made in no time: a slice copies what it yields, and nothing else."""

    __slots__ = ("_length", "output", "prompt")

    def __init__(self, prompt: tuple[Token, ...], output: tuple[Token, ...]) -> None:
        """See them as one."""
        self.prompt, self.output = prompt, output
        self._length = len(prompt) + len(output)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Token]:
        yield from self.prompt
        yield from self.output

    @overload
    def __getitem__(self, place: int) -> Token: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Token, ...]: ...

    def __getitem__(self, place: int | slice) -> Token | tuple[Token, ...]:
        """As of a tuple; slices have no step."""
        if isinstance(place, int):
            place = range(self._length)[place]
            return self.prompt[place] if place < len(self.prompt) else self.output[place - len(self.prompt)]
        begin, end, step = place.indices(self._length)
        assert step == 1, "a stretch of a history is consecutive"
        first = len(self.prompt)
        return self.prompt[begin:end] + self.output[max(0, begin - first) : max(0, end - first)]


Tokens: TypeAlias = tuple[Token, ...] | History
"""A history, copied or not."""
