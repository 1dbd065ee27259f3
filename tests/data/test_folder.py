from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from ebmlife.data import Batches, InMemory, Streamed, folder
from ebmlife.errors import BadInput

SHARED = Path(__file__).parents[2].parent / "shared" / "data"


def save(path: Path, pixels, **options) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(pixels, dtype=np.uint8)).save(path, **options)


def plain(level: int, height: int = 6, width: int = 6) -> np.ndarray:
    return np.full((height, width, 3), level, np.uint8)


def levels(data) -> list[int]:
    """The mean byte of every image."""
    return torch.round((data.take(torch.arange(len(data))).mean((1, 2, 3)) + 1) * 127.5).int().tolist()


def test_images_of_all_kinds_come_in_sorted_order(tmp_path):
    for level, suffix in enumerate(["png", "JPG", "jpeg", "webp", "bmp"]):
        save(tmp_path / f"{5 - level}.{suffix}", plain(40 * level))
    (tmp_path / "readme.txt").write_text("not an image")
    (tmp_path / "._1.png").write_bytes(b"what macOS leaves behind")
    data = folder(tmp_path, size=6)
    assert isinstance(data, InMemory)
    assert data.shape == (3, 6, 6)
    assert data.labels is None
    assert levels(data) == pytest.approx([160, 120, 80, 40, 0], abs=2)


def test_labels_are_the_top_sub_folders(tmp_path):
    for name, level in [("b/x/1.png", 10), ("a/2.png", 20), ("c/3.png", 30), ("a/1.png", 40)]:
        save(tmp_path / name, plain(level))
    data = folder(tmp_path, size=6)
    assert levels(data) == [40, 20, 10, 30]
    assert data.labels.tolist() == [0, 0, 1, 2]
    assert data.labels.dtype == torch.int64
    (tmp_path / "aa").mkdir()
    assert folder(tmp_path, size=6).labels.tolist() == [0, 0, 2, 3]
    save(tmp_path / "loose.png", plain(0))
    assert folder(tmp_path, size=6).labels is None


@pytest.mark.parametrize("wide", [True, False])
def test_the_center_square_is_kept_unchanged_at_its_own_size(tmp_path, wide):
    pixels = np.random.default_rng(0).integers(256, size=(5, 12, 3), dtype=np.uint8)
    pixels = pixels if wide else pixels.transpose(1, 0, 2)
    save(tmp_path / "1.png", pixels)
    centre = pixels[:, 3:8] if wide else pixels[3:8]
    assert np.array_equal(folder(tmp_path, size=5).items[0], centre.transpose(2, 0, 1))


def test_shrinking_is_antialiased(tmp_path):
    """A checkerboard of single pixels shrinks to grey, not to the black or white of whichever pixel is hit."""
    board = np.indices((64, 64)).sum(0) % 2 * 255
    save(tmp_path / "1.png", np.repeat(board[..., None], 3, 2))
    shrunk = folder(tmp_path, size=8).items.float()
    assert (shrunk - 127.5).abs().max() < 2


def test_channels_and_modes(tmp_path):
    save(tmp_path / "colour.png", plain(0) + np.array([255, 0, 0], np.uint8))
    save(tmp_path / "grey.png", np.full((6, 6), 90))
    save(tmp_path / "half.png", np.full((6, 6, 4), [0, 0, 0, 0]))  # transparent black lies on white
    Image.fromarray(plain(30)).convert("P").save(tmp_path / "palette.png")
    grey = folder(tmp_path, size=4, channels=1)
    assert grey.shape == (1, 4, 4)
    assert levels(grey) == [76, 90, 255, pytest.approx(30, abs=25)]
    rgb = folder(tmp_path, size=4)
    assert rgb.items[0, :, 0, 0].tolist() == [255, 0, 0]
    assert rgb.items[1, :, 0, 0].tolist() == [90, 90, 90]
    assert rgb.items[2, :, 0, 0].tolist() == [255, 255, 255]


