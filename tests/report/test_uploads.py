from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image

from ebmlife.errors import BadInput
from ebmlife.report import uploads
from ebmlife.report.uploads import TrialSettings, decode_image

RIGHT = {"radius": "8", "steps": "20", "langevin": "100", "attacker": "bpda"}


def encoded(image: Image.Image, kind: str = "PNG") -> bytes:
    stream = BytesIO()
    image.save(stream, format=kind)
    return stream.getvalue()


def test_settings_of_a_trial_are_parsed() -> None:
    assert TrialSettings.parse(RIGHT) == TrialSettings(radius=8, steps=20, langevin=100, attacker="bpda")
    assert TrialSettings.parse(RIGHT | {"radius": "0"}).radius == 0  # no attack: only purified


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"radius": "65"}, "radius must be a whole number from 0 to 64"),
        ({"steps": "0"}, "steps must be a whole number from 1 to 100"),
        ({"langevin": "5001"}, "langevin must be a whole number from 1 to 5000"),
        ({"langevin": "1e3"}, "langevin must be a whole number"),
        ({"steps": "-1"}, "steps must be a whole number"),
        ({"steps": "٣"}, "steps must be a whole number"),  # a digit, but not one of ours
        ({"steps": ""}, "steps must be a whole number"),
        ({"steps": "9" * 5000}, "steps must be a whole number"),
        ({"attacker": "full"}, "attacker must be one of transfer, bpda"),
    ],
)
def test_settings_out_of_range_are_refused(change: dict[str, str], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        TrialSettings.parse(RIGHT | change)


def test_pixels_of_the_models_own_size_come_through_unchanged() -> None:
    pixels = np.arange(64, dtype=np.uint8).reshape(8, 8) * 4
    x = decode_image(encoded(Image.fromarray(pixels)), kind="image/png", shape=(1, 8, 8))
    assert torch.equal(((x + 1) * 127.5).round().byte()[0], torch.from_numpy(pixels))


@pytest.mark.parametrize("kind", uploads.TYPES)
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_any_picture_becomes_one_of_the_models(kind: str, mode: str) -> None:
    body = encoded(Image.new(mode, (40, 30), color="white"), uploads.TYPES[kind])
    x = decode_image(body, kind=kind, shape=(3, 16, 16))
    assert x.shape == (3, 16, 16)
    assert x.min() > 0.99


def test_files_that_are_no_images_get_one_clear_line() -> None:
    png = encoded(Image.new("L", (8, 8)))
    for body in (b"", b"no image", png[:40], png[:8] + b"\0" * 100):
        with pytest.raises(BadInput, match="cannot be read as a PNG image; it may be damaged"):
            decode_image(body, kind="image/png", shape=(1, 8, 8))
    with pytest.raises(BadInput, match="PNG, JPEG, WEBP, BMP"):
        decode_image(b"<svg/>", kind="image/svg+xml", shape=(1, 8, 8))


def test_a_file_is_read_only_as_what_it_is_said_to_be() -> None:
    """Pillow knows many formats, some with a past; only those of TYPES are ever tried."""
    with pytest.raises(BadInput, match="as a JPEG"):
        decode_image(encoded(Image.new("L", (8, 8))), kind="image/jpeg", shape=(1, 8, 8))
    with pytest.raises(BadInput, match="as a PNG"):
        decode_image(encoded(Image.new("L", (8, 8)), "TIFF"), kind="image/png", shape=(1, 8, 8))


def test_a_small_file_of_a_huge_image_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    def unpacked(*_: object, **__: object) -> None:
        raise AssertionError("pixels were unpacked")

    body = encoded(Image.new("1", (8192, 4096)))
    assert len(body) < 2**16
    monkeypatch.setattr(uploads, "squared", unpacked)
    with pytest.raises(BadInput, match="8192x4096 pixels, expected at most 16777216; make it smaller"):
        decode_image(body, kind="image/png", shape=(1, 8, 8))
