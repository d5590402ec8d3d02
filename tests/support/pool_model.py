"""A naive model of the page pool: dictionaries changed in place, where everything is counted by looking.

It shares nothing with the pool but the names of the transitions. A slot's content is the tokens up to its position when
it was written: what its KV values are a function of. Requests, pages and tokens are plain strings and integers.
"""

from dataclasses import dataclass, field


class Disagreement(AssertionError):
    """Pool and model differ, or an invariant is false; says what and where."""


@dataclass
class Live:
    """A live request."""

    history: list[int]
    domain: str
    draft: list[int] = field(default_factory=list)
    table: list[int] = field(default_factory=list)
    cached: int = 0


@dataclass
class InUse:
    """A page in use."""

    domain: str
    registered: bool = False
    tokens: tuple[int, ...] = ()
    parent: int | None = None


class Model:
    """The same transitions without a thought for proofs or speed. `may_X` is whether X may happen."""

    def __init__(self, pages: int, size: int) -> None:
        """All pages are free."""
        self.pages, self.size, self.clock = range(pages), size, 0
        self.live: dict[str, Live] = {}
        self.used: dict[int, InUse] = {}
        self.idle: dict[int, int] = {}
        self.first: dict[tuple[str, int | None, tuple[int, ...]], int] = {}
        self.slots: dict[tuple[int, int], tuple[int, ...]] = {}

    def holders(self, page: int) -> set[str]:
        """The requests whose table contains the page."""
        return {r for r, live in self.live.items() if page in live.table}

    def children(self, page: int) -> set[int]:
        """The pages registered after it."""
        return {child for child, other in self.used.items() if other.parent == page}

    def depth(self, page: int) -> int:
        """How many pages come before it: in the table of its owner, or in its chain."""
        if self.used[page].registered:
            parent = self.used[page].parent
            return 0 if parent is None else self.depth(parent) + 1
        return next(live.table.index(page) for live in self.live.values() if page in live.table)

    def contents(self, page: int) -> list[tuple[int, ...] | None]:
        """What each slot holds."""
        return [self.slots.get((page, i)) for i in range(self.size)]

    def forget(self, page: int) -> None:
        """The page is free."""
        del self.used[page]
        for i in range(self.size):
            self.slots.pop((page, i), None)

    def may_admit(self, r: str, prompt: list[int], domain: str) -> bool:
        """A live identifier is taken."""
        return r not in self.live

    def admit(self, r: str, prompt: list[int], domain: str) -> None:
        """A request comes."""
        self.live[r] = Live(list(prompt), domain)

    def may_attach(self, r: str, page: int) -> bool:
        """By contents: the page's slots hold the request's own next positions."""
        if r not in self.live or page not in self.used or not self.used[page].registered:
            return False
        live = self.live[r]
        wanted = [tuple(live.history[: live.cached + i + 1]) for i in range(self.size)]
        return (
            live.cached == len(live.table) * self.size
            and live.cached + self.size <= len(live.history) - 1
            and self.used[page].domain == live.domain
            and self.used[page].parent == (live.table[-1] if live.table else None)
            and self.contents(page) == wanted
        )

    def attach(self, r: str, page: int) -> None:
        """A prefix hit."""
        self.live[r].table.append(page)
        self.live[r].cached += self.size
        self.idle.pop(page, None)

    def may_allocate(self, r: str, page: int) -> bool:
        """A free page."""
        return r in self.live and page in self.pages and page not in self.used

    def allocate(self, r: str, page: int) -> None:
        """A private page."""
        self.live[r].table.append(page)
        self.used[page] = InUse(self.live[r].domain)

    def may_advance(self, r: str, n: int) -> bool:
        """n more positions have a token and a slot."""
        if r not in self.live or n < 0:
            return False
        live = self.live[r]
        return live.cached + n <= min(len(live.history) + len(live.draft), len(live.table) * self.size)

    def advance(self, r: str, n: int) -> None:
        """Write the slots, never one of a page that others may read."""
        live = self.live[r]
        for position in range(live.cached, live.cached + n):
            page = live.table[position // self.size]
            if self.used[page].registered or self.holders(page) != {r}:
                raise Disagreement(f"{r} writes page {page}, which it shares")
            self.slots[page, position % self.size] = tuple((live.history + live.draft)[: position + 1])
        live.cached += n

    def may_compute(self, r: str) -> bool:
        """One."""
        return self.may_advance(r, 1)

    def compute(self, r: str) -> None:
        """One."""
        self.advance(r, 1)

    def may_advance_each(self, counts: dict[str, int]) -> bool:
        """Each."""
        return all(self.may_advance(r, n) for r, n in counts.items())

    def advance_each(self, counts: dict[str, int]) -> None:
        """Each."""
        for r, n in counts.items():
            self.advance(r, n)

    def may_attach_prefix(self, r: str, pages: tuple[int, ...]) -> bool:
        """Each page, after those before it."""
        if r not in self.live or any(page not in self.used for page in pages):
            return False
        live = self.live[r]
        before = list(live.table), live.cached
        allowed = bool(pages) or (live.cached == len(live.table) * self.size and live.cached < len(live.history))
        for page in pages:
            allowed = allowed and self.may_attach(r, page)
            live.table, live.cached = [*live.table, page], live.cached + self.size
        live.table, live.cached = before
        return allowed

    def attach_prefix(self, r: str, pages: tuple[int, ...]) -> None:
        """Each page."""
        for page in pages:
            self.attach(r, page)

    def may_retract(self, r: str) -> bool:
        """A request without a draft has nothing to retract, and nothing happens."""
        return r in self.live

    def retract(self, r: str) -> None:
        """The draft is wrong."""
        live = self.live[r]
        live.draft, live.cached = [], min(live.cached, len(live.history))

    def may_publish(self, r: str, block: int) -> bool:
        """By contents: every slot holds a position of the history."""
        if r not in self.live or block not in range(len(self.live[r].table)):
            return False
        live = self.live[r]
        end = (block + 1) * self.size
        full = end <= min(live.cached, len(live.history))
        first = block == 0 or self.used[live.table[block - 1]].registered
        return full and first and not self.used[live.table[block]].registered

    def publish(self, r: str, block: int) -> None:
        """The page may be attached from now on; of two that match equally, the first is found."""
        live = self.live[r]
        page = self.used[live.table[block]]
        page.registered = True
        page.tokens = tuple(live.history[block * self.size : (block + 1) * self.size])
        page.parent = live.table[block - 1] if block else None
        self.first.setdefault((page.domain, page.parent, page.tokens), live.table[block])

    def may_evict(self, page: int) -> bool:
        """A leaf that nobody holds."""
        return page in self.used and self.used[page].registered and not self.holders(page) and not self.children(page)

    def evict(self, page: int) -> None:
        """The page is free."""
        self.first = {key: found for key, found in self.first.items() if found != page}
        self.forget(page)
        del self.idle[page]

    def release(self, r: str) -> None:
        """The pages go back."""
        table, self.live[r].table = self.live[r].table, []
        for page in table:
            if not self.used[page].registered:
                self.forget(page)
            elif not self.holders(page):
                self.idle[page] = self.clock
        self.clock += 1

    def may_preempt(self, r: str) -> bool:
        """Anybody who is here."""
        return r in self.live

    def preempt(self, r: str) -> None:
        """Start over."""
        self.release(r)
        self.live[r].cached, self.live[r].draft = 0, []

    def may_remove(self, r: str) -> bool:
        """Anybody who is here."""
        return r in self.live

    def remove(self, r: str) -> None:
        """Leave."""
        self.release(r)
        del self.live[r]
