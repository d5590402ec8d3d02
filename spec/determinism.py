"""Deterministic LLM inference: Definition 2.1 of the paper, and the words it uses (section 2.3).

An inference configuration W fixes the model's weights, the numerical types, and whatever else of platform and
implementation may change a value. Everything below compares executions that share W.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from vosti.spec.state import Logits, RequestId, Sampler, Token


@dataclass(frozen=True)
class Record:
    """An output record (ℓ, y) ∈ Logits × Token (section 2.3).

    Equality of logits means equality of their bit patterns: NaN equals itself here, and -0.0 differs from 0.0.
    """

    logits: Logits
    """The raw next-token logits over the whole vocabulary, before any sampling parameter is applied."""

    token: Token
    """The token that was sampled from them."""


Output = Mapping[RequestId, tuple[Record, ...]]
"""What one engine step shows: Oᵢ : Id ⇀ (Logits × Token)⁺, a finite partial map.

The paper's step emits at most one record for each request; a step that verifies a draft emits several, in order, so
the map's values are non-empty tuples.
"""

View = tuple[Record, ...]
"""The observable history of one request: its records, without its identifier, its place in a batch, or anybody else's
output.
"""


@dataclass(frozen=True)
class Admission:
    """What a request brings: the only things its view may depend on, W aside."""

    prompt: tuple[Token, ...]
    sampler: Sampler


@dataclass(frozen=True)
class Execution:
    """A finite execution s₀ →O₁ s₁ →O₂ … →Oₙ sₙ, as an observer sees it (section 2.3)."""

    configuration: str
    """The fingerprint of W."""

    admitted: Mapping[RequestId, Admission]
    """Every request of the execution. (The paper admits them in s₀; an admission at a later step starts an execution
    there.)
    """

    outputs: tuple[Output, ...]
    """T = (O₁, …, Oₙ), one map for each engine step."""

    failed: frozenset[RequestId] = frozenset()
    """The requests whose view was ended by an error: some value of their history was not finite."""


def is_output(output: Output) -> bool:
    """A request that appears in a step's output has at least one record there."""
    return all(len(records) >= 1 for records in output.values())


def view(execution: Execution, r: RequestId) -> View:
    """The records of one request, in the order of the steps that produced them.

        viewᵣ(T) = ⟨ Oᵢ(r) : 1 ≤ i ≤ n ∧ r ∈ dom(Oᵢ) ⟩

    Steps in which r produced nothing leave no trace in it.

    >>> admitted = {"r": Admission(prompt=(1, 2), sampler="greedy")}
    >>> outputs = ({"r": (Record("ℓ₀", 5),)}, {}, {"r": (Record("ℓ₁", 7), Record("ℓ₂", 5))})
    >>> [record.token for record in view(Execution("W", admitted, outputs), "r")]
    [5, 7, 5]
    """
    return tuple(record for output in execution.outputs if r in output for record in output[r])


def is_prefix(a: View, b: View) -> bool:
    """a ⪯ b: the longer view begins with the shorter one."""
    return len(a) <= len(b) and a == b[: len(a)]


def prefix_comparable(a: View, b: View) -> bool:
    """a ⪯ b ∨ b ⪯ a.

    Executions are finite and may schedule requests differently, so two views need not be equally long.
    """
    return is_prefix(a, b) or is_prefix(b, a)


def ends_alike(first: Execution, r1: RequestId, second: Execution, r2: RequestId) -> bool:
    """An error ends a view: no execution carries the same request further.

        r₁ failed in T₁ ⟹ |viewᵣ₂(T₂)| ≤ |viewᵣ₁(T₁)|, and the other way round.

    The paper has no errors; this clause says what determinism asks of them.
    """
    return (r1 not in first.failed or len(view(second, r2)) <= len(view(first, r1))) and (
        r2 not in second.failed or len(view(first, r1)) <= len(view(second, r2))
    )


def deterministic(executions: Collection[Execution]) -> bool:
    """Definition 2.1, over a collection of executions of one system.

        ∀ T₁, T₂ that share W, ∀ r₁ ∈ T₁, r₂ ∈ T₂ :
            r₁.prompt = r₂.prompt ∧ r₁.sampler₀ = r₂.sampler₀  ⟹  viewᵣ₁(T₁) ⪯ viewᵣ₂(T₂) ∨ viewᵣ₂(T₂) ⪯ viewᵣ₁(T₁)

    A system is deterministic if this holds of all its executions. It is a safety property: nothing here asks that a
    request makes progress, or that its logits are those the model's authors had in mind.

    >>> admission = Admission(prompt=(1, 2), sampler="greedy")
    >>> busy = Execution("W", {"r": admission}, ({}, {"r": (Record("ℓ₀", 5),)}))
    >>> alone = Execution("W", {"x": admission}, ({"x": (Record("ℓ₀", 5), Record("ℓ₁", 7))},))
    >>> deterministic([busy, alone])
    True
    >>> astray = Execution("W", {"y": admission}, ({"y": (Record("ℓ₀", 6),)},))
    >>> deterministic([busy, alone, astray])
    False
    """
    return all(
        prefix_comparable(view(first, r1), view(second, r2)) and ends_alike(first, r1, second, r2)
        for first in executions
        for second in executions
        if first.configuration == second.configuration
        for r1 in first.admitted
        for r2 in second.admitted
        if first.admitted[r1] == second.admitted[r2]
    )
