"""Finds the images of a folder without leaving it."""

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from ebmlife.errors import BadInput

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")


@dataclass
class Found:
    names: list[str] = field(default_factory=list)  # of the images, relative to the folder, sorted
    skipped: dict[str, list[str]] = field(default_factory=dict)  # what was left out, by reason

    @property
    def left_out(self) -> str:
        """What was left out, in one line; empty where nothing was."""
        parts = (f"{len(names)} {reason} (such as {min(names)})" for reason, names in sorted(self.skipped.items()))
        return ", ".join(parts)


def scan(root: Path) -> Found:
    """All images under the folder, which may itself be a link.

    Links to folders are not followed: one to its own folder would count every image many times. A link to a file counts
    if the file lies under `root` too. FIFOs, sockets and devices are left out; hidden files are ignored.
    """
    found, inside = Found(), os.path.realpath(root) + os.sep
    waiting = [""]
    while waiting:
        place = waiting.pop()
        for entry in _entries(root / place):
            name = f"{place}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                waiting.append(f"{name}/")
                continue
            if entry.name.startswith(".") or not (_named_as_image(name) or entry.is_symlink()):
                continue
            reason = _reason_to_skip(entry, inside)
            if reason is None and _named_as_image(name):
                found.names.append(name)
            elif reason is not None and (_named_as_image(name) or reason == _FOLDER):
                found.skipped.setdefault(reason, []).append(name)
    found.names.sort()
    return found


_FOLDER = "links to folders"


def _named_as_image(name: str) -> bool:
    return name.lower().endswith(SUFFIXES)


def _entries(place: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(place) as entries:
            return list(entries)
    except OSError as error:
        raise BadInput(f"{place}: cannot be searched for images ({error.strerror})") from error


def _reason_to_skip(entry: os.DirEntry[str], inside: str) -> str | None:
    try:
        mode = entry.stat().st_mode
    except OSError:  # a link to nothing, or one of a loop of links
        return "broken links"
    if stat.S_ISDIR(mode):
        return _FOLDER
    if not stat.S_ISREG(mode):
        return "FIFOs, sockets or devices"
    inside_too = not entry.is_symlink() or os.path.realpath(entry.path).startswith(inside)
    return None if inside_too else "links to files outside"
