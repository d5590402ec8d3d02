"""Tables of tiles: complete for the known models, canonical in form, and without a fallback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vosti.kernels.candidates import candidates, starting_entry
from vosti.kernels.errors import ConfigurationError, PremiseError
from vosti.kernels.shapes import SHAPES, known_operations, operations
from vosti.kernels.tables import FOLDER, Table, decode, encode, load

TABLE = load("sm_90")


@pytest.mark.parametrize("model", sorted(SHAPES))
def test_every_operation_of_a_known_model_has_tiles(model: str) -> None:
    """The shipped table has an entry for each operation that the model launches."""
    for operation, dimensions in operations(SHAPES[model]):
        assert TABLE.entry(operation, **dict(dimensions)).choice(1)


def test_the_table_holds_nothing_else() -> None:
    """Each entry belongs to a known operation."""
    known = {(operation, tuple(sorted(dimensions))) for operation, dimensions in known_operations()}

    assert known == set(TABLE.entries)


def test_a_missing_entry_names_the_command_that_makes_it() -> None:
    """There is no fallback: an unknown size is an error that says what to run, and that command is understood."""
    with pytest.raises(
        ConfigurationError, match=r"python -m vosti\.kernels\.tuning --architecture sm_90 linear k="
    ) as error:
        TABLE.entry("linear", n=1024, k=48)
    command = str(error.value).rpartition("python -m ")[2]

    assert "vosti.kernels.tuning --architecture sm_90 linear k=48 n=1024" == command
    with pytest.raises(ConfigurationError, match="no table for sm_70"):
        load("sm_70")


def test_an_entry_is_chosen_by_rows() -> None:
    """The first tile that serves the number of rows; none beyond the last."""
    entry = TABLE.entry("linear", n=4096, k=4096)

    assert [16, 16, 32, None, None] == [entry.choice(rows).up_to_rows for rows in (1, 16, 17, 129, 10**6)]
    split = TABLE.entry("attention_split", heads=32, kv_heads=8, head_dim=128, window=0)
    assert 4 == split.choice(1).up_to_rows
    with pytest.raises(ConfigurationError, match="serves 9 rows"):
        split.choice(9)


def test_choices_are_in_ascending_order() -> None:
    """Rows ascend, and only the last tile may serve any number."""
    for entry in TABLE.entries.values():
        rows = [choice.up_to_rows for choice in entry.choices]
        bounds = [bound for bound in rows if bound is not None]
        assert sorted(set(bounds)) == bounds
        assert bounds == rows[: len(bounds)]
        assert len(rows) - len(bounds) <= 1


def test_the_file_is_in_canonical_form() -> None:
    """The shipped file is what the tuning tool writes: reading and writing it changes nothing."""
    text = (FOLDER / "sm_90.json").read_text()

    assert text == encode("sm_90", TABLE.entries.values())
    assert TABLE == decode(json.loads(text))


def premises_broken(table: Table) -> list[str]:
    """The instances of a table that break a premise of their kernel."""
    pytest.importorskip("triton", reason="the kernels need Triton, which is not installed")
    from vosti.kernels.catalogue import instances

    found = []
    for entry in table.entries.values():
        for instance in instances(entry):
            try:
                instance.kernel.contract.check_constants({**instance.constants, **dict(instance.tile.blocks)})
            except PremiseError as error:
                found.append(str(error))
    return found


def test_every_tile_meets_the_premises_of_its_kernel() -> None:
    """Those that constants alone decide."""
    assert [] == premises_broken(TABLE)


def test_a_tile_that_breaks_a_premise_is_found() -> None:
    """A block of k that does not divide k, say."""
    data = json.loads((FOLDER / "sm_90.json").read_text())
    entry = next(entry for entry in data["entries"] if entry["dimensions"] == {"k": 704, "n": 256})
    entry["tiles"][0]["blocks"]["BLOCK_K"] = 512

    assert ["linear needs K % BLOCK_K == 0, which is false of {'K': 704, 'BLOCK_K': 512}."] == premises_broken(
        decode(data)
    )


def test_candidates_begin_with_the_tile_they_would_replace() -> None:
    """So that the tuning tool times it; no candidate comes twice."""
    for entry in TABLE.entries.values():
        for choice in entry.choices:
            tiles = list(candidates(entry, choice, "sm_90"))
            assert choice.tile == tiles[0]
            assert len(set(tiles)) == len(tiles)


def test_sizes_that_do_not_divide_are_refused() -> None:
    """A chain is groups of 16."""
    with pytest.raises(ConfigurationError, match="groups of 16"):
        starting_entry("linear", (("k", 40), ("n", 64)), "sm_90")
    with pytest.raises(ConfigurationError, match="no operation"):
        starting_entry("convolution", (), "sm_90")


def test_the_tuning_tool_writes_an_entry_without_a_gpu(tmp_path: Path) -> None:
    """`--untimed` writes the tiles to start from; descriptors are left to architectures that were run with them."""
    pytest.importorskip("triton", reason="the kernels need Triton, which is not installed")
    from vosti.kernels.tuning import main

    path = tmp_path / "table.json"
    command = ["--untimed", "--table", str(path), "--architecture"]
    for architecture, last in (("sm_90", "linear_stream"), ("sm_80", "linear")):
        path.unlink(missing_ok=True)
        main([*command, architecture, "linear", "n=1024", "k=48"])
        entry = decode(json.loads(path.read_text())).entry("linear", n=1024, k=48)

        assert last == entry.choices[-1].kernel
    for words, reason in ((["linear", "n=x"], "name=size"), (["--model", "GPT-1"], "no model GPT-1"), ([], "Name an")):
        with pytest.raises(SystemExit, match=reason):
            main([*command, "sm_90", *words])
