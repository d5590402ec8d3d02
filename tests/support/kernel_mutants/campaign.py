"""Many mutants: each is proved or refused, and run on the recorded launches."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from functools import partial

from kernel_mutants.forms import FORMS, Form, record
from kernel_mutants.kept import Kept
from kernel_mutants.operators import Mutant
from kernel_mutants.outcomes import REASONS, Outcome, Reason, explained, reasons
from kernel_mutants.places import named
from kernel_mutants.runs import SECONDS, EndlessError, Runs, limited
from launches import Launch
from vosti.kernels.verifier.errors import VerifierError
from vosti.kernels.verifier.ir import Kernel


def tried(form: Form, mutant: Mutant, known: Sequence[Reason], runs: Runs | None = None) -> Outcome:
    """Prove one mutant, and run it."""
    finding = place = error = None
    kernel: Kernel | None = None
    begun = time.process_time()
    try:
        kernel = mutant.made()
        limited(partial(form.prove, kernel))
    except VerifierError as refusal:
        finding = str(refusal)
        place = named(finding, mutant.op, form.ir)
    except EndlessError:
        error = f"no end in {SECONDS} seconds"
    except Exception as other:
        error = f"{type(other).__name__}: {other}"
    proved = time.process_time()
    shown = runs.of(kernel) if runs is not None and kernel is not None else None
    why = explained(known, form, mutant) if finding is None and error is None else ()
    seconds = (proved - begun, time.process_time() - proved)
    return Outcome(form.name, mutant, finding, place, error, shown, why, *seconds)


def campaign(
    most: int | None = None,
    attention: int | None = None,
    chosen: re.Pattern[str] = re.compile(".*"),
    progress: Callable[[Outcome], None] = lambda outcome: None,
    kept: Kept | None = None,
) -> tuple[Outcome, ...]:
    """Try mutants of the forms, those of least rank first, and run each.

    Args:
        most: how many of each form; all, if there is none.
        attention: how many of each of attention's forms, whose proofs take half a second.
        chosen: a pattern for the names of forms.
        progress: called with each outcome.
        kept: outcomes of mutants that are not tried again; the others' are added.
    """
    known = reasons(REASONS)
    outcomes: list[Outcome] = []
    launches: list[Launch] = []
    for form in FORMS:
        if not chosen.fullmatch(form.name):
            continue
        runs: Runs | None = None
        for mutant in form.mutants[: attention if form.kernel.startswith("attention") else most]:
            outcome = None if kept is None else kept.outcome(form, mutant, known)
            if outcome is None:
                if runs is None:
                    launches = launches or record()
                    form.prove(form.ir)
                    runs = Runs(form, form.launches(launches))
                outcome = tried(form, mutant, known, runs)
                if kept is not None:
                    kept.add(outcome)
            outcomes.append(outcome)
            progress(outcome)
    return tuple(outcomes)
