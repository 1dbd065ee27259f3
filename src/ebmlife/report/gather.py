"""All that there is of a run, as plain data for its page. Nothing is computed here that takes more than a moment."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ebmlife import checkpoint, places, results, watch
from ebmlife.errors import BadInput
from ebmlife.recipe import Recipe
from ebmlife.report import density, facts, life, robustness, samples, training
from ebmlife.report.charts import Chart
from ebmlife.report.facts import Fact
from ebmlife.report.images import Sheet, embedded_file, sheet
from ebmlife.report.life import Life
from ebmlife.report.robustness import Attack
from ebmlife.report.surfaces import Surfaces
from ebmlife.report.surfaces import read as read_surfaces
from ebmlife.results import Results
from ebmlife.run import read_recipe

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
    results: Results  # other figures, by the command that measured them
    versions: dict[str, str]
    fields: Sequence[tuple[str, str]]

    @property
    def ages(self) -> list[int]:
        """Rows of the strip that are shown side by side, from birth to old age."""
        last = 0 if self.strip is None else self.strip.rows - 1
        return sorted({round(i * last / (_AGES - 1)) for i in range(_AGES)})


def gather(run: str | Path) -> Run:
    """Of a run's folder, or of any other place of a model; what was measured of it lies in a folder of one's own."""
    folder, own = places.find(run), places.own(run)
    if not (folder / "recipe.json").is_file():
        raise BadInput(f"{folder} is not the folder of a run: it has no recipe.json")
    recipe, lines = read_recipe(folder), _log(folder)
    found = life.read(own)
    return Run(
        name=own.resolve().name,
        place=str(run),
        recipe=recipe,
        headline=facts.headline(recipe, facts.states(folder)),
        facts=facts.facts(folder, recipe, lines),
        finished=bool(lines) and lines[-1]["update"] >= recipe.updates,
        life=found,
        strip=None if found is None else sheet(found.cycle.strip),
        pictures=_pictures((folder / "pictures", samples.folder(own)), recipe),
        training=training.curves(lines),
        diagnostics=training.diagnostics(lines),
        attacks=robustness.read(own, facts.class_names(recipe)),
        seen=recipe.data.options.get("train") is not True,
        along=[] if found is None else density.charts(found),
        burn_in=density.burn_in(folder, recipe, lines),
        surfaces=read_surfaces(own),
        results=results.read(own),
        versions=_versions(folder),
        fields=facts.rows(recipe),
    )


def _log(folder: Path) -> list[dict[str, Any]]:
    file = folder / "log.jsonl"
    if not file.is_file():
        return []
    state = file.stat()
    return _read_log(file, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=8)
def _read_log(file: Path, modified: int, size: int) -> list[dict[str, Any]]:
    """A log of 100,000 updates takes seconds to read: a live page reads it again only when it has grown."""
    return watch.read_log(file)


_KINDS = {
    "samples": ("Samples", "fresh ones, by the averaged weights"),
    "bank": ("The bank", "of the states that are kept between updates"),
    "generator": ("The generator alone", "images, before any Langevin step"),
}


def _pictures(folders: Sequence[Path], recipe: Recipe) -> list[Picture]:
    """The newest of each kind."""
    found = []
    for kind, (title, what) in _KINDS.items():
        files = sorted(
            (file for folder in folders for file in folder.glob(f"{kind}-*.png")), key=lambda file: file.name
        )
        if files:
            update = int(files[-1].stem.rpartition("-")[2])
            caption = f"{recipe.watch.pictures} {what}, at update {update:,}."
            found.append(Picture(title, caption, embedded_file(files[-1])))
    return found


def _versions(folder: Path) -> dict[str, str]:
    newest = checkpoint.choose(folder, None)
    if newest is None:
        return {}
    manifest = checkpoint.read_manifest(checkpoint.path(folder, newest))
    versions: dict[str, str] = manifest.get("versions", {})
    return versions | ({"origin": manifest["origin"]} if "origin" in manifest else {})
