"""`ebmlife recipes | show | train | resume | demo`."""

import argparse
from pathlib import Path
from shlex import quote

from rich.console import Console

from ebmlife import recipes
from ebmlife.cli.demo import demo
from ebmlife.cli.parsing import Command
from ebmlife.distributed import SINGLE_PROCESS, Ranks
from ebmlife.errors import shown
from ebmlife.recipes.authors import as_authors
from ebmlife.recipes.schema import Recipe, override
from ebmlife.runs import build, run
from ebmlife.runs.run import Outcome

_AS_AUTHORS = "Follow the authors' code where it differs from the paper's text (see docs/paper.md)."

_NAME = "Name of the recipe, as `ebmlife recipes` lists it."


def register(command: Command) -> None:
    command("recipes", _recipes, "list the named recipes", loads=False)
    show = command("show", _show, "print a recipe with all its fields and its hash", fields=True, loads=False)
    show.add_argument("name", help=_NAME)
    show.add_argument("--as-authors", action="store_true", help=_AS_AUTHORS)
    train = command("train", _train, "train a recipe in a new folder", fields=True, shared=True)
    train.add_argument("name", help=_NAME)
    train.add_argument("--as-authors", action="store_true", help=_AS_AUTHORS)
    train.add_argument("--out", type=Path, required=True, help="Folder of the run, which must not exist.")
    train.add_argument("--or-resume", action="store_true", help="Resume the run if --out holds one of this recipe.")
    resume = command("resume", _resume, "resume a run that was stopped, or make it longer", fields=True, shared=True)
    resume.add_argument("folder", type=Path, help="Folder of the run.")
    resume.add_argument("--allow-changes", action="store_true", help="Resume even if the recipe has changed.")
    resume.add_argument(
        "--from-update", type=int, help="Update of the checkpoint to resume from (default: the newest)."
    )
    about = "train small models of digits and compare their chains, in minutes"
    example = command("demo", _demo, about, loads=False)
    example.add_argument(
        "--out", type=Path, default=Path("runs/demo"), help="Folder of the run (default: %(default)s)."
    )


def _recipe(options: argparse.Namespace, changes: dict[str, str]) -> Recipe:
    name, fields = _varied(options.name, changes)
    recipe = build.resolve(recipes.get(name))
    if options.as_authors:
        recipe = build.resolve(override(recipe, as_authors(recipe)))
    return build.resolve(override(recipe, fields))


def _varied(name: str, changes: dict[str, str]) -> tuple[str, dict[str, str]]:
    """Returns the name and changes of a recipe whose variant is an option: `NAME --no-anneal` is NAME-no-anneal."""
    for field, value in changes.items():
        variant = f"{name}-{field.replace('_', '-')}"
        if value == "true" and variant in recipes.names():
            return variant, {other: changes[other] for other in changes if other != field}
    return name, changes


def _recipes(options: argparse.Namespace, changes: dict[str, str]) -> int:
    width = max(map(len, recipes.names()))
    for name in recipes.names():
        print(f"{name:<{width}}  {recipes.get(name).summary}")
    return 0


def _show(options: argparse.Namespace, changes: dict[str, str]) -> int:
    recipe = _recipe(options, changes)
    print(f"{recipe.model_dump_json(indent=2)}\nhash {recipe.hash}")
    return 0


def _train(options: argparse.Namespace, changes: dict[str, str]) -> int:
    ranks: Ranks = options.ranks
    with ranks.raise_on_all():
        recipe = _recipe(options, changes)
    if ranks.first:
        print(f"recipe {recipe.name} ({recipe.hash}) -> {shown(options.out)}", flush=True)
    console = Console(quiet=not ranks.first)
    start = run.begin_or_resume if options.or_resume else run.begin
    return _ended(start(recipe, options.out, console=console, ranks=ranks, trust=options.trust), ranks)


def _resume(options: argparse.Namespace, changes: dict[str, str]) -> int:
    outcome = run.resume(
        options.folder,
        change=lambda recipe: override(recipe, changes),
        allow_changes=options.allow_changes,
        from_update=options.from_update,
        console=Console(quiet=not options.ranks.first),
        ranks=options.ranks,
        trust=options.trust,
    )
    return _ended(outcome, options.ranks)


def _demo(options: argparse.Namespace, changes: dict[str, str]) -> int:
    outcome = demo(options.out, Console())
    return 0 if outcome.finished else _ended(outcome)


def _ended(outcome: Outcome, ranks: Ranks = SINGLE_PROCESS) -> int:
    if not ranks.first:
        return 0
    if outcome.finished and outcome.last is None:
        print(f"finished already: {outcome.update} updates in {shown(outcome.folder)}")
    elif outcome.finished:
        print(f"done: {outcome.update} updates in {shown(outcome.folder)}")
    else:
        again = f"ebmlife resume {shown(quote(str(outcome.folder)))}"
        print(f"stopped and saved at update {outcome.update}; resume with: {again}")
    return 0
