"""The CPU backend: a row's bits depend on the tokens up to its own, and on nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from forwards import (
    CHECKPOINTS,
    NAMES,
    Pages,
    alone,
    differing,
    make_batch,
    random_steps,
    random_tokens,
    run,
    scattered_pages,
    slot_of,
)
from vosti.impl.backend import NO_SEQUENCE, ROW_TILE, Batch
from vosti.impl.backends.cpu import CpuBackend
from vosti.impl.errors import BatchError
from vosti.impl.models.model import Model
from vosti.spec.numerics.attention import KEY_TILE, SPLIT_TILES

WINDOW = 64
"""Of tiny-gemma3's sliding layers."""


@pytest.fixture(scope="module", params=NAMES)
def backend(request: pytest.FixtureRequest) -> CpuBackend:
    """A backend of each bundled checkpoint."""
    return CpuBackend(Model.load(CHECKPOINTS / request.param))


@pytest.mark.parametrize("page_size", [1, 2, 4, 16, 64])
def test_company_chunks_places_and_pages_do_not_matter(backend: CpuBackend, page_size: int) -> None:
    """Logits and stored bytes of every row equal those of the sequence alone in one forward, at any page size."""
    lengths = [1, WINDOW - 1, WINDOW + 2, 40, 130]
    sequences = random_tokens(lengths, seed=7)
    steps = random_steps(lengths, seed=page_size)
    expected = alone(backend, sequences)

    found = run(backend, sequences, steps, scattered_pages(lengths, page_size, seed=page_size))

    assert len(steps) > 4
    assert expected.keys() == found.keys()
    assert [] == differing(expected, found)
    assert all(row.finite for row in found.values())


def test_prefill_equals_decode(backend: CpuBackend) -> None:
    """Positions around the window, the key tile and twice both, computed one by one, equal those of one prefill."""
    length = 2 * KEY_TILE + 4
    (sequence,) = random_tokens([length], seed=1)
    expected = alone(backend, [sequence])
    steps = [[0] * 60, *[[0]] * 10, [0] * 54, *[[0]] * 8]

    found = run(backend, [sequence], steps, scattered_pages([length], 4, seed=2))

    assert length == len(found)
    assert [] == differing(expected, found)


@pytest.mark.parametrize("drafts", [1, 2, 3, 4, 7, 15])
def test_verifying_drafts_equals_decode(backend: CpuBackend, drafts: int) -> None:
    """Forwards of k + 1 rows, as the verification of k draft tokens runs them, give the bits of one prefill."""
    length = 48 + 2 * (drafts + 1)
    (sequence,) = random_tokens([length], seed=drafts)
    steps = [[0] * 48, [0] * (drafts + 1), [0] * (drafts + 1)]

    found = run(backend, [sequence], steps, scattered_pages([length], 16, seed=3))

    assert [] == differing(alone(backend, [sequence]), found)


@pytest.mark.parametrize("rows", [1, 2, 15, 16, 17, 127, 128, 129, 255, 256, 257])
def test_the_number_of_rows_does_not_matter(backend: CpuBackend, rows: int) -> None:
    """The last row's bits are those of another cut of the same tokens, around every size at which kernels switch."""
    sequences = random_tokens([rows, 5], seed=5)
    last = {(0, rows - 1)}
    pages = scattered_pages([rows, 5], 16, seed=4)
    half = rows // 2

    whole = run(backend, sequences, [[0] * rows], pages, wanted=last)
    split = run(backend, sequences, [[1, 1, 1] + [0] * half, [0] * (rows - half) + [1, 1]], pages, wanted=last)

    assert whole.keys() == split.keys() == last
    assert [] == differing(whole, split)


