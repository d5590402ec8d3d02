"""Compiling and launching kernels: one place for the options and premises that all of them share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime.jit import JITFunction

from vosti.kernels.contract import ALIGNMENT, Buffer, Constant, Contract, Descriptor, Integer, Real, size
from vosti.kernels.errors import PremiseError
from vosti.kernels.tile import Tile

if TYPE_CHECKING:
    import torch

# With line information the binary, and so its hash, would depend on the path of installation.
knobs.compilation.disable_line_info = True

_TORCH = {"bf16": "bfloat16", "fp32": "float32", "fp64": "float64", "i32": "int32", "i64": "int64"}
"""Element types: as contracts name them → as torch does."""


Watch = Callable[["Kernel", Mapping[str, Any], Any], None]
"""Told of a launch: the kernel, the values of its parameters, and the binary that the compiler gave for them."""

_WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextmanager
def watched(watch: Watch | None) -> Iterator[None]:
    """Have launches within the block told, each before anything of its results is used; None for nobody."""
    token = _WATCH.set(watch)
    try:
        yield
    finally:
        _WATCH.reset(token)


def with_key(function: Any) -> Any:
    """The Triton function, whose key in the compiler's cache has the constants of all functions that it calls.

    Triton makes a function's key when it is first asked for. Of the constants that a called function uses, the key has
    those that are known by then: all if the called one's key was made before, else none. So a constant could be edited,
    and what was compiled before be found; and each process would have keys by the order in which it asks.
    """
    if isinstance(function, JITFunction):
        for name in function.fn.__code__.co_names:
            with_key(function.fn.__globals__.get(name))
        function.cache_key  # noqa: B018
    return function


@dataclass(frozen=True, eq=False)
class Kernel:
    """A Triton function and its contract."""

    function: Any
    contract: Contract

    def __post_init__(self) -> None:
        with_key(self.function)

    # ------------------------------------------------------------ on the GPU

    def launch(self, arguments: Mapping[str, Any], tile: Tile, **sizes: int) -> Any:
        """Launch over the contract's grid; an empty grid launches nothing.

        `arguments` has a tensor for each buffer, a number for each integer, real and constant that is not among the
        tile's blocks; `sizes` has further names of the grid and of premises. Raises `PremiseError` before anything is
        launched if the contract does not hold.
        """
        values = {**arguments, **dict(tile.blocks)}
        self._check(values, sizes)
        grid = self.contract.programs({**values, **sizes})
        if 0 in grid:
            return None
        binary = self.function[grid](**values, **tile.options())
        watch = _WATCH.get()
        if watch is not None:
            watch(self, values, binary)
        return binary

    def _check(self, values: Mapping[str, Any], sizes: Mapping[str, int]) -> None:
        contract = self.contract
        if values.keys() != contract.names:
            raise PremiseError(f"{contract.kernel} takes {sorted(contract.names)}, not {sorted(values)}.")
        for name, elements in self._buffers:
            _check_buffer(contract.kernel, name, elements, values[name])
        for name in self._integers:
            if not 0 <= values[name] < 2**31:
                raise PremiseError(f"{contract.kernel}: {name} is {values[name]}, not between 0 and 2^31 - 1.")
        _check_constants(contract, tuple(values[name] for name in contract.constants))
        contract.check_launch({**values, **sizes})

    @cached_property
    def _integers(self) -> tuple[str, ...]:
        return tuple(parameter.name for parameter in self.contract.parameters if isinstance(parameter, Integer))

    @cached_property
    def _buffers(self) -> tuple[tuple[str, frozenset[torch.dtype]], ...]:
        """Each buffer with the element types that it may have."""
        buffers = [parameter for parameter in self.contract.parameters if isinstance(parameter, Buffer)]
        return tuple((buffer.name, _elements(buffer)) for buffer in buffers)

    # ------------------------------------------------------------ without a GPU

    def source(self, constants: Mapping[str, int], elements: Mapping[str, str]) -> ASTSource:
        """What is compiled: argument types, aligned pointers, the constants' values.

        `elements` names the element types of buffers that differ from the contract's.
        """
        signature: dict[str, str] = {}
        attributes = {}
        for index, parameter in enumerate(self.contract.parameters):
            if isinstance(parameter, Constant):
                signature[parameter.name] = "constexpr"
            elif isinstance(parameter, Integer):
                signature[parameter.name] = "i32"
            elif isinstance(parameter, Real):
                signature[parameter.name] = "fp32"
            else:
                element = elements.get(parameter.name, parameter.element)
                if isinstance(parameter, Descriptor):
                    block = ", ".join(str(size(axis, constants)) for axis in parameter.block)
                    signature[parameter.name] = f"tensordesc<{element}[{block}]>"
                else:
                    signature[parameter.name] = f"*{element}"
                    attributes[(index,)] = [["tt.divisibility", ALIGNMENT]]
        values = {(self.function.arg_names.index(name),): constants[name] for name in self.contract.constants}
        return ASTSource(fn=self.function, signature=signature, constexprs=values, attrs=attributes)

    def compiled(
        self, constants: Mapping[str, int], tile: Tile, target: GPUTarget, elements: Mapping[str, str] | None = None
    ) -> Any:
        """The compiled kernel (TTIR, PTX, cubin) for an architecture that need not be present."""
        source = self.source({**constants, **dict(tile.blocks)}, elements or {})
        return triton.compile(source, target=target, options=tile.options())

    def kept(
        self, constants: Mapping[str, int], tile: Tile, target: GPUTarget, elements: Mapping[str, str] | None = None
    ) -> Any:
        """What `compiled` gives, if the compiler's cache has it; else None, and nothing is compiled."""
        source = self.source({**constants, **dict(tile.blocks)}, elements or {})
        # The compiler's first step, which it takes only if it finds nothing.
        source.make_ir = _refuse
        try:
            return triton.compile(source, target=target, options=tile.options())
        except _NotKeptError:
            return None

    def ttir(
        self, constants: Mapping[str, int], tile: Tile, target: GPUTarget, elements: Mapping[str, str] | None = None
    ) -> str:
        """The typed IR alone: the first stage of the same compilation."""
        from triton._C.libtriton import ir

        source = self.source({**constants, **dict(tile.blocks)}, elements or {})
        backend = make_backend(target)
        options = backend.parse_options(tile.options())
        context = ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        arguments = [target, options, backend.get_codegen_implementation(options), backend.get_module_map(), context]
        # Triton 3.6 has the target as first argument, 3.7 does not.
        takes_target = "target" in inspect.signature(source.make_ir).parameters
        module = source.make_ir(*arguments[0 if takes_target else 1 :])
        stages: dict[str, Any] = {}
        backend.add_stages(stages, options, source.language)
        return str(stages["ttir"](module, {}))


