import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

from ebmlife.cli import output
from ebmlife.errors import BadInput
from ebmlife.plots import pictures

SHAPE = (1, 8, 8)
ENDINGS = ["states.png", "states.npy", "states.safetensors", "states"]


def batches(x: Tensor) -> Iterator[Tensor]:
    """Four at a time: the last batch is smaller."""
    yield from x.split(4)


@pytest.fixture
def states(rng: torch.Generator) -> Tensor:
    return torch.randn(10, *SHAPE, generator=rng)


def everything(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_png_is_the_grid(tmp_path: Path, states: Tensor) -> None:
    file = tmp_path / "new" / "states.png"
    output.write(file, batches(states), n=10, shape=SHAPE)
    with Image.open(file) as picture:
        assert np.array_equal(np.asarray(picture), np.asarray(pictures.grid(states)))
    assert everything(tmp_path) == ["new", "new/states.png"]


def _npy(file: Path) -> Tensor:
    return torch.from_numpy(np.load(file))


def _safetensors(file: Path) -> Tensor:
    return load_file(file)["images"]


@pytest.mark.parametrize(("name", "read"), [("states.npy", _npy), ("states.safetensors", _safetensors)])
@pytest.mark.parametrize("shape", [SHAPE, (2,)])
def test_arrays_hold_the_exact_states(
    tmp_path: Path, rng: torch.Generator, name: str, read: Callable[[Path], Tensor], shape: tuple[int, ...]
) -> None:
    states = torch.randn(10, *shape, generator=rng)
    output.write(tmp_path / name, batches(states), n=10, shape=shape)
    assert torch.equal(read(tmp_path / name), states)
    assert everything(tmp_path) == [name]


def test_a_folder_holds_one_png_for_each_image(tmp_path: Path, states: Tensor) -> None:
    (tmp_path / "states").mkdir()  # an empty one is free
    output.write(tmp_path / "states", batches(states), n=10, shape=SHAPE)
    assert everything(tmp_path / "states") == [f"{i:06d}.png" for i in range(10)]
    for i, x in enumerate(states):
        with Image.open(tmp_path / "states" / f"{i:06d}.png") as picture:
            assert np.array_equal(np.asarray(picture), pictures.to_uint8(x)[0].numpy())


@pytest.mark.parametrize("name", ENDINGS[:3])
def test_a_file_that_is_there_is_replaced(tmp_path: Path, states: Tensor, name: str) -> None:
    (tmp_path / name).write_text("old")
    output.write(tmp_path / name, batches(states), n=10, shape=SHAPE)
    assert (tmp_path / name).read_bytes()[:3] != b"old"


@pytest.mark.parametrize(
    ("name", "n", "shape", "message"),
    [
        ("states.jpg", 4, SHAPE, r"states\.jpg.*\.png, \.npy or \.safetensors"),
        ("states.png", 10_001, SHAPE, "at most 10000 images, not 10001"),
        ("states", 4, (2,), r"\(2,\) are not images"),
        ("full", 4, SHAPE, "full is a folder that exists"),
        ("full.npy", 4, SHAPE, r"full\.npy is a folder that exists"),
        ("file", 4, SHAPE, "file is a file"),
    ],
)
def test_what_cannot_be_written_is_said_before_a_sample_is_drawn(
    tmp_path: Path, name: str, n: int, shape: tuple[int, ...], message: str
) -> None:
    for folder in ("full", "full.npy"):
        (tmp_path / folder).mkdir()
    for file in ("full/mine.txt", "file"):
        (tmp_path / file).write_text("mine")
    before = everything(tmp_path)
    draw = (pytest.fail("a sample was drawn") for _ in range(1))
    with pytest.raises(BadInput, match=message):
        output.write(tmp_path / name, draw, n=n, shape=shape)
    assert everything(tmp_path) == before
    assert (tmp_path / "full" / "mine.txt").read_text() == "mine"


def torn(x: Tensor) -> Iterator[Tensor]:
    yield x[:4]
    raise RuntimeError("in the middle")


@pytest.mark.parametrize("name", ENDINGS)
def test_nothing_is_left_of_a_stream_that_breaks_off(tmp_path: Path, states: Tensor, name: str) -> None:
    with pytest.raises(RuntimeError, match="in the middle"):
        output.write(tmp_path / name, torn(states), n=10, shape=SHAPE)
    assert everything(tmp_path) == []


@pytest.mark.parametrize("name", ENDINGS[:3])
def test_an_old_file_outlives_a_stream_that_breaks_off(tmp_path: Path, states: Tensor, name: str) -> None:
    (tmp_path / name).write_text("old")
    with pytest.raises(RuntimeError, match="in the middle"):
        output.write(tmp_path / name, torn(states), n=10, shape=SHAPE)
    assert (tmp_path / name).read_text() == "old"
    assert everything(tmp_path) == [name]


def counted(alive: list[int]) -> Iterable[Tensor]:
    """Batches that note, as each next one is asked for, how many of the earlier ones are still held."""
    born: list[weakref.ref[Tensor]] = []
    for _ in range(6):
        alive.append(sum(batch() is not None for batch in born))
        x = torch.zeros(4, *SHAPE)
        born.append(weakref.ref(x))
        yield x
        del x


@pytest.mark.parametrize("name", ENDINGS[1:])
def test_batches_are_not_gathered_in_memory(tmp_path: Path, name: str) -> None:
    alive: list[int] = []
    output.write(tmp_path / name, counted(alive), n=24, shape=SHAPE)
    assert len(alive) == 6
    assert max(alive) <= 1  # the last one may live until the next replaces it
