"""Faults that are to be found in the plan phase: who is matched, taken, given up, let in, preempted."""

from engine_faults.edits import Fault, fault

UNGUARDED_ATTACH = (
    "planning:_Planner.attach_known",
    "            assert pools.attach_prefix_guard(self.pool, r, chain, history)\n",
    "",
)

FAULTS: tuple[Fault, ...] = (
    fault(
        "page matched by its hash alone",
        (
            "pool:is_block",
            "        and page.depth == depth\n"
            "        and page.parent == parent\n"
            "        and page.domain == domain\n"
            "        and page.tokens == tokens\n",
            "",
        ),
        scenario="busy, one hash",
    ),
    fault(
        "page matched without its parent",
        ("pool_state:page_key", "-1 if parent is None else parent", "-1"),
        ("pool:is_block", "        and page.parent == parent\n", ""),
        scenario="chains",
    ),
    fault(
        "missing ancestor counted as a hit",
        (
            "pool:match_prefix",
            "        if parent is None:\n            break\n",
            "        if parent is None:\n"
            "            after = history[end : end + size]\n"
            "            known = {p: page for p, page in pool.pages.items() if page.depth == end // size}\n"
            "            parent = next((p for p in known if known[p].registered and known[p].tokens == after), None)\n"
            "        if parent is None:\n"
            "            break\n",
        ),
        UNGUARDED_ATTACH,
        scenario="twins",
    ),
    fault(
        "domain ignored in a match",
        ("pool_state:page_key", "hash((tenant, ", "hash(("),
        ("pool:is_block", "        and page.domain == domain\n", ""),
        scenario="domains",
    ),
    fault(
        "whole prompt hit, last token written into the shared page",
        ("planning:_Planner.attach_known", "history, limit, ", "history, len(history), "),
        ("pool:attach_prefix_guard", "pool.page_size < len(history)", "pool.page_size <= len(history)"),
        (
            "planning:_Planner.schedule",
            "cached = self.pool.requests[r].cached\n",
            "cached = min(self.pool.requests[r].cached, len(history) - 1)\n",
        ),
        scenario="chains",
    ),
    fault(
        "parent evicted before its child",
        ("planning:eviction_order", "-pool.pages[page].depth", "pool.pages[page].depth"),
        ("pool:evict_guard", "page_id in pool.idle and pool.pages[page_id].children == 0", "page_id in pool.idle"),
        ("pool:evict", "fewer if parent is None else", "fewer if parent not in fewer else"),
    ),
    fault(
        "page evicted that a request holds",
        (
            "planning:eviction_order",
            "sorted(pool.idle, key=lambda page: (pool.idle[page],",
            "sorted(pool.pages, key=lambda page: (pool.idle.get(page, -1),",
        ),
        ("planning:Victims.next", "if not pool.idle:", "if not pool.pages:"),
        ("planning:Victims.next", "pool.idle[page]", "pool.idle.get(page)"),
        (
            "pool:evict_guard",
            "page_id in pool.idle and pool.pages[page_id].children == 0",
            "page_id in pool.pages and pool.pages[page_id].registered and pool.pages[page_id].children == 0",
        ),
        ("pool:evict", "pool.idle.delete(page_id)", "without(pool.idle, (page_id,))"),
    ),
    fault(
        "eviction not recorded",
        ("planning:_Planner.reclaim", "                self.actions.append(Evict(victim))\n", ""),
    ),
    fault(
        "preemption not recorded",
        ("planning:_Planner.reclaim", "            self.actions.append(Preempt(loser, in_favour_of=r))\n", ""),
        scenario="busy, nothing shared",
    ),
    fault("page allocated twice", ("pool:allocate", "free=pool.free.delete(page_id)", "free=pool.free")),
    fault(
        "admission not recorded",
        (
            "engine:Engine._admit_and_cancel",
            "            actions.append(Admit("
            "r, record.prompt, Sampler(record.sampler), record.domain, record.arrival))\n",
            "",
        ),
    ),
    fault(
        "identifier used again",
        ("engine:Engine._refuse", "if name in self._seen:", "if False:"),
        scenario="refusals",
    ),
    fault(
        "preempted in favour of a later arrival",
        (
            "planning:_Planner.reclaim",
            "(q for q in reversed(later) if self.pool.requests[q].table)",
            "(q for q in self.order if q != r and self.pool.requests[q].table"
            " and all(chunk.request != q for chunk in self.chunks))",
        ),
    ),
    fault(
        "page published in the plan phase",
        (
            "engine:Engine._step",
            "        actions += plan.actions\n",
            "        actions += plan.actions\n"
            "        from vosti.impl.settling import publish_full\n"
            "        for r, record in self._live.items():\n"
            "            self._pool, published = publish_full(self._pool, r, record.history)\n"
            "            actions += published\n",
        ),
        ("engine:Engine._settle", "publishing=self.options.prefix_caching", "publishing=False"),
    ),
    fault(
        "KV changed after its digest was taken",
        (
            "engine:Engine._step",
            "        outputs = [",
            "        for page in list(self._pool.idle)[:1]:\n"
            "            self._backend.slots[page * self.options.page_size] = b'changed'\n"
            "        outputs = [",
        ),
    ),
)
