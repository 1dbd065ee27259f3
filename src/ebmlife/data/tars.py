"""Tar files of images, as WebDataset writes them, read at any place: what is where is looked up once and cached."""

import hashlib
import os
import re
import tarfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor

from ebmlife.data.dataset import Dataset
from ebmlife.data.folder import SUFFIXES
from ebmlife.data.streamed import check, images_of
from ebmlife.errors import BadInput
from ebmlife.files import cache_folder, whole

_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_NONE = -1  # the label of an image that has none


def webdataset(*, shards: str, size: int, channels: int = 3, crop: float | None = None) -> Dataset:
    """The images of WebDataset's tar files, in the order in which they lie there.

    `shards` is a folder of them, a pattern such as train-*.tar, or WebDataset's own train-{0000..1281}.tar. A sample is
    all members of one name up to its first dot; its .cls member, a whole number, is the label. The tars must lie on a
    disk and be plain, for they are not streamed in WebDataset's sense: any row can be read, so that epochs are
    shuffled, shared out over ranks and resumed as those of a folder are.
    """
    check(size=size, channels=channels, crop=crop)
    return images_of(_read(find_tars(shards)), size=size, channels=channels, crop=crop)


@dataclass(frozen=True, eq=False)
class Members:
    """Images within tar files."""

    tars: list[Path]
    places: Tensor  # int64 (N, 3): which tar, first byte, bytes
    labels: Tensor | None

    def __len__(self) -> int:
        return len(self.places)

    def open(self, row: int) -> Image.Image:
        tar, first, size = self.places[row].tolist()
        with self.tars[tar].open("rb") as stream:  # anew each time: workers must not share a place in the file
            stream.seek(first)
            return Image.open(BytesIO(stream.read(size)))

    def name(self, row: int) -> str:
        tar, first, _ = self.places[row].tolist()
        return f"{self.tars[tar]}, the image at byte {first}"


def find_tars(shards: str) -> list[Path]:
    place = Path(shards).expanduser()
    if place.is_dir():
        tars = sorted(place.glob("*.tar"))
    elif _RANGE.search(shards):
        tars = [Path(name).expanduser() for name in _expanded(shards)]
    elif any(letter in place.name for letter in "*?["):
        tars = sorted(place.parent.glob(place.name))
    else:
        tars = [place]
    missing = [str(tar) for tar in tars if not tar.is_file()]
    if missing or not tars:
        raise BadInput(f"{missing[0] if missing else shards}: no such tar; expected a folder of them or a pattern")
    return tars


def _expanded(pattern: str) -> list[str]:
    """'a-{08..11}.tar' -> 'a-08.tar' to 'a-11.tar'."""
    match = _RANGE.search(pattern)
    if match is None:
        return [pattern]
    first, last = match.groups()
    numbers = (f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1))
    ends = _expanded(pattern[match.end() :])
    return [f"{pattern[: match.start()]}{number}{end}" for number in numbers for end in ends]


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
    file = cache_folder() / "tars" / f"{digest}.safetensors"
    if not file.exists():
        found = torch.tensor(_scanned(tar), dtype=torch.int64).reshape(-1, 3)
        with whole(file) as unfinished:
            save_file({"contents": found}, unfinished)
    return load_file(file)["contents"]


def _scanned(tar: Path) -> list[tuple[int, int, int]]:
    images: dict[str, tuple[int, int]] = {}
    labels: dict[str, int] = {}
    try:
        with tarfile.open(tar, "r:") as members:
            for member in filter(tarfile.TarInfo.isreg, members):
                folder, base = os.path.split(member.name)
                stem, _, ending = base.partition(".")
                key = f"{folder}/{stem}"
                if f".{ending.lower()}".endswith(SUFFIXES) and stem:
                    images.setdefault(key, (member.offset_data, member.size))
                elif ending.lower() == "cls":
                    stream = members.extractfile(member)
                    labels[key] = int(stream.read()) if stream else _NONE
    except (tarfile.TarError, ValueError, EOFError) as error:
        raise BadInput(f"{tar}: not a plain tar of WebDataset ({error}); unpack a compressed one first") from error
    return [(first, size, labels.get(key, _NONE)) for key, (first, size) in images.items()]
