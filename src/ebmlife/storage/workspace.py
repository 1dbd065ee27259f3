"""Folders of long work: a lock, the settings that identify the work, and its checkpoints.

Trainings, attacks, exams and long walks use them. Resumed work is never continued with different
settings, and two processes never write to one folder.
"""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ebmlife.errors import BadInput
from ebmlife.storage import checkpoint
from ebmlife.storage.atomic import atomic_write, read_json, remove, sweep
from ebmlife.storage.locking import LOCK, locked
from ebmlife.storage.settings import differences

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Layout:
    """The names of the files of one kind of work, and how its settings are compared."""

    kind: str = "work"  # the name in errors
    file: str | None = "settings.json"  # None: the settings are in the manifests of the checkpoints
    result: str | None = None  # the file or folder that only finished work has
    parts: str = "checkpoints"  # the folder of the checkpoints
    digits: int = 9  # in the name of a checkpoint
    lock: str = ""  # the folder inside the workspace that the lock is in
    swept: tuple[str, ...] = ()  # folders, beside `parts`, in which nobody else writes; "" is the workspace itself
    advice: str = "choose another folder"  # for users who request different settings
    within: tuple[str, ...] = ()  # kinds of work that this one is a part of, and whose lock covers it
    described: tuple[str, ...] = ()  # settings that are saved for readers and never compared
    missing_agrees: bool = False  # older versions saved fewer settings: a missing one agrees with any value
    defaults: tuple[tuple[str, Any], ...] = ()  # values of settings that are saved only where they differ from these
    replaces: bool = False  # work with different settings is removed, not refused


