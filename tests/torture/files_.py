"""Damaged and hostile images, archives and data sets: read, or refused in one line with nothing left behind."""

import random
import shutil
from collections.abc import Iterator
from functools import partial

from torture import bad_files
from torture.cases import Case
from torture.recovery import what
from torture.sameness import contents, different
from torture.workshop import Workshop

NAME = "files"
DEFAULT = 300
_TRAIN = (
    "train folder-shortrun --batch 4 --updates 1 --workers 0 --net.width 4 --generator.net.width 4 --chains.size 8 "
    "--langevin.steps 1 --sampling_steps 1 --watch.pictures 2 --out new"
)
_COMMANDS = {
    "image": (f"{_TRAIN} --data.folder photos --data.size 8", "purify run FILE --out clean"),
    "archive": (f"{_TRAIN} --data.kind webdataset --data.shards FILE --data.size 8",),
    "pickle": (f"{_TRAIN} --data.kind cifar10 --data.folder batches --data.train false",),
}
_LIMIT = 120  # seconds: the widest of these images take some


def cases(workshop: Workshop, count: int, seed: int) -> Iterator[Case]:
    tried = [(bad, command) for bad in bad_files.every() for command in _COMMANDS[bad.kind]]
    random.Random(seed).shuffle(tried)
    for bad, command in tried[:count]:
        yield Case(f"{bad.name!r}, {command.split()[0]}", partial(_given, workshop, bad, command))


def _given(workshop: Workshop, bad: bad_files.Case, command: str) -> str | None:
    with workshop.place() as place:
        photos = shutil.copytree(place.here / "images", place.here / "photos")
        if bad.kind == "archive":
            shutil.rmtree(photos)
            photos.mkdir()
        made = bad.build(photos)
        if bad.kind == "pickle":
            (place.here / "batches").mkdir()
            made.rename(place.here / "batches" / "test_batch")
        before = contents(place.here)
        ended = place.run(*(word.replace("FILE", f"photos/{bad.name}") for word in command.split()), limit=_LIMIT)
        if (place.here / "ran").exists():
            return "CODE WAS RUN"
        changed = different(contents(place.here), before) if ended.code else []
        return ended.wrong(allowed=(0, 2)) or (f"refused, but {what(changed)}" if changed else None)
