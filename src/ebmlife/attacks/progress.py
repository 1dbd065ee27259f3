"""How far an attack is, and how long it will take."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

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
    """Counts walks of this process; those that a broken image is spared count as done."""

    def __init__(self, images: int, *, walks: Sequence[int], final: int, watch: Watcher) -> None:
        self._until = [0, *accumulate(walks)]  # of one image, before each stage and after the last
        self._final = final  # the first stage that all images take part in again
        self._total, self._watch = images * self._until[-1], watch
        self._done, self._begun, self._standing = 0, 0, 0  # of the groups that are finished
        self._then, self._before = time.monotonic(), 0

    def enter(self, tally: Tally, stage: int) -> None:
        """A group begins, or goes on from where an earlier attack left it: that is no merit of this one's."""
        self._before += self._of(tally, stage)

    def show(self, tally: Tally, stage: int) -> None:
        done = self._done + self._of(tally, stage)
        made, elapsed = done - self._before, time.monotonic() - self._then
        left = elapsed * (self._total - done) / made if made > 0 else float("inf")
        standing = Share(self._standing + len(tally.standing()), self._begun + len(tally.labels))
        self._watch(Progress(done / self._total, standing, left, tally))

    def leave(self, tally: Tally) -> None:
        self._done += len(tally.labels) * self._until[-1]
        self._begun += len(tally.labels)
        self._standing += len(tally.standing())

    def _of(self, tally: Tally, stage: int) -> int:
        if stage == 0:
            return 0
        standing = len(tally.standing())
        broken = len(tally.labels) - standing
        return standing * self._until[stage] + broken * self._until[max(stage, self._final)]
