"""Folders that long work is kept in: a lock, the settings that identify the work, and its checkpoints.

Trainings, attacks, exams and long walks all keep their work this way. Resumed work is never continued with different
settings, and two processes never write to one folder.
"""

import fcntl
import json
import logging
import math
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ebmlife.errors import BadInput, InUse
from ebmlife.storage import checkpoint
from ebmlife.storage.atomic import atomic_write, read_json, remove, sweep

_log = logging.getLogger(__name__)
_LOCK = ".lock"
_ROUNDING = 0.01  # relative: another machine, or another number of threads, rounds differently
_LONGEST = 80  # characters of a setting's value in an error
_held: set[tuple[Path, int, int, str]] = set()  # (folder, process, thread, kind of work) of the locks held here


@dataclass(frozen=True)
class Layout:
    """What the files of one kind of work are called."""

    kind: str = "work"  # as errors name it
    file: str | None = "settings.json"  # None: the settings are in the manifests of the checkpoints
    result: str | None = None  # the file or folder that only finished work has
    parts: str = "checkpoints"  # the folder of the checkpoints
    digits: int = 9  # of a checkpoint's name
    lock: str = ""  # the folder inside the workspace that the lock is in
    swept: tuple[str, ...] = ()  # folders, beside `parts`, in which nobody else writes; "" is the workspace itself
    remedy: str = "choose another folder"  # for those who asked for different settings
    within: tuple[str, ...] = ()  # kinds of work that this one is a part of, and whose lock covers it
    described: tuple[str, ...] = ()  # settings that are saved for readers and never compared
    missing_agrees: bool = False  # older versions saved fewer settings: a missing one agrees with any value
    defaults: tuple[tuple[str, Any], ...] = ()  # values of settings that are saved only where they differ from these
    replaces: bool = False  # work with different settings is removed, not refused


class Workspace:
    """A folder in which one piece of work is kept, killed, resumed and finished.

    Args:
        folder: Where the work is kept. It is created when the work begins.
        settings: What identifies the work, by name: plain values that JSON can hold. Lists of floats are measurements
            and may differ by rounding; all else must be equal.
        layout: The names of the files, and the words of the errors.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], layout: Layout | None = None) -> None:
        self.folder, self.layout = folder, layout or Layout()
        self.settings: dict[str, Any] = json.loads(json.dumps(dict(settings)))
        self.parts = folder / self.layout.parts

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Locks the folder, which is created if needed, and removes what killed processes left unfinished.

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
        """Within, this process alone works in the folder, and the folder holds the settings of the work.

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
        """The settings in the folder; {} where there are none.

        Raises:
            BadInput: The file that should hold them is damaged.
        """
        file = self._file()
        if not file.exists():
            return {}
        try:
            settings = read_json(file)
        except BadInput as error:
            raise BadInput(f"{error}; remove {self.folder}, or {self.layout.remedy}") from error
        if not isinstance(settings, dict):
            raise BadInput(f"{file} holds no settings of {_article(self.layout.kind)}; {self.layout.remedy}")
        return settings

    def check(self, saved: Mapping[str, Any] | None = None) -> None:
        """Compares saved settings, or those in the folder if it has any, with those of this work.

        Raises:
            BadInput: They differ. The error names each setting, both values and the remedy.
        """
        if saved is not None or self._file().exists():
            self.refuse(self._changes(self.saved_settings() if saved is None else saved))

    def refuse(self, changes: Iterable[str]) -> None:
        """Raises BadInput that names the changes, each 'name: saved -> requested', unless there are none."""
        named = "; ".join(changes)
        if named:
            raise BadInput(f"{self.folder} holds another {self.layout.kind} ({named}); {self.layout.remedy}")

    def path(self, number: int) -> Path:
        """The checkpoint of that number: of an update, a step, or a group of images."""
        return self.parts / f"{number:0{self.layout.digits}d}"

    def save(self, number: int, state: dict[str, Any], *, about: Mapping[str, Any]) -> None:
        """Saves a checkpoint; `about` goes into its manifest."""
        checkpoint.save(self.path(number), state, about=dict(about))

    def newest(self) -> int | None:
        """The number of the newest sound checkpoint, or None. Damaged ones after it are set aside, with a warning."""
        return checkpoint.newest_sound(self.folder, checkpoint.verify, _log.warning)

    def load(self, number: int, *, again: str) -> dict[str, Any] | None:
        """The state of one checkpoint; None where there is none, or where it was damaged and is now set aside.

        `again` says in the warning what is done in that case.
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
        """Removes the checkpoints: the result is saved, and they are not needed any more."""
        remove(self.parts)

    def _file(self) -> Path:
        assert self.layout.file is not None
        return self.folder / self.layout.file

    def _changes(self, saved: Mapping[str, Any]) -> list[str]:
        before, now = dict(self.layout.defaults) | dict(saved), dict(self.layout.defaults) | self.settings
        names = {*before} & {*now} if self.layout.missing_agrees else {*before, *now}
        return differences(before, now, names - {*self.layout.described})

    def _claim(self) -> bool:
        """Writes the settings unless they are there; whether it did."""
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
        """Empties the folder, but for the lock that is held."""
        if self.folder.is_symlink():
            raise BadInput(f"{self.folder} is a link, and what it leads to is not removed; remove the link")
        for entry in self.folder.iterdir():
            if entry.name != _LOCK:
                remove(entry)

    def _withdraw(self, missing: list[Path]) -> None:
        """Leaves the folder as it was found: the inner ones of `missing` come first."""
        lock = self.folder / self.layout.lock / _LOCK
        with suppress(OSError):
            self._file().unlink(missing_ok=True)
            lock.unlink(missing_ok=True)
        for place in (*([lock.parent] if self.layout.lock else []), self.parts, *missing):
            with suppress(OSError):  # it is not empty, or not there
                place.rmdir()


def differences(saved: Mapping[str, Any], asked: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Which of the named settings differ, each as 'name: saved -> requested'; a missing one is shown as None."""
    changed = [name for name in sorted(names) if not alike(saved.get(name), asked.get(name))]
    return [f"{name}: {_shown(saved.get(name))} -> {_shown(asked.get(name))}" for name in changed]


