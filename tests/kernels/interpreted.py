"""Kernels under Triton's interpreter in float32, against the row programs in plain Python.

A program of its own, because the interpreter has to be chosen before Triton is imported: it runs every case of
`CASES` and prints one line of JSON per case, [name, problem or null]. The interpreter's sums of products have an
order of their own, so results are compared within a tolerance: this tests which numbers are combined, not their bits.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import kernel_cases
from kernel_cases import CASES

for module in iter_modules(kernel_cases.__path__):
    import_module(f"kernel_cases.{module.name}")


def main() -> None:
    """Run every case."""
    import numpy as np
    import triton.language as tl
    from triton.language.extra import libdevice
    from triton.runtime.interpreter import TensorHandle

    # The interpreter knows no library functions; the kernels call one.
    libdevice.tanh = lambda x: tl.tensor(TensorHandle(np.tanh(x.handle.data), x.dtype), x.type)
    for name, function in CASES.items():
        try:
            function()
            problem = None
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        print(json.dumps([name, problem]), flush=True)


if __name__ == "__main__":
    assert os.environ.get("TRITON_INTERPRET") == "1", "set TRITON_INTERPRET=1"
    main()
