"""Files that try to run code: recipes that name some, images for Ghostscript, libraries in the cache, pickles."""

import json
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from torture import bad_files
from torture.cases import Case, Skipped
from torture.commands import Place
from torture.rights import NOBODY
from torture.tampering import refresh
from torture.workshop import Workshop

NAME = "hostile"
DEFAULT = 60
_STRANGER = 54321  # the number of a user who is not there
_LOADING = (
    "sample {run} --n 4 --out out.npy",
    "resume {run}",
    "fid {run} --n 30",
    "exam {run} --steps 3 --chains 4 --out exam",
    "report {run} --out page.html",
    "purify {run} images/000000.png --out clean",
    "attack {run} --classifier classifier --threat linf:8/255 --n 4 --steps 1 --out attacked",
    "push {run} hf:another/one",
    "watch {run} --port 0 --classifier classifier",
)
_IMAGES = (
    "purify run photos/eps-named-as.png --out clean",
    "train folder-shortrun --data.folder photos --data.size 8 --updates 1 --out new",
)

Set = Callable[[Place, Path], None]  # puts the trap into a place; sprung, it makes the file at the path


def cases(workshop: Workshop, count: int, seed: int) -> Iterator[Case]:
    traps: list[tuple[str, Set, str]] = []
    for command in _LOADING:
        traps.append(("a recipe that names code", _recipe, command.format(run="run")))
        traps.append(("a classifier's recipe that names code", _recipe_of_classifier, command.format(run="run")))
        if not command.startswith("resume"):
            traps.append(("a recipe from the hub that names code", _shared_recipe, command.format(run="hf:some/one")))
    traps += [("PostScript named as an image", _postscript, command) for command in _IMAGES]
    for mode, owner in ((0o777, NOBODY), (0o755, _STRANGER)):
        traps.append(
            (
                f"a library in the cache, mode {mode:o}, owner {owner}",
                partial(_library, mode, owner),
                "sample run --out out.npy",
            )
        )
    traps.append(("a pickle", _pickle, "import evil.pth --out imported"))
    for about, set_trap, command in traps[:count]:
        yield Case(f"{about}, {command}", partial(_sprung, workshop, set_trap, command))


def _sprung(workshop: Workshop, set_trap: Set, command: str) -> str | None:
    with workshop.place(cache=False) as place:
        shutil.copytree(workshop.cache, place.root / "home" / "cache")
        marker = place.root / "tmp" / "code-ran"
        place.environment["MARKER"] = str(marker)
        set_trap(place, marker)
        child = place.start(*command.split())
        if command.startswith("watch"):
            child.wait(5)
            child.send(signal.SIGINT)
        ended = child.ended()
        return "CODE WAS RUN" if marker.exists() else ended.wrong()


def _recipe(place: Place, marker: Path) -> None:
    (place.here / "evil.py").write_text("import os, pathlib\npathlib.Path(os.environ['MARKER']).touch()\n")
    for run in (place.here / "run").rglob("recipe.json"):
        _name_code(run.parent)


def _recipe_of_classifier(place: Place, marker: Path) -> None:
    _recipe(place, marker)
    _name_code(place.here / "classifier")


def _shared_recipe(place: Place, marker: Path) -> None:
    shared = shutil.copytree(place.here / "run", place.here / "hub" / "some" / "one")
    _recipe(place, marker)
    _name_code(shared)


def _name_code(run: Path) -> None:
    """In every place where a recipe names a kind of generator, and in the checkpoints' own recipes."""
    call = {"kind": "python", "call": "evil:made"}

    def changed(recipe: dict[str, object]) -> dict[str, object]:
        optimizer = recipe.get("optimizer")
        return recipe | {"generator": {"net": call, "optimizer": optimizer, "run": None}}

    file = run / "recipe.json"
    file.write_text(json.dumps(changed(json.loads(file.read_text()))))
    for folder in (run / "checkpoints").iterdir():
        state = json.loads((folder / "state.json").read_text())
        state["recipe"] = changed(state["recipe"])
        (folder / "state.json").write_text(json.dumps(state))
        refresh(folder)


def _postscript(place: Place, marker: Path) -> None:
    """The first `gs` on the path is ours."""
    photos, program = shutil.copytree(place.here / "images", place.here / "photos"), place.root / "bin" / "gs"
    (photos / "eps-named-as.png").write_bytes(bad_files.picture("EPS"))
    program.parent.mkdir()
    program.write_text('#!/bin/sh\n: > "$MARKER"\nexit 1\n')
    program.chmod(0o755)


def _library(mode: int, owner: int | None, place: Place, marker: Path) -> None:
    """Somebody else's, or one that anybody could have put there."""
    if owner is None or NOBODY is None:
        raise Skipped("only root can make files of another user")
    source = place.root / "evil.c"
    source.write_text(
        "#include <stdlib.h>\n#include <stdio.h>\n"
        '__attribute__((constructor)) static void go(void) { fclose(fopen(getenv("MARKER"), "w")); }\n'
        "void run(void) {}\n"
    )
    if shutil.which("cc") is None:
        raise Skipped("there is no compiler")
    libraries = list((place.root / "home" / "cache").rglob("program-*.so"))
    if not libraries:
        raise Skipped("no library was built here")
    for file in libraries:
        subprocess.run(["cc", "-shared", "-fPIC", "-o", file, source], check=True)
        file.chmod(mode)
        file.parent.chmod(mode)
        place.kept[file] = owner


def _pickle(place: Place, marker: Path) -> None:
    program = "__import__('pathlib').Path(__import__('os').environ['MARKER']).touch()"
    (place.here / "evil.pth").write_bytes(f"cbuiltins\neval\n(V{program}\ntR.".encode())
