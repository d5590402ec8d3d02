"""Where a run took place."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("vosti", "torch", "triton", "transformers", "vllm", "numpy")


def environment() -> Mapping[str, str]:
    """Versions of what computes, and the hardware."""
    found = {"python": platform.python_version(), "machine": f"{platform.machine()}, {_processor()}"}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    import torch

    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
        found["cuda"] = str(torch.version.cuda)
    return found


def _processor() -> str:
    """The processor's own name, where the system tells it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor()


def process() -> str:
    """Differs between the processes of a machine that run at the same time."""
    return str(os.getpid())
