"""Opening the CUDA backend: is there a GPU that it knows, and the model for it."""

from __future__ import annotations

import gc
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from vosti.impl.errors import DeviceMemoryError, NoDeviceError
from vosti.impl.options import PROVE_MISSING, Certification

if TYPE_CHECKING:
    from vosti.impl.backends.cuda.backend import CudaBackend
    from vosti.impl.backends.cuda.fingerprint import Device
    from vosti.kernels.tables import Entry, Table


def find_device(asks: str, otherwise: str) -> Device:
    """The GPU that is here. Raises `NoDeviceError`, saying who asks and what to do, if there is none, or no Triton."""
    if find_spec("triton") is None:
        raise NoDeviceError(f"{asks} needs Triton, which is not installed: install vosti[gpu].")
    if not torch.cuda.is_available():
        raise NoDeviceError(f"{asks} needs an NVIDIA GPU, and torch finds none: {otherwise}.")

    from vosti.impl.backends.cuda.fingerprint import Device

    return Device.of(torch.device("cuda"))


def open_cuda(
    path: Path,
    *,
    dummy_weights: int | None = None,
    unsafe_unprobed: bool = False,
    certification: Certification = PROVE_MISSING,
) -> CudaBackend:
    """A model on the GPU, in bf16.

    Raises:
        NoDeviceError: if there is no GPU, Triton is not installed, or no kernels are known for the GPU.
        UnprobedDeviceError: if the kernels were not run on such a GPU, or a broken rule leaves some launch without a
            tile, unless `unsafe_unprobed` accepts that.
        UncertifiedKernelError: if what may be launched has no certificate, and gets none, before weights are read.
        DeviceMemoryError: if the weights do not fit.
        CheckpointError: and `UnsupportedModelError`, for what cannot be served.
    """
    found = find_device("The cuda backend", "use --backend cpu")

    from vosti.impl.backends.cuda.backend import CudaBackend, layout
    from vosti.impl.backends.cuda.certifier import Certifier
    from vosti.impl.backends.cuda.probing import admitted
    from vosti.impl.models.model import Model
    from vosti.kernels.errors import ConfigurationError
    from vosti.kernels.tables import load

    device = torch.device("cuda")
    try:
        found.check(unsafe_unprobed=unsafe_unprobed)
        table = load(found.architecture)
        certifier = Certifier(found.architecture, certification)
        # Of all tiles, also those that are not admitted: so everything is compiled, in processes, by then.
        certifier.require(entries_of(path, table))
        if not unsafe_unprobed:
            table = admitted(found, table, entries_of(path, table))
        model = Model.load(path, layout=layout, dtype=torch.bfloat16, device=device, dummy_weights=dummy_weights)
        backend = CudaBackend(model, table, device, certifier=certifier)
    except torch.OutOfMemoryError as error:
        size = torch.cuda.get_device_properties(device).total_memory / 1e9
        raise DeviceMemoryError(f"The weights of {path.name} do not fit into the GPU's {size:.0f} GB.") from error
    except ConfigurationError as error:
        raise NoDeviceError(str(error)) from error
    # What is loaded by now stays. A collection that looked through all of it would take the time of many steps.
    gc.collect()
    gc.freeze()
    return backend


def entries_of(path: Path, table: Table) -> list[Entry]:
    """The entries of all that a model launches, by its folder or config.json: weights are not read.

    Raises:
        ConfigurationError: if some launch has no tile in the table.
        CheckpointError: and `UnsupportedModelError`, for what cannot be served.
    """
    from vosti.impl.backends.cuda.backend import entries_launched, plans_of
    from vosti.impl.models.families import STYLES, load_config
    from vosti.impl.models.layers import build_plan

    config = load_config(path)
    return entries_launched(plans_of(build_plan(config, STYLES[config.family]), config, table).values(), table)
