"""Tables of tiles against the launches of every model that is named: nothing is missing, nothing there in vain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from vosti.impl.backends.cuda.lowering import lower
from vosti.impl.backends.cuda.plan import Form
from vosti.impl.bundled import BUNDLED, find_checkpoint, shape_names
from vosti.impl.models.families import STYLES, load_config
from vosti.impl.models.layers import build_plan
from vosti.kernels.shapes import SHAPES, Dimensions, operations
from vosti.kernels.tables import Table, load

NAMES = (*BUNDLED, *shape_names())

READ_BACK = {"digest", "digest_merge", "kv_store"}
"""Operations that are no part of a forward."""


def launched(name: str) -> Iterator[tuple[str, Dimensions]]:
    """What the model's forwards launch, in both forms of attention."""
    config = load_config(find_checkpoint(name))
    plan = build_plan(config, STYLES[config.family])
    for form in Form:
        for launch in lower(plan, form, logit_block=1).launches:
            yield launch.operation, tuple(sorted(launch.sizes))


def missing(name: str, table: Table) -> set[tuple[str, Dimensions]]:
    """The launches that the table has no tiles for."""
    return {key for key in launched(name) if key not in table.entries}


@pytest.mark.parametrize("name", NAMES)
def test_every_launch_of_a_named_model_has_tiles(name: str) -> None:
    """On the GPUs that the kernels were run on."""
    assert set() == missing(name, load("sm_90"))


def test_an_entry_that_is_missing_is_found() -> None:
    """The table less one entry serves all models but those that launch it."""
    table = load("sm_90")
    key = "attention_merge", (("head_dim", 512), ("heads", 16), ("kv_heads", 1), ("window", 0))
    smaller = replace(table, entries={other: entry for other, entry in table.entries.items() if other != key})

    assert {"gemma-4-12b"} == {name for name in NAMES if missing(name, smaller)}
    assert {key} == missing("gemma-4-12b", smaller)


@pytest.mark.parametrize("name", NAMES)
def test_the_kernels_know_what_a_model_launches(name: str) -> None:
    """The sizes in `vosti.kernels.shapes`, from which tables are made, are those of the model's own plan."""
    known = {(operation, tuple(sorted(dimensions))) for operation, dimensions in operations(SHAPES[name])}

    assert set(launched(name)) == {key for key in known if key[0] not in READ_BACK}


def test_no_other_model_is_known() -> None:
    """The models with sizes for tables are the models that can be opened by name."""
    assert set(NAMES) == set(SHAPES)
