"""The picture of a training's curve in the demo."""

from dev.demo.picture import draw_in_terminal, draw_svg

CURVE = [{"step": step, "loss": 2 / step} for step in range(1, 30)] + [{"step": 30, "seen": 1}]


def test_loss_is_drawn_in_plain_text_and_as_svg() -> None:
    text = draw_in_terminal(CURVE, "loss")
    assert draw_in_terminal(CURVE, "loss") == text
    assert len(text.splitlines()) == 14
    assert "loss by step" in text
    assert "\x1b" not in text
    svg = draw_svg(CURVE, "loss").decode()
    assert svg.lstrip("\ufeff").startswith("<?xml")
    assert "loss by step" in svg
    assert ".js" not in svg  # nothing is fetched to look at it
