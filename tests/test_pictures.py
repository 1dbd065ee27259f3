import itertools
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from ebmlife.plots import charts, pictures
from ebmlife.plots.correlations import correlation


def test_bytes_reach_both_ends_and_values_outside_are_clipped() -> None:
    x = torch.tensor([-9.0, -1.0, 0.0, 1.0, 9.0])
    assert pictures.to_uint8(x).tolist() == [0, 0, 128, 255, 255]


def test_bytes_of_an_image_come_back_exactly() -> None:
    levels = torch.arange(256, dtype=torch.uint8)
    assert torch.equal(pictures.to_uint8(levels.float() / 127.5 - 1), levels)


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (3, "RGB")])
def test_an_image_keeps_its_size_and_mode(channels: int, mode: str) -> None:
    picture = pictures.image(torch.zeros(channels, 5, 7))
    assert picture.mode == mode
    assert picture.size == (7, 5)


def test_a_grid_of_tiny_gray_images_is_enlarged_without_smoothing_row_by_row() -> None:
    levels = torch.tensor([0, 50, 100, 150, 200])
    x = (levels.view(5, 1, 1, 1) / 127.5 - 1).expand(5, 1, 8, 8)
    picture = pictures.grid(x)
    assert picture.mode == "L"
    assert picture.size == (2 + 3 * 50, 2 + 2 * 50)  # 3 columns and 2 rows of 8 * 6 pixels and gaps of 2
    pixels = np.asarray(picture)
    tiles = [pixels[top : top + 48, left : left + 48] for top in (2, 52) for left in (2, 52, 102)]
    assert [(int(tile.min()), int(tile.max())) for tile in tiles] == [
        *((level, level) for level in levels.tolist()),
        (255, 255),  # no sixth image
    ]
    assert (pixels[50:52] == 255).all()


def test_a_grid_of_color_images_keeps_each_pixel() -> None:
    x = torch.rand(2, 3, 40, 48) * 2 - 1
    picture = pictures.grid(x, columns=1, gap=1)
    assert picture.mode == "RGB"
    assert picture.size == (50, 83)
    lower = np.asarray(picture)[42:82, 1:49]
    assert np.array_equal(lower, pictures.to_uint8(x[1]).permute(1, 2, 0).numpy())


@pytest.mark.parametrize(
    ("x", "size"),
    [(torch.zeros(4, 1, 8, 8), (102, 102)), (torch.zeros(1, 3, 32, 32), (36, 36)), (torch.zeros(9, 2), (550, 550))],
)
def test_images_and_points_are_saved_as_png(tmp_path: Path, x: torch.Tensor, size: tuple[int, int]) -> None:
    file = tmp_path / "new" / "states.png"
    pictures.save(file, pictures.draw(x))
    with Image.open(file) as picture:
        assert picture.format == "PNG"
        assert picture.size == size
    assert [path.name for path in file.parent.iterdir()] == ["states.png"]


def test_points_are_seen_and_a_picture_replaces_the_one_before_it(tmp_path: Path) -> None:
    def ink(points: torch.Tensor) -> int:
        pictures.save(tmp_path / "points.png", pictures.draw(points))
        with Image.open(tmp_path / "points.png") as picture:
            return int((np.asarray(picture.convert("L")) < 200).sum())

    spread, outside = torch.linspace(-1, 1, 500)[:, None].expand(-1, 2), torch.full((500, 2), 5.0)
    assert ink(spread) > ink(outside) + 500


def test_the_names_of_many_curves_stand_below_the_panels() -> None:
    def drawn(lines: int) -> Image.Image:
        shown = [charts.Panel("", {f"line {i}": [1.0, 2.0] for i in range(lines)}, None, False)] * 2
        return charts.panels([0, 10], shown, title="")

    few, many = drawn(2), drawn(6)
    assert many.width == few.width
    assert many.height > few.height


def test_correlation_finds_the_shift_of_an_impulse() -> None:
    a, b = np.zeros(20), np.zeros(20)
    b[8], a[11] = 2.0, 5.0  # a follows b by three updates
    assert {lag: correlation(a, b, lag) for lag in range(-15, 16)} == {
        lag: (0.5 if lag == 3 else 0.0) for lag in range(-15, 16)
    }
    assert correlation(b, a, -3) == 0.5


def test_correlation_is_the_weighted_mean_of_products() -> None:
    a, b = np.array([1.0, 2.0, 3.0, 4.0]), np.array([5.0, 6.0, 7.0, 8.0])
    assert correlation(a, b, 0) == (5 + 12 + 21 + 32) / 4
    assert correlation(a, b, 1) == (2 * 5 + 3 * 6 + 4 * 7) / 4
    assert correlation(a, b, -2) == (1 * 7 + 2 * 8) / 4
    assert correlation(a, b, 4) == correlation(a, b, -9) == 0


@pytest.mark.parametrize(("updates", "spread"), [(1, 1.0), (3, 1.0), (3, 0.0), (300, 1.0)])
def test_diagnostics_of_any_length(tmp_path: Path, updates: int, spread: float) -> None:
    difference, gradient = spread * np.random.default_rng(0).normal(size=(2, updates))
    pictures.save(tmp_path / "diagnostics.png", charts.diagnostics(difference, gradient))
    with Image.open(tmp_path / "diagnostics.png") as picture:
        assert picture.size == (1100, 770)


def test_a_slow_machine_draws_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count(step=10)
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(seconds)))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        charts.curves({"a": {1: 2.0, 2: 3.0}, "b": {1: 1.0}}, title="", x="", y="")
    assert said == []
