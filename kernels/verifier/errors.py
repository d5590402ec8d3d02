"""The errors of this folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vosti.kernels.errors import KernelError

if TYPE_CHECKING:
    from vosti.kernels.verifier.ir import Op


class VerifierError(KernelError):
    """Base of the verifier's errors."""


class RefusedError(VerifierError):
    """The kernel's typed IR has something that the verifier does not know; the message names it and its line."""


def located(error: RefusedError, op: Op) -> RefusedError:
    """The error with the operation's name and line, if it names none yet."""
    text = str(error)
    return error if " at line " in text else RefusedError(f"{text} ({op.name} at line {place_of(op)})")


def place_of(op: Op) -> str:
    """Where an operation stands, for messages."""
    return str(op.location) if op.location else f"{op.line} of the typed IR"
