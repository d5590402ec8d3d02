"""The verifier's verdicts on memory, against all small launches, interpreted and looked at cell by cell.

For each kernel of the corpus, in sizes of a few elements: the verdict leaves out what the kernel computes. If it is a
proof, no small launch that meets the premises has a race, a cell written twice or not at all, a write outside of the
promise, an access outside of a buffer, or a read of what another lane writes; if it is a refusal, some launch has what
it says, in that buffer and at that line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import product
from unittest.mock import patch

import pytest

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed")

import corpus
from corpus import FOLDER, Case, load
from small_grids import FRAME, RACE, REASONS, UNWRITTEN, Bounds, Shown, objections, reason, shown
from vosti.kernels.catalogue import TARGETS
from vosti.kernels.contract import Contract
from vosti.kernels.errors import PremiseError
from vosti.kernels.launch import Kernel
from vosti.kernels.tile import Tile
from vosti.kernels.verifier import ir, prove
from vosti.kernels.verifier.errors import RefusedError
from vosti.kernels.verifier.front import located

Constants = tuple[tuple[str, int], ...]

SIZES: Mapping[tuple[str, ...], Mapping[str, tuple[int, ...]]] = {
    ("WIDTH",): {"WIDTH": (2, 1, 4)},
    ("BLOCK",): {"BLOCK": (4, 1, 2)},
    ("WIDTH", "BLOCK"): {"WIDTH": (3, 1, 2, 4), "BLOCK": (2, 1, 4)},
    # Triton multiplies no tiles of less than 16.
    ("N", "K", "BLOCK_M", "BLOCK_N", "BLOCK_K"): {
        "N": (32, 16),
        "K": (16, 32),
        **dict.fromkeys(("BLOCK_M", "BLOCK_N", "BLOCK_K"), (16,)),
    },
    ("HEADS", "WIDTH", "PAGE", "TILE"): {"HEADS": (16,), "WIDTH": (16,), "PAGE": (1,), "TILE": (64,)},
    ("HEADS", "WIDTH", "PAGE", "TILE", "WINDOW"): {
        "HEADS": (16,),
        "WIDTH": (16,),
        "PAGE": (1,),
        "TILE": (64,),
        "WINDOW": (1, 2),
    },
}
"""By the constants of a contract, what each is tried at: all together, where the premises allow it."""

OWN_SIZES: Mapping[str, Constants] = {
    # The contract or the kernel has the number 16.
    "copy_claimed_in_part": (("WIDTH", 17), ("BLOCK", 16)),
    "copy_in_place_read_again": (("WIDTH", 18), ("BLOCK", 32)),
}
"""Where the smallest that shows the finding is larger."""

BOUNDS: Mapping[str, Bounds] = {
    # Two blocks of rows, of which the second is not full; three, where the axis of two blocks of columns is meant.
    "linear": Bounds(apart={"rows": 18, "parts": 2}),
    "linear_with_axes_exchanged": Bounds(apart={"rows": 33}),
    "linear_with_bound_of_rows": Bounds(apart={"rows": 33}),
    "attend": Bounds(2),
    # What these add up does not say where they store.
    "draw": Bounds(2, contents=2),
    "running": Bounds(2, contents=2),
    "copy_counted": Bounds(2, contents=2),
    # The kernels have the numbers 4 and 7.
    "sum_selected": Bounds(5),
    "store_by_branch_twice": Bounds(apart={"rows": 8, "slots_known": 1}),
}
"""By the beginning of a name, the longest that fits; all other launches are of up to three rows, slots and so on."""

WITHOUT_PROGRAMS: Mapping[str, tuple[Constants, ...]] = {
    "copy_over_short_grid": tuple(
        (("WIDTH", width), ("BLOCK", block)) for width, block in ((3, 4), (1, 2), (1, 4), (2, 4))
    ),
}
"""Sizes at which a grid is empty: of its programs anything is true, so that the refusal may name any reason."""

LEFT_OUT: Mapping[str, tuple[str, ...]] = {
    "What it does is not defined by the typed IR that is known.": (
        "draw_by_floats",
        "flags_of_first",
        "linear_autotuned",
        "linear_in_split_k",
        "linear_in_tf32",
        "prefix_in_reverse",
        "sum_by_assembly",
        "sum_by_atomics",
    ),
    "Only sizes near 2^31 show it.": (
        "attend_with_pages_of_32_bits",
        "copy_of_32_bits",
        "digest_at_32_bits",
        "gather_of_32_bits",
        "running_of_32_bits",
    ),
    "No launch meets the premises.": (
        "copy_under_contradiction",
        "gather_from_nothing",
        "running_under_contradicting_facts",
    ),
    "It is refused for a form before memory is looked at: what steers masks, places and loops.": (
        "copy_counted_by_maximum",
        "copy_counted_by_words",
        "digest_of_word_at_word",
        "linear_with_step_of_rows",
    ),
    "It is refused for what its sums come to before memory is looked at.": (
        "draw_by_first_bits",
        "draw_of_lanes_beyond",
        "draw_of_last_of_ties",
        "draw_of_one_less",
        "draw_of_unknown_order",
        "draw_without_own",
        "running_of_squares",
        "running_said_to_begin_with_one",
        "running_said_to_skip",
    ),
}
"""The kernels whose refusal says nothing of memory, and why."""

RACING = ("copy_in_overlapping_blocks", "linear_in_one_column_of_blocks", "store_in_shared_slots")
"""Those in which two programs write one cell, which the verifier sees by who is to write it."""

ALL = [(kind, name) for kind in ("accepted", "refused") for name in corpus.names(kind)]


def case_of(name: str) -> Case:
    """A kernel of the corpus."""
    return load(next(FOLDER / kind / f"{other}.py" for kind, other in ALL if other == name))


def is_about_memory(name: str) -> bool:
    """Whether the file states a finding on memory."""
    return reason(case_of(name).finding.replace("\\", "")) is not None


ABOUT_MEMORY = [name for name in corpus.names("refused") if is_about_memory(name)]
OTHERS = [name for name in corpus.names("refused") if name not in ABOUT_MEMORY]


def brief(names: list[str]) -> list[str]:
    """Those that take little time."""
    return [name for name in names if not name.startswith("attend")]


def small(contract: Contract) -> Iterator[Constants]:
    """The small choices of the constants."""
    sizes = SIZES[contract.constants]
    for values in product(*sizes.values()):
        constants = dict(zip(sizes, values, strict=True))
        try:
            contract.check_constants(constants)
        except PremiseError:
            continue
        yield tuple(constants.items())


def chosen(name: str) -> Constants:
    """The constants at which the file's finding is to be seen."""
    return OWN_SIZES.get(name) or next(small(case_of(name).contract))