def alike(old: object, new: object) -> bool:
    """Whether two settings are the same; lists of floats are measurements, and may differ by rounding."""
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return all(a == b or _near(a, b) for a, b in zip(old, new, strict=True))
    return old == new


@contextmanager
def locked(folder: Path, *, kind: str = "work", within: tuple[str, ...] = ()) -> Iterator[None]:
    """Locks the folder against other processes and threads; the lock ends with its process, however that ends.

    A thread that holds it for a kind of work named in `within` holds it for this kind too.
    """
    here = folder.resolve(), os.getpid(), threading.get_ident()
    mine = (*here, kind)
    covered = mine not in _held and any((*here, outer) in _held for outer in within)
    with nullcontext() if covered else _lock_file(folder):
        _held.add(mine)
        try:
            yield
        finally:
            _held.discard(mine)


@contextmanager
def _lock_file(folder: Path) -> Iterator[None]:
    file = folder / _LOCK
    while True:
        try:
            stream = file.open("w")
        except OSError as error:
            raise BadInput(f"cannot write {folder}: {error.strerror}") from error
        with stream:
            _lock(stream, folder)
            if _is_current(stream, file):
                yield
                return


def _lock(stream: IO[str], folder: Path) -> None:
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise InUse(f"{folder} is in use by another process; wait for it or stop it") from error
    except OSError as error:
        raise BadInput(f"cannot lock {folder}: {error.strerror}") from error


def _is_current(stream: IO[str], file: Path) -> bool:
    """False if the process that held the lock before has removed the file: a lock on it would exclude nobody."""
    try:
        return os.path.samestat(os.fstat(stream.fileno()), file.stat())
    except OSError:
        return False


def _near(a: object, b: object) -> bool:
    if not isinstance(a, float) or not isinstance(b, float):
        return False
    return math.isclose(a, b, rel_tol=_ROUNDING) or (math.isnan(a) and math.isnan(b))


def _shown(value: object) -> str:
    rounded = [f"{item:.4g}" if isinstance(item, float) else item for item in value] if isinstance(value, list) else []
    text = f"[{', '.join(map(str, rounded))}]" if rounded else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _article(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
