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

_AS_AUTHORS = "train as the code of the paper's authors does, where its print says otherwise; see docs/paper.md"


def register(command: Command) -> None:
    command("recipes", _recipes, "list the named recipes", loads=False)
    show = command("show", _show, "print a recipe with all its fields", fields=True, loads=False)
    show.add_argument("name")
    show.add_argument("--as-authors", action="store_true", help=_AS_AUTHORS)
    train = command("train", _train, "train a recipe in a new folder", fields=True, shared=True)
    train.add_argument("name")
    train.add_argument("--as-authors", action="store_true", help=_AS_AUTHORS)
    train.add_argument("--out", type=Path, required=True, help="the run's folder, which must not exist")
    train.add_argument(
        "--or-resume", action="store_true", help="continue the run that --out holds already, if it is of this recipe"
    )
    resume = command("resume", _resume, "go on with a run", fields=True, shared=True)
    resume.add_argument("folder", type=Path)
    resume.add_argument("--allow-changes", action="store_true", help="go on although the recipe has changed")
    resume.add_argument("--from-update", type=int, help="the checkpoint to go on from; default: the newest")
    about = "train on the embedded digits and see what the model is good for, in minutes"
    show_off = command("demo", _demo, about, loads=False)
    show_off.add_argument("--out", type=Path, default=Path("runs/demo"), help="default: %(default)s")


def _recipe(options: argparse.Namespace, changes: dict[str, str]) -> Recipe:
    name, fields = _varied(options.name, changes)
    recipe = build.resolve(recipes.get(name))
    if options.as_authors:
        recipe = build.resolve(override(recipe, as_authors(recipe)))
    return build.resolve(override(recipe, fields))


def _varied(name: str, changes: dict[str, str]) -> tuple[str, dict[str, str]]:
    """`NAME --no-anneal` is the recipe NAME-no-anneal, and so on with all that there are."""
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
        print(f"stopped and saved at update {outcome.update}; go on with: {again}")
    return 0
