"""All that there is of a run, as plain data for its page. Nothing is computed here that takes more than a moment.

Parts that cannot be read, or that lie outside of the run's folder, are left out, and a note says so.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ebmlife.errors import BadInput
from ebmlife.recipes.schema import Recipe
from ebmlife.report import density, facts, life, log, robustness, samples, sound, training
from ebmlife.report.charts import Chart
from ebmlife.report.facts import Fact
from ebmlife.report.images import Sheet, embedded_file, sheet
from ebmlife.report.inside import LARGEST, Inside, shown
from ebmlife.report.life import Life
from ebmlife.report.log import Line
from ebmlife.report.notes import Notes, reason
from ebmlife.report.robustness import Attack
from ebmlife.report.surfaces import Surfaces
from ebmlife.report.surfaces import read as read_surfaces
from ebmlife.runs import locate, scores
from ebmlife.runs.folder import read_recipe
from ebmlife.runs.scores import Results
from ebmlife.storage import checkpoint

_AGES = 12  # columns of the strip: more would be too small


@dataclass(frozen=True)
class Picture:
    title: str
    caption: str
    source: str


@dataclass(frozen=True)
class Run:
    name: str
    place: str  # as it was asked for
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
    seen: bool  # whether the attacked images were trained on
    along: Sequence[Chart]  # figures along the chain
    burn_in: Sequence[Chart]
    surfaces: Surfaces | None
    scores: Results  # other metrics, by the command that measured them
    versions: dict[str, str]
    fields: Sequence[tuple[str, str]]
    notes: Sequence[str] = ()  # what had to be left out, and why

    @property
    def ages(self) -> list[int]:
        """Rows of the strip that are shown side by side, from birth to old age."""
        last = 0 if self.strip is None else self.strip.rows - 1
        return sorted({round(i * last / (_AGES - 1)) for i in range(_AGES)})


def gather(run: str | Path) -> Run:
    """Of a run's folder, or of any other place of a model; what was measured of it lies in a folder of one's own."""
    folder, own, notes = locate.find(run), locate.own(run), Notes()
    recipe = _recipe(folder)
    lines: list[Line] = notes.part("log.jsonl", lambda: _log(folder, notes), [])
    walked = notes.part("life cycle", lambda: _walked(own), None)
    found, strip = walked or (None, None)
    shape = notes.part("checkpoint", lambda: facts.states(folder), None)
    saved = notes.part("checkpoint", lambda: facts.newest(folder)[0], 0)
    sizes: list[Fact] = notes.part("checkpoint", lambda: facts.sizes(folder), [])
    return Run(
        name=shown(own.resolve().name),
        place=str(run),
        recipe=recipe,
        headline=notes.part("checkpoint", lambda: facts.headline(recipe, shape), facts.headline(recipe, None)),
        facts=facts.facts(recipe, lines, saved=saved, sizes=sizes),
        finished=bool(lines) and lines[-1]["update"] >= recipe.updates,
        life=found,
        strip=strip,
        pictures=_pictures({folder / "pictures": Inside(folder), samples.folder(own): Inside(own)}, recipe, notes),
        training=notes.part("training curves", lambda: training.curves(lines), []),
        diagnostics=notes.part("diagnostics", lambda: training.diagnostics(lines), []),
        attacks=notes.part("attacks", lambda: robustness.read(own, facts.class_names(recipe), notes), []),
        seen=recipe.data.options.get("train") is not True,
        along=[] if found is None else notes.part("life cycle", lambda: density.charts(found), []),
        burn_in=notes.part("burn-in", lambda: density.burn_in(folder, recipe, lines), []),
        surfaces=notes.part("surfaces", lambda: read_surfaces(own), None),
        scores=notes.part("results.json", lambda: _results(own), {}),
        versions=notes.part("checkpoint", lambda: _versions(folder), {}),
        fields=facts.rows(recipe),
        notes=notes.lines,
    )


def _recipe(folder: Path) -> Recipe:
    """Without it there is no page."""
    if Inside(folder).file(folder / "recipe.json", largest=LARGEST) is None:
        raise BadInput(f"{folder} is not the folder of a run: it has no recipe.json")
    try:
        return read_recipe(folder)
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(f"{folder / 'recipe.json'}: {reason(error)}") from error


def _log(folder: Path, notes: Notes) -> list[Line]:
    found = log.read(Inside(folder))
    if found.damaged:
        notes.add(f"log.jsonl: {found.damaged:,} damaged line{'s' if found.damaged > 1 else ''}")
    return found.lines


def _walked(own: Path) -> tuple[Life, Sheet] | None:
    found = life.read(own)
    return None if found is None else (found, sheet(found.cycle.strip))


def _results(own: Path) -> Results:
    Inside(own).file(own / "results.json", largest=LARGEST)
    found = scores.read(own)
    sound.check_results(found)
    return found


_KINDS = {
    "samples": ("Samples", "fresh ones, by the averaged weights"),
    "bank": ("The bank", "of the states that are kept between updates"),
    "generator": ("The generator alone", "images, before any Langevin step"),
}
_TRIED = 25  # files of a kind, the newest first, until one can be shown


def _pictures(folders: dict[Path, Inside], recipe: Recipe, notes: Notes) -> list[Picture]:
    """The newest of each kind."""
    found = []
    for kind, (title, what) in _KINDS.items():
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
    _, place = facts.newest(folder)
    if place is None:
        return {}
    manifest = checkpoint.read_manifest(place)
    versions = manifest.get("versions", {}) | ({"origin": manifest["origin"]} if "origin" in manifest else {})
    return {shown(str(name)): shown(str(version)) for name, version in versions.items()}
