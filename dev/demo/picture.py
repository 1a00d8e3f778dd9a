"""Pictures of a training's curve, as its task returns it."""

# The library has no types.
# mypy: disable-error-code="import-untyped"

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

import plotext

Curve = Sequence[dict[str, float]]

_SIZE = 72, 14  # columns, rows
# Of the frame in the SVG file.
_LEFT, _TOP, _WIDTH, _HEIGHT = 60, 40, 620, 300


def draw_in_terminal(curve: Curve, metric: str) -> str:
    """Draw a metric over the steps with the characters of a terminal, without colours."""
    figure = plotext.figure
    figure.clear()
    figure.theme("colorless")
    figure.plot_size(*_SIZE)
    figure.title(f"{metric} by step")
    steps, values = zip(*_read(curve, metric), strict=True)
    signal = figure.signal(steps, values, marker="braille")
    signal.lines()
    figure.draw(signal)
    return str(plotext.uncolorize(figure.build()))


def draw_svg(curve: Curve, metric: str) -> str:
    """Draw a metric over the steps as an SVG file: a line in a frame, with the ends of both axes.

    There is no library for it: pygal, the lightest, stands in the way of other imports.
    """
    points = _read(curve, metric)
    (first, last), (low, high) = ((min(side), max(side)) for side in zip(*points, strict=True))
    across, up = _WIDTH / ((last - first) or 1), _HEIGHT / ((high - low) or 1)
    line = " ".join(
        f"{_LEFT + (step - first) * across:.1f},{_TOP + (high - value) * up:.1f}"
        for step, value in points
    )
    right, bottom = _LEFT + _WIDTH, _TOP + _HEIGHT
    texts = [
        (_LEFT + _WIDTH / 2, _TOP - 12, "middle", f"{metric} by step"),
        (_LEFT - 8, _TOP + 5, "end", f"{high:.4g}"),
        (_LEFT - 8, bottom + 5, "end", f"{low:.4g}"),
        (_LEFT, bottom + 22, "middle", f"{first:g}"),
        (right, bottom + 22, "middle", f"{last:g}"),
    ]
    words = "".join(
        f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'
        for x, y, anchor, text in texts
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {right + 40} {bottom + 40}"'
        ' font-family="sans-serif" font-size="14">'
        f'<rect x="{_LEFT}" y="{_TOP}" width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"'
        ' stroke="#999"/>'
        f'<polyline points="{line}" fill="none" stroke="#1f6feb" stroke-width="2"/>{words}</svg>\n'
    )


def _read(curve: Curve, metric: str) -> list[tuple[float, float]]:
    return [(row["step"], row[metric]) for row in curve if metric in row]
