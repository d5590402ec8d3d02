"""Every check that a failure report can name, with a sentence that says what it asks.

Three kinds of names: those of the specification's own predicates (guards, conditions on packed rows, conjuncts of
Inv), whose sentence is their docstring's; those of its value parts, which are interpreted by the digests that were
observed; and those that compare what was recorded with what the specification says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from types import MappingProxyType

from vosti.refinement.explain import first_sentence
from vosti.spec import actions
from vosti.spec.invariants import CONJUNCTS
from vosti.spec.rows import ROW_CONJUNCTS
from vosti.spec.state import Request

GUARDS: tuple[Callable[..., bool], ...] = (
    actions.cancel_guard,
    actions.preempt_guard,
    actions.admit_guard,
    actions.propose_guard,
    actions.attach_guard,
    actions.evict_guard,
    actions.allocate_guard,
    actions.compute_guard,
    actions.retract_guard,
    actions.emit_ready,
    actions.observe_ready,
    actions.fail_guard,
    actions.publish_ready,
    actions.finish_guard,
)
"""Guards of actions, or the control parts of guards that look at values."""

ORDER = {
    "steps_are_consecutive": "Steps are numbered 0, 1, 2, and so on.",
    "phases_are_in_order": "A step is one plan, one forward, one settle, and then its outputs.",
    "step_is_complete": "The trace does not end in the middle of a step.",
    "action_is_in_its_phase": "An action happens in the phase that it belongs to.",
}

READINGS = {
    "readings_match_actions": "A plan has one reading for each attach and each evict, of that page, in order.",
    "reading_agrees": "A page that is attached or evicted holds the values that were written to it.",
    "rereadings_are_complete": "If the engine reads everything again, it reads every initialised page, once.",
    "rereading_agrees": "A page that is read again holds the values that were written to it.",
}

FORWARD = {
    "within_token_budget": "A forward has no more live rows than the token budget.",
    "within_max_seqs": "A forward has rows of no more requests than max_seqs.",
    "written_matches_rows": "One written value is recorded for each row with a write slot, in order.",
    "logits_match_rows": "One row of logits is recorded for each row that takes logits, in order.",
    "values_fit_the_mode": "In mode full the bits behind each digest are recorded, and otherwise none are.",
    "values_have_their_digest": "Recorded bits have the digest under which they were recorded.",
    "logits_are_canonical": "Logits are a function of the configuration and the tokens up to their position.",
    "finiteness_follows_bits": "Equal bits are always said to be finite, or never; of recorded bits, truly.",
}

VALUE_PARTS = {
    "logits_were_taken": "An emit or observe reports logits of this very forward, at the position that it speaks of.",
    "emitted_logits": "An emit reports the logits of the row at the last position of the request's history.",
    "history_finite": "A request that emits has a finite value at every position of its history.",
    "finite_logits": "The logits that a token is sampled from are finite.",
    "sampled_token": "A token is a function of logits and sampler state: the sampler's, where the bits are recorded.",
    "candidates_match_emits": "In mode candidates each emit has its candidates, in order, and otherwise none has.",
    "candidates_are_kept": "Candidates, and the one after them, are what the sampler's parameters can leave of a row.",
    "candidates_are_canonical": "Candidates are a function of logits and the sampler's parameters.",
    "next_sampler": "One output advances the sampler's index by exactly one, and changes nothing else.",
    "observes": "An observe reports the logits of the row at its position.",
    "publishes": "A page that holds a value that is not finite is never shared.",
    "taken_logits_are_used": "Logits are taken to be emitted or observed, unless a draft was wrong or a request ended.",
}

SNAPSHOTS = {
    "page_ids_in_range": "Every page that is in use or free is one of the pool's.",
    "requests_agree": "The engine has the live requests that the recorded actions lead to.",
    **{
        f"request_{field.name}_agrees": f"A request's {field.name} is what the recorded actions lead to."
        for field in fields(Request)
    },
    "pages_agree": "The pages in use are those that the recorded actions lead to.",
    "page_registered_agrees": "The pages that others may attach are those that were published.",
    "page_parent_agrees": "A page's parent is the page before it in the table that published it.",
    "page_domain_agrees": "A page belongs to the domain of the request that took it.",
    "page_tokens_agrees": "A page holds the tokens that were computed into it.",
    "page_refcount_agrees": "A page is counted once for each table that contains it.",
    "free_list_agrees": "The free pages are the pool's pages that are not in use.",
    "indexed_only_if_registered": "The prefix index leads to registered pages only.",
}

OUTPUTS = {
    "outputs_are_explained": "The caller hears once, and only, of requests that emitted or ended in this step.",
    "outputs_are_complete": "The caller hears of every request that emitted or ended in this step.",
    "output_tokens_agree": "The tokens that the caller gets are those of the request's view.",
    "output_logits_agree": "The logits that the caller's tokens were sampled from are those of the request's view.",
    "output_end_agrees": "The caller is told that a request ended, and why, exactly when it did.",
}

VIEWS = {
    "prefix_comparable": "Of two views of equal prompt and sampler state, one begins with the other (Definition 2.1).",
    "ends_alike": "No execution carries a request further than another one in which an error ended its view.",
}


def _sentence(function: Callable[..., object]) -> str:
    return first_sentence(function) + "."


CHECKS: Mapping[str, str] = MappingProxyType(
    {
        **ORDER,
        **{guard.__name__: _sentence(guard) for guard in GUARDS},
        **READINGS,
        **FORWARD,
        **{conjunct.__name__: _sentence(conjunct) for conjunct in ROW_CONJUNCTS},
        **VALUE_PARTS,
        **SNAPSHOTS,
        **{conjunct.name: _sentence(conjunct.local) for conjunct in CONJUNCTS},
        **OUTPUTS,
        **VIEWS,
    }
)
"""Name of a check → what it asks."""