class _NotKeptError(Exception):
    """The compiler's cache does not have it."""


def _refuse(*arguments: object) -> None:
    raise _NotKeptError


@cache
def _check_constants(contract: Contract, constants: tuple[int, ...]) -> None:
    """Decide the premises on constants once for each choice of them."""
    contract.check_constants(dict(zip(contract.constants, constants, strict=True)))


def _elements(buffer: Buffer) -> frozenset[torch.dtype]:
    # Torch takes seconds to import, and proofs do without.
    import torch

    if knobs.runtime.interpret and buffer.element == "bf16":
        # The interpreter has no bfloat16 arithmetic: under it, float32 stands in.
        return frozenset({torch.float32})
    return frozenset(getattr(torch, _TORCH[name]) for name in (buffer.element, buffer.or_element) if name is not None)


def _check_buffer(kernel: str, name: str, elements: frozenset[torch.dtype], tensor: torch.Tensor) -> None:
    if tensor.dtype not in elements:
        raise PremiseError(f"{kernel}: {name} has element type {tensor.dtype}, not {sorted(map(str, elements))}.")
    if not tensor.is_contiguous():
        raise PremiseError(f"{kernel}: {name} is not contiguous.")
    if tensor.data_ptr() % ALIGNMENT:
        raise PremiseError(f"{kernel}: {name} does not start at a multiple of {ALIGNMENT} bytes.")


def aligned(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy of it that is contiguous and starts where a kernel's buffer may."""
    import torch

    fits = tensor.is_contiguous() and tensor.data_ptr() % ALIGNMENT == 0
    return tensor if fits else tensor.clone(memory_format=torch.contiguous_format)


def distinct(kernel: str, written: torch.Tensor, *read: torch.Tensor) -> None:
    """Raise `PremiseError` if a buffer that is written shares memory with one that is read."""
    begin, end = _extent(written)
    for tensor in read:
        other_begin, other_end = _extent(tensor)
        if begin < other_end and other_begin < end:
            raise PremiseError(f"{kernel}: a buffer that is written overlaps one that is read.")


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    begin = tensor.data_ptr()
    return begin, begin + tensor.numel() * tensor.element_size()