@pytest.mark.parametrize("other", [1, 2, 9, 10, 15, 16, 17, 33, WINDOW - 1, WINDOW, WINDOW + 1, KEY_TILE * 2 + 1])
def test_a_neighbours_length_does_not_matter(backend: CpuBackend, other: int) -> None:
    """A decoding row keeps its bits beside a prefill of any length, and beside a decode over as many keys."""
    sequences = random_tokens([70, other], seed=other)
    expected = alone(backend, sequences)
    pages = scattered_pages([70, other], 16, seed=6)

    beside_prefill = run(backend, sequences, [[0] * 69, [1] * other + [0]], pages)
    beside_decode = run(backend, sequences, [[0] * 69 + [1] * (other - 1), [1, 0]], pages)

    assert [] == differing(expected, beside_prefill)
    assert [] == differing(expected, beside_decode)


def test_splits_are_merged_alike_in_prefill_and_decode(backend: CpuBackend) -> None:
    """Beyond the first split of the keys, rows of other chunks and rows alone have the bits of one prefill."""
    length = KEY_TILE * SPLIT_TILES + 20
    (sequence,) = random_tokens([length], seed=8)
    wanted = {(0, position) for position in range(length - 21, length)}
    pages = scattered_pages([length], 16, seed=9)
    expected = run(backend, [sequence], [[0] * length], pages, wanted=wanted)

    found = run(backend, [sequence], [[0] * (length - 25), [0] * 20, *[[0]] * 5], pages, wanted=wanted)

    assert wanted == found.keys()
    assert [] == differing(expected, found)


def test_a_shared_prefix_gives_the_same_bits(backend: CpuBackend) -> None:
    """A sequence that reads its first pages from another one's, and writes only its own, equals a cold run."""
    first, second = random_tokens([48, 40], seed=10)
    second = first[:32] + second[32:]
    expected = alone(backend, [first, second])
    pages = Pages(16, [[3, 1, 4], [3, 1, 2]], 6)
    backend.allocate(6, 16)
    backend.poison()
    backend.forward(make_batch([first, second], [(0, p) for p in range(48)], pages, []))
    rows = [(1, p) for p in range(32, 40)] + [(NO_SEQUENCE, 0)] * 8

    result = backend.forward(make_batch([first, second], rows, pages, range(8)))

    assert [expected[1, p].logits for p in range(32, 40)] == [row.numpy().tobytes() for row in result.logits]
    assert [expected[1, p].stored for p in range(40)] == backend.slot_bytes([slot_of(pages, 1, p) for p in range(40)])


def test_a_non_finite_row_concerns_its_own_sequence(backend: CpuBackend) -> None:
    """NaN among one sequence's keys makes its next rows non-finite, is reported for them, and touches no other row."""
    sequences = random_tokens([70, 70], seed=11)
    expected = alone(backend, sequences)
    pages = scattered_pages([70, 70], 4, seed=12)
    backend.allocate(pages.pages, 4)
    backend.poison()
    backend.forward(make_batch(sequences, [(s, p) for p in range(64) for s in (0, 1)], pages, []))
    for layer in backend._pool:
        layer[:, :, slot_of(pages, 1, 60)] = float("nan")
    rows = [(s, p) for p in range(64, 70) for s in (1, 0)] + [(NO_SEQUENCE, 0)] * 4

    result = backend.forward(make_batch(sequences, rows, pages, range(12)))

    healthy = [place for place in rows if place[0] == 0]
    assert [expected[place].logits for place in healthy] == [row.numpy().tobytes() for row in result.logits[1::2]]
    assert [expected[place].stored for place in healthy] == backend.slot_bytes([slot_of(pages, *p) for p in healthy])
    assert bool(result.logits[::2].isnan().all())
    assert [sequence != 1 for sequence, _ in rows] == result.kv_finite.tolist()


