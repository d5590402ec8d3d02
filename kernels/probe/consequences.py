"""What a rule that a probe found broken disables: the tiles that depend on it, and no others.

A tile depends on the rules that its kernel's proofs use. A rule that broke in products broke for the class of matrix
instructions that they had, and disables the tiles whose binaries have it. All products are compared with those of one
class, so that a class that differs from it is disabled, and classes that differ are not mixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from vosti.kernels.probe.findings import Finding
from vosti.kernels.probe.repeats import REPEATABILITY
from vosti.kernels.tables import Choice, Entry
from vosti.kernels.verifier import rules

_ATTENTION = (rules.CHAIN, rules.CONVERSION, rules.FREE_MAXIMUM, rules.FUNCTION, rules.MASKED_PRODUCT)
_GATED = (rules.CHAIN, rules.CONVERSION, rules.FUNCTION, rules.ZERO_EXPONENT)

RULES_OF: Mapping[str, frozenset[str]] = {
    kernel: frozenset(rule.name for rule in used)
    for kernel, used in {
        "attention": (*_ATTENTION, rules.EMPTY_TOTAL),
        "attention_merge": (*_ATTENTION, rules.EMPTY_TOTAL),
        "attention_split": _ATTENTION,
        "digest": (),
        "digest_merge": (),
        "embedding": (rules.CONVERSION,),
        "gate_up": _GATED,
        "gate_up_stream": _GATED,
        "kv_store": (rules.CONVERSION, rules.FREE_MAXIMUM),
        "linear": (rules.CHAIN, rules.CONVERSION),
        "linear_stream": (rules.CHAIN, rules.CONVERSION),
        "logits": (rules.FREE_MAXIMUM, rules.FUNCTION),
        "rms_norm": (rules.CONVERSION, rules.TWO_LANES),
        "rotary_store": (rules.CONVERSION, rules.FREE_MAXIMUM, rules.TWO_LANES),
    }.items()
}
"""Kernel of the catalogue → the rules about a GPU that proofs of it use, in one configuration or another."""

Classes = Callable[[Choice], Iterable[str]]
"""The classes of matrix instructions in the binaries of one of an entry's tiles."""


def failures(findings: Iterable[Finding]) -> list[Finding]:
    """Those that have not passed."""
    return [finding for finding in findings if finding.problem is not None]


def classes_tried(findings: Iterable[Finding]) -> frozenset[str]:
    """The classes of matrix instructions whose products were compared."""
    return frozenset(name for finding in findings if finding.rule == rules.CHAIN.name for name in finding.classes)


def dependents(failure: Finding) -> list[str]:
    """The kernels, of some tiles or all, that depend on what failed."""
    if failure.kernel:
        return [failure.kernel]
    if failure.rule == REPEATABILITY:
        return sorted(kernel for kernel, used in RULES_OF.items() if rules.CHAIN.name in used)
    return sorted(kernel for kernel, used in RULES_OF.items() if failure.rule in used)


def disables(failure: Finding, choice: Choice, classes: Classes) -> bool:
    """Whether a tile depends on what failed."""
    if choice.kernel not in dependents(failure):
        return False
    everywhere = bool(failure.kernel) or not failure.classes
    return everywhere or not set(failure.classes).isdisjoint(classes(choice))


def remaining(entry: Entry, failed: Sequence[Finding], classes: Classes) -> Entry:
    """The entry with the tiles that nothing that failed disables; the last one serves as many rows as the last before.

    It may have none.
    """
    choices = [choice for choice in entry.choices if not any(disables(one, choice, classes) for one in failed)]
    if choices and entry.choices[-1].up_to_rows is None:
        choices[-1] = replace(choices[-1], up_to_rows=None)
    return replace(entry, choices=tuple(choices))
