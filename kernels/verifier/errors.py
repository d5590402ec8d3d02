"""The errors of this folder."""

from __future__ import annotations

from vosti.kernels.errors import KernelError


class VerifierError(KernelError):
    """Base of the verifier's errors."""


class RefusedError(VerifierError):
    """The kernel's typed IR has something that the verifier does not know; the message names it and its line."""
