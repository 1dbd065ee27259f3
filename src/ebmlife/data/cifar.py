"""CIFAR-10 from its official files, binary or python version."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ebmlife.data import images, inert_pickle
from ebmlife.data.dataset import InMemory
from ebmlife.data.description import Description, described
from ebmlife.errors import BadInput
from ebmlife.storage.atomic import located

Bytes = NDArray[np.uint8]

TRAIN = tuple(f"data_batch_{i}" for i in range(1, 6))
TEST = ("test_batch",)
IMAGES_PER_FILE = 10_000
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
PIXELS = 3 * 32 * 32  # the red, the green, then the blue plane, row by row: (C, H, W) as it stands
CIFAR10 = Description(title="CIFAR-10", shape=(3, 32, 32), classes=len(CLASSES), class_names=CLASSES)

_MOST_BYTES = 2**25  # of a file of the python version; they have 31 million
# The folder itself, or the one the official archive unpacks to.
_PLACES = (".", "cifar-10-batches-bin", "cifar-10-batches-py")
_ADVICE = "put the official files there, or let a recipe fetch them into a new folder with --data.download true"


@described(CIFAR10)
def cifar10(folder: str | Path, *, train: bool = True) -> InMemory:
    """The images (3, 32, 32) of CIFAR-10 with their labels, from the official files.

    The binary version (data_batch_1.bin ...) and the Python version (data_batch_1 ...) are both read, the latter as
    data only: it is a pickle, and is never unpickled.

    Args:
        folder: Folder of the files, or the one that holds the unpacked archive.
        train: True: the 50,000 training images. False: the 10,000 test images.

    Returns:
        The data set.
    """
    place, suffix = _find(located(folder), TRAIN if train else TEST)
    read = _read_binary if suffix else _read_python
    parts = [read(place / (name + suffix)) for name in (TRAIN if train else TEST)]
    images = np.concatenate([images for images, _ in parts]).reshape(-1, 3, 32, 32)
    labels = np.concatenate([labels for _, labels in parts]).astype(np.int64)
    return InMemory(torch.from_numpy(images), torch.from_numpy(labels))


def _find(folder: Path, names: tuple[str, ...]) -> tuple[Path, str]:
    """The folder of the files, and their suffix: '.bin' or ''."""
    if not folder.is_dir():
        raise BadInput(f"{folder}: no such folder; {_ADVICE}")
    for place in (folder / part for part in _PLACES):
        for suffix in (".bin", ""):
            missing = [name + suffix for name in names if not (place / (name + suffix)).is_file()]
            if not missing:
                return place, suffix
            if len(missing) < len(names):
                raise BadInput(f"{place}: {', '.join(missing)} missing beside the other CIFAR-10 files; {_ADVICE}")
    expected = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
    raise BadInput(f"{folder}: no CIFAR-10 here, expected {expected} with or without .bin; {_ADVICE}")


def _read_binary(path: Path) -> tuple[Bytes, Bytes]:
    """Images (N, 3072) and labels (N,) of a file of records: one byte of label, 3072 of pixels."""
    expected = IMAGES_PER_FILE * (1 + PIXELS)
    if path.stat().st_size != expected:
        raise BadInput(
            f"{path}: {path.stat().st_size} bytes, expected {expected}; "
            "the file is incomplete or another one; download it again"
        )
    records = np.fromfile(path, dtype=np.uint8).reshape(IMAGES_PER_FILE, 1 + PIXELS)
    if records[:, 0].max() > 9:
        raise BadInput(
            f"{path}: label {records[:, 0].max()}, expected 0 to 9; "
            "the file is damaged or another one; download it again"
        )
    return records[:, 1:], records[:, 0]


def _read_python(path: Path) -> tuple[Bytes, Bytes]:
    """Images (N, 3072) and labels (N,) of a file that cPickle wrote."""
    try:
        return _batch(inert_pickle.parse(images.read(path, most=_MOST_BYTES)))
    except ValueError as error:
        raise BadInput(
            f"{path}: not an official CIFAR-10 batch, or cut off ({error}); download it or the binary version again"
        ) from error


def _batch(batch: Any) -> tuple[Bytes, Bytes]:
    """Images and labels of a parsed batch; ValueError for anything else than the official files contain."""
    if not isinstance(batch, dict) or set(batch) != {b"batch_label", b"labels", b"data", b"filenames"}:
        raise ValueError("not a dict of batch_label, labels, data and filenames")
    labels = batch[b"labels"]
    right = isinstance(labels, list) and all(type(label) is int and 0 <= label <= 9 for label in labels)
    if not right or len(labels) != IMAGES_PER_FILE:
        raise ValueError(f"labels are not {IMAGES_PER_FILE} numbers from 0 to 9")
    match batch[b"data"]:
        case inert_pickle.Call(
            name="numpy.core.multiarray _reconstruct",
            state=(1, shape, inert_pickle.Call(name="numpy dtype", arguments=(b"u1", *_)), bool(fortran), bytes(raw)),
        ) if shape == (IMAGES_PER_FILE, PIXELS) and len(raw) == IMAGES_PER_FILE * PIXELS:
            images = np.frombuffer(raw, dtype=np.uint8).reshape(shape, order="F" if fortran else "C")
        case _:
            raise ValueError(f"data is not a uint8 array of shape ({IMAGES_PER_FILE}, {PIXELS})")
    return images, np.array(labels, dtype=np.uint8)