class Workspace:
    """A folder for work that can be killed and resumed.

    Args:
        folder: Where the work is saved. It is created when the work begins.
        settings: What identifies the work, by name: plain values that JSON can hold. Lists of floats are measurements
            and may differ by rounding; all else must be equal.
        layout: The names of the files, and wording of errors.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], layout: Layout | None = None) -> None:
        self.folder, self.layout = folder, layout or Layout()
        self.settings: dict[str, Any] = json.loads(json.dumps(dict(settings)))
        self.parts = folder / self.layout.parts

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Locks the folder, which is created if needed, and removes unfinished files of killed processes.

        Raises:
            InUse: Another process works in the folder.
            BadInput: The folder cannot be written.
        """
        place = self.folder / self.layout.lock
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"cannot write {place}: {error.strerror}") from error
        with locked(place, kind=self.layout.kind, within=self.layout.within):
            for name in (self.layout.parts, *self.layout.swept):
                sweep(self.folder / name)
            yield

    @contextmanager
    def open(self) -> Iterator[None]:
        """Locks the folder and saves the settings of the work, within a `with` block.

        Work that fails before anything is saved leaves no settings: the next attempt may have different ones.

        Raises:
            InUse: Another process works in the folder.
            BadInput: The folder holds work with different settings, or it cannot be written.
        """
        missing = [place for place in (self.folder, *self.folder.parents) if not place.exists()]
        with self.exclusive():
            claimed = False
            try:
                claimed = self._claim()
                yield
            except BaseException:
                if not self.begun() and (claimed or not self._file().exists()):
                    self._withdraw(missing)
                raise

    def finished(self) -> bool:
        """Whether the folder holds the result of this work. Writes nothing.

        Raises:
            BadInput: The folder holds work with different settings.
        """
        self.check()
        result = self.layout.result
        return result is not None and self._file().exists() and (self.folder / result).exists()

    def begun(self) -> bool:
        """Whether any part of the work, or its result, is saved."""
        results = () if self.layout.result is None else (self.folder / self.layout.result,)
        return any(path.exists() for path in results) or any(self.parts.glob("[0-9]*"))

    def saved_settings(self) -> dict[str, Any]:
        """Returns the settings in the folder, or {} if there are none.

        Raises:
            BadInput: The file that should hold them is damaged.
        """
        file = self._file()
        if not file.exists():
            return {}
        try:
            settings = read_json(file)
        except BadInput as error:
            raise BadInput(f"{error}; remove {self.folder}, or {self.layout.advice}") from error
        if not isinstance(settings, dict):
            raise BadInput(f"{file} holds no settings of {_article(self.layout.kind)}; {self.layout.advice}")
        return settings

    def check(self, saved: Mapping[str, Any] | None = None) -> None:
        """Compares saved settings, or those in the folder if it has any, with those of this work.

        Raises:
            BadInput: They differ. The error names each setting, both values and the advice.
        """
        if saved is not None or self._file().exists():
            self.refuse(self._changes(self.saved_settings() if saved is None else saved))

    def refuse(self, changes: Iterable[str]) -> None:
        """Raises BadInput with the changes, each as 'name: saved -> requested', if there are any."""
        named = "; ".join(changes)
        if named:
            raise BadInput(f"{self.folder} holds another {self.layout.kind} ({named}); {self.layout.advice}")

    def path(self, number: int) -> Path:
        """Returns the path of a checkpoint. The number is an update, a step, or a group of images."""
        return self.parts / f"{number:0{self.layout.digits}d}"

    def save(self, number: int, state: dict[str, Any], *, about: Mapping[str, Any]) -> None:
        """Saves a checkpoint; `about` goes into its manifest."""
        checkpoint.save(self.path(number), state, about=dict(about))

    def newest(self) -> int | None:
        """Returns the number of the newest intact checkpoint, or None. Damaged ones are set aside with a warning."""
        return checkpoint.newest_sound(self.folder, checkpoint.verify, _log.warning)

    def load(self, number: int, *, again: str) -> dict[str, Any] | None:
        """Returns the state of one checkpoint, or None if there is none.

        A damaged checkpoint is set aside with a warning, in which `again` describes the consequence. It gives None too.
        """
        path = self.path(number)
        if not path.is_dir():
            return None
        try:
            return checkpoint.load(path)[0]
        except checkpoint.Damaged as error:
            aside = checkpoint.set_aside(path, "damaged")
            _log.warning("%s; it is kept as %s, and %s", error.what, aside.name, again)
            return None

    def finish(self) -> None:
        """Removes the checkpoints, which are not needed once the result is saved."""
        remove(self.parts)

    def _file(self) -> Path:
        assert self.layout.file is not None
        return self.folder / self.layout.file

    def _changes(self, saved: Mapping[str, Any]) -> list[str]:
        before, now = dict(self.layout.defaults) | dict(saved), dict(self.layout.defaults) | self.settings
        names = {*before} & {*now} if self.layout.missing_agrees else {*before, *now}
        return differences(before, now, names - {*self.layout.described})

    def _claim(self) -> bool:
        """Writes the settings unless they exist. Returns whether it did."""
        if self.layout.replaces and self._is_another():
            self._clear()
        elif self._file().exists():
            self.check()
            return False
        with atomic_write(self._file()) as unfinished:
            unfinished.write_text(json.dumps(self.settings, indent=1))
        return True

    def _is_another(self) -> bool:
        try:
            return bool(self._changes(self.saved_settings()))
        except BadInput:  # damaged
            return True

    def _clear(self) -> None:
        """Empties the folder, except for the lock."""
        if self.folder.is_symlink():
            raise BadInput(f"{self.folder} is a link, and its target is not removed; remove the link")
        for entry in self.folder.iterdir():
            if entry.name != LOCK:
                remove(entry)

    def _withdraw(self, missing: list[Path]) -> None:
        """Restores the folder as it was found. `missing` lists created folders, the inner ones first."""
        lock = self.folder / self.layout.lock / LOCK
        with suppress(OSError):
            self._file().unlink(missing_ok=True)
            lock.unlink(missing_ok=True)
        for place in (*([lock.parent] if self.layout.lock else []), self.parts, *missing):
            with suppress(OSError):  # it is not empty, or does not exist
                place.rmdir()


def _article(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
