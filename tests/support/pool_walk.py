"""The page pool and its naive model side by side, step by step.

`Lockstep` plays the pool's caller: it keeps histories and drafts, makes each transition in both, and compares guards,
states, contents, matches and invariants. `walk` makes random steps, many of them not allowed.
"""

import itertools
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

from pool_model import Disagreement, Model
from vosti.impl import pool as engine
from vosti.impl.pool_invariants import violated
from vosti.impl.pool_state import KEY_SPACE, Pool, empty
from vosti.spec.state import Domain, PageId, Token

KEY_SPACES = (1, 2, 5, KEY_SPACE)
DOMAINS = ("left", "right")


class Lockstep:
    """A pool and a model that make the same steps."""

    def __init__(self, pages: int, size: int, key_space: int) -> None:
        """Both empty."""
        self.model = Model(pages, size)
        self.pool = empty(frozenset(map(PageId, range(pages))), size, key_space)
        self.compare("empty")

    def spoken(self, name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The pool's arguments: those of the model, and the request's own tokens and lengths."""
        live = self.model.live.get(args[0]) if isinstance(args[0], str) else None
        size = self.model.size
        past, draft, cached = (tuple(live.history), live.draft, live.cached) if live else ((), [], 0)
        match name, args:
            case "admit", (r, _, domain):
                return r, domain
            case "attach", (r, page):
                return r, page, past[cached : cached + size], len(past)
            case "attach_prefix", (r, pages):
                return r, pages, past
            case (("compute" | "advance"), _):
                return (*args, len(past) + len(draft))
            case "advance_each", (counts,):
                return counts, {r: len(live.history) + len(live.draft) for r, live in self.model.live.items()}
            case "retract", (r,):
                return r, len(past)
            case "publish", (r, block):
                return r, block, past[max(0, block * size) : max(0, (block + 1) * size)], len(past)
            case _:
                return args

    def single(self, name: str, args: tuple[Any, ...]) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """The simple transitions, with the pool's arguments, that a composite one stands for."""
        size = self.model.size
        match name, self.spoken(name, args):
            case "advance", (r, n, length):
                yield from [("compute", (r, length))] * n
            case "advance_each", (counts, lengths):
                yield from (("advance", (r, n, lengths.get(r, 0))) for r, n in counts.items())
            case "attach_prefix", (r, pages, past):
                before = self.model.live[r].cached if r in self.model.live else 0
                starts = range(before, before + len(pages) * size, size)
                yield from (
                    ("attach", (r, p, past[i : i + size], len(past))) for p, i in zip(pages, starts, strict=True)
                )

    def step(self, name: str, *args: Any) -> bool:
        """Make a transition in both, if both allow it, and compare."""
        guard, effect = getattr(engine, name + "_guard"), getattr(engine, name)
        may = getattr(self.model, "may_" + name)(*args)
        spoken = self.spoken(name, args)
        singly = list(self.single(name, args))
        try:
            says = guard(self.pool, *spoken)
            if says != may:
                raise Disagreement(f"{name}_guard says {says}")
            if singly:
                self.compare_singly(name, singly, may, effect(self.pool, *spoken) if may else None)
            if may:
                getattr(self.model, name)(*args)
                self.pool = effect(self.pool, *spoken)
                self.compare(name)
        except (KeyError, IndexError, TypeError) as error:
            raise Disagreement(f"{name} raises {error!r}") from error
        return bool(may)

    def compare_singly(
        self, name: str, singly: list[tuple[str, tuple[Any, ...]]], may: bool, after: Pool | None
    ) -> None:
        """A composite transition is its simple ones in turn."""
        pool: Pool | None = self.pool
        for single, spoken in singly:
            if pool is not None:
                allowed = getattr(engine, single + "_guard")(pool, *spoken)
                pool = getattr(engine, single)(pool, *spoken) if allowed else None
        if (pool is not None) != may or pool != after:
            raise Disagreement(f"{name} is not {singly[0][0]} in turn")

    def compare(self, name: str) -> None:
        """The pool says what the model says, the slots hold what they should, and every invariant is true."""
        pool, model = self.pool, self.model
        if broken := violated(pool):
            raise Disagreement(f"{name}: {broken} is false")
        requests = {r: (tuple(live.table), live.cached, live.domain) for r, live in model.live.items()}
        pages = {
            page: (
                len(model.holders(page)),
                len(model.children(page)),
                model.depth(page),
                (use.registered, use.tokens, use.parent, use.domain),
            )
            for page, use in model.used.items()
        }
        got_requests = {r: (held.table, held.cached, held.domain) for r, held in pool.requests.items()}
        got_pages = {
            page: (meta.refcount, meta.children, meta.depth, (meta.registered, meta.tokens, meta.parent, meta.domain))
            for page, meta in pool.pages.items()
        }
        pairs: dict[str, tuple[object, object]] = {
            "requests": (requests, got_requests),
            "pages": (pages, got_pages),
            "free": (set(model.pages) - set(model.used), set(pool.free)),
            "idle": (model.idle, dict(pool.idle)),
        }
        for what, (expected, got) in pairs.items():
            if expected != got:
                raise Disagreement(f"{name}: {what} differ: {expected} and {got}")
        self.compare_contents(name)
        self.compare_matches(name)

    def compare_contents(self, name: str) -> None:
        """Every request reads its own tokens, position by position, and nobody else's."""
        model = self.model
        for r, live in model.live.items():
            tokens = live.history + live.draft
            for p in range(live.cached):
                if model.slots.get((live.table[p // model.size], p % model.size)) != tuple(tokens[: p + 1]):
                    raise Disagreement(f"{name}: {r} reads what is not its own at position {p}")

    def compare_matches(self, name: str) -> None:
        """What is found matches exactly; without collisions, the first page published is found while it lasts."""
        pool, model = self.pool, self.model
        for use in list(model.used.values()):
            if not use.registered:
                continue
            for domain, parent in itertools.product(DOMAINS, (use.parent, None)):
                after = None if parent is None else PageId(parent)
                found = engine.match_next(pool, Domain(domain), after, tuple(map(Token, use.tokens)))
                exact = found is None or (
                    found in model.used
                    and model.used[found].registered
                    and (domain, parent, use.tokens)
                    == (model.used[found].domain, model.used[found].parent, model.used[found].tokens)
                )
                first = found == model.first.get((domain, parent, use.tokens))
                if not exact or not (first or pool.key_space < KEY_SPACE):
                    raise Disagreement(f"{name}: match_next finds {found}")

    def known(self, r: str) -> tuple[Domain, tuple[Token, ...], tuple[PageId, ...]]:
        """What a match of a request's next pages asks with: its domain, its history, its table."""
        live = self.model.live[r]
        return Domain(live.domain), tuple(map(Token, live.history)), tuple(map(PageId, live.table))

    def compare_prefix(self, r: str) -> tuple[PageId, ...]:
        """The chain that is found after a full table may be attached; without collisions it is as long as can be."""
        model, size = self.model, self.model.size
        domain, history, table = self.known(r)
        chain = engine.match_prefix(self.pool, domain, history, len(history) - 1, table)
        if chain and not model.may_attach_prefix(r, chain):
            raise Disagreement(f"match_prefix finds {chain}")
        longest: list[int] = list(table)
        while (len(longest) + 1) * size < len(history):
            tokens = history[len(longest) * size : (len(longest) + 1) * size]
            page = model.first.get((domain, longest[-1] if longest else None, tokens))
            if page is None:
                break
            longest.append(page)
        if [*table, *chain] != longest and self.pool.key_space == KEY_SPACE:
            raise Disagreement(f"match_prefix finds {chain} after {table} and not {longest}")
        return chain


# ---------------------------------------------------------------- random steps


Step = tuple[str, tuple[Any, ...]]


class Walk:
    """Random steps on a random small pool. `seen` counts what happened."""

    def __init__(self, random: Random, seen: Counter[str]) -> None:
        """An empty pool of 3 to 12 pages."""
        self.random, self.seen = random, seen
        self.size = random.choice((1, 2, 3, 4))
        self.lock = Lockstep(random.randrange(3, 13), self.size, random.choice(KEY_SPACES))
        self.model = self.lock.model
        self.prompts = [[random.randrange(2) for _ in range(2 * self.size + 1)] for _ in range(3)]
        self.recycled: set[int] = set()

    def arrival(self) -> Step:
        """A request whose prompt begins like an earlier one; now and then its identifier is taken."""
        random, old = self.random, self.random.choice(self.prompts)
        kept = len(old) if random.random() < 0.8 else random.randrange(1, len(old) + 1)
        self.prompts.append(old[:kept] + [random.randrange(2) for _ in range(random.randrange(3))])
        taken = [*self.model.live][-1:] if random.random() < 0.1 else []
        return "admit", (
            *(taken or [f"r{len(self.prompts)}"]),
            self.prompts[-1][: 4 * self.size],
            random.choice(DOMAINS),
        )

    def sensible(self) -> Step:
        """What a scheduler would do next for some request."""
        random, model = self.random, self.model
        if len(model.live) < 2 or (len(model.live) < 4 and random.random() < 0.2):
            return self.arrival()
        r = random.choice([*model.live])
        live = model.live[r]
        registered = sum(model.used[page].registered for page in live.table)
        full = min(live.cached, len(live.history)) // self.size
        missing = len(live.history) + len(live.draft) - live.cached
        room = len(live.table) * self.size - live.cached
        if not room and (chain := self.lock.compare_prefix(r)):
            return random.choice((("attach_prefix", (r, chain)), ("attach", (r, chain[0]))))
        if registered < full and random.random() < 0.8:
            return "publish", (r, registered)
        if missing and room:
            return "advance", (r, min(missing, room))
        if missing and self.lock.pool.free:
            return "allocate", (r, random.choice(sorted(self.lock.pool.free)))
        if missing:
            leaves = [page for page in model.idle if not model.children(page)]
            holders = [other for other in model.live if model.live[other].table]
            if leaves:
                return "evict", (random.choice(leaves),)
            return random.choice(("preempt", "remove")), (random.choice(holders),)
        if len(live.history) > 4 * self.size or random.random() < 0.2:
            return "remove", (r,)
        return random.choice(("propose", "emit")), (r,)

    def any(self) -> Step:
        """Any transition, of anything: most are not allowed."""
        random, model = self.random, self.model
        name = random.choice(engine.TRANSITIONS)
        r = random.choice([*model.live, *model.live, "nobody"])
        page = random.choice([*model.pages, len(model.pages)])
        match name:
            case "admit":
                return self.arrival()
            case "attach" if random.random() < 0.7:
                return name, self.next_match(r, page)
            case "attach" | "allocate":
                return name, (r, page)
            case "attach_prefix" if r in model.live and random.random() < 0.7:
                domain, history, table = self.lock.known(r)
                too_long = engine.match_prefix(self.lock.pool, domain, history, len(history), table)
                return name, (r, too_long + random.choice(((), (page,))))
            case "attach_prefix":
                return name, (r, tuple(random.choice(model.pages) for _ in range(random.randrange(3))))
            case "advance":
                return name, (r, random.randrange(-1, self.size + 1))
            case "advance_each":
                return name, ({r: random.randrange(3) for r in model.live if random.random() < 0.5},)
            case "publish" if r in model.live and random.random() < 0.7:
                return name, (r, sum(model.used[page].registered for page in model.live[r].table))
            case "publish":
                return name, (r, random.randrange(-1, 4))
            case "evict":
                return name, (page,)
            case "preempt" | "remove" if random.random() < 0.8:
                return "compute", (r,)
            case _:
                return name, (r,)

    def next_match(self, r: str, page: int) -> tuple[str, int]:
        """r and the page that is found for its next tokens, or another where none is."""
        if r not in self.model.live:
            return r, page
        domain, history, table = self.lock.known(r)
        tokens = history[len(table) * self.size : (len(table) + 1) * self.size]
        found = engine.match_next(self.lock.pool, domain, table[-1] if table else None, tokens)
        return r, page if found is None else found

    def speak(self, name: str, r: str) -> str:
        """What happens to a history, outside the pool: a draft is proposed, or a token is emitted."""
        live, random = self.model.live[r], self.random
        if name == "propose":
            live.draft = live.draft or [random.randrange(2) for _ in range(random.randrange(1, 2 * self.size + 1))]
            return name
        token, draft = random.randrange(2), live.draft
        if draft and draft[0] != token:
            self.lock.step("retract", r)
        live.history.append(token)
        live.draft = live.draft[1:]
        return ("draft accepted" if live.draft or draft[:1] == [token] else "draft rejected") if draft else name

    def take(self) -> None:
        """Make a step."""
        name, args = self.sensible() if self.random.random() < 0.7 else self.any()
        if name in ("propose", "emit"):
            self.seen[self.speak(name, args[0])] += 1
            return
        allowed, pool = self.lock.step(name, *args), self.lock.pool
        self.seen[name if allowed else f"{name} refused"] += 1
        match name:
            case "evict" if allowed:
                self.recycled.add(args[0])
            case "allocate" if allowed:
                self.seen["a page recycled"] += args[1] in self.recycled
            case "attach" | "attach_prefix" if allowed:
                self.seen["shared by live requests"] += any(page.refcount > 1 for page in pool.pages.values())
                self.seen["several pages at once"] += name == "attach_prefix" and len(args[1]) > 1
            case "publish" if allowed:
                self.seen["a page not indexed"] += len(pool.index) < sum(p.registered for p in pool.pages.values())


def walk(random: Random, steps: int, seen: Counter[str]) -> None:
    """Make random steps on a random small pool.

    Raises:
        Disagreement: as soon as pool and model differ.
    """
    steps_taken = Walk(random, seen)
    for _ in range(steps):
        steps_taken.take()
