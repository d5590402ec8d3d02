"""What the verifier's terms say of a launch that was run, for some programs and lanes."""

from __future__ import annotations

import random
from collections.abc import Iterator

from launches import Launch
from term_numbers import Memory
from vosti.kernels.catalogue import KERNELS
from vosti.kernels.contract import Buffer
from vosti.kernels.verifier.evaluate import Access, Machine
from vosti.kernels.verifier.integers import Atom, integer, the_symbol
from vosti.kernels.verifier.ir import Kernel
from vosti.kernels.verifier.queries import Prover
from vosti.kernels.verifier.tensors import Described, as_term

PROGRAMS = 3
"""Tried of each launch."""

LANES = 3
"""Tried of each store of a program."""


def stored(launch: Launch, kernel: Kernel, seed: int) -> Iterator[tuple[float, float]]:
    """Of stores that take place: the number that the term is worth, and what was found in memory after the launch."""
    source, contract = random.Random(seed), KERNELS[launch.kernel].contract
    names = {**launch.pointers, **{name: one.buffer for name, one in launch.descriptors.items()}}
    for _ in range(PROGRAMS):
        at = {axis: integer(source.randrange(length)) for axis, length in zip("xyz", launch.grid, strict=True)}
        machine = Machine(
            kernel,
            Prover(),
            at,
            {axis: integer(length) for axis, length in zip("xyz", launch.grid, strict=True)},
            {name: integer(int(value)) for name, value in launch.numbers.items() if isinstance(value, int)},
            {
                name: Described(name, tuple(integer(length) for length in one.shape))
                for name, one in launch.descriptors.items()
            },
            {one.name for one in contract.parameters if isinstance(one, Buffer) and one.words},
        )
        machine.run(())
        before = {name: launch.before[key] for name, key in names.items()}
        for access in machine.accesses:
            if access.value is None:
                continue
            for _ in range(LANES):
                symbols = {the_symbol(count): source.randrange(2) for count, _ in access.iterations}
                memory = Memory(before, {n: float(v) for n, v in launch.numbers.items()}, before, symbols)
                yield from _at(access, memory, launch, names, source, symbols)


def _at(
    access: Access,
    memory: Memory,
    launch: Launch,
    names: dict[str, str],
    source: random.Random,
    symbols: dict[Atom, int],
) -> Iterator[tuple[float, float]]:
    lanes = tuple(integer(source.randrange(length)) for length in access.shape)
    if not all(memory.holds(one) for one in (*access.path, access.mask(lanes))):
        return
    pointer = access.pointer(lanes)
    assert access.value is not None
    number = memory.number(as_term(access.value[lanes], access.value.type.element))
    yield number, launch.after[names[pointer.buffer]][memory.index(pointer.offset)].item()
