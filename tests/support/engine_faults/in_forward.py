"""Faults that are to be found in the forward phase: what the model is told, and what it computes."""

from engine_faults.edits import Fault, fault

BATCH = "    return Batch(\n"

FAULTS: tuple[Fault, ...] = (
    fault(
        "wrong slot", ("packing:pack", "pool.page_size + offsets", "pool.page_size + (offsets + 1) % pool.page_size")
    ),
    fault(
        "two rows write one slot",
        (
            "packing:pack",
            BATCH,
            "    write_slots[begins + counts - 1] = write_slots[begins]\n" + BATCH,
        ),
    ),
    fault(
        "allocation not recorded",
        ("planning:_Planner.extend_table", "            self.actions.append(Allocate(r, page_id))\n", ""),
    ),
    fault(
        "stale entry in a page table",
        (
            "packing:pack",
            BATCH,
            "    tables[range(len(chunks)), (tables != NO_PAGE).sum(1) - 1] = tables[:, 0]\n" + BATCH,
        ),
    ),
    fault(
        "padding row writes",
        ("packing:pack", "np.full(rows, NO_SLOT, np.int64)", "np.full(rows, 0, np.int64)"),
        scenario="checkpoint",
    ),
    fault(
        "position off by one",
        ("packing:pack", "np.repeat(starts - begins, counts)", "np.repeat(starts - begins - (starts > 0), counts)"),
    ),
    fault(
        "hit not recorded",
        (
            "planning:_Planner.attach_known",
            "            self.actions += [Attach(r, page_id) for page_id in chain]\n",
            "",
        ),
    ),
    fault(
        "token of the position before",
        ("packing:pack", "history[chunk.start : stop]", "history[max(0, chunk.start - 1) : stop]"),
    ),
    fault(
        "draft not recorded",
        ("planning:_Planner.schedule", "            self.actions.append(Propose(r, draft))\n", "            pass\n"),
    ),
    fault(
        "token budget exceeded",
        (
            "planning:_Planner.budget",
            "self.limits.token_budget - self.rows",
            "self.limits.token_budget + 1 - self.rows",
        ),
    ),
    fault(
        "more sequences than max_seqs",
        ("planning:plan_step", "len(planner.chunks) == limits.max_seqs", "len(planner.chunks) > limits.max_seqs"),
        scenario="busy, two at once",
    ),
    fault(
        "linear that depends on the batch",
        (
            "backends.torch_ops:TorchOps.chain",
            "        return torch.mm(x, weight)",
            "        live = int((x != x[-1]).any(1).sum())  # padding rows are equal to the last one\n"
            "        return torch.cat([torch.mm(x[:live], weight), torch.mm(x[live:], weight)])",
        ),
        scenario="checkpoint",
    ),
    fault(
        "KV of a private page changed",
        (
            "engine:Engine._step",
            "        outputs = [",
            "        for page in [p for p, meta in self._pool.pages.items() if not meta.registered][:1]:\n"
            "            self._backend.slots[page * self.options.page_size] = b'changed'\n"
            "        outputs = [",
        ),
    ),
    fault(
        "logits gathered from the wrong row",
        ("backends.cpu:CpuBackend._selected", "rows = batch.logit_rows", "rows = np.roll(batch.logit_rows, 1)"),
        scenario="checkpoint",
    ),
)
