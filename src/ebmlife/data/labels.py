"""Labels of the images of a folder, by sub-folder, by file name, or by a list in a file."""

import re
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from ebmlife.data import images
from ebmlife.errors import BadInput

FILE_NAME = "file-name"
_LARGEST_LIST = 256 * 2**20  # bytes
_LARGEST_LABEL = 2**31 - 1


def by_sub_folder(root: Path, names: Sequence[str]) -> Tensor | None:
    """The rank of an image's top sub-folder among the sorted names, those of empty ones included; None if an image lies
    in no sub-folder."""
    if not all("/" in name for name in names):
        return None
    tops = [name.split("/")[0] for name in names]
    shown = {place.name for place in root.iterdir() if place.is_dir() and not place.name.startswith(".")}
    rank = {top: index for index, top in enumerate(sorted(shown | set(tops)))}
    return torch.tensor([rank[top] for top in tops])


def by_file_name(root: Path, names: Sequence[str]) -> Tensor:
    """The number that an image's file name begins with: 7 of 007_n01514668_cock.jpg."""
    return torch.tensor([_number(re.match(r"[0-9]+", Path(name).name), root / name) for name in names])


def by_list(root: Path, names: Sequence[str], file: Path) -> Tensor:
    """The labels in a list of lines `NAME LABEL`. NAME is relative to the folder; a space, tab or comma follows."""
    try:
        lines = images.read(file, most=_LARGEST_LIST).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"data.labels {file} cannot be read ({error}); expected lines `NAME LABEL`") from error
    found = {}
    for line in filter(str.strip, lines):
        name, _, label = re.sub(r"[\s,]+(?=[0-9]+\s*$)", "\0", line.strip()).partition("\0")
        found[name] = _number(re.fullmatch(r"[0-9]+", label), f"{file}: line {line!r}")
    for name in names:
        if name not in found:
            raise BadInput(f"data.labels {file} has no line for {name}; expected `{name} LABEL`")
    return torch.tensor([found[name] for name in names])


def find_labels(root: Path, names: Sequence[str], how: str | None) -> Tensor | None:
    """The labels; `how` is None for sub-folders, 'file-name', or the path of a list."""
    if how is None:
        return by_sub_folder(root, names)
    return by_file_name(root, names) if how == FILE_NAME else by_list(root, names, Path(how).expanduser())


def _number(match: re.Match[str] | None, where: Path | str) -> int:
    if match is None or len(match[0]) > 10 or int(match[0]) > _LARGEST_LABEL:
        raise BadInput(f"{where} has no label; expected a whole number from 0 to {_LARGEST_LABEL}")
    return int(match[0])
