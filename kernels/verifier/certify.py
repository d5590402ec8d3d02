"""Certificates made, kept and found again: what a backend asks for before it runs a kernel.

Nothing here needs a solver but the making of a certificate: kept ones do where none is installed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vosti.kernels.catalogue import FIXED, PAGE_SIZES, TARGETS, instances
from vosti.kernels.contract import ALIGNMENT, Buffer, Contract
from vosti.kernels.devices import compile_ahead
from vosti.kernels.disassembly import remember_classes
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
from vosti.kernels.verifier.errors import RefusedError, VerifierError
from vosti.kernels.workers import Workers

FOLDER = "VOSTI_CERTIFICATES"
"""Environment variable: where certificates are kept, if not under the user's cache."""

SOLVER = "z3"
"""The package that proofs need."""

Advance = Callable[[float, float], None]
"""Takes how many proofs are done, and of how many."""


class UncertifiedError(VerifierError):
    """There is no certificate, and none may or can be made now; the message says what to do."""


def certify(case: Case, binary: Any) -> Certificate:
    """Prove a case, and bind the proof to the binary that was compiled for it.

    Raises:
        RefusedError: if it is not proved.
        BindingError: if the audit finds something in the binary, or it was compiled from another IR.
    """
    try:
        proof = case.prove()
    except VerifierError:
        raise
    except Exception as error:  # a fault of the verifier proves nothing, either
        raise RefusedError(f"The verifier failed: {type(error).__name__}: {error}") from error
    binding = bind(binary)
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
    return (
        f"buffers do not overlap, and begin at multiples of {ALIGNMENT} bytes",
        *(f"{written} may be {read} if {condition}" for written, read, condition in contract.in_place),
        *contract.premises,
        *ranges(contract),
        *(f"for all {', '.join(fact.names)}: {fact.holds} (kept {fact.kept})" for fact in contract.facts),
    )


def ranges(contract: Contract) -> tuple[str, ...]:
    """The ranges in which integers are taken to be: of buffers, and of what facts define."""
    buffers = [one for one in (*contract.parameters, *contract.context) if isinstance(one, Buffer)]
    return tuple(f"{one.within[0]} <= {one.name}[...] < {one.within[1]}" for one in buffers if one.within)


@dataclass(frozen=True)
class Store:
    """Certificates in a folder, a file for each kernel, configuration and binary.

    They are not signed: whoever can write there can make one up.
    """

    folder: Path

    def path(self, case: Case, binary: Any) -> Path:
        """Where the certificate of a case and a binary is kept."""
        named = f"{case.name}\n{case.architecture}\n{hashlib.sha256(binary.asm['cubin']).hexdigest()}"
        return self.folder / f"{case.kernel}-{hashlib.sha256(named.encode()).hexdigest()[:32]}.json"

    def kept(self, case: Case, binary: Any) -> Certificate | None:
        """The certificate that is kept of a case and what it compiled to; None if there is none.

        Raises:
            BindingError: if what is kept is about another binary, contract or verifier.
        """
        path = self.path(case, binary)
        if not path.exists():
            return None
        certificate = decode(path.read_text())
        check(certificate, binary, case.instance.kernel.contract)
        return certificate

    def make(self, case: Case) -> Certificate:
        """A new certificate, which is kept in the place of what is there. Raises what `certify` raises."""
        binary = case.instance.compiled(TARGETS[case.architecture])
        try:
            made = certify(case, binary)
        except RefusedError as error:
            raise RefusedError(f"{full_name(case)} is not proved: {error}") from error
        remember_classes(binary, made.binding.classes)
        path = self.path(case, binary)
        self.folder.mkdir(parents=True, exist_ok=True)
        # Another process may be writing the same one: a file is whole or not there.
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_text(encode(made))
        temporary.replace(path)
        return made


