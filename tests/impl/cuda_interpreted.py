"""The cuda backend without a GPU: its kernels in Triton's interpreter, on float32, against the cpu backend.

A program of its own, because the interpreter has to be chosen before Triton is imported: it runs every case of `CASES`
and prints one line of JSON per case, [name, problem or null]. Models are tiny; the interpreter takes its time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

CASES: dict[str, Callable[[], None]] = {}

TOLERANCE = 1e-5
"""Largest difference of logits, keys and values, which are of the size of 1."""

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 96,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "bos_token_id": 0,
    "eos_token_id": 1,
}

GEMMA: dict[str, Any] = {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "vocab_size": 96,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": 5,
    "rope_theta": 10000.0,
    "rope_local_base_freq": 1000.0,
    "query_pre_attn_scalar": 32,
    "final_logit_softcapping": 30.0,
    "hidden_activation": "gelu_pytorch_tanh",
    "bos_token_id": 0,
    "eos_token_id": 1,
}

SEQUENCES = ([5, 9, 3, 77, 21, 4, 8, 90, 2], [7, 7, 1, 30])

STEPS: Sequence[Sequence[int]] = ([0] * 5 + [1, 1], [0, 1], [0, 0, 1, -1], [0])
"""A prefill of both; a row of each; a draft of one beside a row of the other, and a padding row; one row alone."""


def case(function: Callable[[], None]) -> Callable[[], None]:
    """Register a case under its name."""
    CASES[function.__name__] = function
    return function


def backends(config: dict[str, Any]) -> tuple[Any, Any]:
    """The cpu backend and the cuda backend of one model."""
    import torch

    from vosti.impl.backends.cpu import CpuBackend
    from vosti.impl.backends.cuda.backend import CudaBackend, layout
    from vosti.impl.models.model import Model

    with TemporaryDirectory() as name:
        Path(name, "config.json").write_text(json.dumps(config))
        cpu = CpuBackend(Model.load(name, dummy_weights=1))
        model = Model.load(name, layout=layout, dtype=torch.float32, dummy_weights=1)
    return cpu, CudaBackend(model, table_for(model), "cpu")


def table_for(model: Any) -> Any:
    """Tiles for whatever the model launches."""
    from vosti.impl.backends.cuda.lowering import lower
    from vosti.impl.backends.cuda.plan import Form
    from vosti.kernels.candidates import starting_entry
    from vosti.kernels.tables import Table

    keys = {("digest", ()), ("digest_merge", ())} | {
        (launch.operation, tuple(sorted(launch.sizes)))
        for form in Form
        for launch in lower(model.plan, form, logit_block=1).launches
    }
    return Table("test", {key: starting_entry(*key, "sm_80") for key in sorted(keys)})


def compare(config: dict[str, Any], *, extend: bool) -> None:
    """All rows of a schedule on both backends."""
    import numpy as np

    from forwards import run, scattered_pages

    cpu, cuda = backends(config)
    if extend:
        cuda.most_split_rows = 0
    pages = scattered_pages([len(sequence) for sequence in SEQUENCES], 4, seed=0)
    expected = run(cpu, SEQUENCES, STEPS, pages)
    found = run(cuda, SEQUENCES, STEPS, pages)
    for place, wanted in expected.items():
        assert wanted.finite
        assert found[place].finite
        for first, second in ((wanted.logits, found[place].logits), (wanted.stored, found[place].stored)):
            difference = np.abs(np.frombuffer(first, np.float32) - np.frombuffer(second, np.float32)).max()
            assert difference <= TOLERANCE, f"row {place} differs by {difference}"


@case
def llama_with_split_attention() -> None:
    """All launches of a Llama in the split form: prefill, rows alone, a draft, padding."""
    compare(LLAMA, extend=False)


@case
def gemma_with_extended_attention() -> None:
    """All launches of a Gemma in the other form: a window, head norms, norms of results, a soft cap."""
    compare(GEMMA, extend=True)


@case
def a_value_that_is_not_finite_stays_with_its_sequence() -> None:
    """The flags name rows whose keys and values, or logits, are not finite: none of another sequence."""
    import torch

    from forwards import make_batch, scattered_pages

    _, cuda = backends(LLAMA)
    sequences = [[5, 9], [8, 3]]
    cuda.model.parameters["embedding"][9] = torch.nan
    pages = scattered_pages([2, 2], 4, seed=0)
    cuda.allocate(pages.pages, pages.page_size)
    result = cuda.forward(make_batch(sequences, [(0, 0), (0, 1), (1, 0), (1, 1)], pages, [1, 3]))

    assert [False, True, True] == result.kv_finite[1:].tolist(), result.kv_finite
    assert [False, True] == result.logits_finite().tolist(), result.logits_finite()
    assert int(result.logits[1].argmax()) == result.largest[1]


@case
def an_engine_serves() -> None:
    """An engine over the cuda backend emits what one over the cpu backend does, greedy and sampled."""
    from vosti.impl.engine import Engine
    from vosti.impl.options import EngineOptions, SamplingParams

    tokens = []
    for backend in backends(LLAMA):
        engine = Engine(backend, EngineOptions(page_size=4, pages=16, max_seqs=4, token_budget=16))
        for number, sequence in enumerate(SEQUENCES):
            params = SamplingParams(temperature=0.9 * number, seed=3, max_tokens=3, ignore_eos=True)
            engine.add_request(sequence, params, request_id=str(number))
        emitted = {}
        while engine.unfinished:
            emitted.update({output.request_id: output.token_ids for output in engine.step()})
        tokens.append(emitted)

    assert tokens[0] == tokens[1]


@case
def digests_are_those_of_the_bytes() -> None:
    """What the device digests is what the specification digests of the bytes that it holds."""
    from forwards import make_batch, scattered_pages
    from vosti.impl.backends.host_digests import row_bytes
    from vosti.spec.digests import ALGORITHMS

    _, cuda = backends(LLAMA)
    pages = scattered_pages([2], 4, seed=0)
    cuda.allocate(pages.pages, pages.page_size)
    result = cuda.forward(make_batch([[5, 9]], [(0, 0), (0, 1)], pages, [1]))
    algorithm = ALGORITHMS[cuda.digest_algorithm].digest
    slots = [pages.tables[0][0] * 4, pages.tables[0][0] * 4 + 1]

    assert [algorithm(data) for data in cuda.slot_bytes(slots)] == cuda.slot_digests(slots)()
    assert [algorithm(data) for data in row_bytes(result.logits)] == cuda.row_digests(result.logits)()


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
    for name, function in CASES.items():
        try:
            function()
            problem = None
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        print(json.dumps([name, problem]), flush=True)


if __name__ == "__main__":
    assert os.environ.get("TRITON_INTERPRET") == "1", "set TRITON_INTERPRET=1"
    main()
