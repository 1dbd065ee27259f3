"""Reads the contents of a run's folder as plain data for its report. Nothing slow is computed here.

Parts that cannot be read, or that are outside of the run's folder, are left out with a note.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ebmlife.errors import BadInput, shown
from ebmlife.recipes.schema import Recipe
from ebmlife.report import density, life, log, robustness, samples, sound, summary, training
from ebmlife.report.charts import Chart
from ebmlife.report.images import Sheet, embedded_file, sheet
from ebmlife.report.life import Life
from ebmlife.report.log import Line
from ebmlife.report.notes import Notes, reason
from ebmlife.report.robustness import Attack
from ebmlife.report.safe_files import LARGEST, SafeFolder
from ebmlife.report.summary import Fact
from ebmlife.report.surfaces import Surfaces
from ebmlife.report.surfaces import read as read_surfaces
from ebmlife.runs import locate, scores
from ebmlife.runs.folder import read_recipe
from ebmlife.runs.scores import Results
from ebmlife.storage import checkpoint

_NAME = 120  # characters of a name that are shown
_AGES = 12  # columns of the strip: more would be too small


@dataclass(frozen=True)
class Picture:
    title: str
    caption: str
    source: str


@dataclass(frozen=True)
class Contents:
    """The contents of a report on a run."""

    name: str
    place: str  # the name that the user gave
    recipe: Recipe
    headline: str
    facts: Sequence[Fact]
    finished: bool
    life: Life | None
    strip: Sheet | None  # a row for each step of the life cycle, a column for each chain
    pictures: Sequence[Picture]
    training: Sequence[Chart]
    diagnostics: Sequence[Chart]
    attacks: Sequence[Attack]
    seen: bool  # whether the attacked images were training images
    along: Sequence[Chart]  # metrics along the chain
    burn_in: Sequence[Chart]
    surfaces: Surfaces | None
    results: Results  # other metrics, by the command that measured them
    versions: dict[str, str]
    fields: Sequence[tuple[str, str]]
    notes: Sequence[str] = ()  # what had to be left out, and why

    @property
    def ages(self) -> list[int]:
        """Rows of the strip that are shown side by side, from the first to the last step."""
        last = 0 if self.strip is None else self.strip.rows - 1
        return sorted({round(i * last / (_AGES - 1)) for i in range(_AGES)})


def read_contents(run: str | Path) -> Contents:
    """Reads the contents of a report on a run.

    Args:
        run: A run's folder, or any other name of a model, such as `zoo:digits-shortrun`.

    Returns:
        The contents; parts that cannot be read are left out, with notes.
    """
    folder, own, notes = locate.find(run), locate.own(run), Notes()
    recipe = _recipe(folder)
    lines: list[Line] = notes.part("log.jsonl", lambda: _log(folder, notes), [])
    life_cycle = notes.part("life cycle", lambda: _life_cycle(own), None)
    found, strip = life_cycle or (None, None)
    shape = notes.part("checkpoint", lambda: summary.states(folder), None)
    saved = notes.part("checkpoint", lambda: summary.newest(folder)[0], 0)
    sizes: list[Fact] = notes.part("checkpoint", lambda: summary.sizes(folder), [])
    return Contents(
        name=shown(own.resolve().name, _NAME),
        place=str(run),
        recipe=recipe,
        headline=notes.part("checkpoint", lambda: summary.headline(recipe, shape), summary.headline(recipe, None)),
        facts=summary.facts(recipe, lines, saved=saved, sizes=sizes),
        finished=bool(lines) and lines[-1]["update"] >= recipe.updates,
        life=found,
        strip=strip,
        pictures=_pictures(
            {folder / "pictures": SafeFolder(folder), samples.folder(own): SafeFolder(own)}, recipe, notes
        ),
        training=notes.part("training curves", lambda: training.curves(lines), []),
        diagnostics=notes.part("diagnostics", lambda: training.diagnostics(lines), []),
        attacks=notes.part("attacks", lambda: robustness.read(own, summary.class_names(recipe), notes), []),
        seen=recipe.data.options.get("train") is not True,
        along=[] if found is None else notes.part("life cycle", lambda: density.charts(found), []),
        burn_in=notes.part("burn-in", lambda: density.burn_in(folder, recipe, lines), []),
        surfaces=notes.part("surfaces", lambda: read_surfaces(own), None),
        results=notes.part("results.json", lambda: _results(own), {}),
        versions=notes.part("checkpoint", lambda: _versions(folder), {}),
        fields=summary.rows(recipe),
        notes=notes.lines,
    )


def _recipe(folder: Path) -> Recipe:
    """Reads the recipe, which every report needs."""
    if SafeFolder(folder).file(folder / "recipe.json", largest=LARGEST) is None:
        raise BadInput(f"{folder} is not the folder of a run: it has no recipe.json")
    try:
        return read_recipe(folder)
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(f"{folder / 'recipe.json'}: {reason(error)}") from error


def _log(folder: Path, notes: Notes) -> list[Line]:
    found = log.read(SafeFolder(folder))
    if found.damaged:
        notes.add(f"log.jsonl: {found.damaged:,} damaged line{'s' if found.damaged > 1 else ''}")
    return found.lines


def _life_cycle(own: Path) -> tuple[Life, Sheet] | None:
    found = life.read(own)
    return None if found is None else (found, sheet(found.cycle.strip))


def _results(own: Path) -> Results:
    SafeFolder(own).file(own / "results.json", largest=LARGEST)
    found = scores.read(own)
    sound.check_results(found)
    return found


_PICTURES = {
    "samples": ("Samples", "new samples from the averaged weights"),
    "bank": ("Bank", "states of the bank that is kept between updates"),
    "generator": ("Generator", "images of the generator, before any Langevin step"),
}
_TRIED = 25  # newest files of a kind that are tried until one can be shown


def _pictures(folders: dict[Path, SafeFolder], recipe: Recipe, notes: Notes) -> list[Picture]:
    """Returns the newest picture of each kind."""
    found = []
    for kind, (title, what) in _PICTURES.items():
        named = re.compile(rf"{kind}-([0-9]{{1,15}})\.png")
        files = [
            (int(match[1]), file, inside)
            for folder, inside in folders.items()
            for file in folder.glob(f"{kind}-*.png")
            if (match := named.fullmatch(file.name))
        ]
        for update, file, inside in sorted(files, key=lambda it: it[:2], reverse=True)[:_TRIED]:
            source = notes.part(f"pictures/{file.name}", partial(embedded_file, file, inside), "")
            if source:
                found.append(Picture(title, f"{recipe.watch.pictures} {what}, at update {update:,}.", source))
                break
    return found


def _versions(folder: Path) -> dict[str, str]:
    _, place = summary.newest(folder)
    if place is None:
        return {}
    manifest = checkpoint.read_manifest(place)
    versions = manifest.get("versions", {}) | ({"origin": manifest["origin"]} if "origin" in manifest else {})
    return {shown(name, _NAME): shown(version, _NAME) for name, version in versions.items()}
