"""MNIST from its official IDX files, plain or compressed with gzip."""

import gzip
import io
import zlib
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from ebmlife.data.dataset import InMemory
from ebmlife.data.description import Description, described
from ebmlife.errors import BadInput
from ebmlife.storage import regular
from ebmlife.storage.atomic import located

Bytes = NDArray[np.uint8]

SIDE = 28
MNIST = Description(title="MNIST", shape=(1, SIDE, SIDE), classes=10, features="mnist")

_IMAGES, _LABELS = 2051, 2049  # magic numbers: 8 for uint8, then 3 or 1 dimensions
_MOST_IMAGES = 10**6  # a count beyond this is a damaged header
_PLACES = (".", "raw", "MNIST/raw")  # the folder itself, or torchvision's below its root
_ADVICE = "put the official files there, or let a recipe fetch them into a new folder with --data.download true"
_DAMAGED = "the file is damaged or another one; download it again"


@described(MNIST)
def mnist(folder: str | Path, *, train: bool = True) -> InMemory:
    """The images (1, 28, 28) of MNIST with their labels, from the official files.

    Files are read as they are (train-images-idx3-ubyte ...) or compressed (train-images-idx3-ubyte.gz ...).

    Args:
        folder: Folder of the files, or the one that torchvision keeps as its root, with MNIST/raw in it.
        train: True: the 60,000 training images. False: the 10,000 test images.

    Returns:
        The data set.
    """
    images_path, labels_path = _find(located(folder), "train" if train else "t10k")
    images, labels = _read(images_path, _IMAGES, (SIDE, SIDE)), _read(labels_path, _LABELS, ())
    if len(images) != len(labels):
        raise BadInput(
            f"{images_path}: {len(images)} images, but {labels_path.name} has {len(labels)} labels; {_DAMAGED}"
        )
    if labels.max() > 9:
        raise BadInput(f"{labels_path}: label {labels.max()}, expected 0 to 9; {_DAMAGED}")
    return InMemory(torch.from_numpy(images[:, None]), torch.from_numpy(labels.astype(np.int64)))


def _find(folder: Path, split: str) -> tuple[Path, Path]:
    """The files of images and of labels."""
    if not folder.is_dir():
        raise BadInput(f"{folder}: no such folder; {_ADVICE}")
    names = (f"{split}-images-idx3-ubyte", f"{split}-labels-idx1-ubyte")
    for place in (folder / part for part in _PLACES):
        found = [next((path for path in _spellings(place, name) if path.exists()), None) for name in names]
        images, labels = found
        if images and labels:
            return images, labels
        if images or labels:
            missing = names[found.index(None)]
            raise BadInput(f"{place}: {missing} missing beside the other MNIST files; {_ADVICE}")
    raise BadInput(f"{folder}: no MNIST here, expected {names[0]} and {names[1]} with or without .gz; {_ADVICE}")


def _spellings(place: Path, name: str) -> list[Path]:
    """Where a file may lie. Some copies have a dot in place of the second hyphen."""
    dotted = name.replace("-idx", ".idx")
    return [place / (base + suffix) for base in (name, dotted) for suffix in ("", ".gz")]


def _read(path: Path, magic: int, shape: tuple[int, ...]) -> Bytes:
    """uint8 (N, *shape) from an IDX file: magic number, N and shape as big-endian int32, then the values."""
    header = 4 * (2 + len(shape))
    most = header + _MOST_IMAGES * int(np.prod(shape, dtype=np.int64))
    content = _content(path, most=most)
    if len(content) < header:
        raise BadInput(f"{path}: {len(content)} bytes, expected a header of {header}; {_DAMAGED}")
    found, count, *rest = np.frombuffer(content, dtype=">i4", count=header // 4).tolist()
    if found != magic:
        raise BadInput(f"{path}: starts with {found}, expected {magic} as MNIST's files do; {_DAMAGED}")
    if tuple(rest) != shape:
        raise BadInput(
            f"{path}: images of {'x'.join(map(str, rest))}, expected {'x'.join(map(str, shape))}; {_DAMAGED}"
        )
    size = count * int(np.prod(shape, dtype=np.int64))
    if count < 1 or len(content) != header + size:
        raise BadInput(f"{path}: {len(content)} bytes for {count} items, expected {header + size}; {_DAMAGED}")
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(count, *shape).copy()


def _content(path: Path, *, most: int) -> bytes:
    """The content of a file, decompressed if it is a .gz; at most one byte more than `most` is decompressed."""
    try:
        content = regular.read(path, most=most)
        if path.suffix != ".gz":
            return content
        return _decompressed(path, content, most)
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror or error})") from error


def _decompressed(path: Path, content: bytes, most: int) -> bytes:
    try:
        with gzip.open(io.BytesIO(content)) as stream:
            unpacked = stream.read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"{path}: not a gzip file, or cut off ({error}); {_DAMAGED}") from error
    if len(unpacked) > most:
        raise BadInput(f"{path}: more than {most} bytes when unpacked; {_DAMAGED}")
    return unpacked
