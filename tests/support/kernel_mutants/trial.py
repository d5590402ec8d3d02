"""One mutant is proved or refused, and run on launches."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from kernel_mutants.forms import Form
from kernel_mutants.operators import Mutant
from kernel_mutants.outcomes import Outcome, Reason, explained
from kernel_mutants.places import named
from kernel_mutants.runs import SECONDS, EndlessError, Runs, limited
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
