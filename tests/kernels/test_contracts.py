"""Contracts: each describes its kernel, and a launch that breaks one is refused before anything runs."""

from __future__ import annotations

import ast
import importlib
import re
from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed")

from vosti.kernels.catalogue import KERNELS, SAMPLER
from vosti.kernels.contract import Buffer, Constant, Descriptor, Integer
from vosti.kernels.digest import layout
from vosti.kernels.embedding import EMBEDDING, embedding
from vosti.kernels.errors import PremiseError
from vosti.kernels.launch import Kernel
from vosti.kernels.linear import LINEAR, linear
from vosti.kernels.rms_norm import RMS_NORM, rms_norm
from vosti.kernels.tile import Tile

SIZES = {
    "sequences",
    "most_rows",
    "cells",
    "source_rows",
    "vocabulary",
    "positions_known",
    "slots_known",
    "pages",
    "words_known",
    "sources_known",
}
"""Names of sizes that are no parameter of a kernel: what a launch knows beside them."""

FUNCTIONS = {"cdiv", "min", "max"}

TILE = Tile((("BLOCK_M", 16), ("BLOCK_N", 32), ("BLOCK_K", 32)), 4, 2)


def names(expression: str) -> set[str]:
    """The names in an expression."""
    return {node.id for node in ast.walk(ast.parse(expression, mode="eval")) if isinstance(node, ast.Name)}


def problems(kernel: Kernel) -> list[str]:
    """Where a contract does not fit its kernel."""
    contract, function = kernel.contract, kernel.function
    found = []
    stated = [parameter.name for parameter in contract.parameters]
    if stated != list(function.arg_names):
        found.append(f"parameters {stated}, of the function {function.arg_names}")
    constants = {function.arg_names[index] for index in function.constexprs}
    if set(contract.constants) != constants:
        found.append(f"constants {contract.constants}, of the function {constants}")
    integers = {parameter.name for parameter in contract.parameters if isinstance(parameter, Integer)}
    if integers != set(function.do_not_specialize or ()):
        found.append(f"integers {integers}, excluded from specialisation {function.do_not_specialize}")
    expressions = [*contract.grid, *contract.premises]
    for parameter in contract.parameters:
        if isinstance(parameter, Buffer | Descriptor):
            expressions += parameter.shape
    known = set(stated) | SIZES | FUNCTIONS | {"rows"}
    found += [
        f"{expression} names {names(expression) - known}" for expression in expressions if names(expression) - known
    ]
    return found


@pytest.mark.parametrize("name", sorted({**KERNELS, **SAMPLER}))
def test_a_contract_describes_its_kernel(name: str) -> None:
    """Parameters, constants and unspecialised integers are those of the function; expressions use known names only."""
    assert [] == problems({**KERNELS, **SAMPLER}[name])


@pytest.mark.parametrize("fault", ["missing", "constant", "unknown", "order"])
def test_a_contract_of_another_kernel_is_found(fault: str) -> None:
    """A contract that lacks a parameter, calls an integer a constant, or names something unknown does not pass."""
    contract = LINEAR.contract
    parameters = list(contract.parameters)
    if fault == "missing":
        parameters.pop()
    elif fault == "constant":
        parameters[3] = Constant("rows")
    elif fault == "order":
        parameters[0], parameters[1] = parameters[1], parameters[0]
    premises = (*contract.premises, "rows <= limit") if fault == "unknown" else contract.premises
    wrong = Kernel(LINEAR.function, replace(contract, parameters=tuple(parameters), premises=premises))

    assert [] != problems(wrong)


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_row_programs_exist(name: str) -> None:
    """Each row program that a contract names is a function of the specification."""
    text = KERNELS[name].contract.row_program
    programs = re.findall(r"\b(activations|attention|norms|projections|rotary)\.(\w+)", text)
    found = [(f"numerics.{module}", function) for module, function in programs]
    found += [("digests", function) for function in re.findall(r"\bdigests\.(\w+)", text)]

    assert found or "no arithmetic" in text
    for module, function in found:
        assert hasattr(importlib.import_module(f"vosti.spec.{module}"), function)


