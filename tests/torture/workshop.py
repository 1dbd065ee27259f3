"""What all tests begin with: a small run with everything that commands add to it, a classifier, images, weights."""

import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from importers import foreign

from torture.commands import Place, empty_place
from torture.operations import count_operations
from torture.rights import give_away, learn_standard_library
from torture.sameness import Contents, contents
from torture.verbs import ATTACK, COMMON, EXAM, FID, REPORT, TOY, TRAIN, Verb

_LIMIT = 600  # seconds for what may also fill caches
_MADE = (
    f"{TRAIN} --out run",
    f"train digits-classifier {COMMON} --updates 150 --net.depth 8 --test_every 75 --out classifier",
    f"{TOY} --out toy",
    EXAM,
    FID,
    ATTACK,
    REPORT,
    "sample run --n 8 --out images",
)


@dataclass(frozen=True)
class Reference:
    contents: Contents
    seconds: float
    operations: int  # that change files


class Workshop:
    def __init__(self, root: Path) -> None:
        """Makes all of it, in children that keep their rights: what they import, later ones need not read."""
        self.root, self.cache, self._start = root, root / "cache", root / "first" / "here"
        self._references: dict[Verb, Reference] = {}
        root.chmod(0o755)
        learn_standard_library()
        place = Place(root / "first", cache=self.cache, learning=True)
        for command in _MADE:
            ended = place.run(*command.split(), limit=_LIMIT)
            if ended.code != 0:
                raise RuntimeError(f"ebmlife {command}: {ended.out}{ended.err}")
        (self._start / "weights").mkdir()
        foreign.write_checkpoint(self._start / "weights" / "ebm.ckpt", foreign.filled(foreign.sngan_energy(32, 8)))
        give_away(self.cache)

    @contextmanager
    def place(self, *, cache: bool = True) -> Iterator[Place]:
        """A copy of it, for one case; with `cache`, what every process may keep for others is there already."""
        with empty_place(cache=self.cache if cache else None, beside=self.root) as place:
            shutil.copytree(self._start, place.here, dirs_exist_ok=True)
            yield place

    def reference(self, verb: Verb) -> Reference:
        """What the verb makes undisturbed; to be called in the first process."""
        if verb not in self._references:
            with self.place() as place:
                child = place.start(*verb.words, before=lambda: count_operations(place.root / "count"))
                if verb.endless:
                    child.wait(1)
                    child.send(signal.SIGINT)
                ended = child.ended(_LIMIT)
                if ended.code != 0:
                    raise RuntimeError(f"ebmlife {verb.command}: {ended.out}{ended.err}")
                operations = int((place.root / "count").read_text() or "0")
                self._references[verb] = Reference(contents(place.here), ended.seconds, operations)
        return self._references[verb]
