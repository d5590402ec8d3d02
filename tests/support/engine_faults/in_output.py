"""Faults that are to be found where the caller takes what the engine returns."""

from engine_faults.edits import Fault, fault

SETTLED = "            for r, outcome in settled.items()\n"

FAULTS: tuple[Fault, ...] = (
    fault(
        "outputs of two requests exchanged",
        (
            "engine:Engine._step",
            SETTLED,
            "            for r, outcome in zip(reversed(list(settled)), settled.values(), strict=True)\n",
        ),
        scenario="domains",
    ),
    fault(
        "token returned twice",
        (
            "engine:Engine._output",
            "record.output[len(record.output) - len(rows) :]",
            "record.output[max(0, len(record.output) - len(rows) - 1) :]",
        ),
    ),
    fault(
        "output not returned",
        ("engine:Engine._step", "if outcome.rows or outcome.ended is not None", "if outcome.ended is not None"),
    ),
    fault(
        "output returned again",
        (
            "engine:Engine._step",
            SETTLED,
            "            for r, outcome in [*settled.items(), *list(settled.items())[:1]]\n",
        ),
    ),
    fault(
        "end not returned",
        ("engine:Engine._step", "outcome.record, outcome.rows, outcome.ended)", "outcome.record, outcome.rows, None)"),
    ),
)
