"""The compiler says what Python does: form by form, and of the specification's own functions."""

import random
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import compiler_faults
import state_checks
import subset_forms
import term_checks
from compiler_faults import FAULTS, Fault, seeded
from term_checks import Comparison
from vosti.impl.cli.statistics import COMPILER, counted
from vosti.refinement.smt import terms
from vosti.refinement.smt.compiler import Compiler
from vosti.refinement.smt.values import type_of

SAMPLES = 20


@pytest.mark.parametrize("form", subset_forms.FORMS, ids=lambda form: str(form.__name__))
def test_a_form_means_what_it_means_in_python(form: Callable[..., Any]) -> None:
    """Value for value, and undefined exactly where Python raises."""
    assert None is term_checks.form_disagreement(Compiler, type_of, form, SAMPLES)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: str(fault.what))
def test_a_fault_of_the_compiler_is_found(fault: Fault) -> None:
    """Each fault is shown by the form that is there for it."""
    form = getattr(subset_forms, fault.found_by)
    with seeded(fault) as (faulty, values):
        assert None is not term_checks.form_disagreement(faulty.Compiler, values.type_of, form, SAMPLES)


def test_the_sound_compiler_is_back() -> None:
    """A fault is gone when its test is over."""
    with seeded(FAULTS[0]) as (faulty, _):
        assert Compiler is not faulty.Compiler
    assert Compiler is import_module("vosti.refinement.smt.compiler").Compiler
    assert terms is import_module("vosti.refinement.smt").terms


def test_a_fault_that_is_nowhere_is_no_fault() -> None:
    """A seeded fault whose place has gone from the compiler's text is an error, not a fault that was found."""
    gone = Fault("gone", "constant", "compiler", "this is nowhere in the text", "")
    with pytest.raises(ValueError, match="occurs 0 times"), seeded(gone):
        pass


@pytest.fixture(scope="module")
def spec_cases() -> Comparison:
    """The specification's functions, compiled once."""
    return state_checks.spec_comparison(Compiler, type_of)


@pytest.fixture(scope="module")
def pool_cases() -> Comparison:
    """The page pool's functions, compiled once."""
    return state_checks.pool_comparison(Compiler, type_of)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32))
def test_the_specification_means_what_it_means_in_python(spec_cases: Comparison, seed: int) -> None:
    """Guards, effects, conjuncts, and conjuncts after effects, on states that are sound and on corrupted ones."""
    assert [] == state_checks.spec_disagreements(spec_cases, random.Random(seed), goals=12)


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32))
def test_the_page_pool_means_what_it_means_in_python(pool_cases: Comparison, seed: int) -> None:
    """Guards, transitions, invariants, and invariants after transitions, on pools that are sound and corrupted."""
    assert [] == state_checks.pool_disagreements(pool_cases, random.Random(seed), goals=12)


def test_the_comparison_sees_both_sides() -> None:
    """Among the states and pools compared there are sound ones and corrupted ones."""
    sound = [state_checks.well_formed(state_checks.some_state(random.Random(seed))) for seed in range(60)]

    assert 15 <= sum(sound) <= 45


def test_every_construct_of_the_compiler_is_a_form() -> None:
    """The list of faults is long enough to be worth its name."""
    assert len(FAULTS) >= 60
    assert len({fault.found_by for fault in FAULTS}) >= 40
    assert compiler_faults.MODULES[-1] == "compiler"


def test_the_compiler_can_be_read() -> None:
    """It is a thousand lines of code at most: blank lines, comments and docstrings are not counted."""
    assert 500 < counted(COMPILER) <= 1000
