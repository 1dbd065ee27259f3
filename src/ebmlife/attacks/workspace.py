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
    """Returns the settings of the attack in a folder, or {} if there is none."""
    settings = {} if folder is None else Workspace(Path(folder), {}, _LAYOUT).saved_settings()
    if type(settings.get("group", 1)) is not int:
        raise BadInput(f"{folder}/settings.json holds no settings of an attack; {_LAYOUT.advice}")
    return settings


def refuse_another(folder: Path | str | None, settings: dict[str, Any]) -> None:
    """Raises BadInput if the folder holds an attack with different settings. It writes nothing."""
    if folder is not None:
        Workspace(Path(folder), settings, _LAYOUT).check()


class Storage:
    """Saves groups of images between stages, at most every `every` seconds. Without a folder, nothing is saved."""

    def __init__(self, folder: Path | str | None, settings: dict[str, Any], *, every: float) -> None:
        self.settings: dict[str, Any] = json.loads(json.dumps(settings))
        self._work = None if folder is None else Workspace(Path(folder), settings, _LAYOUT)
        self._every, self._then = every, time.monotonic()

    @contextmanager
    def opened(self, ranks: Ranks) -> Iterator[Record | None]:
        """Locks the folder within a `with` block. Yields the record if the attack is finished already, else None.

        Any number of processes can read a finished attack at once.
        """
        if self._work is None:
            yield None
            return
        record = _finished(self._work, ranks)
        if record is not None:
            yield record
            return
        with ranks.on_rank0(self._work.open()):
            yield _finished(self._work, ranks)  # another process may have finished it before this one had the lock

    def part(self, index: int, blank: Tally, *, stages: int) -> tuple[Tally, int]:
        """Returns a saved group and its next stage, or `blank` and 0 if no intact group is saved.

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
    """Returns the record if all ranks see it, else None. Removes groups that a killed process left beside it."""
    with ranks.raise_on_all():
        record = Record.load(work.folder) if work.finished() else None
    if ranks.any(record is None):
        return None
    if ranks.first:
        work.finish()
    return record
