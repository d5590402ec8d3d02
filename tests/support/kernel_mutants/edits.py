"""A kernel of which some operations are others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vosti.kernels.verifier.ir import Block, Kernel, Op, Type, Value

_FRESH = 1_000_000
"""Numbers of new values: above those of any kernel."""


@dataclass(frozen=True)
class Edit:
    """A change of a kernel."""

    ops: Mapping[Op, Sequence[Op]] = field(default_factory=dict)
    """Operation → those in its place."""

    values: Mapping[Value, Value] = field(default_factory=dict)
    """Value → the one that is used in its place."""

    @property
    def signature(self) -> tuple[object, ...]:
        """Equal for edits of one operation that do the same."""
        ops = [
            (one.name, one.attributes, one.operands, one.results, one.regions)
            for others in self.ops.values()
            for one in others
        ]
        return (*ops, *self.values.items())

    def of(self, kernel: Kernel) -> Kernel:
        """The changed kernel."""
        return replace(kernel, body=self._block(kernel.body))

    def _block(self, block: Block) -> Block:
        return Block(block.arguments, tuple(self._op(new) for op in block.ops for new in self.ops.get(op, (op,))))

    def _op(self, op: Op) -> Op:
        operands = tuple(self.values.get(value, value) for value in op.operands)
        return replace(op, operands=operands, regions=tuple(map(self._block, op.regions)))


def placed(kernel: Kernel) -> Iterator[tuple[Op, tuple[Value, ...]]]:
    """Every operation, and the values that it may use, in the order in which they are defined."""

    def walk(block: Block, known: tuple[Value, ...]) -> Iterator[tuple[Op, tuple[Value, ...]]]:
        known = (*known, *block.arguments)
        for op in block.ops:
            yield op, known
            for inner in op.regions:
                yield from walk(inner, known)
            known = (*known, *op.results)

    return walk(kernel.body, tuple(parameter.value for parameter in kernel.parameters))


def made(like: Op, name: str, type_: Type, *operands: Value, number: int = 0, **attributes: int) -> Op:
    """A new operation beside another one; `number` tells apart the new values of one edit."""
    result = Value(_FRESH + number, f"new{number}", type_)
    return Op(name, operands, (result,), tuple(attributes.items()), (), like.location, like.line)
