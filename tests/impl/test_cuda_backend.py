"""The cuda backend as far as no kernel runs: the shapes of forwards, buffers that grow, greedy tokens, refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="the cuda backend needs Triton, which is not installed")

from forwards import CHECKPOINTS, make_batch, scattered_pages
from vosti.impl.backends.cuda import backend as module
from vosti.impl.backends.cuda import opening
from vosti.impl.backends.cuda.backend import CudaBackend, first_largest, layout
from vosti.impl.backends.cuda.memory import Memory
from vosti.impl.backends.cuda.metadata import Shape, pack
from vosti.impl.backends.cuda.opening import open_cuda
from vosti.impl.backends.cuda.plan import Form
from vosti.impl.errors import BatchError, DeviceMemoryError, NoDeviceError
from vosti.impl.models.model import Model
from vosti.impl.opening import open_backend
from vosti.kernels.errors import ConfigurationError
from vosti.kernels.tables import load


@pytest.fixture(scope="module")
def backend() -> CudaBackend:
    """A bundled checkpoint on the host, with a pool."""
    model = Model.load(CHECKPOINTS / "tiny-llama3", layout=layout)
    made = CudaBackend(model, load("sm_90"), "cpu")
    made.allocate(200, 16)
    return made


def shape(backend: CudaBackend, *counts: tuple[int, int]) -> Shape:
    """The shape of a forward of sequences with (rows, keys)."""
    pages = scattered_pages([keys for _, keys in counts], 16, seed=0)
    backend.allocate(pages.pages, 16)
    sequences = [range(1, keys + 1) for _, keys in counts]
    rows = [(number, keys - n + i) for number, (n, keys) in enumerate(counts) for i in range(n)]
    ends = np.cumsum([n for n, _ in counts]) - 1
    batch = make_batch(sequences, rows, pages, ends.tolist())
    return backend.shape_of(pack(batch, backend.limits))


def test_decoding_is_split_and_padded_to_powers_of_two(backend: CudaBackend) -> None:
    """Few rows of each sequence: splits of 1024 keys, as many as the longest needs, padded like everything else."""
    found = shape(backend, (1, 70), (1, 2100), (2, 9))

    assert Shape(Form.SPLIT, rows=4, sequences=4, selected=4, most_rows=2, longest=4096) == found


def test_a_chunk_beside_decoding_is_extended(backend: CudaBackend) -> None:
    """One sequence with many rows decides the form."""
    found = shape(backend, (1, 70), (40, 40))

    assert Shape(Form.EXTEND, rows=64, sequences=2, selected=2, most_rows=64, longest=0) == found
    assert found == shape(backend, (33, 100), (25, 25))


def test_large_batches_are_not_padded(backend: CudaBackend) -> None:
    """A row of padding costs as much as any other."""
    found = shape(backend, (700, 700))

    assert Shape(Form.EXTEND, rows=700, sequences=1, selected=1, most_rows=700, longest=0) == found


def test_companions_of_one_number_have_one_shape(backend: CudaBackend) -> None:
    """So that a graph serves many batches."""
    assert shape(backend, (1, 70), (1, 30), (1, 5)) == shape(backend, (1, 1000), (1, 3), (1, 2), (1, 1))


def test_a_missing_tile_is_found_before_anything_runs(backend: CudaBackend) -> None:
    """A table without some entry is refused, with the command that makes one."""
    entries = {key: entry for key, entry in backend.table.entries.items() if key[0] != "rotary_store"}

    with pytest.raises(ConfigurationError, match=r"make an entry with: python -m vosti\.kernels\.tuning"):
        CudaBackend(backend.model, replace(backend.table, entries=entries), "cpu")


def test_a_pool_has_pages(backend: CudaBackend) -> None:
    """Nothing is allocated for an impossible pool, and slots beyond it are not read."""
    with pytest.raises(BatchError, match="at least one page"):
        backend.allocate(0, 16)
    with pytest.raises(BatchError, match="Slots must lie between 0 and"):
        backend.slot_bytes([10**9])
    with pytest.raises(BatchError, match="Slots must lie between 0 and"):
        backend.slot_digests([-1])


def test_poison_and_bytes(backend: CudaBackend) -> None:
    """A slot's bytes are its keys and values of all layers; a poisoned pool holds NaN everywhere."""
    backend.allocate(4, 16)
    zeros = backend.slot_bytes([5])[0]
    backend.poison()
    poisoned = np.frombuffer(backend.slot_bytes([63])[0], np.float32)

    assert bytes(4 * 2 * 2 * 32 * 4) == zeros
    assert np.isnan(poisoned).all()
    assert 4 * 2 * 2 * 32 == len(poisoned)


def test_a_pool_that_does_not_fit_is_refused(backend: CudaBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says how much it would take, and what to do."""

    def full(*args: object, **kwargs: object) -> torch.Tensor:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(torch, "zeros", full)
    with pytest.raises(DeviceMemoryError, match=r"10000000 pages of 16 slots takes 327\.7 GB.*: give fewer pages"):
        backend.allocate(10_000_000, 16)


def test_the_forwards_that_were_used_last_are_kept(backend: CudaBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shape that comes again and again is not forgotten for those that came once; large ones are not kept."""
    monkeypatch.setattr(module, "MOST_FORWARDS", 2)
    backend.allocate(200, 16)
    often, large = Shape(Form.EXTEND, 8, 1, 1, 8, 0), Shape(Form.EXTEND, 700, 1, 1, 700, 0)
    backend.forward_of(large)
    kept = backend.forward_of(often)
    for rows in (16, 32, 64):
        backend.forward_of(Shape(Form.EXTEND, rows, 1, 1, rows, 0))

        assert kept is backend.forward_of(often)
    assert backend.forward_of(large) is not backend.forward_of(large)


# ------------------------------------------------------------ parts


def test_the_first_of_the_largest() -> None:
    """Of equal logits the lowest token id, the two zeros being equal; a row with NaN has no token."""
    rows = torch.tensor([[1.0, 3.0, 3.0], [-0.0, 0.0, -1.0], [-2.0, -3.0, -1.0], [torch.nan, 1.0, 2.0]])

    assert [1, 0, 2, 3] == first_largest(rows).tolist()
    assert [] == first_largest(rows[:0]).tolist()


def test_memory_grows_and_says_so() -> None:
    """A buffer is replaced when more is needed, and only then."""
    memory = Memory(torch.device("cpu"))
    first = memory.take("x", (4, 2), torch.float32)
    again = memory.take("x", (2, 3), torch.float32)

    assert first.data_ptr() == again.data_ptr()
    assert (1, (2, 3)) == (memory.generation, tuple(again.shape))
    memory.take("x", (9,), torch.float32)
    assert 2 == memory.generation
    assert 3 == len(memory.take_host("x", 3))
    assert 2 == memory.generation


# ------------------------------------------------------------ opening


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names what is missing, and what to do; auto takes the cpu backend."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    with pytest.raises(NoDeviceError, match="needs an NVIDIA GPU, and torch finds none: use --backend cpu"):
        open_cuda(CHECKPOINTS / "tiny-llama3")
    assert "cpu" == open_backend("tiny-llama3").fingerprint()["backend"]


def test_without_triton_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the extra to install."""
    monkeypatch.setattr(opening, "find_spec", lambda name: None)

    with pytest.raises(NoDeviceError, match=r"needs Triton, which is not installed: install vosti\[gpu\]"):
        open_cuda(CHECKPOINTS / "tiny-llama3")
