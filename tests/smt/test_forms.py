"""The compiler says what Python does: form by form, and of the specification's own functions."""

import random
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import compiler_faults
import subset_forms
import term_checks
from compiler_faults import FAULTS, Fault, seeded
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
def spec_cases() -> term_checks.SpecCases:
    """The specification's functions, compiled once."""
    return term_checks.SpecCases(Compiler, type_of)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32))
def test_the_specification_means_what_it_means_in_python(spec_cases: term_checks.SpecCases, seed: int) -> None:
    """Guards, effects, conjuncts, and conjuncts after effects, on states that are sound and on corrupted ones."""
    assert [] == term_checks.state_disagreements(spec_cases, random.Random(seed), goals=12)


def test_the_comparison_sees_both_sides(spec_cases: term_checks.SpecCases) -> None:
    """Among the states compared there are sound ones and corrupted ones, values and exceptions."""
    sound = [term_checks.well_formed(term_checks.some_state(random.Random(seed))) for seed in range(60)]

    assert 15 <= sum(sound) <= 45


def test_every_construct_of_the_compiler_is_a_form() -> None:
    """The list of faults is long enough to be worth its name."""
    assert len(FAULTS) >= 60
    assert len({fault.found_by for fault in FAULTS}) >= 40
    assert compiler_faults.MODULES[-1] == "compiler"
