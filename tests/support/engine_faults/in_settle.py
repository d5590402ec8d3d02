"""Faults that are to be found in the settle phase: sampling, drafts, publishing, and the state that is left behind."""

from engine_faults.edits import Fault, fault

PLANNED = "        actions += plan.actions\n"

ON_PREEMPTION = (
    PLANNED
    + "        for action in plan.actions:\n"
    + "            if type(action).__name__ == 'Preempt':\n"
    + "                record = self._live[action.request]\n"
    + "                self._live[action.request] = replace(record, {change})\n"
)

SAMPLE = "sample=partial(_sample, result, i, drawn.get(i)),"

FAULTS: tuple[Fault, ...] = (
    fault(
        "sampler advanced twice",
        ("settling:emitted", "record.sampler.index + 1", "record.sampler.index + 2"),
    ),
    fault(
        "sampler starts over on resume",
        (
            "engine:Engine._step",
            PLANNED,
            ON_PREEMPTION.format(change="sampler=replace(record.sampler, index=0)"),
        ),
        scenario="resumed",
    ),
    fault(
        "token dropped on resume",
        ("engine:Engine._step", PLANNED, ON_PREEMPTION.format(change="output=record.output[:-1]")),
        scenario="resumed",
    ),
    fault(
        "arrival forgotten on resume",
        ("engine:Engine._step", PLANNED, ON_PREEMPTION.format(change="arrival=record.arrival + 100")),
        scenario="resumed",
    ),
    fault(
        "domain lost on arrival",
        ("pool:admit", "cached=0, domain=domain)", "cached=0, domain=Domain(''))"),
        scenario="domains",
    ),
    fault(
        "token sampled from another row",
        ("engine:Engine._yielded_rows", SAMPLE, "sample=partial(_sample, result, 0, None),"),
        scenario="busy, with bits",
    ),
    fault(
        "sampling that depends on the batch",
        (
            "engine:Engine._yielded_rows",
            SAMPLE,
            "sample=lambda record, i=i: _sample(result, i, None, replace(record, sampler=replace("
            "record.sampler, seed=record.sampler.seed + len(batch.logit_rows) - 1))),",
        ),
    ),
    fault(
        "draft accepted that differs",
        (
            "settling:settle",
            "token = row.sample(record)",
            "token = record.draft[0] if record.draft else row.sample(record)",
        ),
    ),
    fault(
        "wrong draft not retracted", ("settling:settle", "if record.draft and record.draft[0] != token:", "if False:")
    ),
    fault("retraction not recorded", ("settling:settle", "            actions.append(Retract(r))\n", "")),
    fault(
        "draft judged by the row before",
        ("settling:settle", "row = yielded[length - 1]", "row = yielded[max(min(yielded), length - 2)]"),
    ),
    fault(
        "page with a draft published",
        (
            "settling:settle",
            "    while ended is None:\n",
            "    if publishing:\n"
            "        pool, early = publish_full(pool, r, (*record.history, *record.draft))\n"
            "        actions += early\n"
            "    while ended is None:\n",
        ),
    ),
    fault(
        "page published before it is full",
        (
            "settling:publish_full",
            "stop = min(pool.requests[r].cached, len(history)) // pool.page_size",
            "stop = -(-min(pool.requests[r].cached, len(history)) // pool.page_size)",
        ),
        ("settling:publish_full", "        assert pools.publish_guard(pool, r, block, tokens, len(history))\n", ""),
    ),
    fault(
        "page with a value that is not finite published",
        (
            "settling:settle",
            '    if ended == "error":\n',
            '    if ended == "error":\n'
            "        pool, early = publish_full(pool, r, record.history)\n"
            "        actions += early\n",
        ),
        scenario="values",
    ),
    fault(
        "token emitted after a value that is not finite",
        ("settling:settle", "if non_finite and min(non_finite) < min(cached, length):", "if False:"),
        scenario="values",
    ),
    fault(
        "token sampled from logits that are not finite",
        ("engine:Engine._yielded_rows", "finite=finite[i],", "finite=True,"),
        (
            "engine:Engine._yielded_rows",
            SAMPLE,
            "sample=partial(_sample, replace(result, logits=result.logits.nan_to_num()), i, None),",
        ),
        scenario="endings",
    ),
    fault(
        "wrong request failed",
        (
            "engine:Engine._settle",
            "sick.get(sequence, ())",
            "sick.get((sequence + 1) % len(chunks), ())",
        ),
        scenario="values",
    ),
    fault(
        "slot counted that was not written",
        (
            "engine:Engine._forward",
            "batch = pack(chunks, ",
            "shorter = [replace(c, count=c.count - 1)"
            " if c.count > 1 and c.start + c.count < len(histories[c.request]) else c for c in chunks]\n"
            "        batch = pack(shorter, ",
        ),
        scenario="busy, nothing shared",
    ),
    fault(
        "emit not recorded",
        (
            "settling:settle",
            "        actions.append(Emit(r, Record(row.logits, token), Sampler(record.sampler)))\n",
            "",
        ),
        scenario="domains",
    ),
    fault(
        "observe not recorded",
        ("settling:observed", "        actions.append(Observe(r, position, row.logits))\n", ""),
        scenario="observed",
    ),
    fault(
        "observed in the row after",
        ("settling:observed", "row = yielded[position]", "row = yielded.get(position + 1, yielded[position])"),
        scenario="observed",
    ),
    fault(
        "a position too far observed",
        ("settling:observed", "Observe(r, position, row.logits)", "Observe(r, position + 1, row.logits)"),
        scenario="observed",
    ),
    fault("publish not recorded", ("settling:settle", "        actions += published\n", "")),
    fault(
        "page published without its parent",
        ("pool:publish", "parent = holding.table[block - 1] if block > 0 else None", "parent = None"),
    ),
    fault(
        "page published with other tokens",
        ("pool:publish", "registered=True, tokens=tokens,", "registered=True, tokens=tokens[::-1],"),
    ),
    fault("finish not recorded", ("settling:settle", "        actions.append(Finish(r))\n", ""), scenario="chains"),
    fault(
        "cancelled request keeps its pages",
        ("engine:Engine._admit_and_cancel", "                self._pool = pools.remove(self._pool, r)\n", ""),
    ),
    fault(
        "page freed while another request holds it",
        (
            "pool:released",
            "for page_id in table if not pages[page_id].registered}",
            "for page_id in table if not pages[page_id].registered or pages[page_id].refcount > 1}",
        ),
        scenario="shared",
    ),
    fault(
        "page lost on release",
        ("pool:released", "free=pool.free.update(freed)", "free=pool.free.update(dict(list(freed.items())[1:]))"),
    ),
    fault(
        "reference count not lowered",
        ("pool:released", "refcount=pages[page_id].refcount - 1", "refcount=pages[page_id].refcount"),
    ),
    fault(
        "references taken before a failed admission",
        (
            "engine:Engine._refuse",
            "        if pages > self.options.pages:\n",
            "        if pages > self.options.pages:\n"
            "            for page in pools.match_prefix(self._pool, Domain(''), prompt, len(prompt) - 1):\n"
            "                held = pools.one_more_holder(self._pool.pages[page])\n"
            "                self._pool = replace(self._pool, pages=self._pool.pages.set(page, held))\n",
        ),
        scenario="refusals",
    ),
    fault(
        "recycled page still in the index",
        ("pool:evict", "pool.index.delete(key) if pool.index.get(key) == page_id else pool.index", "pool.index"),
        ("pool:match_next", "if page_id is None:", "if page_id is None or page_id not in pool.pages:"),
    ),
    fault(
        "freed page wiped, and its neighbour too",
        (
            "engine:Engine._settle",
            "                del self._live[chunk.request]\n",
            "                del self._live[chunk.request]\n"
            "                for page in self._pool.free:\n"
            "                    first, end = page * self.options.page_size, len(self._backend.slots)\n"
            "                    for slot in range(first, min(first + self.options.page_size + 1, end)):\n"
            "                        self._backend.slots[slot] = b''\n",
        ),
        scenario="busy, read again",
    ),
)