def bounds(name: str) -> Bounds:
    """Which launches of a kernel are small."""
    fitting = [one for one in BOUNDS if name.startswith(one)]
    return BOUNDS[max(fitting, key=len)] if fitting else Bounds()


@cache
def kernel(name: str, constants: Constants) -> ir.Kernel:
    """Its typed IR."""
    case = case_of(name)
    return located(Kernel(case.function, case.contract), dict(constants), Tile((), 4, 1), TARGETS["sm_90"])


def verdict(name: str, constants: Constants) -> str | None:
    """Of the verifier on memory: a refusal, or None for a proof."""
    try:
        with patch.object(prove._Proving, "_value", lambda *_: None):
            prove.prove(kernel(name, constants), case_of(name).contract, dict(constants))
    except RefusedError as error:
        return str(error)
    return None


@cache
def seen(name: str, constants: Constants) -> Shown:
    """What is wrong in some small launch."""
    return shown(kernel(name, constants), case_of(name).contract, dict(constants), bounds(name))


def differences(name: str, constants: Constants) -> list[str]:
    """Of the verdict and the small launches."""
    return objections(verdict(name, constants), seen(name, constants))


# ---------------------------------------------------------------- the comparison


@pytest.mark.parametrize("name", brief(corpus.names("accepted")))
def test_in_what_is_proved_nothing_is_wrong(name: str) -> None:
    """In no small launch."""
    assert verdict(name, chosen(name)) is None
    assert {} == seen(name, chosen(name))


