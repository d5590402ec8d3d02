"""Attention with one edit of its source: mistakes that kernels are shipped with, and rewrites that change no bit."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed")

from edited_attention import proof_of
from vosti.kernels.verifier.errors import RefusedError

SAME = {
    "as it is": ("", ""),
    "more splits than a program's rows see": ("tl.cdiv(end, SPLIT)", "tl.cdiv(length, SPLIT)"),
    "all tiles from the first": (
        "            begin = tl.maximum(0, first_position + tile * BLOCK_Q - WINDOW + 1)\n",
        "            begin = 0\n",
    ),
    "every tile masked": (
        "    every_last = tl.minimum(last_tile, (first_position + 1) // TILE)\n",
        "    every_last = first_tile\n",
    ),
    "keys that nobody sees undefined": ("mask=cached[None, :], other=0.0)", "mask=cached[None, :])"),
}
"""Rewrites: another way to the same row program."""

_BOUNDS = "is out of bounds"

WRONG = {
    "a tile that nobody sees resets the maximum": (
        "tl.where(seen, new_maximum, maximum)",
        "tl.where(seen, new_maximum, 0.0)",
        "An iteration of loop .* changes cell 0",
    ),
    "a tile that nobody sees changes the maximum": (
        "        new_maximum = tl.where(seen, new_maximum, maximum)\n",
        "",
        "An iteration of loop .* changes cell 0",
    ),
    "a tile that nobody sees changes the total": (
        "        new_total = tl.where(seen[:, None], new_total, total)\n",
        "",
        "An iteration of loop .* changes cell 1",
    ),
    "scores are not masked": (
        '        scores = tl.where(live, scores, float("-inf"))\n',
        "",
        "computes something else than the row program",
    ),
    "weights are not masked": (
        "weights = tl.where(live, weights, 0.0)",
        "weights = weights * 1.0",
        "computes something else than the row program",
    ),
    "a row does not see itself": (
        "key_position[None, :] <= position[:, None]",
        "key_position[None, :] < position[:, None]",
        "computes something else than the row program",
    ),
    "the window is one wider": (
        "position[:, None] - key_position[None, :] < WINDOW",
        "position[:, None] - key_position[None, :] <= WINDOW",
        "computes something else than the row program",
    ),
    "a tile at the window's edge is left out": (
        "(position - (tile * TILE + TILE - 1) < WINDOW)",
        "(position - (tile * TILE + TILE - 1) < WINDOW - 1)",
        "computes something else than the row program",
    ),
    "the window starts too late": ("- WINDOW + 1)\n", "- WINDOW + TILE)\n", "starts after the row program's loop"),
    "tiles are rounded up": (
        "first_tile = tl.maximum(split * (SPLIT // TILE), begin // TILE)",
        "first_tile = tl.maximum(split * (SPLIT // TILE), (begin + TILE - 1) // TILE)",
        "starts after the row program's loop",
    ),
    "the last key is left out": (
        "tl.minimum(count, (tile + 1) * BLOCK_Q)",
        "tl.minimum(count, (tile + 1) * BLOCK_Q) - 1",
        "ends before the row program's loop",
    ),
    "a tile is taken to be seen whole": ("(first_position + 1) // TILE", "(first_position + TILE) // TILE", _BOUNDS),
    "splits of another size": (
        "split * (SPLIT // TILE)",
        "split * (SPLIT // TILE // 2)",
        "An iteration of loop split .* changes cell 1",
    ),
    "the page of another position": (
        "table + key_position // PAGE",
        "table + key_position // TILE",
        "reads another element of keys",
    ),
    "the slot of another page": ("page * PAGE + key_position % PAGE", "page * PAGE + key_position % TILE", _BOUNDS),
    "offsets of pages in 32 bits": (
        "mask=cached, other=0).to(tl.int64)",
        "mask=cached, other=0)",
        "An integer leaves its type",
    ),
    "heads in another order": (
        "kv_head * GROUP + lane % GROUP",
        "kv_head + lane % GROUP * KV_HEADS",
        "A store to out misses its cell",
    ),
    "the row of a neighbour": (
        "start + index) * HEADS + head) * HEAD_DIM\n",
        "start + index // 2) * HEADS + head) * HEAD_DIM\n",
        "A store to out misses its cell",
    ),
    "positions off by one": ("length - count\n", "length - count + 1\n", "starts after the row program's loop"),
    "totals added by tl.sum": ("tl.max(part_total, 1)", "tl.sum(part_total, 1)", "changes cell 1"),
    "states merged in the other order": (
        "merge(maximum, total, output, part_maximum, tl.max(part_total, 1), part_output)",
        "merge(part_maximum, tl.max(part_total, 1), part_output, maximum, total, output)",
        "An iteration of loop split .* changes cell 1",
    ),
    "an empty split merged as if it were not": (
        "tl.where(no_right, total, tl.where(no_left, right_total, both_total))",
        "both_total",
        "An iteration of loop split .* changes cell 1",
    ),
    "a value beyond the last read": (
        "value = tl.load(values + value_place, mask=cached[:, None], other=0.0)",
        "value = tl.load(values + value_place, mask=(key_position <= length)[:, None], other=0.0)",
        _BOUNDS,
    ),
    "a weight of 0 times infinity": (
        "mask=cached[:, None], other=0.0)",
        'mask=cached[:, None], other=float("inf"))',
        "multiplies 0 by what is not known to be finite",
    ),
    "a weight of 0 times what nobody defined": (
        "mask=cached[:, None], other=0.0)",
        "mask=cached[:, None])",
        "multiplies 0 by what is not known to be finite",
    ),
    "another exponential": ("weights = tl.exp(scores", "weights = tl.exp2(scores", "has exp2 where .* has exp"),
    "weights rounded twice": ("weights.to(value.dtype)", "weights.to(tl.float16).to(value.dtype)", "has extf where"),
    "a scale that depends on the length": (" * scale\n", " * (scale + length * 0.0)\n", "computes something else"),
    "a product with 0 added": ("total * decay[:, None]", "total * 0.0 + total * decay[:, None]", "has addf where"),
    "an output that does not decay": ("output * decay[:, None]", "output", "computes something else"),
    "a quotient that is not rounded to nearest": (
        "tl.math.div_rn(output, tl.broadcast_to(total[:, None], output.shape))",
        "output / total[:, None]",
        "has divf where the row program has precise_divf",
    ),
    "a flag that is never raised": ("other=0) | bad", "other=0) | (bad & 0)", "computes something else"),
}
"""Mistake → the text that is replaced, what it is replaced by, and the finding."""

FAST = ("a tile that nobody sees resets the maximum", "offsets of pages in 32 bits", "totals added by tl.sum")
"""Mistakes that are tried in every run; `-m slow` tries all."""


@pytest.mark.slow
@pytest.mark.parametrize("what", SAME)
def test_rewrites_are_proved(what: str, tmp_path: Path) -> None:
    """They compute the same row program."""
    assert proof_of(tmp_path, *SAME[what]).obligations["value"] >= 2


@pytest.mark.parametrize("what", [pytest.param(what, marks=[] if what in FAST else pytest.mark.slow) for what in WRONG])
def test_mistakes_are_refused(what: str, tmp_path: Path) -> None:
    """Each for its own reason."""
    old, new, finding = WRONG[what]
    with pytest.raises(RefusedError, match=finding):
        proof_of(tmp_path, old, new)
