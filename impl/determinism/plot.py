"""How far rows differ, by position: a scatter plot as SVG, without anything from outside."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, inf, log2

import svg

from vosti.impl.determinism.results import Compared

WIDTH, HEIGHT = 640, 240
LEFT, BOTTOM, TOP, RIGHT = 56, 36, 12, 12


def scatter(mismatches: Sequence[Compared]) -> str:
    """One point for each row that differs: its position to the right, its largest difference, log₂, upwards."""
    points = sorted(
        {
            (pair.position, log2(pair.divergence.largest))
            for pair in mismatches
            if pair.divergence is not None and 0 < pair.divergence.largest < inf
        }
    )
    if not points:
        return ""
    farthest = max(1, *(x for x, _ in points))
    lowest = floor(min(y for _, y in points))
    highest = max(lowest + 1, ceil(max(y for _, y in points)))
    base = HEIGHT - BOTTOM

    def x_of(position: float) -> float:
        return round(LEFT + position / farthest * (WIDTH - LEFT - RIGHT), 1)

    def y_of(height: float) -> float:
        return round(base - (height - lowest) / (highest - lowest) * (base - TOP), 1)

    elements: list[svg.Element] = [
        svg.Line(x1=LEFT, y1=base, x2=WIDTH - RIGHT, y2=base, stroke="currentColor"),
        svg.Line(x1=LEFT, y1=TOP, x2=LEFT, y2=base, stroke="currentColor"),
        _text(WIDTH / 2, HEIGHT - 4, "position", "middle"),
        *(_text(x_of(tick), base + 16, str(tick), "middle") for tick in _ticks(0, farthest)),
        *(_text(LEFT - 6, y_of(tick) + 4, f"2^{tick}", "end") for tick in _ticks(lowest, highest)),
        *(svg.Circle(cx=x_of(x), cy=y_of(y), r=2.5, fill="#b3261e", fill_opacity=0.6) for x, y in points),
    ]
    picture = svg.SVG(viewBox=svg.ViewBoxSpec(0, 0, WIDTH, HEIGHT), width=WIDTH, height=HEIGHT, elements=elements)
    return picture.as_str()


def _text(x: float, y: float, text: str, anchor: str) -> svg.Text:
    return svg.Text(x=x, y=y, text=text, text_anchor=anchor, font_size=11, fill="currentColor")  # type: ignore[arg-type]


def _ticks(least: int, most: int) -> range:
    """About five numbers from the least to the most."""
    return range(least, most + 1, max(1, ceil((most - least) / 5)))