@pytest.mark.parametrize("name", brief(ABOUT_MEMORY))
def test_what_is_refused_is_shown(name: str) -> None:
    """A small launch shows the finding that the file states."""
    refusal = verdict(name, chosen(name))

    assert refusal is not None
    assert refusal.startswith(case_of(name).finding.split(r" \(")[0])
    assert [] == objections(refusal, seen(name, chosen(name)))


def test_every_kind_is_shown() -> None:
    """What small launches can have wrong is what some kernel is refused for."""
    findings = [reason(case_of(name).finding.replace("\\", "")) for name in ABOUT_MEMORY]

    assert set(REASONS.values()) == {found.kind for found in findings if found is not None}


@pytest.mark.parametrize("name", RACING)
def test_programs_that_write_one_cell_are_refused(name: str) -> None:
    """The launches show a race, by whatever name the verifier has for it."""
    assert RACE in {found.kind for found in seen(name, chosen(name))}
    assert verdict(name, chosen(name)) is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in OTHERS if name not in sum(LEFT_OUT.values(), ())])
def test_what_is_refused_for_its_value_is_right_in_memory(name: str) -> None:
    """Its verdict on memory is compared, too."""
    assert [] == differences(name, chosen(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*corpus.names("accepted"), *ABOUT_MEMORY])
def test_all_small_sizes(name: str) -> None:
    """Refused at some and proved at others, as the launches say: where a tile divides a row, a mask is not missed."""
    for constants in dict.fromkeys([*small(case_of(name).contract), chosen(name)]):
        if constants not in WITHOUT_PROGRAMS.get(name, ()):
            assert [] == differences(name, constants), constants


@pytest.mark.parametrize("name", WITHOUT_PROGRAMS)
def test_an_empty_grid_is_refused(name: str) -> None:
    """Whatever the reason, the launches show that nothing is written."""
    for constants in WITHOUT_PROGRAMS[name]:
        assert verdict(name, constants) is not None
        assert UNWRITTEN in {found.kind for found in seen(name, constants)}


@pytest.mark.slow
@pytest.mark.parametrize("why", LEFT_OUT)
def test_what_is_left_out_is_not_about_memory(why: str) -> None:
    """Each kernel that is not compared is refused, and for something else."""
    assert set(LEFT_OUT[why]) <= set(OTHERS)
    for name in LEFT_OUT[why]:
        with pytest.raises(RefusedError) as error, patch.object(prove._Proving, "_value", lambda *_: None):
            replace(case_of(name), constants=dict(chosen(name))).prove()
        assert reason(str(error.value)) is None


# ---------------------------------------------------------------- twins: wrong verdicts


@pytest.mark.parametrize("name", brief(ABOUT_MEMORY))
def test_exchanged_verdicts_are_found(name: str) -> None:
    """Of a refused kernel and its accepted twin, the verdict of the other contradicts the launches of each."""
    twin = case_of(name).twin

    assert objections(None, seen(name, chosen(name)))
    assert objections(verdict(name, chosen(name)), seen(twin, chosen(twin)))


@pytest.mark.parametrize(
    ("obligation", "name"),
    [
        ("_bounds", "copy_without_load_mask"),
        ("_cell", "copy_claimed_in_part"),
        ("_distinct", "copy_written_twice"),
        ("_distinct", "store_in_shared_slots"),
        ("_covered", "copy_with_mask_too_narrow"),
        ("_reads", "copy_in_place_of_last_row_first"),
        ("_reads", "reversed_in_place"),
    ],
)
def test_a_verifier_without_an_obligation_is_found(obligation: str, name: str) -> None:
    """It proves what some launch refutes."""
    with patch.object(prove._Proving, obligation, lambda *_: None):
        assert verdict(name, chosen(name)) is None
        assert differences(name, chosen(name))


def test_a_refusal_for_another_reason_is_found() -> None:
    """A race does not show a cell that is not written, nor an access elsewhere in the kernel."""
    found = seen("copy_in_overlapping_blocks", chosen("copy_in_overlapping_blocks"))

    assert FRAME not in {one.kind for one in found}
    assert objections("A cell of out is not written: not so.", found)
    assert objections("A cell of x is written by another than the contract says", found)
    assert objections("A cell of out is written by another than the contract says (tt.store at line copy.py:1)", found)
