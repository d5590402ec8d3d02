"""The mutants of the specification and of the page pool: those made by rule, and the classic mistakes.

Each mistake was made by some serving system, or is the nearest one that the text here admits: a parent evicted before
its child, a page published before it is computed, a match on hash alone, a page shared while it is written, an index
entry that outlives its page, an identifier used again, a draft published, two rows on one slot.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator, Sequence

from vosti.impl import pool, pool_invariants
from vosti.proofs import mutant_texts as texts
from vosti.proofs.mutant_texts import CLASSIC, EFFECT, GUARD, INVARIANT, Mutant
from vosti.spec import actions, invariants
from vosti.spec.step import RULES

Mistake = tuple[tuple[str, ...], str, str, str, str]
"""The actions that it concerns, what it is, the function, the text that is replaced, and the other text."""

SPEC_MISTAKES: Sequence[Mistake] = (
    (("admit",), "an identifier is used again", "admit_guard", "r not in s.seen", "r not in s.requests"),
    (("attach",), "a match on hash alone", "attach_guard", "page.tokens == history(request)[start:end]", "True"),
    (
        ("attach",),
        "a match whatever came before",
        "attach_guard",
        "page.parent == (request.table[-1] if request.table else None)",
        "True",
    ),
    (
        ("attach",),
        "the parent is the table's first page",
        "attach_guard",
        "request.table[-1] if request.table",
        "request.table[0] if request.table",
    ),
    (("attach",), "a page is shared while it is written", "attach_guard", "page.registered\n        and ", ""),
    (("attach",), "another tenant's page", "attach_guard", "page.domain == request.domain", "True"),
    (
        ("attach",),
        "nothing is left to compute",
        "attach_guard",
        "end < len(history(request))",
        "end <= len(history(request))",
    ),
    (("allocate",), "two rows on one slot", "allocate_guard", " and page_id not in s.pages", ""),
    (
        ("allocate",),
        "a retained page is taken as free",
        "allocate_guard",
        "page_id not in s.pages",
        "(page_id not in s.pages or s.pages[page_id].holders == frozenset())",
    ),
    (("allocate",), "nobody holds what was taken", "allocate", "holders=frozenset({r})", "holders=frozenset()"),
    (
        ("evict",),
        "a parent before its child",
        "evict_guard",
        " and all(child.parent != page_id for child in s.pages.values())",
        "",
    ),
    (("evict",), "a page that is held", "evict_guard", " and not page.holders", ""),
    (
        ("compute",),
        "one slot too far",
        "compute_guard",
        "request.cached < len(request.table) * s.page_size",
        "request.cached <= len(request.table) * s.page_size",
    ),
    (("compute",), "a value without its past", "compute", "cached_values(s, r, cached)", "()"),
    (("compute",), "the token before", "written", "sequence(request)[request.cached]", "sequence(request)[0]"),
    (
        ("emit",),
        "a row too early",
        "emit_ready",
        "request.cached >= len(history(request))",
        "request.cached + 1 >= len(history(request))",
    ),
    (("emit",), "a draft is accepted unseen", "emit_ready", "request.draft[0] == token", "len(request.draft) >= 1"),
    (
        ("emit",),
        "sampled after another state",
        "emits",
        "sampled_token(record.logits, request.sampler,",
        "sampled_token(record.logits, sampler,",
    ),
    (
        ("emit",),
        "the sampler state is drawn twice",
        "emits",
        "sampler == next_sampler(request.sampler)",
        "sampler == request.sampler",
    ),
    (("retract",), "a rejected draft's slots stay", "retract", "draft=(), cached=kept", "draft=()"),
    (
        ("retract",),
        "one slot of a rejected draft stays",
        "retract",
        "min(request.cached, len(history(request)))",
        "min(request.cached, len(history(request)) + 1)",
    ),
    (
        ("publish",),
        "published before it is computed",
        "publish_ready",
        "(block + 1) * s.page_size <= request.cached\n",
        "block * s.page_size < request.cached\n",
    ),
    (
        ("publish",),
        "a draft is published",
        "publish_ready",
        "(block + 1) * s.page_size <= len(history(request))",
        "block * s.page_size < len(history(request))",
    ),
    (
        ("publish",),
        "a value that is not finite is shared",
        "publishes",
        "page_finite(s.pages[s.requests[r].table[block]])",
        "True",
    ),
    (("publish",), "the parent is the first page", "publish", "table[block - 1] if block > 0", "table[0] if block > 0"),
    (
        ("preempt",),
        "in favour of a later arrival",
        "preempt_guard",
        "s.requests[in_favour_of].arrival < s.requests[r].arrival",
        "in_favour_of != r",
    ),
    (("preempt",), "what was cached still counts", "preempt", "draft=(), cached=0, table=()", "draft=(), table=()"),
    (
        ("preempt", "finish", "cancel", "fail"),
        "shared pages go with one of their holders",
        "released",
        "if page.registered or r not in page.holders",
        "if r not in page.holders",
    ),
    (
        ("preempt", "finish", "cancel", "fail"),
        "private pages stay behind",
        "released",
        "if page.registered or r not in page.holders",
        "if page.registered or True",
    ),
    (
        ("fail",),
        "a request fails for its draft",
        "fail_guard",
        "range(min(request.cached, length))",
        "range(request.cached)",
    ),
)

POOL_MISTAKES: Sequence[Mistake] = (
    (("admit",), "a live identifier again", "admit_guard", "r not in pool.requests", "True"),
    (("attach",), "a match on hash alone", "is_block", "\n        and page.tokens == tokens", ""),
    (("attach",), "the parent is not compared", "is_block", "\n        and page.parent == parent", ""),
    (
        ("attach",),
        "the parent is the table's first page",
        "attach_guard",
        "holding.table[-1] if",
        "holding.table[0] if",
    ),
    (("attach",), "another tenant's page", "is_block", "\n        and page.domain == domain", ""),
    (("attach",), "a page is shared while it is written", "is_block", "page.registered\n        and ", ""),
    (
        ("attach",),
        "nothing is left to compute",
        "attach_guard",
        "holding.cached + pool.page_size < length",
        "holding.cached + pool.page_size <= length",
    ),
    (("attach",), "a holder is not counted", "one_more_holder", "page.refcount + 1", "page.refcount"),
    (
        ("attach",),
        "a held page stays among the idle",
        "attach",
        "pool.idle.delete(page_id) if page.refcount == 0 else pool.idle",
        "pool.idle",
    ),
    (
        ("allocate",),
        "an idle page is taken",
        "allocate_guard",
        "page_id in pool.free",
        "(page_id in pool.free or page_id in pool.idle)",
    ),
    (("allocate",), "two rows on one slot", "allocate", "free=pool.free.delete(page_id)", "free=pool.free"),
    (("allocate",), "a holder is not counted", "allocate", "refcount=1", "refcount=0"),
    (
        ("compute",),
        "one slot too far",
        "compute_guard",
        "holding.cached < len(holding.table) * pool.page_size",
        "holding.cached <= len(holding.table) * pool.page_size",
    ),
    (
        ("advance",),
        "a chunk beyond the table",
        "advance_guard",
        "holding.cached + n <= len(holding.table) * pool.page_size",
        "holding.cached <= len(holding.table) * pool.page_size",
    ),
    (
        ("advance_each",),
        "nobody is asked",
        "advance_each_guard",
        "r in lengths and advance_guard(pool, r, n, lengths[r])",
        "r in lengths",
    ),
    (
        ("advance_each",),
        "one slot for everybody",
        "advance_each",
        "further(pool.requests[r], n)",
        "further(pool.requests[r], 1)",
    ),
    (("retract",), "a rejected draft's slots stay", "retract", "min(holding.cached, length)", "holding.cached"),
    (
        ("publish",),
        "published before it is computed",
        "publish_guard",
        "(block + 1) * pool.page_size <= holding.cached",
        "block * pool.page_size < holding.cached",
    ),
    (
        ("publish",),
        "a draft is published",
        "publish_guard",
        "(block + 1) * pool.page_size <= length",
        "block * pool.page_size < length",
    ),
    (
        ("publish",),
        "without its parent",
        "publish_guard",
        "\n        and (block == 0 or pool.pages[holding.table[block - 1]].registered)",
        "",
    ),
    (("publish",), "a child is not counted", "one_more_child", "page.children + 1", "page.children"),
    (
        ("publish",),
        "found under no parent",
        "publish",
        "holding.domain, parent, tokens",
        "holding.domain, None, tokens",
    ),
    (
        ("publish",),
        "the last of two equal pages is found, and not the first",
        "publish",
        "index=pool.index if key in pool.index else pool.index.set(key, page_id)",
        "index=pool.index.set(key, page_id)",
    ),
    (("evict",), "a parent before its child", "evict_guard", " and pool.pages[page_id].children == 0", ""),
    (
        ("evict",),
        "a page that is held",
        "evict_guard",
        "page_id in pool.idle and",
        "page_id in pool.pages and pool.pages[page_id].registered and",
    ),
    (
        ("evict",),
        "an index entry outlives its page",
        "evict",
        "pool.index.delete(key) if pool.index.get(key) == page_id else pool.index",
        "pool.index",
    ),
    (
        ("evict",),
        "another page's index entry goes too",
        "evict",
        "pool.index.delete(key) if pool.index.get(key) == page_id else pool.index",
        "pool.index.delete(key) if key in pool.index else pool.index",
    ),
    (("evict",), "a child counts for ever", "one_less_child", "page.children - 1", "page.children"),
    (
        ("remove", "preempt"),
        "a holder counts for ever",
        "released",
        "pages[page_id].refcount - 1",
        "pages[page_id].refcount",
    ),
    (("remove", "preempt"), "private pages are lost", "released", "free=pool.free.update(freed)", "free=pool.free"),
    (
        ("remove", "preempt"),
        "shared pages go with one of their holders",
        "released",
        "for page_id in table if not pages[page_id].registered",
        "for page_id in table",
    ),
    (("remove", "preempt"), "idle one holder too early", "released", "if page.refcount == 0", "if page.refcount <= 1"),
    (("preempt",), "what was cached still counts", "preempt", "table=(), cached=0", "table=()"),
    (("remove",), "the request stays", "remove", "pool.requests.delete(r)", "pool.requests"),
)


def spec_mutants() -> Iterator[Mutant]:
    """The mutants of the specification."""
    found = texts.functions(actions)
    subjects = {kind: (rule.guard.__name__, rule.effect.__name__) for kind, rule in RULES.items()}
    guards, effects = ({pair[1]: pair[i] for pair in subjects.values()} for i in (0, 1))
    yield from by_rule(actions, found, guards, GUARD)
    yield from by_rule(actions, found, effects, EFFECT)
    for conjunct in invariants.CONJUNCTS:
        yield dropped(invariants, conjunct.name)
    yield from by_hand(actions, SPEC_MISTAKES)


def pool_mutants() -> Iterator[Mutant]:
    """The mutants of the page pool."""
    found = texts.functions(pool)
    yield from by_rule(pool, found, {name: f"{name}_guard" for name in pool.TRANSITIONS}, GUARD)
    yield from by_rule(pool, found, {name: name for name in pool.TRANSITIONS}, EFFECT)
    for invariant in pool_invariants.INVARIANTS:
        yield dropped(pool_invariants, invariant.__name__)
    yield from by_hand(pool, POOL_MISTAKES)


def by_rule(
    module: types.ModuleType, found: dict[str, ast.FunctionDef], roots: dict[str, str], kind: str
) -> Iterator[Mutant]:
    """The mutants that are made by rule, of the functions that some guards, or some effects, are made of.

    Args:
        module: where the functions stand.
        found: its functions.
        roots: action → its guard, or its effect.
        kind: `GUARD` or `EFFECT`.
    """
    users: dict[str, list[str]] = {}
    for action, root in roots.items():
        for name in texts.used(found, root):
            users.setdefault(name, []).append(action)
    for name, subjects in users.items():
        made = (
            texts.without_conjunct(found[name], alone=name in roots.values())
            if kind == GUARD
            else texts.without_update(found[name])
        )
        where = "" if name in roots.values() else f"{name}, "
        for change, text in made:
            if kind == GUARD and ast.unparse(text.returns or ast.Constant(None)) != "bool":
                continue
            yield Mutant(kind, tuple(subjects), f"{where}{change}", {f"{module.__name__}.{name}": text})


def dropped(module: types.ModuleType, name: str) -> Mutant:
    """A conjunct of an invariant, left out."""
    text = texts.always_true(texts.functions(module)[name])
    return Mutant(INVARIANT, (name,), "left out", {f"{module.__name__}.{name}": text})


def by_hand(module: types.ModuleType, mistakes: Sequence[Mistake]) -> Iterator[Mutant]:
    """Mutants that are written down."""
    for subjects, change, function, old, new in mistakes:
        yield Mutant(CLASSIC, subjects, change, texts.mistaken(module, function, old, new))
