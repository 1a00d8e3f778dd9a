"""Pictures of a training's curve, as its task returns it."""

# Neither library has types.
# mypy: disable-error-code="import-untyped"

from __future__ import annotations

from collections.abc import Sequence

import plotext
import pygal

Curve = Sequence[dict[str, float]]

_SIZE = 72, 14  # columns, rows


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


def draw_svg(curve: Curve, metric: str) -> bytes:
    """Draw a metric over the steps as an SVG file."""
    chart = pygal.XY(
        title=f"{metric} by step", x_title="step", show_legend=False, width=720, height=400, js=()
    )
    chart.add(metric, _read(curve, metric))
    svg: bytes = chart.render()
    return svg


def _read(curve: Curve, metric: str) -> list[tuple[float, float]]:
    return [(row["step"], row[metric]) for row in curve if metric in row]
