"""The kernels' binaries on a GPU and their own typed IR, interpreted: the front reads what the compiler means.

    python interpreter_check.py        on a GPU
    python interpreter_check.py --dry  anywhere: the interpreter stands for the GPU, so that only the faults tell

Every kernel of the catalogue is launched on small data in every form that its options make, with tiles for both
classes of matrix instructions. The interpreter (`vosti.kernels.verifier.interpret`) runs the IR of the very binary that
was launched, on the same bytes. The results are compared to the bit where IEEE 754 says what they are; else within
`bound`. Then each fault of `front_faults`, and one in
each kernel, is seeded into the IR, and must be found in some launch of the kernel.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from front_faults import FAULTS, edited
from launches import Launch, key_of, recorded, taken_down, tensors_of
from vosti.kernels.candidates import make_tile
from vosti.kernels.catalogue import TARGETS, Instance, instances
from vosti.kernels.disassembly import compiled_classes
from vosti.kernels.launch import Kernel
from vosti.kernels.probe.launches import Data, computation, samplers
from vosti.kernels.tables import Choice, Entry
from vosti.kernels.tile import Tile
from vosti.kernels.verifier.errors import VerifierError
from vosti.kernels.verifier.ir import Kernel as Read
from vosti.kernels.verifier.ir import Op
from vosti.kernels.verifier.parse import parse

ROWS, KEYS = 19, 1100

ROUNDED = frozenset(
    {
        "tt.dot",
        "tt.extern_elementwise",
        *(f"math.{name}" for name in ("exp", "exp2", "log", "log2", "sqrt", "rsqrt")),
    }
)
"""Operations of which IEEE 754 does not say the bits."""


def entry(operation: str, *tiles: Tile, kernel: str = "", **sizes: int) -> Entry:
    """An entry that no table has."""
    choices = tuple(Choice(None, kernel or operation, tile) for tile in tiles)
    return Entry(operation, tuple(sorted(sizes.items())), choices)


def entries() -> Iterator[Entry]:
    """Small ones, for every kernel of the catalogue."""
    steps = make_tile(4, 3, BLOCK_M=16, BLOCK_N=32, BLOCK_K=32), make_tile(4, 2, BLOCK_M=64, BLOCK_N=64, BLOCK_K=64)
    stream = make_tile(8, 3, BLOCK_M=128, BLOCK_N=64, BLOCK_K=64, GROUP_M=2, PROGRAMS=2)
    yield entry("linear", *steps, n=40, k=128)
    yield entry("linear", stream, kernel="linear_stream", n=136, k=128)
    yield entry("head", steps[0], kernel="linear", n=40, k=128)
    for activation in (0, 1):
        yield entry("gate_up", *steps, n=40, k=128, activation=activation)
        yield entry("gate_up", stream, kernel="gate_up_stream", n=136, k=128, activation=activation)
    for one in (0, 1):
        yield entry("embedding", make_tile(4, 1, BLOCK=32), width=40, scaled=one)
        yield entry("rms_norm", make_tile(2, 1, BLOCK=64), width=40, unit_offset=one)
        yield entry("logits", make_tile(4, 1, BLOCK=32), width=50, capped=one)
    heads = {"heads": 6, "kv_heads": 2}
    for options in ((0, 0, 0), (1, 0, 0), (2, 0, 0), (1, 1, 0), (2, 1, 1)):
        named = dict(zip(("norm", "value_norm", "shared"), options, strict=True))
        yield entry(
            "rotary_store", make_tile(1, 1, BLOCK_H=4), make_tile(2, 1, BLOCK_H=8), **heads, head_dim=32, **named
        )
    yield entry("kv_store", make_tile(1, 1), kv_heads=2, head_dim=32)
    for head_dim, window, columns in ((32, 0, 32), (64, 300, 32)):
        sizes = {**heads, "head_dim": head_dim, "window": window}
        few, many = make_tile(4, 3, BLOCK_R=16, BLOCK_D=columns), make_tile(4, 1, BLOCK_R=64, BLOCK_D=head_dim)
        yield entry("attention", few, many, **sizes)
        yield entry("attention_split", few, **sizes)
        yield entry("attention_merge", make_tile(1, 1), **sizes)
    yield entry("digest", make_tile(1, 1, BLOCK=512))
    yield entry("digest_merge", make_tile(1, 1, BLOCK=128))


def bound(kernel: str, narrow: bool, expected: Any) -> Any:
    """By how much a number may differ: by one unit of bf16, if it is one, and by a small part of the largest number.

    That part is 2⁻¹⁵, since matrix units cut sums off where the interpreter rounds them once; in attention 2⁻⁸, since a
    weight is rounded to bf16, to one side or the other.
    """
    largest = np.max(np.abs(expected), initial=0.0, where=np.isfinite(expected))
    part = 2.0**-8 if kernel in ("attention", "attention_split") else 2.0**-15
    return part * largest + (2.0**-7 * np.abs(expected) if narrow else 0.0)


TOO_SMALL = "rounding dropped"
"""A fault that changes numbers by less than one unit of bf16."""


ANOTHER_AXIS = "another axis of the grid"
"""A fault that every kernel can have."""


def _faulty(text: str, fault: str) -> str:
    if fault == ANOTHER_AXIS:
        return text.replace("tt.get_program_id x", "tt.get_program_id z")
    return edited(text, fault)


@dataclass
class Row:
    """What was found of a kernel."""

    launches: int = 0
    elements: int = 0
    same: int = 0
    """Elements of the same bits."""

    largest: float = 0.0
    """Difference, relative to the largest number of its buffer."""

    exact: bool = True
    """Whether bits are asked for."""

    problems: int = 0
    """Launches in which more differed than may."""

    faults: int = 0
    found: int = 0


def compare(launch: Launch, read: Read, row: Row) -> bool:
    """Whether the interpreter does what was done; takes it down."""
    found, fine = launch.run(read), True
    exact = not any(op.name in ROUNDED or _approximate(op) for op in read.body.walk())
    row.launches, row.exact = row.launches + 1, row.exact and exact
    for key, expected in launch.after.items():
        there = found[key]
        if (
            np.array_equal(expected, launch.before[key], equal_nan=expected.dtype.kind == "f")
            and not (there.view(np.uint8) != expected.view(np.uint8)).any()
        ):
            continue
        narrow = expected.dtype == np.uint16
        x, y = (_numbers(one) for one in (expected, there))
        equal = (_bits(expected) == _bits(there)) | (_nan(x) & _nan(y))
        row.elements += equal.size
        row.same += int(equal.sum())
        if equal.all():
            continue
        with np.errstate(invalid="ignore"):
            difference = np.where(equal, 0.0, np.abs(x.astype(np.float64) - y))
            # What nobody wrote is NaN on both sides, and so is its bound.
            within = equal | (difference <= bound(launch.kernel, narrow, x.astype(np.float64)))
            fine &= not exact and x.dtype.kind == "f" and bool(within.all())
        largest = np.max(np.abs(x), initial=1e-30, where=np.isfinite(x))
        row.largest = max(row.largest, float(np.max(np.nan_to_num(difference, nan=np.inf)) / largest))
    return fine


def _approximate(op: Op) -> bool:
    """A division that is not asked to be rounded correctly, as one of float64 always is."""
    return op.name == "arith.divf" and op.result.type.element == "f32"


def _numbers(x: Any) -> Any:
    return (x.astype(np.uint32) << 16).view(np.float32) if x.dtype == np.uint16 else x


def _bits(x: Any) -> Any:
    return x.view(f"u{x.dtype.itemsize}")


def _nan(x: Any) -> Any:
    return np.isnan(x) if x.dtype.kind == "f" else np.zeros(x.shape, bool)


def differs(launch: Launch, text: str) -> bool:
    """Whether the interpreter does something else with a text, or refuses it."""
    try:
        return not compare(launch, parse(text), Row())
    except VerifierError:
        return True


def dry(kernel: Kernel, arguments: dict[str, Any], tile: Tile, **sizes: int) -> Any:
    """What stands for a launch: the interpreter runs the IR that would be compiled, if it can be read."""
    launch = taken_down(kernel, arguments, tile, sizes)
    wide = launch.kernel == "linear" and arguments["out"].dtype == torch.float32
    text = kernel.ttir(launch.constants, tile, TARGETS["sm_90"], {"out": "fp32"} if wide else {})
    try:
        after = launch.run(parse(text))
    except VerifierError:
        after = launch.before
    for tensor in tensors_of(arguments).values():
        there = torch.from_numpy(after[key_of(tensor)].view(np.uint8))
        tensor.view(-1).view(torch.uint8).copy_(there)
    return SimpleNamespace(asm={"ttir": text})


def launches(forms: Iterable[Instance], dry_run: bool) -> list[Launch]:
    """All of them, in order, and of a few rows that are sampled, of each kind."""
    data = Data(ROWS, "cpu" if dry_run else "cuda", keys=KEYS)
    torch.manual_seed(0)
    with recorded(dry) if dry_run else recorded() as found:
        for form in forms:
            computation(form, data)()
        for compute in samplers(replace(data, rows=3)).values():
            compute()
    return found


def check(some: Iterable[Launch]) -> tuple[dict[str, Row], dict[str, str]]:
    """What was found of each kernel, and of those that are not read, why."""
    rows: dict[str, Row] = {}
    unread: dict[str, str] = {}
    by_kernel: dict[str, list[Launch]] = {}
    for launch in some:
        try:
            read = parse(launch.text)
        except VerifierError as error:
            unread[launch.kernel] = str(error).splitlines()[0]
            continue
        row = rows.setdefault(launch.kernel, Row())
        row.problems += not compare(launch, read, row)
        by_kernel.setdefault(launch.kernel, []).append(launch)
    seeded = [(fault, FAULTS[fault][0]) for fault in sorted(set(FAULTS) - {TOO_SMALL})]
    for fault, kernel in [*seeded, *((ANOTHER_AXIS, kernel) for kernel in rows)]:
        faulty = [(launch, _faulty(launch.text, fault)) for launch in by_kernel.get(kernel, ())]
        row = rows.setdefault(kernel, Row())
        row.faults += 1
        found = any(text != launch.text and differs(launch, text) for launch, text in faulty)
        row.found += found
        if not found:
            print(f"fault not found: {fault} ({kernel})")
    return rows, unread


def compiled_ahead(forms: Sequence[Instance]) -> dict[str, set[str]]:
    """Compile several at once, for launches to find in the cache; the classes of each kernel's matrix instructions."""
    classes: dict[str, set[str]] = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(lambda form: compiled_classes(form.compiled(TARGETS["sm_90"])), forms)
        for form, names in zip(forms, found, strict=True):
            classes.setdefault(form.kernel.contract.kernel, set()).update(names)
    return classes


def main(dry_run: bool) -> bool:
    """Print what was found; whether all of it is as it should be."""
    forms = [form for one in entries() for form in instances(one)]
    classes = {} if dry_run else compiled_ahead(forms)
    rows, unread = check(launches(forms, dry_run))
    for kernel, why in sorted(unread.items()):
        print(f"{kernel}: not read: {why}")
    head = f"{'kernel':17}{'launches':>9}{'elements':>10}{'same bits':>10}{'largest':>9}  asked"
    print(f"{head}  faults found  differ  classes")
    for kernel, row in sorted(rows.items()):
        print(
            f"{kernel:17}{row.launches:>9}{row.elements:>10,}{row.same:>10,}{row.largest:>9.1e}  "
            f"{'bits ' if row.exact else 'bound'}  {row.found:>5} of {row.faults:<4} {row.problems:>6}  "
            f"{' '.join(sorted(classes.get(kernel, ())))}"
        )
    fine = all(not row.problems and row.found == row.faults and row.elements for row in rows.values())
    print("the interpreter does what the binaries do" if fine else "NOT the same")
    return fine


if __name__ == "__main__":
    sys.exit(0 if main("--dry" in sys.argv) else 1)
