import base64
from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image

from ebmlife.plots.pictures import to_uint8
from ebmlife.report.images import scattered, sheet


def opened(source: str) -> np.ndarray:
    assert source.startswith("data:image/png;base64,")
    return np.asarray(Image.open(BytesIO(base64.b64decode(source.partition(",")[2]))))


@pytest.mark.parametrize("channels", [1, 3])
def test_a_sheet_has_each_image_in_its_place(channels: int) -> None:
    images = torch.rand(2, 3, channels, 4, 5) * 2 - 1
    made = sheet(images)
    pixels = opened(made.source).reshape(8, 15, channels)
    assert (made.rows, made.columns, made.ratio) == (2, 3, 1.25)
    for row in range(2):
        for column in range(3):
            tile = pixels[4 * row : 4 * row + 4, 5 * column : 5 * column + 5]
            assert np.array_equal(tile, to_uint8(images[row, column]).permute(1, 2, 0).numpy())


def test_points_become_ink_where_they_are() -> None:
    image = scattered(torch.tensor([[1.4, 1.4]]))  # right and up
    assert image.shape == (1, 64, 64)
    dark = (image[0] < 0).nonzero().tolist()
    assert dark == [[2, 61]]
    assert image.max() == 1


def test_a_sheet_of_points_has_one_picture_a_row() -> None:
    made = sheet(torch.zeros(5, 20, 2))
    assert (made.rows, made.columns) == (5, 1)
    assert opened(made.source).shape == (5 * 64, 64)


def test_points_outside_the_picture_are_left_out() -> None:
    assert (scattered(torch.tensor([[9.0, 0.0]])) == 1).all()
