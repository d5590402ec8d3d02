"""Backends as the axes want them: other tiles, a token that is not finite."""

import pytest
import torch

from vosti.impl.bundled import find_checkpoint
from vosti.impl.determinism.backends import forced, with_non_finite_token
from vosti.impl.determinism.subjects import Choice
from vosti.impl.models.model import Model
from vosti.kernels.tables import load

TABLE = load("sm_90")


@pytest.mark.parametrize("number", range(max(len(entry.choices) for entry in TABLE.entries.values())))
def test_a_forced_table_has_one_tile_for_all_rows(number: int) -> None:
    """Each entry keeps the tile of that number, or its last one, for as many rows as it can take."""
    found = forced(TABLE, number)

    assert TABLE.entries.keys() == found.entries.keys()
    for key, entry in found.entries.items():
        before = TABLE.entries[key].choices
        (choice,) = entry.choices
        kept = before[min(number, len(before) - 1)]
        assert (kept.kernel, kept.tile) == (choice.kernel, choice.tile)
        assert (None if before[-1].up_to_rows is None else kept.up_to_rows) == choice.up_to_rows


def test_forced_tables_differ() -> None:
    """Otherwise the axis would try one thing only."""
    assert forced(TABLE, 0) != forced(TABLE, 1)


def test_only_the_embedding_of_one_token_is_not_finite() -> None:
    """A head that shares the table stays as it was, and so does the model that it was made from."""
    model = Model.load(find_checkpoint("tiny-llama3"))
    spoilt = with_non_finite_token(model, 5)
    changed = {name for name, tensor in spoilt.parameters.items() if not torch.equal(tensor, model.parameters[name])}
    (name,) = changed

    assert spoilt.parameters[name][5].isnan().all()
    assert spoilt.parameters[name][[4, 6]].isfinite().all()
    assert all(tensor.isfinite().all() for tensor in model.parameters.values())


@pytest.mark.parametrize("seed", [None, 0])
def test_a_choice_travels_as_words(seed: int | None) -> None:
    """To another process, and back."""
    choice = Choice("vosti", "tiny-llama3", "cpu", seed, unsafe_unprobed=seed is None)

    assert choice == Choice.from_words(choice.words())
