"""The checkpoints of a run: their names, the newest one that is intact, and which of them are kept."""

import re
from collections.abc import Callable
from pathlib import Path
from shlex import quote

from ebmlife.errors import BadInput
from ebmlife.storage.atomic import discard

_NAME = re.compile("[0-9]{9,18}")


class Damaged(BadInput):
    """A checkpoint is incomplete or has changed since it was written."""

    def __init__(self, what: str, advice: str) -> None:
        super().__init__(what + advice)
        self.what = what


def path(run: Path, update: int) -> Path:
    """Returns the checkpoint of a run at an update."""
    return run / "checkpoints" / f"{update:09d}"


def updates(run: Path) -> list[int]:
    """Returns the updates at which a run has checkpoints, in order."""
    names = [entry.name for entry in (run / "checkpoints").glob("*")]
    return sorted(int(name) for name in names if _NAME.fullmatch(name))


def choose(run: Path, update: int | None) -> int | None:
    """Returns the update of the requested checkpoint, or of the newest; None if there is none yet."""
    available = updates(run)
    if update is not None and update not in available:
        known = f"there are {', '.join(map(str, available))}" if available else "there is none yet"
        raise BadInput(f"{run} has no checkpoint at update {update}; {known}")
    return update if update is not None else max(available, default=None)


def newest_sound(run: Path, check: Callable[[Path], object], show: Callable[[str], None]) -> int | None:
    """Returns the newest update whose checkpoint passes `check`, or None if there is no checkpoint.

    Damaged ones after it are set aside, and `show` is called with a line about each. If all are damaged, they stay and
    BadInput is raised.
    """
    damaged: dict[int, Damaged] = {}
    for update in reversed(updates(run)):
        try:
            check(path(run, update))
        except Damaged as error:
            damaged[update] = error
            continue
        for bad, found in damaged.items():
            show(
                f"{found.what}; it is kept as {set_aside(path(run, bad), 'damaged').name}, and {update} is used instead"
            )
        return update
    for found in damaged.values():
        raise BadInput(f"{found.what}, and no checkpoint before it is intact; start again in another folder") from found
    return None


def abandon(run: Path, *, after: int) -> None:
    """Sets aside the checkpoints after the update from which the run continues; nothing is deleted."""
    for update in updates(run):
        if update > after:
            set_aside(path(run, update), "abandoned")


def set_aside(folder: Path, why: str) -> Path:
    """Renames a checkpoint so that it is no longer found: 000000004.damaged, or .damaged-2 if that exists."""
    names = (folder.with_name(f"{folder.name}.{why}{'' if i == 1 else f'-{i}'}") for i in range(1, 1_000_000))
    aside = next(name for name in names if not name.exists())
    folder.rename(aside)
    return aside


def prune(run: Path, *, keep: int, keep_every: int | None) -> None:
    """Removes all checkpoints but the newest `keep` and those at multiples of `keep_every`."""
    for update in updates(run)[:-keep]:
        if keep_every is None or update % keep_every:
            discard(path(run, update))


def damaged(folder: Path, why: str) -> Damaged:
    """Returns the error for a damaged checkpoint, with the update of the one before it."""
    return Damaged(f"checkpoint {folder} is damaged: {why}", _others(folder))


def _others(folder: Path) -> str:
    if not _NAME.fullmatch(folder.name):
        return ""
    older = [update for update in updates(folder.parent.parent) if update < int(folder.name)]
    if not older:
        return ""
    run = quote(str(folder.parent.parent))
    return f"; the one before it is at update {older[-1]}: add --update {older[-1]}, or type: ebmlife resume {run}"
