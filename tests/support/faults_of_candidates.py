"""Faults in what tokens were drawn from, of runs in mode "candidates"."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from event_streams import Edit, Fault, Stream, at_event
from faults_of_results import other_token
from vosti.spec.candidates import Candidates, drawn, may_be_candidates
from vosti.spec.events import SettleEvent
from vosti.spec.sampling import SamplerState
from vosti.spec.state import State
from vosti.spec.step import Emit

Change = Callable[[Candidates], Candidates | None]


def emits(event: SettleEvent) -> list[tuple[Emit, SamplerState]]:
    """The emits of a step, each with the sampler state that it found."""
    found = []
    for action in event.actions:
        if isinstance(action, Emit):
            assert isinstance(action.sampler, SamplerState)
            found.append((action, replace(action.sampler, index=action.sampler.index - 1)))
    return found


def with_candidates(event: SettleEvent, i: int, changed: Candidates) -> SettleEvent:
    """The event with other candidates at one place."""
    return replace(event, candidates=(*event.candidates[:i], changed, *event.candidates[i + 1 :]))


def at_candidates(change: Change, wanted: Callable[[Candidates, Candidates, SamplerState], bool]) -> Edit:
    """Change the first candidates for which the change is as wanted: old ones, new ones, sampler state."""

    def edit(event: SettleEvent, s: State) -> SettleEvent | None:
        for i, (found, (_, sampler)) in enumerate(zip(event.candidates, emits(event), strict=True)):
            new = change(found)
            if new is not None and wanted(found, new, sampler):
                return with_candidates(event, i, new)
        return None

    return at_event(SettleEvent, edit)


def impossible(found: Candidates, new: Candidates, sampler: SamplerState) -> bool:
    """No row has the new ones."""
    return not may_be_candidates(new, sampler)


def another_draw(found: Candidates, new: Candidates, sampler: SamplerState) -> bool:
    """Another token is drawn from the new ones, which some row may have."""
    return may_be_candidates(new, sampler) and drawn(new, sampler) != drawn(found, sampler)


def lighter(found: Candidates) -> Candidates | None:
    """The least weight is one less."""
    weights = [share for _, share in found.kept]
    least = weights.index(min(weights))
    token, share = found.kept[least]
    kept = (*found.kept[:least], (token, share - 1), *found.kept[least + 1 :])
    return replace(found, kept=kept) if share > 1 and len(weights) > 1 else None


def exchanged_weights(found: Candidates) -> Candidates:
    """The weights stand in another order."""
    weights = [share for _, share in found.kept]
    tokens = [token for token, _ in found.kept]
    return replace(found, kept=tuple(zip(tokens, weights[::-1], strict=True)))


def another_token(found: Candidates) -> Candidates | None:
    """One of the tokens is another one."""
    free = next(token for token in range(20) if token not in dict(found.kept))
    kept = dict(found.kept[1:]) | {free: found.kept[0][1]}
    return Candidates(tuple(sorted(kept.items())), None)


def of_a_row_seen_before(s: Stream) -> Stream | None:
    """A weight is edited where the same row was seen before; the token stays what it is."""
    seen = set()
    for place, event in enumerate(s.events):
        for i, (action, sampler) in enumerate(emits(event) if isinstance(event, SettleEvent) else ()):
            assert isinstance(event, SettleEvent)
            key = (action.record.logits, replace(sampler, seed=0, index=0))
            new = lighter(event.candidates[i])
            if key in seen and new is not None and not another_draw(event.candidates[i], new, sampler):
                return s.with_event(place, with_candidates(event, i, new))
            seen.add(key)
    return None


CANDIDATE_FAULTS = [
    Fault(
        "candidates are missing",
        "candidates_match_emits",
        at_event(SettleEvent, lambda e, s: replace(e, candidates=e.candidates[1:]) if e.candidates else None),
    ),
    Fault(
        "candidates of nobody",
        "candidates_match_emits",
        at_event(SettleEvent, lambda e, s: replace(e, candidates=e.candidates * 2) if e.candidates else None),
    ),
    Fault(
        "the most probable token is not the most probable",
        "candidates_are_kept",
        at_candidates(
            lambda found: replace(found, kept=tuple((token, min(share, 9)) for token, share in found.kept)), impossible
        ),
    ),
    Fault(
        "candidates are out of order",
        "candidates_are_kept",
        at_candidates(lambda found: replace(found, kept=found.kept[::-1]), impossible),
    ),
    Fault("no candidates", "candidates_are_kept", at_candidates(lambda found: replace(found, kept=()), impossible)),
    Fault(
        "the runner-up is a candidate",
        "candidates_are_kept",
        at_candidates(lambda found: replace(found, runner_up=found.kept[0]), impossible),
    ),
    Fault(
        "the runner-up was to be kept",
        "candidates_are_kept",
        at_candidates(
            lambda found: Candidates(found.kept[:-1], found.kept[-1]) if len(found.kept) > 1 else None, impossible
        ),
    ),
    Fault("weights are edited", "sampled_token", at_candidates(exchanged_weights, another_draw)),
    Fault("a candidate is edited", "sampled_token", at_candidates(another_token, another_draw)),
    Fault("another token than the one that is drawn", "sampled_token", other_token),
    Fault("a weight is edited and the token is not", "candidates_are_canonical", of_a_row_seen_before),
]
"""Of runs that say what each token was drawn from."""
