"""What was observed of the model's unknown functions: f_KV, Forward and the sampler (sections 4.2 and 5 of the paper).

The specification speaks of canonical values, which are functions of the configuration W and a token prefix. In a
trace a value is the digest of its bits. A function is then what was observed of it: at an argument seen before, the
same digest must be seen again. Arguments are token prefixes, so what is seen in one trace binds another one of the
same W.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

from vosti.spec.candidates import Candidates
from vosti.spec.state import Page, PageId, Sampler, State, Token

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")


class Prefixes:
    """Numbers for token sequences: two sequences are equal if and only if their numbers are.

    A number is found from that of the sequence without its last token, in constant time.
    """

    EMPTY = 0
    """The number of the empty sequence."""

    def __init__(self) -> None:
        self._longer: dict[tuple[int, Token], int] = {}

    def extended(self, prefix: int, token: Token) -> int:
        """The number of a sequence with one token more."""
        key = (prefix, token)
        number = self._longer.get(key)
        if number is None:
            number = self._longer[key] = len(self._longer) + 1
        return number

    def number(self, tokens: Iterable[Token], prefix: int = EMPTY) -> int:
        """The number of the sequence `prefix` followed by `tokens`."""
        for token in tokens:
            prefix = self.extended(prefix, token)
        return prefix


class Sighting(NamedTuple):
    """Where a function was first seen at an argument, and what it was there."""

    answer: object
    trace: str
    step: int

    def __str__(self) -> str:
        return f"{self.answer}, first observed in step {self.step} of {self.trace}"


class ObservedFunction(Generic[Key, Answer]):
    """A function, as far as it was observed."""

    def __init__(self) -> None:
        self._first: dict[Key, Sighting] = {}
        self._again: set[Key] = set()

    def observe(self, key: Key, answer: Answer, trace: str, step: int) -> Sighting | None:
        """Take one computed value. Returns the first sighting at this argument, if this is not it."""
        first = self._first.get(key)
        if first is None:
            self._first[key] = Sighting(answer, trace, step)
        else:
            self._again.add(key)
        return first

    def first(self, key: Key) -> Sighting | None:
        """Where this argument was first observed, if it was."""
        return self._first.get(key)

    def seen(self, key: Key) -> object | None:
        """What was first observed at this argument, or None."""
        first = self._first.get(key)
        return None if first is None else first.answer

    @property
    def once(self) -> int:
        """How many arguments were observed only once: nothing is known of whether the value would be the same again."""
        return len(self._first) - len(self._again)

    @property
    def twice(self) -> int:
        """How many arguments were observed at least twice, with the same value each time."""
        return len(self._again)


class Observations:
    """All that was observed under one configuration W, in one trace or several."""

    def __init__(self) -> None:
        self.prefixes = Prefixes()
        self.kv: ObservedFunction[int, str] = ObservedFunction()
        """f_KV: number of a prefix → digest of the KV of its last position."""

        self.logits: ObservedFunction[int, str] = ObservedFunction()
        """Forward: number of a history → digest of the logits after it."""

        self.tokens: ObservedFunction[tuple[str, Sampler], Token] = ObservedFunction()
        """The sampler: digest of logits and sampler state → token. No parameter of a sampler state looks at the
        history.
        """

        self.candidates: ObservedFunction[tuple[str, tuple[object, ...]], Candidates] = ObservedFunction()
        """What tokens are drawn from: digest of logits and the sampler's parameters → candidates."""

        self.records: ObservedFunction[tuple[int, int, Sampler], tuple[str, Token]] = ObservedFunction()
        """Output records: number of a history, how much of it is the prompt, sampler state → logits and token."""

        self._non_finite: set[str] = set()
        self._page_prefixes: dict[PageId, tuple[tuple[Token, ...], int]] = {}
        self._last_slot: tuple[Page | None, int, int] = (None, 0, Prefixes.EMPTY)

    # ------------------------------------------------------------ finiteness

    def note_finiteness(self, digest: str, finite: bool, seen_before: bool) -> bool:
        """Take what a trace says of some bits. Returns whether the same was said of them before.

        Args:
            digest: of the bits.
            finite: what is said.
            seen_before: whether these bits occurred before.
        """
        if finite:
            return digest not in self._non_finite
        if seen_before and digest not in self._non_finite:
            return False
        self._non_finite.add(digest)
        return True

    def finite(self, value: object) -> bool:
        """`finite_kv` and `finite_logits` of the specification, of a digest."""
        return value not in self._non_finite

    def page_is_finite(self, page: Page) -> bool:
        """`vosti.spec.actions.page_finite`, with digests for values."""
        return not self._non_finite or all(self.finite(value) for value in page.kv)

    # ------------------------------------------------------------ conjuncts of Inv that look at values

    def registered_is_finite(self, s: State, page_id: PageId) -> bool:
        """`vosti.spec.invariants.registered_is_finite`, with digests for values."""
        return not s.pages[page_id].registered or self.page_is_finite(s.pages[page_id])

    def value_is_canonical(self, s: State, page_id: PageId, slot: int) -> bool:
        """`vosti.spec.invariants.value_is_canonical`: the slot holds what was observed of the tokens up to it."""
        page = s.pages[page_id]
        if slot >= len(page.tokens):
            return False
        last_page, last_slot, last_prefix = self._last_slot
        if page is last_page and slot == last_slot + 1:  # a page's slots are mostly looked at in order
            prefix = self.prefixes.extended(last_prefix, page.tokens[slot])
        else:
            prefix = self.prefixes.number(page.tokens[: slot + 1], self._page_prefix(s, page_id))
        self._last_slot = (page, slot, prefix)
        return page.kv[slot] == self.kv.seen(prefix)

    def _page_prefix(self, s: State, page_id: PageId) -> int:
        """The number of a page's prefix.

        It is remembered, since a page's slots are looked at one by one; and found from the page before it, if that
        is remembered, so that it does not cost the length of the prefix.
        """
        prefix = s.pages[page_id].prefix
        number = self._remembered(page_id, prefix)
        if number is None:
            before = _page_before(s, page_id)
            start = None if before is None else self._remembered(before, s.pages[before].prefix)
            if before is not None and start is not None and prefix == s.pages[before].prefix + s.pages[before].tokens:
                number = self.prefixes.number(s.pages[before].tokens, start)
            else:
                number = self.prefixes.number(prefix)
            self._page_prefixes[page_id] = (prefix, number)
        return number

    def _remembered(self, page_id: PageId, prefix: tuple[Token, ...]) -> int | None:
        known = self._page_prefixes.get(page_id)
        return known[1] if known is not None and (known[0] is prefix or known[0] == prefix) else None


def _page_before(s: State, page_id: PageId) -> PageId | None:
    """A page that may hold the tokens before a page's: its parent, or of a private page the one before in the table."""
    page = s.pages[page_id]
    before = page.parent
    for r in page.holders if before is None else ():
        table = s.requests[r].table if r in s.requests else ()
        if page_id in table[1:]:
            before = table[table.index(page_id) - 1]
    return before if before in s.pages else None
