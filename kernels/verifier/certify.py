"""Certificates made, kept and found again: what a launcher asks before it runs a kernel."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vosti.kernels.catalogue import TARGETS, instances
from vosti.kernels.contract import ALIGNMENT, Buffer, Contract
from vosti.kernels.tables import Entry
from vosti.kernels.verifier.binding import (
    BindingError,
    Certificate,
    bind,
    check,
    contract_digest,
    decode,
    encode,
    verifier_digest,
)
from vosti.kernels.verifier.entries import Case
from vosti.kernels.verifier.errors import VerifierError

FOLDER = "VOSTI_CERTIFICATES"
"""Environment variable: where certificates are kept, if not under the user's cache."""


class UncertifiedError(VerifierError):
    """There is no certificate, and none may be made now; the message says how to make one."""


def certify(case: Case, binary: Any) -> Certificate:
    """Prove a case, and bind the proof to the binary that was compiled for it.

    Raises:
        RefusedError: if it is not proved.
        BindingError: if the audit finds something in the binary, or it was compiled from another IR.
    """
    proof, binding = case.prove(), bind(binary)
    if proof.digest != binding.ir:
        raise BindingError(f"The binary of {binding.kernel} was compiled from another IR than the one that is proved.")
    contract = case.instance.kernel.contract
    return Certificate(
        binding=binding,
        configuration=tuple(sorted(case.constants.items())),
        contract=contract_digest(contract),
        verifier=verifier_digest(),
        rules=tuple(sorted(proof.rules)),
        premises=premises(contract),
    )


def premises(contract: Contract) -> tuple[str, ...]:
    """What a proof takes for granted of a launch, in words and expressions."""
    buffers = [parameter for parameter in contract.parameters if isinstance(parameter, Buffer)]
    return (
        f"buffers do not overlap, and begin at multiples of {ALIGNMENT} bytes",
        *(f"{written} may be {read} if {condition}" for written, read, condition in contract.in_place),
        *contract.premises,
        *(f"{buffer.within[0]} <= {buffer.name}[...] < {buffer.within[1]}" for buffer in buffers if buffer.within),
        *(f"for all {', '.join(fact.names)}: {fact.holds} (kept {fact.kept})" for fact in contract.facts),
    )


@dataclass(frozen=True)
class Store:
    """Certificates in a folder, a file for each kernel, configuration and binary."""

    folder: Path

    def certificate(self, case: Case, *, certified_only: bool = False) -> Certificate:
        """The certificate of what a case compiles to here: the one that is kept, or a new one, which is kept.

        One that is about another binary, contract or verifier is never used: it is replaced, or refused if
        `certified_only`.

        Raises:
            UncertifiedError: if there is none, and `certified_only` forbids that one is made.
            RefusedError: and `BindingError`, if none can be made.
        """
        binary = case.instance.compiled(TARGETS[case.architecture])
        path = self.path(case, binary)
        if path.exists():
            try:
                kept = decode(path.read_text())
                check(kept, binary, case.instance.kernel.contract)
                return kept
            except BindingError:
                if certified_only:
                    raise
        elif certified_only:
            raise UncertifiedError(
                f"There is no certificate of {case.name} in {self.folder}; run once without --certified-only."
            )
        made = certify(case, binary)
        self.folder.mkdir(parents=True, exist_ok=True)
        # Another process may be writing the same one: a file is whole or not there.
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_text(encode(made))
        temporary.replace(path)
        return made

    def path(self, case: Case, binary: Any) -> Path:
        """Where the certificate of a case and a binary is kept."""
        named = f"{case.name}\n{case.architecture}\n{hashlib.sha256(binary.asm['cubin']).hexdigest()}"
        return self.folder / f"{case.kernel}-{hashlib.sha256(named.encode()).hexdigest()[:32]}.json"


def default_store() -> Store:
    """The store that `FOLDER` names, or the one in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return Store(Path(os.environ.get(FOLDER, cache / "vosti" / "certificates")))


def certificates(
    entries: Iterable[Entry], architecture: str, store: Store, *, certified_only: bool = False
) -> dict[str, Certificate]:
    """A certificate for each form of each entry, by the case's name, but for kernels that nothing is claimed of.

    Raises what `Store.certificate` raises, for the first form that has none.
    """
    found = {}
    for entry in entries:
        for instance in instances(entry):
            case = Case(instance, architecture)
            if not instance.kernel.contract.unproved:
                found[f"{case.name} warps={instance.tile.warps} stages={instance.tile.stages}"] = store.certificate(
                    case, certified_only=certified_only
                )
    return found