def test_logits_come_in_the_order_asked(backend: CpuBackend) -> None:
    """Any selection of rows, in any order and more than once, gives those rows' logits."""
    sequences = random_tokens([40], seed=13)
    pages = scattered_pages([40], 16, seed=1)
    rows = [(0, p) for p in range(40)] + [(NO_SEQUENCE, 0)] * 8
    backend.allocate(pages.pages, 16)
    every = backend.forward(make_batch(sequences, rows, pages, range(40))).logits
    order = [39, 0, 7, 7, *range(16, 33)]

    some = backend.forward(make_batch(sequences, rows, pages, order)).logits
    none = backend.forward(make_batch(sequences, rows, pages, [])).logits

    assert torch.equal(every[order], some)
    assert (0, backend.vocab_size) == tuple(none.shape)


def test_results_belong_to_the_caller(backend: CpuBackend) -> None:
    """A later forward does not change the logits that an earlier one returned; they are ordinary tensors."""
    sequences = random_tokens([16, 16], seed=14)
    pages = scattered_pages([16, 16], 16, seed=1)
    backend.allocate(pages.pages, 16)
    first = backend.forward(make_batch(sequences, [(0, p) for p in range(16)], pages, [15]))
    kept = first.logits.clone()

    second = backend.forward(make_batch(sequences, [(1, p) for p in range(16)], pages, [15]))

    assert torch.equal(kept, first.logits)
    assert not second.logits.is_inference()


def test_a_forward_changes_the_slots_it_names_and_no_others(backend: CpuBackend) -> None:
    """Rows without a write slot and padding rows leave every slot's bytes alone."""
    sequences = random_tokens([20], seed=15)
    pages = scattered_pages([20], 4, seed=1)
    slots = range(pages.pages * 4)
    backend.allocate(pages.pages, 4)
    backend.poison()
    before = backend.slot_bytes(slots)
    rows = [(0, p) for p in range(20)] + [(NO_SEQUENCE, 0)] * 12
    batch = make_batch(sequences, rows, pages, [])
    batch.write_slots[5:] = -1

    backend.forward(batch)

    changed = {slot for slot, old, new in zip(slots, before, backend.slot_bytes(slots), strict=True) if old != new}
    assert set(batch.write_slots[:5].tolist()) == changed


def test_slot_bytes_have_the_documented_layout(backend: CpuBackend) -> None:
    """A slot's bytes are, layer by layer, [2, kv_heads, head_dim] little-endian float32."""
    backend.allocate(2, 4)
    expected = b""
    for number, (layer, kv) in enumerate(zip(backend._pool, backend.model.plan.kv_shapes, strict=True)):
        layer.copy_(torch.arange(layer.numel(), dtype=torch.float32).view_as(layer) + 0.25 * number)
        assert (2, kv.heads, kv.head_dim) == layer[:, :, 5].shape
        expected += layer[:, :, 5].numpy().astype("<f4").tobytes()

    (found,) = backend.slot_bytes([5])

    assert expected == found


def test_process_wide_settings_do_not_matter(backend: CpuBackend) -> None:
    """Threads, product precision and gradient mode of the caller neither change a bit nor are changed."""
    sequences = random_tokens([40], seed=16)
    expected = alone(backend, sequences)
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    try:
        torch.set_num_threads(2)
        torch.set_float32_matmul_precision("medium")
        torch.set_flush_denormal(True)

        found = alone(backend, sequences)

        assert [] == differing(expected, found)
        assert (2, "medium") == (torch.get_num_threads(), torch.get_float32_matmul_precision())
        assert torch.is_grad_enabled()
        assert not torch.is_inference_mode_enabled()
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)
        torch.set_flush_denormal(False)


def test_a_model_serves_several_pools(backend: CpuBackend) -> None:
    """Backends of one model hold pools of their own."""
    other = CpuBackend(backend.model)
    sequences = random_tokens([16, 16], seed=17)
    pages = scattered_pages([16, 16], 16, seed=1)
    backend.allocate(pages.pages, 16)
    other.allocate(pages.pages, 16)
    rows = [(0, p) for p in range(16)]

    backend.forward(make_batch(sequences, rows, pages, []))

    assert any(backend.slot_bytes([slot_of(pages, 0, 3)])[0])
    assert not any(other.slot_bytes([slot_of(pages, 0, 3)])[0])
    assert backend.fingerprint() == other.fingerprint()


