"""How far an attack is, and how long it will take."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from ebmlife.attacks.record import Tally
from ebmlife.attacks.shares import Share


@dataclass(frozen=True)
class Progress:
    done: float  # from 0 to 1
    standing: Share  # of the images whose attack has begun
    seconds_left: float
    tally: Tally  # of the images under attack now


Watcher = Callable[[Progress], None]


class Meter:
    """Counts stages of images; those that a broken image is spared count as done."""

    def __init__(self, images: int, *, stages: int, watch: Watcher) -> None:
        self._total, self._stages, self._watch = images * stages, stages, watch
        self._done, self._begun, self._standing = 0, 0, 0  # of the groups that are finished
        self._then, self._before = time.monotonic(), 0

    def enter(self, tally: Tally, stage: int) -> None:
        """A group begins, or goes on from where an earlier attack left it: that is no merit of this one's."""
        self._before += self._of(tally, stage)

    def show(self, tally: Tally, stage: int) -> None:
        done = self._done + self._of(tally, stage)
        made = done - self._before
        elapsed = time.monotonic() - self._then
        left = elapsed * (self._total - done) / made if made > 0 else float("inf")
        standing = Share(self._standing + len(tally.standing()), self._begun + len(tally.labels))
        self._watch(Progress(done / self._total, standing, left, tally))

    def leave(self, tally: Tally) -> None:
        self._done += self._of(tally, self._stages)
        self._begun += len(tally.labels)
        self._standing += len(tally.standing())

    def _of(self, tally: Tally, stage: int) -> int:
        if stage in (0, self._stages):
            return stage * len(tally.labels)
        standing = len(tally.standing())
        return stage * standing + (self._stages - 1) * (len(tally.labels) - standing)
