"""What whole kernels are launched on, again and again: their contracts hold, and it is the form that was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed")

import torch

from vosti.kernels.catalogue import FIXED, KERNELS, SAMPLER, Instance
from vosti.kernels.contract import Access, Buffer
from vosti.kernels.launch import Kernel
from vosti.kernels.probe.launches import Data, computation, samplers
from vosti.kernels.probe.repeats import kernel_forms, launched_beside
from vosti.kernels.tables import load
from vosti.kernels.tile import Tile

Launched = list[tuple[str, dict[str, Any], Tile]]


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Launched:
    """Launches, of which only the premises are checked, and which write zeros: kernel, constants, tile."""
    launches: Launched = []

    def check(self: Kernel, arguments: dict[str, Any], tile: Tile, **sizes: int) -> None:
        values = {**arguments, **dict(tile.blocks)}
        self._check(values, sizes)
        assert 0 not in self.contract.programs({**values, **sizes})
        constants = {name: value for name, value in arguments.items() if name in self.contract.constants}
        launches.append((self.contract.kernel, constants, tile))
        for parameter in self.contract.parameters:
            if isinstance(parameter, Buffer) and parameter.access is Access.WRITE:
                arguments[parameter.name].zero_()

    monkeypatch.setattr(Kernel, "launch", check)
    return launches


def test_every_form_is_launched_within_its_contract(launched: Launched) -> None:
    """With its own constants and tile, each time, into buffers of its own."""
    torch.manual_seed(0)
    data = Data(19, "cpu", keys=200)
    for form in kernel_forms(load("sm_90")):
        compute = computation(form, data)
        del launched[:]
        first, second = compute(), compute()

        own = [(constants, tile) for kernel, constants, tile in launched if kernel == form.kernel.contract.kernel]
        assert [(dict(form.constants), form.tile)] * 2 == own
        assert first
        assert not {x.data_ptr() for x in first} & {y.data_ptr() for y in second}


def test_every_launch_is_of_a_form_that_is_compiled_ahead(launched: Launched) -> None:
    """Those that stand beside others too, all of which are needed."""
    table, data = load("sm_90"), Data(5, "cpu", keys=200)
    forms, beside = kernel_forms(table), launched_beside(table)
    for compute in (*(computation(form, data) for form in forms), *samplers(data).values()):
        compute()
    found = {(kernel, frozenset(constants.items()), tile) for kernel, constants, tile in launched}

    def names(instances: Sequence[Instance]) -> set[Any]:
        return {(one.kernel.contract.kernel, frozenset(one.constants.items()), one.tile) for one in instances}

    assert names([*forms, *FIXED, *beside]) == found
    assert names(beside) - names(forms)


def test_every_kernel_that_samples_is_launched(launched: Launched) -> None:
    """Without cuts and with them."""
    for compute in samplers(Data(5, "cpu")).values():
        compute()

    assert set(SAMPLER) == {kernel for kernel, _, _ in launched}
    assert not set(SAMPLER) & set(KERNELS)