def test_what_the_engine_asks_of_a_model(backend: CpuBackend) -> None:
    """Vocabulary, end-of-sequence ids, longest sequence and row tile are those of the checkpoint and the backend."""
    assert (4096, (1,), 4096, ROW_TILE) == (
        backend.vocab_size,
        backend.eos_ids,
        backend.max_positions,
        backend.row_tile,
    )


def _column(*values: int) -> np.ndarray:
    return np.array([*values, *[0] * (ROW_TILE - len(values))], dtype=np.int64)


def _with(**changed: np.ndarray) -> Batch:
    fields = {
        "tokens": _column(),
        "positions": _column(),
        "write_slots": _column() - 1,
        "sequences": _column() - 1,
        "tables": np.zeros((1, 2), dtype=np.int64),
        "logit_rows": np.zeros(1, dtype=np.int64),
    }
    return Batch(**{**fields, **changed})


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"tokens": _column(4096)}, "tokens must lie between 0 and 4095"),
        ({"tokens": _column(-1)}, "tokens"),
        ({"positions": _column(4096)}, "positions"),
        ({"write_slots": _column(8)}, "write_slots must lie between -1 and 7"),
        ({"sequences": _column(1)}, "sequences"),
        ({"tables": np.full((1, 2), 2)}, "tables"),
        ({"logit_rows": np.array([16])}, "logit_rows"),
        ({"positions": _column(8)}, "Sequence 0 lacks a page for some position up to 8"),
        ({"tables": np.array([[0, -1]]), "positions": _column(5)}, "Sequence 0 lacks a page"),
        ({"tokens": _column(*[0] * 17), "positions": _column()}, "has 16 rows, Batch.tokens 17"),
        ({"tokens": np.zeros(16, dtype=np.int32)}, "tokens must be a numpy array of int64"),
        ({"tables": np.zeros(2, dtype=np.int64)}, "tables must be a numpy array of int64 with 2 dimension"),
    ],
)
def test_a_bad_batch_is_refused_before_anything_is_stored(
    backend: CpuBackend, changed: dict[str, np.ndarray], named: str
) -> None:
    """What would reach outside the vocabulary, the pool or the page table is refused by name; the pool stays."""
    backend.allocate(2, 4)
    backend.poison()
    before = backend.slot_bytes(range(8))
    fields = {"sequences": _column(), "write_slots": _column(*range(8)), **changed}

    with pytest.raises(BatchError, match=named):
        backend.forward(_with(**fields))

    assert before == backend.slot_bytes(range(8))


def test_a_sound_batch_of_the_same_shape_is_taken(backend: CpuBackend) -> None:
    """The batch that the refused ones are one step away from runs."""
    backend.allocate(2, 4)

    result = backend.forward(_with(sequences=_column() * 0))

    assert (1, 4096) == tuple(result.logits.shape)


def test_rows_must_fill_tiles(backend: CpuBackend) -> None:
    """A batch of no rows, or of a broken tile, is refused."""
    backend.allocate(2, 4)
    for rows in (0, 15, 17):
        column = np.zeros(rows, dtype=np.int64)
        fields = dict.fromkeys(("tokens", "positions"), column) | dict.fromkeys(
            ("write_slots", "sequences"), column - 1
        )

        with pytest.raises(BatchError, match=f"positive multiple of 16 rows, not {rows}"):
            backend.forward(_with(**fields))


def test_a_pool_is_needed(backend: CpuBackend) -> None:
    """A forward before `allocate`, an empty pool and a slot outside it are refused."""
    fresh = CpuBackend(backend.model)

    with pytest.raises(BatchError, match="call allocate"):
        fresh.forward(_with())
    with pytest.raises(BatchError, match="at least one page"):
        fresh.allocate(0, 16)
    fresh.allocate(1, 4)
    with pytest.raises(BatchError, match="between 0 and 3"):
        fresh.slot_bytes([4])
