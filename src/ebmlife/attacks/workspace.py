"""The folder of an attack: `settings.json` identifies it, `parts/` holds its groups, `record/` the finished attack."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ebmlife.attacks.record import EVALUATED_ON, Record
from ebmlife.attacks.tally import Tally
from ebmlife.distributed import Ranks
from ebmlife.errors import BadInput
from ebmlife.storage.workspace import Layout, Workspace

# Images are identified by their fingerprint, not by the description of where they come from.
_LAYOUT = Layout(
    "attack", result="record", parts="parts", digits=6, lock="parts", swept=("",), described=(EVALUATED_ON,)
)


def held(folder: Path | str | None) -> dict[str, Any]:
    """The settings of the attack in a folder; {} if there is none."""
    settings = {} if folder is None else Workspace(Path(folder), {}, _LAYOUT).saved_settings()
    if type(settings.get("group", 1)) is not int:
        raise BadInput(f"{folder}/settings.json holds no settings of an attack; {_LAYOUT.advice}")
    return settings


def refuse_another(folder: Path | str | None, settings: dict[str, Any]) -> None:
    """BadInput if the folder holds an attack with different settings. Writes nothing."""
    if folder is not None:
        Workspace(Path(folder), settings, _LAYOUT).check()


class Storage:
    """Saves groups of images between stages, at most every so many seconds. Without a folder nothing is saved."""

    def __init__(self, folder: Path | str | None, settings: dict[str, Any], *, every: float) -> None:
        self.settings: dict[str, Any] = json.loads(json.dumps(settings))
        self._work = None if folder is None else Workspace(Path(folder), settings, _LAYOUT)
        self._every, self._then = every, time.monotonic()

    @contextmanager
    def opened(self, ranks: Ranks) -> Iterator[Record | None]:
        """Within, no other process attacks in the folder. Yields the record if the attack is finished already.

        A finished attack is only read, by any number of processes at once.
        """
        if self._work is None:
            yield None
            return
        record = _finished(self._work, ranks)
        if record is not None:
            yield record
            return
        with ranks.on_rank0(self._work.open()):
            yield _finished(self._work, ranks)  # by another process, before this one had the lock

    def part(self, index: int, blank: Tally, *, stages: int) -> tuple[Tally, int]:
        """A saved group and its next stage; `blank` and 0 where nothing sound is saved.

        A damaged group is set aside with a warning. Attacking its images again gives the same result.
        """
        state = None if self._work is None else self._work.load(index, again="these images are attacked again")
        if self._work is None or state is None:
            return blank, 0
        path = self._work.path(index)
        tally, stage = Tally.restored(state.get("tally"), path, blank), state.get("stage")
        if type(stage) is not int or not 0 <= stage <= stages:
            raise BadInput(f"{path} cannot be used: its stage is {stage!r:.40}, of {stages}")
        return tally, stage

    def keep(self, index: int, tally: Tally, stage: int, *, last: bool) -> None:
        if self._work is not None and (last or time.monotonic() - self._then >= self._every):
            self._work.save(index, {"tally": tally.state_dict(), "stage": stage}, about={"stage": stage})
            self._then = time.monotonic()

    def finish(self, record: Record) -> None:
        if self._work is not None:
            record.save(self._work.folder / "record")
            self._work.finish()


def _finished(work: Workspace, ranks: Ranks) -> Record | None:
    """The record, if all ranks see it. Removes the groups that a kill may have left beside it."""
    with ranks.raise_on_all():
        record = Record.load(work.folder) if work.finished() else None
    if ranks.any(record is None):
        return None
    if ranks.first:
        work.finish()
    return record
