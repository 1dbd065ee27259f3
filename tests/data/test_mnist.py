import gzip
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from ebmlife.data import mnist
from ebmlife.errors import BadInput
from ebmlife.recipes.schema import part
from ebmlife.runs import build
from ebmlife.runs.build.tables import DATA

IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
N = 12


def idx(values: np.ndarray, *, magic: int | None = None) -> bytes:
    """The bytes of an IDX file: 8 for uint8, the number of dimensions, their sizes, the values."""
    header = [0x0800 + values.ndim if magic is None else magic, *values.shape]
    return np.array(header, dtype=">i4").tobytes() + values.astype(np.uint8).tobytes()


def pixels(n: int = N, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(256, size=(n, 28, 28), dtype=np.uint8)


def labels(n: int = N) -> np.ndarray:
    return np.arange(n) % 10


def write(folder: Path, *, compressed: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for split, n in (("train", N), ("t10k", 5)):
        for name, values in (("images-idx3", pixels(n)), ("labels-idx1", labels(n))):
            content = idx(values)
            file = folder / f"{split}-{name}-ubyte{'.gz' if compressed else ''}"
            file.write_bytes(gzip.compress(content) if compressed else content)
    return folder


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("inside", [".", "raw", "MNIST/raw"])
def test_both_forms_are_read_in_every_layout(tmp_path: Path, compressed: bool, inside: str) -> None:
    write(tmp_path / inside, compressed=compressed)
    data, tests = mnist(tmp_path), mnist(str(tmp_path), train=False)
    assert (data.shape, len(data), len(tests)) == ((1, 28, 28), N, 5)
    assert data.labels is not None
    assert data.labels.tolist() == labels().tolist()
    expected = torch.from_numpy(pixels()[:, None].astype(np.float32)) / 127.5 - 1
    torch.testing.assert_close(data.take(torch.arange(N)), expected)


def test_names_with_a_dot_are_read(tmp_path: Path) -> None:
    write(tmp_path)
    for file in list(tmp_path.iterdir()):
        file.rename(tmp_path / file.name.replace("-idx", ".idx"))
    assert len(mnist(tmp_path)) == N


DAMAGED: dict[str, tuple[str, Callable[[bytes], bytes], str]] = {
    "another magic number": (IMAGES, lambda _: idx(pixels(), magic=2052), "starts with 2052, expected 2051"),
    "labels for images": (IMAGES, lambda _: idx(labels()), "starts with 2049, expected 2051"),
    "cut off": (IMAGES, lambda content: content[:-7], f"bytes for {N} items"),
    "too long": (LABELS, lambda content: content + b"1", f"bytes for {N} items"),
    "no header": (LABELS, lambda content: content[:5], "5 bytes, expected a header of 8"),
    "empty": (IMAGES, lambda _: b"", "0 bytes"),
    "no images": (IMAGES, lambda _: idx(pixels(0)), "for 0 items"),
    "a negative count": (LABELS, lambda _: np.array([2049, -1], ">i4").tobytes(), "for -1 items"),
    "images of another size": (IMAGES, lambda _: idx(np.zeros((N, 32, 32))), "32x32, expected 28x28"),
    "fewer labels": (LABELS, lambda _: idx(labels(N - 1)), f"{N} images, but {LABELS} has {N - 1} labels"),
    "a label beyond 9": (LABELS, lambda _: idx(labels() + 1), "label 10, expected 0 to 9"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_files_are_one_line(tmp_path: Path, case: str) -> None:
    name, damage, message = DAMAGED[case]
    file = write(tmp_path) / name
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(BadInput, match=message) as refusal:
        mnist(tmp_path)
    assert "\n" not in str(refusal.value)
    assert name in str(refusal.value)
    assert "download it again" in str(refusal.value)
    assert len(mnist(tmp_path, train=False)) == 5


@pytest.mark.parametrize(
    "damage",
    [lambda c: c[:-9], lambda c: c[:20] + b"\0\0\0" + c[23:], lambda _: b"plain", lambda _: b"", lambda c: c + b"x"],
)
def test_damaged_gzip_files_are_one_line(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    file = write(tmp_path, compressed=True) / f"{IMAGES}.gz"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(BadInput, match=f"{IMAGES}.gz: .*download it again") as refusal:
        mnist(tmp_path)
    assert "\n" not in str(refusal.value)


def test_a_small_file_that_unpacks_to_gigabytes_is_not_unpacked(tmp_path: Path) -> None:
    file = write(tmp_path, compressed=True) / f"{LABELS}.gz"
    file.write_bytes(gzip.compress(bytes(10**7)))
    with pytest.raises(BadInput, match="when unpacked"):
        mnist(tmp_path)


def test_files_that_are_not_regular_are_refused_at_once(tmp_path: Path) -> None:
    file = write(tmp_path) / IMAGES
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(BadInput, match="a FIFO, expected a regular file"):
        mnist(tmp_path)
    file.unlink()
    file.mkdir()
    with pytest.raises(BadInput, match="a folder, expected a regular file"):
        mnist(tmp_path)


def test_missing_files_say_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"nowhere: no such folder; .*--data.download true"):
        mnist(tmp_path / "nowhere")
    with pytest.raises(BadInput, match=f"no MNIST here, expected {IMAGES}"):
        mnist(tmp_path)
    (write(tmp_path) / LABELS).unlink()
    with pytest.raises(BadInput, match=f"{LABELS} missing"):
        mnist(tmp_path)


def test_the_kind_declares_itself_and_reads_the_folder(tmp_path: Path) -> None:
    chosen = part("mnist", folder=str(write(tmp_path)), train=False)
    assert len(DATA.make(chosen)) == 5
    described = build.describe(chosen)
    assert (described.shape, described.classes, described.features) == ((1, 28, 28), 10, "mnist")


def test_the_official_files(official_mnist: Path) -> None:
    data, tests = mnist(official_mnist), mnist(official_mnist, train=False)
    assert (len(data), len(tests)) == (60_000, 10_000)
    assert data.labels is not None
    assert data.labels.bincount().tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert data.labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
