"""The errors of this folder."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vosti.kernels.errors import KernelError

if TYPE_CHECKING:
    from vosti.kernels.verifier.ir import Op


class VerifierError(KernelError):
    """Base of the verifier's errors."""


class RefusedError(VerifierError):
    """The kernel's typed IR has something that the verifier does not know; the message names it and its line."""


class FaultError(VerifierError):
    """The verifier itself fails: of the kernel nothing is shown, and nothing is found."""

    def __init__(self, what: str) -> None:
        super().__init__(f"This is an internal fault of the verifier, and no finding about the kernel: {what}.")

    def __reduce__(self) -> tuple[Any, ...]:
        """To another process it goes with its words as they are."""
        return FaultError.__new__, (FaultError, *self.args)


@contextmanager
def faults_named() -> Iterator[None]:
    """Whatever is raised that is no error of `vosti.kernels` is a fault of the verifier: which, and where it arose.

    Raises:
        FaultError: in its place.
    """
    try:
        yield
    except KernelError:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if Path(frame.filename).parent == Path(__file__).parent]
        place = own[-1] if own else frames[-1]
        what = f"{type(error).__name__}: {error}".rstrip(":. ")
        raise FaultError(f"{what} ({Path(place.filename).name}:{place.lineno}, in {place.name})") from error


def located(error: RefusedError, op: Op) -> RefusedError:
    """The error with the operation's name and line, if it names none yet."""
    text = str(error)
    return error if " at line " in text else RefusedError(f"{text} ({op.name} at line {place_of(op)})")


def place_of(op: Op) -> str:
    """Where an operation stands, for messages."""
    return str(op.location) if op.location else f"{op.line} of the typed IR"
