"""Data sets of other libraries: torchvision and Hugging Face datasets."""

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from ebmlife.data import images
from ebmlife.data.dataset import Dataset
from ebmlife.data.streamed import Files, check, images_of
from ebmlife.errors import BadInput
from ebmlife.storage.atomic import located

_WITHOUT_CODE = 4  # the first version of `datasets` that runs no script of a data set


def torchvision(
    *,
    name: Literal["ImageNet", "CelebA"],
    folder: str,
    size: int,
    channels: int = 3,
    crop: float | None = None,
    train: bool = True,
) -> Dataset:
    """ImageNet or CelebA as torchvision stores them: its lists of files and classes, read as image files.

    Args:
        name: 'ImageNet' or 'CelebA'.
        folder: The root folder of torchvision's data set.
        size: Height and width of the images.
        channels: 1 for gray, 3 for color.
        crop: If given, training batches have random squares of at least this share of the largest square's area.
        train: True: the training images. False: ImageNet's validation images, or CelebA's test images.

    Returns:
        The data set.
    """
    check(size=size, channels=channels, crop=crop)
    vision = library("torchvision.datasets")
    root = located(folder)
    try:
        if name == "ImageNet":
            kept = vision.ImageNet(str(root), split="train" if train else "val")
            source = Files(Path(), [path for path, _ in kept.samples], torch.tensor(kept.targets))
        else:
            kept = vision.CelebA(str(root), split="train" if train else "test", target_type=[])
            source = Files(root / "celeba" / "img_align_celeba", list(kept.filename))
    except Exception as error:  # torchvision hardly checks its lists, which may hold anything
        reason = " ".join(str(error).split())
        raise BadInput(f"{root}: torchvision finds no {name} there ({reason})") from error
    return images_of(source, size=size, channels=channels, crop=crop)


def huggingface(
    *,
    name: str,
    size: int,
    channels: int = 3,
    crop: float | None = None,
    split: str = "train",
    column: str | None = None,
) -> Dataset:
    """A data set of the Hugging Face `datasets` library, which downloads it once. Images stay on disk until they are
    read. Labels are those of the first column of classes.

    Args:
        name: user/name, a folder that `save_to_disk` wrote, or a folder of parquet files.
        size: Height and width of the images.
        channels: 1 for gray, 3 for color.
        crop: If given, training batches have random squares of at least this share of the largest square's area.
        split: Name of the split, with a slice if you like: 'train[:80%]'.
        column: Column of the images. None: the first one of that type.

    Returns:
        The data set.
    """
    check(size=size, channels=channels, crop=crop)
    datasets = library("datasets")
    rows = _rows(datasets, name, split)
    columns = [key for key, kind in rows.features.items() if isinstance(kind, datasets.Image)]
    if not columns or column not in (None, *columns):
        raise BadInput(f"{name} has no column of images{f' {column!r}' if column else ''}; it has {[*rows.features]}")
    chosen = column or columns[0]
    classes = [key for key, kind in rows.features.items() if isinstance(kind, datasets.ClassLabel)]
    labels = torch.tensor(list(rows[classes[0]])) if classes else None
    encoded = rows.select_columns([chosen]).cast_column(chosen, datasets.Image(decode=False))
    return images_of(_Rows(encoded, chosen, name, labels), size=size, channels=channels, crop=crop)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Encoded images of a table on disk."""

    rows: Any
    column: str
    title: str
    labels: Tensor | None

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, row: int) -> bytes:
        return encoded(self.rows[row][self.column])

    def name(self, row: int) -> str:
        return f"{self.title}, row {row}"


def encoded(cell: dict[str, Any] | None) -> bytes:
    """The image in a cell that the library has not decoded: its bytes, or the path of a file."""
    if cell is None:
        raise BadInput("the cell is empty")
    held: bytes | None = cell["bytes"]
    return images.read(Path(cell["path"])) if held is None else held


def _rows(datasets: Any, name: str, split: str) -> Any:
    place = located(name)
    try:
        if (place / "state.json").is_file() or (place / "dataset_dict.json").is_file():
            saved = datasets.load_from_disk(str(place))
            return saved[split] if isinstance(saved, dict) else saved
        return datasets.load_dataset(str(place) if place.is_dir() else name, split=split)
    except Exception as error:  # the network, arrow and the hub raise different exceptions
        reason = (str(error).splitlines() or [""])[0]
        raise BadInput(f"{name}: cannot be loaded as {split!r} ({type(error).__name__}: {reason})") from error


def library(name: str) -> Any:
    try:
        found = importlib.import_module(name)
    except ImportError as error:
        raise BadInput(f"this data set needs {name.split('.')[0]}: pip install ebmlife[download]") from error
    version = str(getattr(found, "__version__", "")).partition(".")[0]
    if name == "datasets" and version.isdigit() and int(version) < _WITHOUT_CODE:
        raise BadInput(
            f"datasets {found.__version__} may run code that a data set brings; pip install 'datasets>={_WITHOUT_CODE}'"
        )
    return found
