"""Rows of logits, and sampler states, on which an inexact sampler goes wrong."""

import itertools
import math
import struct

from vosti.spec.sampling import SamplerState, sampler_state

SUBNORMAL = 2.0**-149
LARGEST = float.fromhex("0x1.fffffep+127")


def float32(value: float) -> float:
    """The nearest float32, as a Python float."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


ROWS: dict[str, list[float]] = {
    "one token": [-3.25],
    "all equal": [1.5] * 37,
    "ties at the k boundary": [math.log(p) for p in (0.3, 0.4, 0.3, 0.3)] + [-math.inf],
    "two zeros": [-0.0, 0.0, -0.0, -1.0, 0.0],
    "huge": [LARGEST, -LARGEST, 1e38, LARGEST, 0.0],
    "huge and one apart": [LARGEST, float.fromhex("0x1.fffffcp+127"), float.fromhex("0x1.fffffap+127")],
    "subnormal": [SUBNORMAL, -SUBNORMAL, 0.0, -0.0, 3 * SUBNORMAL],
    "-inf but for one": [-math.inf] * 5 + [-80.0] + [-math.inf] * 5,
    "+inf": [math.inf, 3.0, math.inf, -math.inf, 0.0],
    "at the end of the weights": [0.0, *(-24 * math.log(2) + step * 2.0**-19 for step in range(-8, 9))],
    "around -17": [0.0, -16.999998, -17.0, -17.000002, -16.63, -16.64],
    "around the reduction's borders": [-(n + 0.5) * math.log(2) for n in range(25)] + [0.0],
    "bfloat16 ladder": [level % 7 / 4 for level in range(300)],
    "powers of a half": [-n * math.log(2) for n in range(26)],
    "longer than the nucleus guess": [(17 * token) % 29 / 64 for token in range(3000)],
    "long and peaked": [12.0 if token % 997 == 5 else (31 * token) % 101 / 16 for token in range(3000)],
}

HOSTILE_ROWS = {name: [float32(logit) for logit in row] for name, row in ROWS.items()}
"""Each row is of float32 values, so that a list and a tensor of them are the same row."""

STATES: list[SamplerState] = [
    sampler_state(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed)
    for (temperature, top_k, top_p, min_p), seed in itertools.product(
        [
            (0.0, 0, 1.0, 0.0),
            (0.0, 3, 0.9, 0.5),
            (1.0, 0, 1.0, 0.0),
            (1.0, 2, 1.0, 0.0),
            (1.0, 10_000, 0.5, 0.0),
            (0.7, 3, 0.75, 0.25),
            (1.0, 0, 0.999, 0.0),
            (1.0, 0, 0.0000001, 0.0),
            (1.0, 0, 1.0, 1.0),
            (1.0, 0, 1.0, 0.5),
            (1e-9, 0, 0.9, 0.0),
            (1e9, 0, 0.9, 0.1),
            (2.0**-64, 0, 1.0, 0.0),
            (2.0**64, 7, 1.0, 0.0),
        ],
        [0, 1, 2**31, 2**64 - 1],
    )
]
