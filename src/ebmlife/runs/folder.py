"""The folder of a run: how it is created, locked and recognized, and the recipe in it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ebmlife.errors import BadInput
from ebmlife.recipes.schema import Recipe, validate
from ebmlife.runs import build
from ebmlife.storage import checkpoint
from ebmlife.storage.atomic import atomic_write, read_json, remove
from ebmlife.storage.workspace import Layout, Workspace

UNSAVED = ".unsaved"  # a file in the folder of a run until the first checkpoint is saved
_LAYOUT = Layout(
    "run",
    file="recipe.json",
    swept=("", "pictures"),
    advice="undo the change, or add --allow-changes to `ebmlife resume`",
)


def workspace(folder: Path) -> Workspace:
    """Returns the workspace of a run. It does not compare settings: `recipes.schema.differences` compares recipes."""
    return Workspace(folder, {}, _LAYOUT)


@contextmanager
def new_run(folder: Path, recipe: Recipe) -> Iterator[None]:
    """Creates and locks the folder of a run. If it is killed before it has a recipe, another run may use the folder."""
    created = not folder.exists()
    with workspace(folder).exclusive():
        try:
            refuse_taken(folder)  # another process may have been faster
            (folder / UNSAVED).touch()
            write_recipe(folder, recipe)
        except (OSError, BadInput) as error:
            if created and _vacant(folder):
                remove(folder)
            if isinstance(error, OSError):
                raise BadInput(f"cannot write {folder}: {error.strerror}") from error
            raise
        yield


@contextmanager
def existing_run(folder: Path) -> Iterator[None]:
    """Locks the folder of a run."""
    if not holds_run(folder):
        raise BadInput(f"{folder} is not the folder of a run: it has no recipe.json")
    with workspace(folder).exclusive():
        yield


def refuse_taken(folder: Path) -> None:
    """Raises BadInput if the folder exists and is not empty."""
    if folder.exists() and not (folder.is_dir() and _vacant(folder)):
        raise BadInput(f"{folder} exists already; choose another --out, or continue it with: ebmlife resume {folder}")


def _vacant(folder: Path) -> bool:
    """Whether the folder is empty, apart from the files of a run that was killed before it wrote its recipe."""
    return all(entry.name in (".lock", UNSAVED) or entry.name.endswith(".unfinished") for entry in folder.iterdir())


def holds_run(folder: Path) -> bool:
    """Whether the folder has a recipe or a checkpoint."""
    return (folder / "recipe.json").is_file() or bool(checkpoint.updates(folder))


def require_run(folder: Path) -> None:
    """Raises BadInput if the folder of a run has been removed during its training."""
    if not holds_run(folder):
        raise BadInput(f"{folder} has been removed, or is no longer the folder of a run; nothing can be saved there")


def read_recipe(folder: Path) -> Recipe:
    """Returns the complete recipe of a run, from its recipe.json."""
    try:
        return build.resolve(validate(read_json(folder / "recipe.json")))
    except BadInput as error:
        raise BadInput(f"{folder / 'recipe.json'} cannot be used: {error}") from error


def write_recipe(folder: Path, recipe: Recipe) -> None:
    with atomic_write(folder / "recipe.json") as unfinished:
        unfinished.write_text(recipe.model_dump_json(indent=2))
