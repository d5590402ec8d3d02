"""The model as far as the engine knows it, and the cold reference machine (sections 3 and 4.2 of the paper).

The engine's proof treats the model as a handful of unknown functions of token sequences. What is known of them is the
kernel contract: from canonical values of the earlier positions a forward computes the canonical value of the next
one, and from anything else, something unspecified. That is all the engine may rely on.

The bodies below make the specification executable without a model: a canonical value is the very prefix it is a
function of. A checker of real runs puts observed digests in their place (`vosti.refinement`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TypeVar, cast

from vosti.spec.determinism import Record
from vosti.spec.sampling import SamplerState
from vosti.spec.state import Logits, Sampler, Token, Value

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., object])

VOCABULARY = 3
"""How many tokens `sampled_token` chooses from when the specification is run without a model."""

NON_FINITE = Token(-1)
"""The token that makes a value or a row non-finite when the specification is run without a model."""


def opaque(function: AnyFunction) -> AnyFunction:
    """Mark a function that proofs know by its type, and by nothing else."""
    return function


# ---------------------------------------------------------------- what a cold forward computes


@opaque
def canonical_kv(prefix: tuple[Token, ...]) -> Value:
    """f_KV(W, h, p) for prefix = h[: p + 1]: the KV pairs that a cold forward on that prefix produces at its last
    position.

    It depends on the causal prefix alone; later tokens do not change it (section 4.2).
    """
    return Value(("kv", prefix))


@opaque
def forward(history: tuple[Token, ...]) -> Logits:
    """Forward(W, h): the last position's logits of a cold forward, from an empty cache (section 4)."""
    return Logits(("logits", history))


@opaque
def finite_kv(value: Value) -> bool:
    """Whether every number of a position's KV pairs is finite."""
    return NON_FINITE not in cast(tuple[str, tuple[Token, ...]], value)[1]


@opaque
def finite_logits(logits: Logits) -> bool:
    """Whether every logit of a row is finite."""
    return NON_FINITE not in cast(tuple[str, tuple[Token, ...]], logits)[1]


@opaque
def sampled_token(logits: Logits, sampler: Sampler, history: tuple[Token, ...], prompt_length: int) -> Token:
    """The token that the sampler draws: `vosti.spec.sampling.sample`, as a function of all that it may look at."""
    seed = repr((logits, sampler, history, prompt_length)).encode()
    return Token(hashlib.sha256(seed).digest()[0] % VOCABULARY)


@opaque
def next_sampler(sampler: Sampler) -> Sampler:
    """The sampler state after one output: the same parameters and seed, the next index."""
    return Sampler(cast(SamplerState, sampler).advanced())


# ---------------------------------------------------------------- what an engine's kernels compute


@opaque
def unspecified_kv(past: tuple[Value, ...], prefix: tuple[Token, ...]) -> Value:
    """What a kernel computes for a position whose past is not canonical."""
    return Value(("unspecified kv", prefix, past))


@opaque
def unspecified_logits(past: tuple[Value, ...], history: tuple[Token, ...]) -> Logits:
    """What a kernel computes for a row whose past is not canonical."""
    return Logits(("unspecified logits", history, past))


def is_canonical(past: tuple[Value, ...], tokens: tuple[Token, ...]) -> bool:
    """∀ p < |past| : past[p] = f_KV(W, tokens, p)."""
    return len(past) <= len(tokens) and all(value == canonical_kv(tokens[: p + 1]) for p, value in enumerate(past))


def kernel_kv(past: tuple[Value, ...], prefix: tuple[Token, ...]) -> Value:
    """The kernel contract for a new position: canonical from all earlier positions' canonical values (section 5)."""
    complete = len(past) + 1 == len(prefix)
    return canonical_kv(prefix) if complete and is_canonical(past, prefix) else unspecified_kv(past, prefix)


def kernel_logits(past: tuple[Value, ...], history: tuple[Token, ...]) -> Logits:
    """The kernel contract for a row of logits: Forward(W, history) from canonical values of every position (section
    5).
    """
    complete = len(past) == len(history)
    return forward(history) if complete and is_canonical(past, history) else unspecified_logits(past, history)


# ---------------------------------------------------------------- the cold reference machine


def reference_record(history: tuple[Token, ...], sampler: Sampler, prompt_length: int) -> Record:
    """The record that a cold machine, which has no cache and no other requests, emits after this history."""
    logits = forward(history)
    return Record(logits=logits, token=sampled_token(logits, sampler, history, prompt_length))


def reference_run(prompt: tuple[Token, ...], sampler: Sampler, length: int) -> tuple[Record, ...]:
    """The cold machine's first `length` records: every view of (prompt, sampler) is a prefix of this one sequence.

    A loop, and therefore outside the subset; proofs use `reference_record`, one record at a time.
    """
    records: tuple[Record, ...] = ()
    history = prompt
    for _ in range(length):
        record = reference_record(history, sampler, len(prompt))
        records, history, sampler = (*records, record), (*history, record.token), next_sampler(sampler)
    return records