def default_store() -> Store:
    """The store that `FOLDER` names, or the one in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return Store(Path(os.environ.get(FOLDER, cache / "vosti" / "certificates")))


def forms(entries: Iterable[Entry], architecture: str, page_sizes: Iterable[int] = ()) -> list[Case]:
    """Each form of each entry once.

    Attention has a form for each size of pages: those that instances are listed for, and the given ones.
    """
    further = sorted(set(page_sizes) - set(PAGE_SIZES))
    found: dict[str, Case] = {}
    for entry in entries:
        for listed in instances(entry):
            sizes = further if listed.constants.get("PAGE") == PAGE_SIZES[0] else ()
            paged = (replace(listed, constants={**listed.constants, "PAGE": size}) for size in sizes)
            for instance in (listed, *paged):
                case = Case(instance, architecture)
                found.setdefault(full_name(case), case)
    return list(found.values())


def launched(entries: Iterable[Entry], architecture: str, page_sizes: Iterable[int] = ()) -> list[Case]:
    """What a model launches: the forms of its entries, and those that no table has."""
    return [*forms(entries, architecture, page_sizes), *(Case(instance, architecture) for instance in FIXED)]


def full_name(case: Case) -> str:
    """Kernel, configuration, and how a program is divided among threads, which no typed IR shows."""
    return f"{case.name} warps={case.instance.tile.warps} stages={case.instance.tile.stages}"


def certificates(
    cases: Sequence[Case],
    store: Store,
    workers: Workers,
    *,
    certified_only: bool = False,
    advance: Advance = lambda done, total: None,
) -> list[Certificate]:
    """A certificate of what each case compiles to here, in order: the one that is kept, or a new one, which is kept.

    One that is about another binary, contract or verifier is never used: it is replaced, or refused if
    `certified_only`.

    Args:
        cases: of this project's kernels, if there are several workers.
        store: where certificates are kept.
        workers: compile and prove what is missing.
        certified_only: whether none may be made.
        advance: told how many of those that are missing were made, from none on; of all, at the end, however it ends.

    Raises:
        UncertifiedError: if one is missing, and none may be made, or none can be for want of a solver.
        RefusedError: and `BindingError`, if none can be made.
        ProcessDiedError: if one of the workers dies.
    """
    for architecture in {case.architecture for case in cases}:
        compile_ahead([case.instance for case in cases if case.architecture == architecture], architecture, workers)
    binaries = [case.instance.compiled(TARGETS[case.architecture]) for case in cases]
    found = [_usable(store, case, binary, certified_only) for case, binary in zip(cases, binaries, strict=True)]
    missing = [case for case, kept in zip(cases, found, strict=True) if kept is None]
    if missing:
        _refuse_making(missing, store, certified_only)
        _make(missing, store, workers, advance)
    return [
        kept if kept is not None else _made(store, case, binary)
        for case, binary, kept in zip(cases, binaries, found, strict=True)
    ]


def digest_of(found: Mapping[str, Certificate]) -> str:
    """The digest that W has of certificates, by the full name of what each is about."""
    return hashlib.sha256("".join(encode(found[name]) for name in sorted(found)).encode()).hexdigest()


def _usable(store: Store, case: Case, binary: Any, certified_only: bool) -> Certificate | None:
    try:
        return store.kept(case, binary)
    except BindingError:
        if certified_only:
            raise
        return None


def _refuse_making(missing: Sequence[Case], store: Store, certified_only: bool) -> None:
    rest = len(missing) - 1
    others = f" and {rest} other form{'s' if rest > 1 else ''}" if rest else ""
    what = f"There is no certificate of {full_name(missing[0])}{others} in {store.folder}"
    if certified_only:
        raise UncertifiedError(
            f"{what}, and --certified-only forbids to prove it now: run once without it, or make certificates with "
            "vosti certify."
        )
    if find_spec(SOLVER) is None:
        raise UncertifiedError(
            f"{what}, and none can be made where z3 is not installed: pip install z3-solver; or carry certificates "
            f"that vosti certify made elsewhere, in a folder that {FOLDER} names."
        )


def _make(cases: Sequence[Case], store: Store, workers: Workers, advance: Advance) -> None:
    advance(0, len(cases))
    try:
        for done, _ in enumerate(workers.do([partial(store.make, case) for case in cases]), 1):
            advance(done, len(cases))
    finally:
        advance(len(cases), len(cases))


def _made(store: Store, case: Case, binary: Any) -> Certificate:
    """What was made just now, perhaps by another process: it has to be about this one's binary."""
    made = store.kept(case, binary)
    if made is None:
        raise BindingError(f"The binary of {full_name(case)} is not the one that was proved just now.")
    return made
