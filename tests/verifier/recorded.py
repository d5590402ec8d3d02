"""Every launch of the cases of `tests/kernels/interpreted.py` under Triton's interpreter, before and after.

A program of its own, because the interpreter has to be chosen before Triton is imported: it runs the cases and writes
a pickled list of `launches.Launch` to the file it is given.
"""

from __future__ import annotations

import importlib.util
import pickle
import sys
from pathlib import Path

from launches import recorded

CASES = Path(__file__).parents[1] / "kernels" / "interpreted.py"


def main(path: str) -> None:
    """Run the cases."""
    specification = importlib.util.spec_from_file_location("interpreted", CASES)
    assert specification is not None
    assert specification.loader is not None
    interpreted = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(interpreted)
    with recorded() as launches:
        interpreted.main()
    Path(path).write_bytes(pickle.dumps(launches))


if __name__ == "__main__":
    main(sys.argv[1])
