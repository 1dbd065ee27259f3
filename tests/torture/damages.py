"""Every file of a run, damaged in every way: a command says so in one line, or continues to the same bits."""

import os
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from torture.cases import Case, chance
from torture.ended import Ended
from torture.recovery import what
from torture.sameness import contents, different, log_lines
from torture.verbs import ATTACK, EXAM, Verb
from torture.workshop import Workshop

NAME = "damages"
DEFAULT = 1000
_LOG = "run/log.jsonl"
_DRAWN = (".html", ".png")  # of what is there, damaged or not

RESUME = Verb("resume", "resume run --updates 8 --allow-changes")
SAMPLE = Verb("sample", "sample run --n 9 --out out.npy")
_READING = (
    RESUME,
    SAMPLE,
    Verb("fid", "fid run --n 60 --steps 0,1"),
    Verb("exam", EXAM),
    Verb("attack", ATTACK),
    Verb("report", "report run"),
    Verb("purify", "purify run images/000000.png --out clean"),
    Verb("push", "push run hf:some/one"),
)

Damage = Callable[[Path, random.Random], list[Path]]  # does it, and says to which files


def _bytes(change: Callable[[bytes, random.Random], bytes]) -> Damage:
    def damage(file: Path, dice: random.Random) -> list[Path]:
        file.write_bytes(change(file.read_bytes(), dice))
        return [file]

    return damage


def _instead(make: Callable[[Path], object]) -> Damage:
    def damage(file: Path, dice: random.Random) -> list[Path]:
        file.unlink()
        make(file)
        return [file]

    return damage


def _flipped(content: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(content)) if content else 0
    return content[:at] + bytes([content[at] ^ 1 << dice.randrange(8)]) + content[at + 1 :] if content else b"\0"


def _swapped(file: Path, dice: random.Random) -> list[Path]:
    run = next(folder for folder in file.parents if (folder / "recipe.json").exists())
    other = dice.choice(sorted(path for path in run.rglob("*") if path.is_file() and path != file))
    content = file.read_bytes()
    file.write_bytes(other.read_bytes())
    other.write_bytes(content)
    return [file, other]


def _unreadable(file: Path, dice: random.Random) -> list[Path]:
    file.chmod(0)
    return [file]


DAMAGES: dict[str, Damage] = {
    "cut short": _bytes(lambda content, dice: content[: dice.randrange(max(1, len(content)))]),
    "a bit flipped": _bytes(_flipped),
    "emptied": _bytes(lambda content, dice: b""),
    "bytes appended": _bytes(lambda content, dice: content + dice.randbytes(9)),
    "zeros": _bytes(lambda content, dice: bytes(len(content))),
    "deeply nested": _bytes(lambda content, dice: b"[" * 100_000 + b"]" * 100_000),
    "deleted": _instead(lambda file: None),
    "a folder": _instead(Path.mkdir),
    "a pipe": _instead(os.mkfifo),
    "a link to itself": _instead(lambda file: file.symlink_to(file.name)),
    "a link to nothing": _instead(lambda file: file.symlink_to("nothing")),
    "swapped with another": _swapped,
    "not readable": _unreadable,
}


def cases(workshop: Workshop, count: int, seed: int) -> Iterator[Case]:
    """Files in turn, each damaged in another way every time."""
    for verb in _READING:
        workshop.reference(verb)
    with workshop.place() as place:
        names = sorted(name for name in contents(place.here) if name.startswith("run/"))
    kinds = list(DAMAGES)
    for index in range(count):
        dice = chance(seed, NAME, index)
        turn, file = divmod(index, len(names))
        kind, verb = kinds[(turn + file) % len(kinds)], dice.choice((RESUME, RESUME, *_READING))
        run = partial(_damaged, workshop, names[file], kind, verb, dice)
        yield Case(f"{names[file]} {kind}, {verb.name}", run)


def _damaged(workshop: Workshop, name: str, kind: str, verb: Verb, dice: random.Random) -> str | None:
    with workshop.place() as place:
        damaged = [str(file.relative_to(place.here)) for file in DAMAGES[kind](place.here / name, dice)]
        log = place.here / _LOG
        lines = log_lines(log) if log.is_file() and os.access(log, os.R_OK) else []
        before = contents(place.here)
        ended = place.run(*verb.words)
        if wrong := ended.wrong(allowed=(0, 2)):
            return wrong
        now = contents(place.here)
        if ended.code == 2:
            changed = [path for path in different(now, before) if "damaged" not in path]
            return f"refused ({ended.err.strip()[:90]}), but {what(changed)}" if changed else None
        if lines and verb is RESUME and (lost := len(set(lines) - set(log_lines(log)))):
            return f"{lost} readable lines of the log are lost"
        differences = [path for path in different(now, workshop.reference(verb).contents) if path not in damaged]
        return unlike([path for path in differences if not _made_again(path, damaged)], ended, verb)


def _made_again(path: str, damaged: list[str]) -> bool:
    """Whether it is JSON of a checkpoint that was damaged: made again, it says how many updates are wanted by now."""
    place, _, name = path.rpartition("/")
    return (
        name.endswith(".json") and any(other.startswith(f"{place}/") for other in damaged) and "/checkpoints/" in path
    )


def unlike(differences: list[str], ended: Ended, verb: Verb) -> str | None:
    """What is wrong with an end that seemed good: other bits than from sound files, and nothing said about it."""
    free = ("run/report/",)  # what a page computes where there is no finished exam
    counted = [path for path in differences if "damaged" not in path and not path.endswith(_DRAWN)]
    counted = [path for path in counted if not path.startswith(free)]
    said = "damaged" in ended.out + ended.err
    return f"silently, {what(counted)}" if counted and (verb is RESUME or not said) else None
