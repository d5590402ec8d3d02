"""The value parts of guards, by what a forward was seen to compute.

The control parts are the specification's own (`vosti.spec.actions`). Where a guard looks at values, what was observed
takes the place of the model's unknown functions, as in the step checker. These functions too are written in the
subset, so that they run as they stand and can be compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from vosti.spec.actions import emit_ready, publish_ready
from vosti.spec.determinism import Record
from vosti.spec.state import Logits, RequestId, Sampler, State, Token, Value, cached_value, history
from vosti.spec.step import Emit, Fail, Publish


@dataclass(frozen=True)
class Evidence:
    """What is known of values in one step."""

    logits: Mapping[RequestId, Mapping[int, Logits]]
    """What the forward yielded, by request and position."""

    tokens: Mapping[Logits, Mapping[Sampler, Token]]
    """Which token the sampler was seen to draw; of what was not seen, any token is believed."""

    advanced: Mapping[Sampler, Sampler]
    """Sampler state → the one after one output."""

    sick_values: frozenset[Value]
    """The values that are not finite."""

    sick_logits: frozenset[Logits]


def emit_seen(s: State, seen: Evidence, r: RequestId, record: Record, sampler: Sampler) -> bool:
    """`emit_guard`, by what was observed."""
    if not emit_ready(s, r, record.token):
        return False
    request = s.requests[r]
    length = len(history(request))
    return (
        r in seen.logits
        and length - 1 in seen.logits[r]
        and record.logits == seen.logits[r][length - 1]
        and record.logits not in seen.sick_logits
        and request.sampler in seen.advanced
        and sampler == seen.advanced[request.sampler]
        and (
            record.logits not in seen.tokens
            or request.sampler not in seen.tokens[record.logits]
            or record.token == seen.tokens[record.logits][request.sampler]
        )
        and all(cached_value(s, r, p) not in seen.sick_values for p in range(length))
    )


def publish_seen(s: State, seen: Evidence, r: RequestId, block: int) -> bool:
    """`publish_guard`, by what was observed."""
    return publish_ready(s, r, block) and all(
        value not in seen.sick_values for value in s.pages[s.requests[r].table[block]].kv
    )


def fail_seen(s: State, seen: Evidence, r: RequestId) -> bool:
    """`fail_guard`, by what was observed."""
    if r not in s.requests:
        return False
    request = s.requests[r]
    length = len(history(request))
    return any(cached_value(s, r, p) in seen.sick_values for p in range(min(request.cached, length))) or (
        request.cached >= length
        and r in seen.logits
        and length - 1 in seen.logits[r]
        and seen.logits[r][length - 1] in seen.sick_logits
    )


BY_EVIDENCE: dict[type, Callable[..., bool]] = {Emit: emit_seen, Publish: publish_seen, Fail: fail_seen}
"""The actions whose guards look at values, with guards that look at evidence instead."""
