"""The paper's suite is planned number by number, at full size and scaled; the others have what they say."""

from collections import Counter

import pytest

from hashing_subject import VOCABULARY, hashing_subject
from vosti.impl.determinism.errors import AxisError, ContextError
from vosti.impl.determinism.paper import PAPER, _around
from vosti.impl.determinism.prompts import SEED, Geometry, geometry_for, random_prompt
from vosti.impl.determinism.suites import EXTENDED, SUITES, axis_names, plan

TABLE_1 = {"batch": 296, "chunk": 90, "prefill-decode": 384, "prefix": 14}


@pytest.mark.parametrize("window", [None, 1024])
@pytest.mark.parametrize("scale", [1, 16])
def test_the_paper_suite_has_784_pairs(window: int | None, scale: int) -> None:
    """296, 90, 384 and 14, with the window of Gemma 3 as without, at full size as scaled."""
    geometry = Geometry(scale)
    cases = plan("paper", hashing_subject(window=window and window // scale), geometry).cases
    counts: Counter[str] = Counter()
    for case in cases:
        counts[case.axis] += case.count

    assert TABLE_1 == counts
    assert 784 == sum(counts.values())


def test_lengths_are_the_papers() -> None:
    """32 prompts of 17 to 8,193 tokens; 18 chunked prompts of 63 to 32,768, of which the window adds none."""
    chunked = _around(Geometry(), [*PAPER.chunk_lengths, *(b + d for b in PAPER.budgets for d in (-1, 0, 1))], 1024)

    assert (32, 17, 8193) == (len(PAPER.batch_lengths), min(PAPER.batch_lengths), max(PAPER.batch_lengths))
    assert (18, 63, 32_768) == (len(chunked), chunked[0], chunked[-1])
    assert 1592598566 == SEED


def test_a_window_beside_the_lengths_is_added() -> None:
    """With its two neighbours, unscaled."""
    assert [4, 8, 99, 100, 101] == _around(Geometry(16), [64, 128], 100)
    assert [4, 8] == _around(Geometry(16), [64, 128], 8)


@pytest.mark.parametrize(
    ("length", "scaled"), [(17, 2), (31, 1), (32, 2), (33, 3), (767, 47), (4095, 255), (4096, 256), (8193, 513)]
)
def test_lengths_stay_beside_their_boundary(length: int, scaled: int) -> None:
    """A boundary is divided; one token more or less stays one token more or less."""
    assert scaled == Geometry(16).length(length)
    assert length == Geometry(1).length(length)


@pytest.mark.parametrize(("context", "scale"), [(131_072, 1), (33_024, 1), (33_023, 2), (4096, 16), (2064, 16)])
def test_the_scale_is_the_smallest_that_fits(context: int, scale: int) -> None:
    """A power of two, with which 33,024 positions fit."""
    assert scale == geometry_for(context).scale


def test_a_context_that_is_too_short_is_refused() -> None:
    """With the number of positions that are needed."""
    with pytest.raises(ContextError, match="needs at least 2064"):
        geometry_for(2063)


def test_prompts_are_random_and_repeatable() -> None:
    """A beginning token, then no special one; longer prompts of one offset begin with the shorter ones."""
    prompt = random_prompt(VOCABULARY, 300, 7)

    assert 300 == len(prompt)
    assert VOCABULARY.bos == prompt[0]
    assert not VOCABULARY.special & set(prompt[1:])
    assert prompt[:10] == random_prompt(VOCABULARY, 10, 7) != random_prompt(VOCABULARY, 10, 8)


def test_each_extended_axis_has_hundreds_of_pairs() -> None:
    """Those that the engine can run; the others are named with a reason."""
    found = plan("extended", hashing_subject(), geometry_for(4096))
    counts: Counter[str] = Counter()
    for case in found.cases:
        counts[case.axis] += case.count

    assert {axis.name for axis in EXTENDED} == {*counts, *found.skipped}
    assert {
        "tiles": "the engine has no variants of tiles here",
        "splits": "the engine has no variants of splits here",
        "graphs": "the engine has no variants of graphs here",
    } == (found.skipped)
    assert all(count >= 250 for count in counts.values()), counts


def test_the_axes_of_kernels_have_hundreds_of_pairs() -> None:
    """Where the engine names what they vary: as the cuda backend does."""
    variants = {"tiles": [f"tile-{number}" for number in range(5)], "splits": ["one-pass"], "graphs": ["eager"]}
    counts: Counter[str] = Counter()
    for case in plan("extended", hashing_subject(variants=variants), Geometry(), tuple(variants)).cases:
        counts[case.axis] += case.count

    assert {"tiles": 360, "splits": 276, "graphs": 288} == counts


def test_variants_make_cases() -> None:
    """Each tile that the engine names is tried."""
    subject = hashing_subject(variants={"tiles": ["tile-0", "tile-1"]})
    found = plan("extended", subject, geometry_for(4096), ["tiles"])

    assert ["tiles/tile-0", "tiles/tile-1"] == [case.name for case in found.cases]


@pytest.mark.parametrize("suite", SUITES)
def test_an_unknown_axis_is_refused(suite: str) -> None:
    """With the axes that there are."""
    with pytest.raises(AxisError, match=f"suite {suite} has no axis 'nonsense': its axes are {axis_names(suite)[0]}"):
        plan(suite, hashing_subject(), geometry_for(4096), ["nonsense"])


def test_cases_are_chosen_by_their_beginnings() -> None:
    """A slash makes a name one of cases; a whole axis may stand beside."""
    names = [
        case.name
        for case in plan("paper", hashing_subject(), geometry_for(4096), ["prefix", "batch/2-", "batch/fresh-00"]).cases
    ]
    batch = ["batch/2-ascending", "batch/2-descending", "batch/2-shuffled", "batch/fresh-00"]

    assert batch == [name for name in names if not name.startswith("prefix/")]
    assert len(names) == len(batch) + 14


def test_a_beginning_of_no_case_is_refused() -> None:
    """Rather than that nothing is run, and nothing differs."""
    with pytest.raises(AxisError, match="no case here whose name begins with 'batch/3-'"):
        plan("paper", hashing_subject(), geometry_for(4096), ["batch/2-", "batch/3-"])


def test_names_are_unique() -> None:
    """Of cases within a suite: a result belongs to one of them."""
    for suite in SUITES:
        names = [case.name for case in plan(suite, hashing_subject(), geometry_for(4096)).cases]
        assert len(names) == len(set(names))
