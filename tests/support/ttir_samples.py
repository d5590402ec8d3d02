"""The instances of kernels whose typed IR is kept under `tests/verifier/ttir`, as several versions of Triton print it.

To write those of a version (the texts name no place of the machine that they were made on):

    pip install --no-deps --target DIRECTORY triton==3.9.0
    PYTHONPATH=DIRECTORY:tests/support python -m ttir_samples
"""

from __future__ import annotations

from pathlib import Path

from vosti.kernels.catalogue import FIXED, TARGETS, Instance, instances
from vosti.kernels.shapes import SHAPES, operations
from vosti.kernels.tables import load

FOLDER = Path(__file__).parents[1] / "verifier" / "ttir"

SAMPLES = {
    "attention": "tiny-llama3",
    "attention_merge": "tiny-llama3",
    "attention_split": "tiny-llama3",
    "check_cuts": "",
    "cut_weights": "",
    "digest": "tiny-llama3",
    "digest_merge": "tiny-llama3",
    "draw_from_all": "",
    "embedding": "tiny-llama3",
    "gate_up": "tiny-gemma3",
    "gate_up_stream": "tiny-llama3",
    "kv_store": "tiny-llama3",
    "linear": "tiny-llama3",
    "linear_stream": "llama-3.1-8b",
    "logits": "tiny-llama3",
    "rms_norm": "tiny-gemma3",
    "rotary_store": "tiny-llama3",
    "weights": "",
}
"""Kernel → the model that it is taken from: the last of the instances of that kernel; or "", if all models share it."""


def sample(kernel: str) -> Instance:
    """The instance of a kernel."""
    table = load("sm_90")
    chosen = operations(SHAPES[SAMPLES[kernel]]) if SAMPLES[kernel] else ()
    entries = (table.entry(operation, **dict(dimensions)) for operation, dimensions in chosen)
    found = [*(instance for entry in entries for instance in instances(entry)), *FIXED]
    return [instance for instance in found if instance.kernel.contract.kernel == kernel][-1]


def main() -> None:
    """Write those of the version of Triton that is installed."""
    import triton

    folder = FOLDER / triton.__version__.rpartition(".")[0]
    folder.mkdir(parents=True, exist_ok=True)
    for kernel in SAMPLES:
        (folder / f"{kernel}.ttir").write_text(sample(kernel).ttir(TARGETS["sm_90"]))


if __name__ == "__main__":
    main()
