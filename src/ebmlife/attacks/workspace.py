"""An attack's folder: `parts/` while it goes on, `record/` when it is finished, `settings.json` to know it by."""

import json
import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ebmlife.attacks.record import EVALUATED_ON, Record, differences
from ebmlife.attacks.tally import Tally
from ebmlife.distributed import Ranks
from ebmlife.errors import BadInput
from ebmlife.storage import checkpoint
from ebmlife.storage.atomic import atomic_write, read_json, remove, sweep
from ebmlife.storage.interrupt import locked

_log = logging.getLogger(__name__)


def held(folder: Path | str | None) -> dict[str, Any]:
    """The settings of the attack that a folder holds; {} if there is none."""
    file = None if folder is None else Path(folder) / "settings.json"
    if file is None or not file.exists():
        return {}
    settings = read_json(file)
    if not isinstance(settings, dict) or type(settings.get("group", 1)) is not int:
        raise BadInput(f"{file} holds no settings of an attack; choose another folder")
    return settings


def refuse_another(folder: Path | str | None, settings: dict[str, Any]) -> None:
    """BadInput unless the folder holds the attack of these settings, or none."""
    before = held(folder)
    # Images are known by their fingerprint; older attacks do not say where theirs come from.
    said = differences(before, settings, {*before, *settings} - {EVALUATED_ON}) if before else ""
    if said:
        raise BadInput(f"{folder} holds another attack ({said}); choose another folder")


@contextmanager
def exclusive(folder: Path | str | None, ranks: Ranks) -> Iterator[None]:
    """Two processes in one attack would sweep away what the other writes, unless they are ranks; the lock dies with
    the first one. A finished attack is only read, by as many as like."""
    with ExitStack() as stack:
        with ranks.raise_on_all():
            if folder is not None and ranks.first and not (Path(folder) / "record").is_dir():
                stack.enter_context(_locked(Path(folder)))
        yield


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    parts = folder / "parts"  # the lock goes with them when the attack is finished
    try:
        parts.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot write {parts}: {error.strerror}") from error
    with locked(parts):
        sweep(folder)
        sweep(parts)
        yield


class Storage:
    """Keeps groups of images between stages, at most every so many seconds; nowhere if there is no folder."""

    def __init__(self, folder: Path | str | None, settings: dict[str, Any], *, every: float) -> None:
        self.settings: dict[str, Any] = json.loads(json.dumps(settings))
        self._folder, self._every, self._then = None if folder is None else Path(folder), every, time.monotonic()
        if self._folder is not None:
            self._claim(self._folder)

    def finished(self) -> Record | None:
        if self._folder is None or not (self._folder / "record").is_dir():
            return None
        record = Record.load(self._folder / "record")
        remove(self._folder / "parts")  # a kill may have left them
        return record

    def part(self, index: int, blank: Tally, *, stages: int) -> tuple[Tally, int]:
        """A group as it was kept, and its next stage; `blank` where nothing was.

        One that is damaged is set aside, and said: its images are attacked again from the start, to the same end.
        """
        path = self._path(index)
        if path is None or not path.is_dir():
            return blank, 0
        try:
            state, _ = checkpoint.load(path)
        except checkpoint.Damaged as error:
            aside = checkpoint.set_aside(path, "damaged")
            _log.warning("%s; it is kept as %s, and these images are attacked again", error.what, aside.name)
            return blank, 0
        tally, stage = Tally.restored(state.get("tally"), path, blank), state.get("stage")
        if type(stage) is not int or not 0 <= stage <= stages:
            raise BadInput(f"{path} cannot be used: its stage is {stage!r:.40}, of {stages}")
        return tally, stage

    def keep(self, index: int, tally: Tally, stage: int, *, last: bool) -> None:
        path = self._path(index)
        if path is not None and (last or time.monotonic() - self._then >= self._every):
            checkpoint.save(path, {"tally": tally.state_dict(), "stage": stage}, about={"stage": stage})
            self._then = time.monotonic()

    def finish(self, record: Record) -> None:
        if self._folder is not None:
            record.save(self._folder / "record")
            remove(self._folder / "parts")

    def _path(self, index: int) -> Path | None:
        return None if self._folder is None else self._folder / "parts" / f"{index:06d}"

    def _claim(self, folder: Path) -> None:
        file = folder / "settings.json"
        if file.exists():
            refuse_another(folder, self.settings)
            return
        with atomic_write(file) as unfinished:
            unfinished.write_text(json.dumps(self.settings, indent=2))
