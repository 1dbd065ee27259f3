"""Disks that are full or read-only: every verb says so in one line, and works when there is room again."""

import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from torture.cases import Case, Skipped, chance
from torture.commands import Place
from torture.ended import Ended
from torture.recovery import recovered
from torture.verbs import VERBS, Verb
from torture.workshop import Workshop

NAME = "disks"
DEFAULT = 200
_WRITING = [verb for verb in VERBS if not verb.endless]
_LEAST = 4096  # what a limited process may say must fit into a file too


def cases(workshop: Workshop, count: int, seed: int) -> Iterator[Case]:
    """Every verb without rights to write, then with next to no room, then with room for some of what it writes."""
    for index in range(count):
        turn, verb = index // len(_WRITING), _WRITING[index % len(_WRITING)]
        workshop.reference(verb)
        room = _LEAST + (chance(seed, NAME, index).randrange(200_000) if turn > 2 else 0)
        troubles = (
            (partial(_read_only, verb), "a read-only folder"),
            (partial(_limited, verb, room), f"files of at most {room} bytes"),
            (partial(_full, verb, room), f"a disk with {room} bytes left"),
        )
        trouble, about = troubles[turn if turn < 3 else 1 + turn % 2]
        yield Case(f"{verb.name}, {about}", partial(recovered, workshop, verb, trouble))


def _read_only(verb: Verb, place: Place) -> Ended:
    modes = {Path(folder): Path(folder).stat().st_mode for folder, _, _ in os.walk(place.here)}
    for folder in modes:
        folder.chmod(0o555)
    try:
        return place.run(*verb.words)
    finally:
        for folder, mode in modes.items():
            folder.chmod(mode)


def _limited(verb: Verb, size: int, place: Place) -> Ended:
    """Every write beyond the size fails, as when a quota is used up."""
    limits = (size, resource.RLIM_INFINITY)
    return place.run(*verb.words, before=partial(resource.setrlimit, resource.RLIMIT_FSIZE, limits))


def _full(verb: Verb, room: int, place: Place) -> Ended:
    """On a small disk of its own, from which everything is brought back afterwards."""
    disk, home = place.root / "disk", place.here
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", disk], capture_output=True).returncode:
        raise Skipped("only root can mount a small disk")
    try:
        place.here = shutil.copytree(home, disk / "here")
        _fill(disk / "ballast", room)
        ended = place.run(*verb.words)
        shutil.rmtree(home)
        shutil.copytree(place.here, home, symlinks=True)
        return ended
    finally:
        place.here = home
        subprocess.run(["umount", "--lazy", disk], check=True)


def _fill(file: Path, room: int) -> None:
    with file.open("wb", buffering=0) as stream:
        while os.statvfs(file).f_bavail:
            stream.write(bytes(os.statvfs(file).f_bavail * 4096))
        stream.truncate(max(0, stream.tell() - room))
