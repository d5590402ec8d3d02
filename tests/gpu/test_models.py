"""Dummy weights on a GPU."""

from __future__ import annotations

import pytest
import torch

from vosti.impl.models.dummy import DummyTensors
from vosti.impl.models.plan import Source


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(3000, 4096), (70_000, 48), (513,), (1,)])
@pytest.mark.parametrize("centre", [0.0, 1.0])
def test_dummy_weights_are_the_same_on_every_device(shape: tuple[int, ...], centre: float) -> None:
    """A GPU makes the bits that the processor makes, over several chunks and in one."""
    source, dummy = Source("model.layers.7.mlp.up_proj.weight", shape, centre), DummyTensors(3)

    expected = dummy.read(source, torch.device("cpu"))
    found = dummy.read(source, torch.device("cuda"))

    assert "cuda" == found.device.type
    assert torch.equal(expected.view(torch.int16), found.cpu().view(torch.int16))
