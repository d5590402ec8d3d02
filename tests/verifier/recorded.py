"""Every launch of the cases of `tests/kernels/interpreted.py` under Triton's interpreter, before and after.

A program of its own, because the interpreter has to be chosen before Triton is imported: it runs the cases and writes
a pickled list of `launches.Launch` to the file it is given.
"""

from __future__ import annotations

import importlib.util
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np

from launches import Described, Launch
from vosti.kernels.launch import Kernel

CASES = Path(__file__).parents[1] / "kernels" / "interpreted.py"


def main(path: str) -> None:
    """Run the cases."""
    specification = importlib.util.spec_from_file_location("interpreted", CASES)
    assert specification is not None
    assert specification.loader is not None
    interpreted = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(interpreted)
    launches: list[Launch] = []
    launch = Kernel.launch

    def recording(self: Kernel, arguments: dict[str, Any], tile: Any, **sizes: int) -> Any:
        values = {**arguments, **dict(tile.blocks)}
        constants = {name: values[name] for name in self.contract.constants if name in arguments}
        bases = {name: getattr(value, "base", value) for name, value in arguments.items()}
        # A buffer that is not used may be another one under another type.
        places = {name: f"{base.data_ptr()} {base.dtype}" for name, base in bases.items() if hasattr(base, "data_ptr")}
        tensors = {place: bases[name] for name, place in places.items()}
        described = {
            name: Described(places[name], tuple(value.shape), tuple(value.strides))
            for name, value in arguments.items()
            if hasattr(value, "base")
        }
        before = {place: np.array(tensor.reshape(-1)) for place, tensor in tensors.items()}
        result = launch(self, arguments, tile, **sizes)
        launches.append(
            Launch(
                kernel=self.contract.kernel,
                module=self.function.fn.__module__,
                constants=constants,
                blocks=tile.blocks,
                grid=self.contract.programs({**values, **sizes}),
                numbers={name: value for name, value in arguments.items() if name not in {*constants, *places}},
                pointers={name: place for name, place in places.items() if name not in described},
                descriptors=described,
                before=before,
                after={place: np.array(tensor.reshape(-1)) for place, tensor in tensors.items()},
            )
        )
        return result

    Kernel.launch = recording  # type: ignore[method-assign,assignment]
    interpreted.main()
    Path(path).write_bytes(pickle.dumps(launches))


if __name__ == "__main__":
    main(sys.argv[1])
