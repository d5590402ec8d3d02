"""What has to hold of the kernels on a GPU, in sections; `python kernels_check.py SECTION ...` runs some of them.

Each section prints its findings and fails by an exception.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

from check_attention import attention_section, attention_tiles_section, table_attention_section, zeros_section
from check_digests import digests_section
from check_errors import errors_section
from check_matrices import table_matrices_section, tiles_section
from check_premises import integers_section, padding_section, twins_section
from check_rows import rows_section, warps_section
from check_sampler import sampler_section, sampler_speed_section
from common import Difference

from vosti.kernels.shapes import SHAPES

SECTIONS: dict[str, Callable[[], None]] = {
    "rows matrices": partial(rows_section, "linear", "head", "gate_up"),
    "rows norms": partial(rows_section, "rms_norm", "embedding", "scaled embedding", "softcap"),
    "rows stores": partial(rows_section, "rotary_store", "kv_store"),
    "tiles linear": partial(tiles_section, "linear"),
    "tiles gate_up": partial(tiles_section, "gate_up"),
    "tiles attention": attention_tiles_section,
    "zeros attention": zeros_section,
    "tiles rows": warps_section,
    "integers": integers_section,
    "padding": padding_section,
    "twins": twins_section,
    "errors": errors_section,
    "digests": digests_section,
    "sampler": sampler_section,
    "sampler speed": sampler_speed_section,
    "attention 512": partial(attention_section, 512, None, 40),
} | {
    f"attention {d}{f' window {w}' if w else ''}": partial(attention_section, d, w)
    for d, windows in {32: (None, 40), 64: (None, 64), 128: (None, 700), 256: (None, 512)}.items()
    for w in windows
}
SECTIONS |= {f"table {model}": partial(table_matrices_section, model) for model in SHAPES}
SECTIONS |= {f"table attention {model}": partial(table_attention_section, model) for model in SHAPES}


def main() -> int:
    """Run the sections named on the command line, or all."""
    failed = 0
    for name in sys.argv[1:] or SECTIONS:
        begin = time.time()
        try:
            SECTIONS[name]()
        except Exception as error:
            failed += 1
            print(f"FAILED {name}: {type(error).__name__}: {error}", flush=True)
            if not isinstance(error, Difference):
                raise
        print(f"{name}: {time.time() - begin:.0f} s", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
