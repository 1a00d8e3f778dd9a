"""The picture of a training's curve in the demo."""

from xml.etree import ElementTree as ET

from dev.demo.picture import draw_in_terminal, draw_svg

CURVE = [{"step": step, "loss": 2 / step} for step in range(1, 30)] + [{"step": 30, "seen": 1}]


def test_loss_is_drawn_in_plain_text_and_as_svg() -> None:
    text = draw_in_terminal(CURVE, "loss")
    assert draw_in_terminal(CURVE, "loss") == text
    assert len(text.splitlines()) == 14
    assert "loss by step" in text
    assert "\x1b" not in text
    svg = ET.fromstring(draw_svg(CURVE, "loss"))  # noqa: S314 - our own
    named = {element.tag.partition("}")[2]: element for element in svg}
    points = [point.split(",") for point in named["polyline"].attrib["points"].split()]
    assert (points[0], points[-1], len(points)) == (["60.0", "40.0"], ["680.0", "340.0"], 29)
    assert [text.text for text in svg if text.tag.endswith("text")] == [
        "loss by step", "2", "0.06897", "1", "29",
    ]  # fmt: skip


def test_a_loss_of_one_step_is_drawn_too() -> None:
    assert 'points="60.0,40.0"' in draw_svg([{"step": 1, "loss": 2}], "loss")
