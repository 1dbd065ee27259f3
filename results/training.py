"""The runs behind the results: each is trained once, and continued when the command is called again."""

from pathlib import Path

from rich.console import Console

from ebmlife import recipes
from ebmlife.recipes.schema import Recipe, override
from ebmlife.report.summary import seconds
from ebmlife.runs import build, logging, run
from ebmlife.runs.folder import read_recipe
from ebmlife.storage import checkpoint


def chosen(name: str, changes: dict[str, str] | None = None) -> Recipe:
    """A recipe by name, with some fields changed."""
    return build.resolve(override(build.resolve(recipes.get(name)), changes or {}))


def minutes(folder: Path) -> float:
    """The minutes that the training took, from its log."""
    return seconds(logging.read_log(folder / "log.jsonl")) / 60


def trained(folder: Path, recipe: Recipe, console: Console) -> Path:
    """The folder of a finished run of exactly this recipe."""
    if folder.exists() and read_recipe(folder).hash != recipe.hash:
        raise SystemExit(f"{folder} is a run of another recipe, perhaps of an earlier version; move it away")
    if checkpoint.choose(folder, None) != recipe.updates:
        console.print(f"{folder.name}: {recipe.updates} updates", highlight=False)
        if folder.exists():
            outcome = run.resume(
                folder, change=lambda _: recipe, console=console
            )  # the recipe may have more updates now
        else:
            outcome = run.begin(recipe, folder, console=console)
        if not outcome.finished:
            raise SystemExit("stopped and saved; run the same command to continue")
    return folder