def test_orientation_tags_are_obeyed(tmp_path):
    pixels = plain(0)
    pixels[:3] = 255
    exif = Image.Exif()
    exif[0x0112] = 3  # turned by 180 degrees
    save(tmp_path / "1.png", pixels, exif=exif)
    assert folder(tmp_path, size=6).items[0, 0, :, 0].tolist() == [0, 0, 0, 255, 255, 255]


def test_streamed_and_in_memory_sets_are_the_same(tmp_path):
    rng = np.random.default_rng(1)
    for i in range(10):
        save(tmp_path / str(i % 2) / f"{i}.png", rng.integers(256, size=(9, 11, 3)))
    held, streamed = folder(tmp_path, size=4), folder(tmp_path, size=4, memory_limit=10 * 3 * 4 * 4 - 1)
    assert isinstance(held, InMemory)
    assert isinstance(streamed, Streamed)
    assert isinstance(folder(tmp_path, size=4, memory_limit=10 * 3 * 4 * 4), InMemory)
    rows = torch.tensor([7, 0, 3])
    assert torch.equal(held.take(rows), streamed.take(rows))
    assert held.shape == streamed.shape
    assert len(held) == len(streamed) == 10
    assert torch.equal(held.labels, streamed.labels)
    here, ahead = (Batches(data, size=3, seed=0, flip=True, workers=2) for data in (held, streamed))
    for _ in range(5):
        assert torch.equal(here.next(), ahead.next())


@pytest.mark.parametrize("kind", ["cut off", "not an image", "16 bits"])
def test_a_broken_image_is_named(tmp_path, kind):
    for i in range(3):
        save(tmp_path / f"{i}.png", np.random.default_rng(i).integers(256, size=(20, 20, 3)))
    broken = tmp_path / "1.png"
    if kind == "cut off":
        broken.write_bytes(broken.read_bytes()[:300])
    elif kind == "not an image":
        broken.write_text("<html>404</html>")
    else:
        Image.fromarray(np.full((6, 6), 40_000, np.uint16)).save(broken)
    with pytest.raises(BadInput, match=r"1\.png: cannot be read as an image") as refusal:
        folder(tmp_path, size=4)
    assert "\n" not in str(refusal.value)
    streamed = folder(tmp_path, size=4, memory_limit=0)
    assert streamed.take(torch.tensor([0, 2])).shape == (2, 3, 4, 4)
    with pytest.raises(BadInput, match=r"1\.png"):
        streamed.take(torch.tensor([0, 1]))
    with pytest.raises(BadInput, match=r"^[^\n]*1\.png[^\n]*$"):
        Batches(streamed, size=3, seed=0, workers=1).next()


def test_bad_arguments_are_one_line(tmp_path):
    save(tmp_path / "1.png", plain(0))
    (tmp_path / "empty").mkdir()
    for path, options, reason in [
        (tmp_path, {"size": 0}, "at least 1 pixel"),
        (tmp_path, {"size": 4, "channels": 2}, "1 channel"),
        (tmp_path / "nowhere", {"size": 4}, "nowhere: no such folder"),
        (tmp_path / "1.png", {"size": 4}, "no such folder"),
        (tmp_path / "empty", {"size": 4}, "empty: no image"),
    ]:
        with pytest.raises(BadInput, match=reason):
            folder(path, **options)


@pytest.mark.parametrize(("name", "n"), [("celeba-2k", 2000), ("imagenet-200", 200)])
def test_real_photographs(name, n):
    place = SHARED / name
    if not place.is_dir():
        pytest.skip(f"{place} is not on this machine")
    data = folder(place, size=32, memory_limit=0)
    assert len(data) == n
    images = data.take(torch.arange(0, n, n // 20))
    assert images.shape == (20, 3, 32, 32)
    assert -1 <= images.min() < -0.8
    assert 0.8 < images.max() <= 1
