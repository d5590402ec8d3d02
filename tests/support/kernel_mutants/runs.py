"""What recorded launches show of a changed kernel: whether it leaves the same bits wherever the contract says which."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import product
from types import FrameType

from kernel_mutants.forms import Form
from launches import Launch
from vosti.kernels.contract import Buffer, size
from vosti.kernels.verifier.interpret import InterpretationError
from vosti.kernels.verifier.ir import Kernel

SECONDS = 60
"""Time of the processor for one mutant, many times what a proof or a launch takes."""


class EndlessError(Exception):
    """Something takes longer than `SECONDS`."""


def limited(function: Callable[[], object]) -> object:
    """What a function gives. Raises `EndlessError`."""

    def over(_: int, __: FrameType | None) -> None:
        raise EndlessError

    before = signal.signal(signal.SIGPROF, over)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        return function()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


class Runs:
    """Launches of a form, and what its own kernel does in them."""

    def __init__(self, form: Form, launches: Sequence[Launch]) -> None:
        self._launches = [(one, list(_free(form, one))) for one in launches]
        self._expected = self._buffers(form.ir)

    def _buffers(self, kernel: Kernel) -> list[dict[str, bytes]]:
        """What the buffers hold afterwards, bit by bit, where that is stated."""
        found = []
        for launch, free in self._launches:
            buffers = launch.run(kernel)
            for key, index in free:
                buffers[key][index] = 0
            found.append({key: array.tobytes() for key, array in buffers.items()})
        return found

    def of(self, kernel: Kernel) -> str:
        """What they show of a kernel: same, differs or undefined."""
        try:
            return "same" if limited(lambda: self._buffers(kernel)) == self._expected else "differs"
        except (InterpretationError, EndlessError):
            return "undefined"


def _free(form: Form, launch: Launch) -> Iterator[tuple[str, int]]:
    """The elements that are written and of which the contract states nothing: their buffer's key, their index."""
    contract = form.contract
    values: dict[str, object] = {**form.case.constants, **launch.numbers}
    values |= {text: length for text, length in zip(contract.grid, launch.grid, strict=True) if text.isidentifier()}
    values |= {name: launch.before[key] for name, key in launch.pointers.items()}
    for name, text in contract.definitions:
        with suppress(NameError):  # Those of a cell's names are defined where there is a cell.
            values[name] = size(text, values)
    shapes = {one.name: one.shape for one in contract.parameters if isinstance(one, Buffer)}
    for output in contract.outputs:
        if output.stated != "True":
            lengths = [size(axis, values) for axis in shapes[output.buffer]]
            for index, cell in enumerate(product(*map(range, lengths))):
                named = {**values, **dict(zip(output.cell, cell, strict=True))}
                if not size(f"1 if {output.stated} else 0", named):
                    yield launch.pointers[output.buffer], index
