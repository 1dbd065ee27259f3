"""Tar files of images, as WebDataset writes them, with random access: the index of a tar is built once and cached."""

import hashlib
import math
import os
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ebmlife.data import images
from ebmlife.data.dataset import Dataset
from ebmlife.data.scanning import SUFFIXES
from ebmlife.data.streamed import check, images_of
from ebmlife.errors import BadInput
from ebmlife.storage import cache, regular
from ebmlife.storage.atomic import located

MOST = 100_000  # tars of a pattern
_RANGE = re.compile(r"\{(\d{1,9})\.\.(\d{1,9})\}")
_NONE = -1  # the label of an image that has none
_LABEL = 64  # bytes of a .cls member, at most


def webdataset(*, shards: str, size: int, channels: int = 3, crop: float | None = None) -> Dataset:
    """The images of WebDataset's tar files, in the order of their members.

    A sample is all members of one name up to its first dot; its .cls member, a whole number, is the label. The tars
    must be uncompressed files on disk: any row can be read, so that epochs are shuffled, shared by ranks and resumed
    like those of a folder. Nothing is unpacked: links, devices and folders in the names of members have no effect.

    Args:
        shards: A folder of tars, a pattern such as train-*.tar, or WebDataset's own train-{0000..1281}.tar.
        size: Height and width of the images.
        channels: 1 for gray, 3 for color.
        crop: If given, training batches have random squares of at least this share of the largest square's area.

    Returns:
        The data set.
    """
    check(size=size, channels=channels, crop=crop)
    return images_of(_read(find_tars(shards)), size=size, channels=channels, crop=crop)


@dataclass(frozen=True, eq=False)
class Members:
    """Images in tar files."""

    tars: list[Path]
    places: Tensor  # int64 (N, 3): which tar, first byte, bytes
    labels: Tensor | None

    def __len__(self) -> int:
        return len(self.places)

    def read(self, row: int) -> bytes:
        tar, first, size = self.places[row].tolist()
        with self.tars[tar].open("rb") as stream:  # opened each time: workers must not share a file position
            stream.seek(first)
            return bytes(stream.read(size))

    def name(self, row: int) -> str:
        tar, first, _ = self.places[row].tolist()
        return f"{self.tars[tar]}, the image at byte {first}"


def find_tars(shards: str) -> list[Path]:
    place = located(shards)
    if place.is_dir():
        tars = sorted(place.glob("*.tar"))
    elif _RANGE.search(shards):
        tars = [located(name) for name in _expanded(shards)]
    elif any(letter in place.name for letter in "*?["):
        tars = _matching(place)
    else:
        tars = [place]
    missing = next((str(tar) for tar in tars if not tar.is_file()), None)
    if missing or not tars:
        raise BadInput(f"{missing or shards}: no such tar; expected a folder of them or a pattern")
    return tars


def _matching(pattern: Path) -> list[Path]:
    try:
        return sorted(pattern.parent.glob(pattern.name))
    except ValueError as error:  # a ** that is not a complete path component
        raise BadInput(f"{pattern}: not a pattern of names ({error})") from error


def _expanded(pattern: str) -> list[str]:
    """'a-{08..11}.tar' -> 'a-08.tar' to 'a-11.tar'; several ranges give all combinations."""
    ranges = [(first, range(int(first), int(last) + 1)) for first, last in _RANGE.findall(pattern)]
    count = math.prod(len(numbers) for _, numbers in ranges)
    if count > MOST:
        raise BadInput(f"{pattern}: the names of {count} tars, expected at most {MOST}; use a folder or a * instead")
    names = [pattern]
    for first, numbers in ranges:
        written = [f"{number:0{len(first)}d}" for number in numbers]
        names = [_RANGE.sub(number, name, count=1) for name in names for number in written]
    return names


def _read(tars: list[Path]) -> Members:
    parts = [_contents(tar) for tar in tars]
    places = torch.cat([torch.cat([torch.full((len(p), 1), i), p[:, :2]], 1) for i, p in enumerate(parts)])
    labels = torch.cat([part[:, 2] for part in parts])
    if not len(places):
        raise BadInput(f"{tars[0]}: no image in it; looked for {', '.join(SUFFIXES)}")
    return Members(tars, places, None if (labels == _NONE).any() else labels)


def _contents(tar: Path) -> Tensor:
    """int64 (N, 3): first byte, bytes and label of each image, from the cache if the file is the same."""
    about = tar.stat()
    digest = hashlib.sha256(f"{tar.resolve()}/{about.st_size}/{about.st_mtime_ns}".encode()).hexdigest()[:16]

    def make() -> dict[str, Tensor]:
        return {"contents": torch.tensor(_scanned(tar), dtype=torch.int64).reshape(-1, 3)}

    return cache.tensors(f"tars/{digest}", make)["contents"]


def _scanned(tar: Path) -> list[tuple[int, int, int]]:
    found: dict[str, tuple[int, int]] = {}
    labels: dict[str, int] = {}
    try:
        with tarfile.open(regular.check(tar), "r:") as archive:
            for member in _files(archive, tar.stat().st_size):
                folder, base = os.path.split(member.name)
                stem, _, ending = base.partition(".")
                key = f"{folder}/{stem}"
                if f".{ending.lower()}".endswith(SUFFIXES) and stem:
                    if member.size > images.BYTES:
                        raise ValueError(f"an image of {member.size} bytes")
                    found.setdefault(key, (member.offset_data, member.size))
                elif ending.lower() == "cls":
                    labels[key] = _label(archive, member)
    except Exception as error:  # tarfile raises half a dozen kinds of exceptions for damaged headers
        reason = " ".join(str(error).split()) or type(error).__name__
        raise BadInput(f"{tar}: not a plain tar of WebDataset ({reason}); unpack a compressed one first") from error
    return [(first, size, labels.get(key, _NONE)) for key, (first, size) in found.items()]


def _files(archive: tarfile.TarFile, size: int) -> Iterator[tarfile.TarInfo]:
    """The regular files of a tar of `size` bytes, all of which must lie within it."""
    for member in archive:
        # With a negative size, tarfile of some Python versions loops forever.
        if member.size < 0 or (member.isreg() and member.offset_data + member.size > size):
            raise ValueError(f"a member of {member.size} bytes at byte {member.offset}, the tar has {size}")
        if member.isreg():
            yield member
    # At a damaged header, tarfile stops as at the end, and all that follows would be missing silently.
    if archive.fileobj is not None:
        archive.fileobj.seek(archive.offset)
        if archive.fileobj.read(tarfile.BLOCKSIZE).strip(b"\0"):
            raise ValueError(f"a damaged header at byte {archive.offset}")


def _label(archive: tarfile.TarFile, member: tarfile.TarInfo) -> int:
    stream = archive.extractfile(member)
    text = stream.read(_LABEL + 1) if stream else b""
    if not text.strip().isdigit() or len(text) > _LABEL or int(text) >= 2**31:
        raise ValueError(f"the label in {member.name} is not a whole number from 0")
    return int(text)
