"""The images of the local cluster: each is made anew when its own recipe changes, and only then."""

import pytest

from dev.cluster import images

ALL = (*images.ALWAYS, *images.ON_REQUEST.values())


@pytest.mark.parametrize(
    ("constant", "value", "changed"),
    [
        ("TRAINING_PACKAGES", ["jax==0.0.1"], {"digits"}),
        ("TRIXIE", images.Suite("trixie", "3.14"), {"frameworks"}),
        ("_UNUSED", ("usr/share/doc",), {"digits", "frameworks"}),
        ("_write_etc", images._fill_pause, {"tiny", "rclone"}),
    ],
)
def test_image_is_kept_under_its_own_recipe(
    monkeypatch: pytest.MonkeyPatch, constant: str, value: object, changed: set[str]
) -> None:
    before = {image.name: image.folder for image in ALL}
    monkeypatch.setattr(images, constant, value)
    assert {image.name for image in ALL if image.folder != before[image.name]} == changed
