"""What the claim rests on where a GPU's kernels compute: proofs, the premises of contracts, the hardware."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vosti.impl.cli.claims import ASSUMED, LAUNCHED, PROBED, PROVED, Premise

_VERIFIER = "each kernel keeps its contract"
"""The premise that certificates are about."""


def kernel_premises(configuration: Mapping[str, object]) -> Iterator[Premise]:
    """The premises under a configuration W of the cuda backend."""
    yield from _certified(configuration)
    yield _numerical(configuration)
    yield Premise(
        "The compiler below the typed IR, and the assembler, make of a kernel what its typed IR says.",
        ASSUMED,
        "the audit of each certified binary finds no contraction, no atomic operation, no overlap of launches, and no "
        "floating-point instruction that the typed IR does not ask for",
    )
    yield from _of_contracts()
    yield from _of_sampler()


def _certified(configuration: Mapping[str, object]) -> Iterator[Premise]:
    from vosti.impl.backends.cuda.certifier import UNVERIFIED

    kernels = (
        "Each kernel that a forward launches, and each that samples, stores what its row program gives of a row's own "
        "inputs, and nothing else"
    )
    if configuration["certificates"] == UNVERIFIED:
        yield Premise(f"{kernels}.", ASSUMED, "no binary has a certificate: --unsafe-unverified was asked for")
        return
    digest = configuration["certificates"]
    yield Premise(f"{kernels}, at each tile of the table.", PROVED, f"vosti prove kernels; certificates {digest}")
    yield Premise(
        "The binaries that are launched are those that the certificates name.",
        LAUNCHED,
        "the engine: UncertifiedKernelError before the results of another binary are used",
    )


def _numerical(configuration: Mapping[str, object]) -> Premise:
    from vosti.kernels.verifier.rules import RULES

    names = ", ".join(rule.name for rule in RULES.values() if rule.probed)
    statement = f"The GPU follows the numerical rules that proofs of what is launched use: {names}."
    if not configuration["probed"]:
        return Premise(statement, ASSUMED, "it was never checked, or found broken: --unsafe-unprobed was asked for")
    if configuration["probe"] is None:
        by = "there is no record of vosti probe of this GPU, driver and Triton; kernels were compared on such a GPU"
        return Premise(statement, ASSUMED, by)
    return Premise(statement, PROBED, f"vosti probe, record {configuration['probe']}")


def _of_contracts() -> Iterator[Premise]:
    """What contracts take for granted of a launch: together what the same kernels need and the same place sees to."""
    from vosti.proofs.forward_premises import FOLLOWED, MEMORY, premises

    kernels: dict[tuple[str, str], list[str]] = {}
    for one in premises(FOLLOWED):
        kernels.setdefault((one.statement, one.place), []).append(one.kernel)
    needs = [(", ".join(names), place, statement) for (statement, place), names in kernels.items()]
    needs += [("all", place, statement) for statement, place in MEMORY if statement != _VERIFIER]
    together: dict[tuple[str, str], list[str]] = {}
    for names, place, statement in needs:
        together.setdefault((names, place), []).append(statement)
    for (names, place), needed in sorted(together.items()):
        carried, by = seen_to(place)
        yield Premise(f"Launches of {names}: {'; '.join(needed)}.", carried, by)


def _of_sampler() -> Iterator[Premise]:
    """The same of the kernels that sample, which are no part of a forward."""
    from vosti.kernels.catalogue import FIXED
    from vosti.kernels.verifier.certify import ranges
    from vosti.proofs.forward_premises import LAUNCHER

    carried, by = seen_to(LAUNCHER)
    contracts = [instance.kernel.contract for instance in FIXED]
    yield Premise(
        f"Launches of {', '.join(contract.kernel for contract in contracts)}: buffers do not overlap.",
        ASSUMED,
        "by construction: what a launch writes is allocated for it",
    )
    for contract in contracts:
        yield Premise(f"Launches of {contract.kernel}: {'; '.join(contract.premises)}.", carried, by)
        for fact in contract.facts:
            # A definition takes nothing for granted.
            if not fact.kept.startswith("by definition"):
                yield Premise(f"Launches of {contract.kernel}: {fact.holds}.", ASSUMED, fact.kept)
        if ranges(contract):
            yield Premise(
                f"Launches of {contract.kernel}: {'; '.join(ranges(contract))}.",
                ASSUMED,
                "by construction: fewer than 2**19 tokens have weights, of at most 2**24, and a sampler's state holds "
                "no other numbers",
            )
    yield Premise(
        "Tokens are drawn from what was weighed, cut and checked, and a row whose cut is not accepted has none.",
        ASSUMED,
        "by construction: the text of vosti.kernels.sample.draw, whose launches follow one another in one stream",
    )
    yield Premise(
        "Launches of weights: best[i] is the largest of row i's logits; none is NaN; temperatures[i] > 0.",
        ASSUMED,
        "by construction: tokens are drawn of rows that are found finite, and a sampler's state holds no other numbers",
    )


def seen_to(place: str) -> tuple[str, str]:
    """How a premise is carried that is seen to in a place of `vosti.proofs.forward_premises`, and by what."""
    how, _, rest = place.partition(": ")
    if how == "proved":
        return PROVED, f"vosti prove forward: {rest}"
    if how.startswith(("checked ", "flagged ")):
        return LAUNCHED, place.removeprefix("checked ").removeprefix("by ")
    return ASSUMED, place.removeprefix("assumed: ")
