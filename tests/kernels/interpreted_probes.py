"""Kernels of the probes under Triton's interpreter: reductions, and conversion of fp16.

A program of its own, because the interpreter has to be chosen before Triton is imported. It prints what was found.
"""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

import torch

from vosti.kernels.candidates import make_tile
from vosti.kernels.probe import elementwise, reductions
from vosti.kernels.probe.machine import Gpu


class Interpreted(Gpu):
    """Launches kernels in the interpreter."""

    device = "cpu"


torch.manual_seed(0)
torch.set_num_threads(1)
machine = Interpreted()
# The interpreter has no bf16 of its own, and its conversion to it does not round to nearest.
found = [
    *elementwise.zero_exponent(machine, [make_tile(4, 1, BLOCK_M=64, BLOCK_N=64)], 2048),
    *reductions.free_maximum(machine, reductions.FORMS[1:3], 40),
    *reductions.two_lanes(machine, reductions.FORMS[1:3], 40),
    *reductions.trees(machine, reductions.FORMS[1:3], 40),
]
problems = [finding for finding in found if finding.problem is not None]
print(f"{len(found)} findings, {len(problems)} problems")
