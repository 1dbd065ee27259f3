"""The folder of a run: how it is made, and whether one is there."""

from pathlib import Path

from ebmlife.errors import BadInput
from ebmlife.recipes.schema import Recipe
from ebmlife.storage import checkpoint
from ebmlife.storage.atomic import atomic_write, remove, sweep
from ebmlife.storage.interrupt import locked

UNSAVED = ".unsaved"  # in the folder of a run until its first checkpoint is there


def make_folder(folder: Path, recipe: Recipe) -> None:
    """Recipe and marker, in the folder itself: a kill in between leaves one that a new run may have."""
    new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder):
            try:
                refuse_taken(folder)  # another process may have been faster
                sweep(folder)
                (folder / UNSAVED).touch()
                write_recipe(folder, recipe)
            except (OSError, BadInput):
                if new and _vacant(folder):  # within the lock: it is nobody else's
                    remove(folder)
                raise
    except OSError as error:
        raise BadInput(f"cannot write {folder}: {error.strerror}") from error


def refuse_taken(folder: Path) -> None:
    if folder.exists() and not (folder.is_dir() and _vacant(folder)):
        raise BadInput(f"{folder} exists already; choose another --out, or go on with: ebmlife resume {folder}")


def _vacant(folder: Path) -> bool:
    """Whether a folder is empty, but for what a run leaves that was killed before it had its recipe."""
    return all(entry.name in (".lock", UNSAVED) or entry.name.endswith(".unfinished") for entry in folder.iterdir())


def holds_run(folder: Path) -> bool:
    return (folder / "recipe.json").is_file() or bool(checkpoint.updates(folder))


def still_there(folder: Path) -> None:
    if not holds_run(folder):
        raise BadInput(f"{folder} is gone, or no longer the folder of a run; nothing more can be saved there")


def write_recipe(folder: Path, recipe: Recipe) -> None:
    with atomic_write(folder / "recipe.json") as unfinished:
        unfinished.write_text(recipe.model_dump_json(indent=2))