def test_a_grid_is_computed() -> None:
    """The grid is ⌈rows / BLOCK_M⌉ × ⌈N / BLOCK_N⌉, and no program for no rows."""
    values = {"rows": 33, "N": 70, "BLOCK_M": 16, "BLOCK_N": 32}

    assert (3, 3, 1) == LINEAR.contract.programs(values)
    assert (0, 3, 1) == LINEAR.contract.programs({**values, "rows": 0})


def refused(part: str, x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, tile: Tile = TILE) -> None:
    """The launch is refused, and the message names the part."""
    with pytest.raises(PremiseError, match=part):
        linear(x, weight, out, tile)


def test_premises_are_checked_before_a_launch() -> None:
    """Element types, contiguity, alignment, overlap and arithmetic premises, each with the reason named."""

    def bf16(*shape: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=torch.bfloat16)

    x, weight, out = bf16(4, 64), bf16(32, 64), bf16(4, 32)
    refused("x has element type", x.float(), weight, out)
    refused("weight has element type", x, weight.float(), out)
    refused("out has element type", x, weight, out.double())
    refused("x is not contiguous", bf16(64, 4).T, weight, out)
    refused("does not start at a multiple", bf16(257)[1:].view(4, 64), weight, out)
    refused("overlaps", x, weight, x[:, :32])
    refused(r"K % BLOCK_K == 0", bf16(4, 48), bf16(32, 48), out)
    refused(r"BLOCK_M >= 16", x, weight, out, Tile((("BLOCK_M", 8), ("BLOCK_N", 32), ("BLOCK_K", 32)), 4, 2))
    refused("takes", x, weight, out, Tile((("BLOCK_M", 16), ("BLOCK_N", 32)), 4, 2))


def test_every_integer_fits_32_bits() -> None:
    """An integer beyond 2^31 − 1, or below 0, is refused."""
    values = {parameter.name: 1 for parameter in EMBEDDING.contract.parameters}
    buffers = {
        "tokens": torch.zeros(4, dtype=torch.int32),
        "table": torch.zeros(8, 16, dtype=torch.bfloat16),
        "out": torch.zeros(4, 16, dtype=torch.bfloat16),
    }
    for rows in (-1, 2**31):
        arguments = {**values, **buffers, "rows": rows}
        del arguments["BLOCK"]
        with pytest.raises(PremiseError, match="not between"):
            EMBEDDING.launch(arguments, Tile((("BLOCK", 16),), 1, 1))


def test_nothing_is_launched_for_no_rows() -> None:
    """No rows, no launch, no error: also where there is no GPU."""
    none, table = torch.zeros(0, dtype=torch.int32), torch.zeros(8, 16, dtype=torch.bfloat16)
    out = torch.zeros(0, 16, dtype=torch.bfloat16)

    assert embedding(none, table, out, Tile((("BLOCK", 16),), 1, 1)) is None


def test_a_block_of_another_width_is_refused() -> None:
    """A norm's block must hold the row and be less than twice as long."""
    x = torch.zeros(1, 64, dtype=torch.bfloat16)
    for block in (32, 128):
        with pytest.raises(PremiseError, match="WIDTH <= BLOCK"):
            rms_norm(x, x[0], torch.zeros_like(x), 1e-6, Tile((("BLOCK", block),), 1, 1))
    assert "BLOCK" in RMS_NORM.contract.constants


@pytest.mark.parametrize("part", [(-1, 4, 4), (0, 4, -4), (0, 2**30, 2**30)])
def test_digests_are_of_parts_of_memory(part: tuple[int, int, int]) -> None:
    """A part that begins before it, has fewer words than none, or more than a digest has, makes no layout."""
    assert 8 == layout([(0, 4, 4), (4, 4, 4)], "cpu").words
    with pytest.raises(PremiseError, match="Digests are of parts of memory"):
        layout([(0, 4, 4), part], "cpu")
