"""The binaries that run on a GPU are those that certificates name, which were made without a GPU.

    python certificates_check.py write FILE MODEL      anywhere, with the GPU's version of Triton: prove and bind
    python certificates_check.py compare FILE MODEL    on the GPU: serve the model, and look up what was launched

MODEL is the name of a shape, such as llama-3.1-8b (with dummy weights on the GPU), or of a bundled checkpoint. A
version of Triton is chosen by `pip install --no-deps --target DIRECTORY triton==3.6.0` and PYTHONPATH=DIRECTORY.
Prints a line for each kernel; exits with 1 if a binary was launched that no certificate names.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from vosti.kernels.catalogue import KERNELS
from vosti.kernels.launch import Kernel
from vosti.kernels.shapes import SHAPES, operations
from vosti.kernels.tables import load
from vosti.kernels.verifier.binding import Certificate, decode, encode

ARCHITECTURE = "sm_90"
PROMPTS = (3, 40, 300, 3000)
"""Lengths of prompts that are served one after another, and then together: tiles for few rows and for many."""


def write(path: Path, model: str) -> None:
    """Prove every form of every kernel of a model, bind the proofs, and write the certificates."""
    from vosti.kernels.verifier.certify import Store, certificates

    table = load(ARCHITECTURE)
    entries = [table.entry(name, **dict(sizes)) for name, sizes in dict.fromkeys(operations(SHAPES[model]))]
    with tempfile.TemporaryDirectory() as folder:
        made = certificates(entries, ARCHITECTURE, Store(Path(folder)))
    path.write_text(json.dumps([encode(certificate) for certificate in made.values()]))
    print(f"{len(made)} certificates, Triton {next(iter(made.values())).binding.compiler}")


def launched(model: str) -> dict[str, Counter[str]]:
    """Serve a model; for each kernel the hashes of the binaries that were launched, with how often."""
    from vosti.impl.bundled import shape_names
    from vosti.impl.llm import LLM
    from vosti.impl.options import SamplingParams

    found: dict[str, Counter[str]] = defaultdict(Counter)
    launch = Kernel.launch

    def recording(self: Kernel, arguments: Any, tile: Any, **sizes: int) -> Any:
        binary = launch(self, arguments, tile, **sizes)
        if binary is not None:
            found[self.contract.kernel][hashlib.sha256(binary.asm["cubin"]).hexdigest()] += 1
        return binary

    Kernel.launch = recording  # type: ignore[method-assign]
    dummy = 0 if model in shape_names() else None
    llm = LLM(model, backend="cuda", dummy_weights=dummy, page_size=64, pages=256, token_budget=4096)
    prompts = [[(7 + 31 * place) % 1000 for place in range(length)] for length in PROMPTS]
    for batch in (*([prompt] for prompt in prompts), prompts):
        llm.generate(batch, SamplingParams(max_tokens=4))
    return found


def compare(path: Path, model: str) -> bool:
    """Whether each binary that was launched is one that a certificate names; of some kernels nothing is claimed."""
    kept: list[Certificate] = [decode(text) for text in json.loads(path.read_text())]
    named = {certificate.binding.cubin for certificate in kept}
    strangers = 0
    for kernel, hashes in sorted(launched(model).items()):
        if KERNELS[kernel].contract.unproved:
            print(f"{kernel}: nothing is claimed; {len(hashes)} binaries, {hashes.total()} launches")
            continue
        unknown = [cubin for cubin in hashes if cubin not in named]
        strangers += len(unknown)
        print(f"{kernel}: {len(hashes)} binaries, {hashes.total()} launches, {len(hashes) - len(unknown)} certified")
    print("every binary is certified" if not strangers else f"NOT CERTIFIED: {strangers} binaries")
    return strangers == 0


if __name__ == "__main__":
    mode, file, name = sys.argv[1:]
    if mode == "write":
        write(Path(file), name)
    elif not compare(Path(file), name):
        sys.exit(1)
