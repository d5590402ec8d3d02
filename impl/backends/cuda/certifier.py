"""Which binaries may run: those that a certificate names, which are looked up, or made, before a model is loaded."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from vosti.impl.errors import UncertifiedKernelError
from vosti.impl.options import Certification
from vosti.kernels.contract import Contract
from vosti.kernels.errors import KernelError
from vosti.kernels.launch import Kernel, watched
from vosti.kernels.tables import Entry
from vosti.kernels.verifier.binding import Certificate
from vosti.kernels.verifier.certify import certificates, default_store, digest_of, full_name, launched
from vosti.kernels.workers import Workers

UNVERIFIED = "unverified"
"""What W says instead of the certificates' digest, where there are none."""


class UnverifiedWarning(UserWarning):
    """Kernels run that nothing was proved of."""


class Certifier:
    """The certificates of an architecture's binaries, for one backend or several."""

    def __init__(self, architecture: str, certification: Certification) -> None:
        self._architecture = architecture
        self._asked = certification
        self._found: dict[str, Certificate] = {}
        """By kernel, configuration and division among threads."""

        self._certified: dict[tuple[str, tuple[int, ...]], set[str]] = {}
        """Machine code that may run, by kernel and values of its constants: SHA-256."""

        self._checked: set[Any] = set()
        """Compiled kernels that were found to be such."""

        if certification.unsafe_unverified:
            warnings.warn(
                "--unsafe-unverified: kernels run of which nothing is proved here, and W says so.",
                UnverifiedWarning,
                stacklevel=2,
            )

    def require(self, entries: Iterable[Entry], page_sizes: Iterable[int] = ()) -> None:
        """Find a certificate for each form that is launched, or make it; with `unsafe_unverified`, do nothing.

        Raises `UncertifiedKernelError`, naming the kernel and the remedies, for what has none.
        """
        if self._asked.unsafe_unverified:
            return
        sizes = (*page_sizes, *self._asked.page_sizes)
        cases = launched(entries, self._architecture, sizes)
        wanted = [case for case in cases if full_name(case) not in self._found]
        try:
            with Workers() as workers:
                found = certificates(
                    wanted,
                    default_store(),
                    workers,
                    certified_only=self._asked.certified_only,
                    advance=self._asked.advance,
                )
        except KernelError as error:
            raise UncertifiedKernelError(
                f"{error} (--unsafe-unverified runs kernels without certificates, and W says so.)"
            ) from error
        for case, certificate in zip(wanted, found, strict=True):
            self._found[full_name(case)] = certificate
            contract = case.instance.kernel.contract
            key = contract.kernel, _constants(contract, case.constants)
            self._certified.setdefault(key, set()).add(certificate.binding.cubin)

    def digest(self, entries: Iterable[Entry]) -> str:
        """What W says of certificates: the digest of those of what is launched, or `UNVERIFIED`."""
        if self._asked.unsafe_unverified:
            return UNVERIFIED
        # Forms for other sizes of pages are left out: sizes of pages are no part of W.
        names = map(full_name, launched(entries, self._architecture))
        return digest_of({name: self._found[name] for name in names})

    def watching(self) -> AbstractContextManager[None]:
        """Let no launch within the block pass whose binary no certificate names."""
        return watched(None if self._asked.unsafe_unverified else self._check)

    def _check(self, kernel: Kernel, values: Mapping[str, Any], binary: Any) -> None:
        """Once for each compiled kernel: the compiler makes one for each choice of constants and element types.

        Raises `UncertifiedKernelError`.
        """
        if binary in self._checked:
            return
        contract = kernel.contract
        machine_code = hashlib.sha256(binary.asm["cubin"]).hexdigest()
        if machine_code not in self._certified.get((contract.kernel, _constants(contract, values)), ()):
            raise UncertifiedKernelError(
                f"What was launched of {contract.kernel} is a binary that no certificate names, so nothing that "
                "it computed is used: was the kernel edited, or the compiler's cache (~/.triton/cache)? Load the "
                "model again, which proves what is there now; or use --unsafe-unverified, and W says so."
            )
        self._checked.add(binary)


def _constants(contract: Contract, values: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(int(values[name]) for name in contract.constants)
