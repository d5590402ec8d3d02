"""Axes of kernels of the GPU without a GPU: the cuda backend in Triton's interpreter, on float32.

A program of its own, because the interpreter has to be chosen before Triton is imported. It prints one line of JSON for
each case: its name, the state of each pair, and the reasons of those that do not match. Between the first two it says
how many tensors there are while the model is loaded, and how many when it was let go.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import replace

from cuda_interpreted import LLAMA, backends

from vosti.impl.backend import Backend
from vosti.impl.determinism.axes import Scenario
from vosti.impl.determinism.backends import ONE_PASS, Backends, Loaded, cuda_backends, shown
from vosti.impl.determinism.cases import Bench, Pair
from vosti.impl.determinism.extended_scheduling import ending
from vosti.impl.determinism.prompts import Geometry
from vosti.impl.determinism.protocol import Ask, Settings, Vocabulary
from vosti.impl.determinism.results import compare
from vosti.impl.determinism.vosti_engine import VostiSubject

VOCABULARY = Vocabulary(size=96, bos=0, special=frozenset({0, 1}))

TOKEN = 95
"""The one whose embedding is NaN."""

BAD = Ask("spoilt", (0, 5, 9, TOKEN), 1)

ASKS = (Ask("first", (0, 5, 9, 3, 77), 2), Ask("second", (0, 7, 30), 1))

SETTINGS = Settings(token_budget=6, max_seqs=4, page_size=4, pages=16, poison=True)

Open = Callable[[Settings], Backend]

Fault = Callable[[Open, Settings], Backend]
"""Opens a backend, perhaps another one than the settings ask for."""


def faultless(opened: Open, settings: Settings) -> Backend:
    """As asked."""
    return opened(settings)


def leaking(opened: Open, settings: Settings) -> Backend:
    """Spoils a token of another request a little."""
    backend = opened(settings)
    if settings.non_finite_token is not None:
        backend.model.parameters["embedding"][77] *= 1.25  # type: ignore[attr-defined]
    return backend


def beside(bench: Bench) -> Iterable[Pair]:
    """The pairs of requests beside one with the token."""
    names = frozenset(ask.name for ask in ASKS)
    settings = replace(SETTINGS, non_finite_token=TOKEN)
    return ending(Scenario("non-finite", "test", settings, ((BAD, *ASKS),), names), [BAD], "error").run(bench)


def unsplit(bench: Bench) -> Iterable[Pair]:
    """The pairs of requests whose keys are in one pass."""
    settings = replace(SETTINGS, variant=ONE_PASS)
    return Scenario("splits", "test", settings, (ASKS,), required=frozenset({"tiles"})).pairs(bench)


CASES: dict[str, tuple[Fault, Callable[[Bench], Iterable[Pair]]]] = {
    "beside": (faultless, beside),
    "leaking": (leaking, beside),
    "unsplit": (faultless, unsplit),
}


def main() -> None:
    """Run every case."""
    import warnings

    import numpy as np
    import torch
    import triton.language as tl
    from triton.language.extra import libdevice
    from triton.runtime.interpreter import TensorHandle

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    # The interpreter knows no library functions; the kernels call one.
    libdevice.tanh = lambda x: tl.tensor(TensorHandle(np.tanh(x.handle.data), x.dtype), x.type)
    faults, before = [faultless], tensors()
    loaded = Loaded(load)
    subject = VostiSubject(
        lambda settings: faults[-1](loaded.open, settings), VOCABULARY, shows=shown, release=loaded.release
    )
    bench = Bench(subject, Geometry(16))
    for name, (fault, pairs) in CASES.items():
        faults.append(fault)
        compared = [compare(pair) for pair in pairs(bench)]
        print(json.dumps([name, [(pair.name, pair.state, pair.why) for pair in compared]]), flush=True)
        if name == "beside":
            held = tensors() - before
            subject.release()
            print(json.dumps(["tensors", [held, tensors() - before]]), flush=True)


def load() -> Backends:
    """The backends of the model."""
    return cuda_backends(backends(LLAMA)[1], "cpu")


def tensors() -> int:
    """How many hold more than one number, garbage among them; afterwards all is exempt from collections."""
    import torch

    gc.unfreeze()
    count = sum(isinstance(thing, torch.Tensor) and thing.numel() > 1 for thing in gc.get_objects())
    gc.freeze()
    return count


if __name__ == "__main__":
    assert os.environ.get("TRITON_INTERPRET") == "1", "set TRITON_INTERPRET=1"
    main()
