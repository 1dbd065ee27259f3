"""The command line. Mistakes become one line and exit code 2; `--debug` shows the traceback instead."""

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from shlex import quote
from typing import NoReturn

import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor

from ebmlife import __version__, build, checkpoint, output, pictures, recipes, run
from ebmlife.bench import bench
from ebmlife.demo import demo
from ebmlife.errors import BadInput, Diverged, nearest
from ebmlife.exam import score_samples
from ebmlife.recipe import Recipe, override
from ebmlife.run import Outcome

_FIELDS = "any field of the recipe can follow, such as --langevin.steps 50; `ebmlife show NAME` lists them"


_NOT_OPTIONS = ("command", "takes_fields", "run", "folder", "name")
_Command = Callable[[argparse.Namespace, dict[str, str]], int]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadInput(f"{message}; see {self.prog} --help")


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    try:
        return _dispatch([word for word in words if word != "--debug"])
    except (BadInput, OSError) as error:
        if debug:
            raise
        print(f"ebmlife: error: {_one_line(error)}", file=sys.stderr)
        return 2
    except Diverged as error:
        if debug:
            raise
        print(f"ebmlife: diverged: {_one_line(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _dispatch(words: list[str]) -> int:
    parser = _parser()
    options, rest = parser.parse_known_args(words)
    if rest and not options.takes_fields:
        known = ["--help", *(f"--{name}" for name in vars(options) if name not in _NOT_OPTIONS)]
        raise BadInput(f"unknown argument {rest[0]!r}{nearest(rest[0], known)}")
    code: int = options.run(options, _changes(rest))
    return code


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="ebmlife",
        allow_abbrev=False,
        description="Energy-based models of images, for every length of Langevin chain.",
        epilog="--debug, anywhere, shows the traceback of an error.",
    )
    parser.add_argument("--version", action="version", version=f"ebmlife {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=_Parser, metavar="COMMAND")

    def command(name: str, run: _Command, about: str, *, fields: bool = False) -> argparse.ArgumentParser:
        epilog = _FIELDS if fields else None
        added = commands.add_parser(name, help=about, description=about, epilog=epilog, allow_abbrev=False)
        added.set_defaults(run=run, takes_fields=fields)
        return added

    command("recipes", _recipes, "list the named recipes")
    show = command("show", _show, "print a recipe with all its fields", fields=True)
    show.add_argument("name")
    train = command("train", _train, "train a recipe in a new folder", fields=True)
    train.add_argument("name")
    train.add_argument("--out", type=Path, required=True, help="the run's folder, which must not exist")
    resume = command("resume", _resume, "go on with a run", fields=True)
    resume.add_argument("folder", type=Path)
    resume.add_argument("--allow-changes", action="store_true", help="go on although the recipe has changed")
    resume.add_argument("--from-update", type=int, help="the checkpoint to go on from; default: the newest")
    sample = command("sample", _sample, "draw samples from a run")
    sample.add_argument("folder", type=Path)
    sample.add_argument("--n", type=int, default=64, help="how many (default: %(default)s)")
    sample.add_argument("--steps", type=int, help="Langevin steps; default: the recipe's sampling_steps")
    sample.add_argument("--out", type=Path, required=True, help=".png, .npy, .safetensors, or a folder for images")
    sample.add_argument("--seed", type=int, default=0)
    sample.add_argument("--update", type=int, help="the checkpoint; default: the newest")
    sample.add_argument("--raw", action="store_true", help="the raw weights instead of their moving average")
    sample.add_argument("--device", default="auto")
    fid = command("fid", _fid, "measure how far a run's samples are from its data")
    fid.add_argument("folder", type=Path)
    fid.add_argument("--n", type=int, help="how many samples (default: 2000 for digits, else 5000)")
    fid.add_argument(
        "--steps", default=None, help="Langevin steps: 0,30,60; default: 0 (the start alone) and the recipe's"
    )
    fid.add_argument("--checkpoints", action="store_true", help="every checkpoint of the run, and the best of them")
    fid.add_argument("--seed", type=int, default=0)
    fid.add_argument("--update", type=int, help="the checkpoint; default: the newest")
    speed = command("bench", _bench, "measure how fast Langevin is on this machine, as ratios in one run")
    speed.add_argument("--out", type=Path, default=Path("runs/bench"), help="default: %(default)s")
    speed.add_argument("--rounds", type=int, default=5)
    speed.add_argument("--seconds", type=float, default=0.5, help="of each walk (default: %(default)s)")
    show_off = command("demo", _demo, "train on the embedded digits and look at the samples, in minutes")
    show_off.add_argument("--out", type=Path, default=Path("runs/demo"), help="default: %(default)s")
    return parser


def _changes(rest: list[str]) -> dict[str, str]:
    """['--a.b', '1', '--c=2', '--d'] -> {'a.b': '1', 'c': '2', 'd': 'true'}."""
    changes: dict[str, str] = {}
    words = list(rest)
    while words:
        name, equals, value = words.pop(0).partition("=")
        if not name.startswith("--"):
            raise BadInput(f"unexpected argument {name!r}; fields of the recipe are given as --field value")
        if not equals:
            value = words.pop(0) if words and not words[0].startswith("--") else "true"
        changes[name[2:].replace("-", "_")] = value
    return changes


def _recipe(options: argparse.Namespace, changes: dict[str, str]) -> Recipe:
    return build.resolve(override(build.resolve(recipes.get(options.name)), changes))


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
    recipe = _recipe(options, changes)
    print(f"recipe {recipe.name} ({recipe.hash}) -> {options.out}", flush=True)
    return _ended(run.begin(recipe, options.out, console=Console()))


def _resume(options: argparse.Namespace, changes: dict[str, str]) -> int:
    outcome = run.resume(
        options.folder,
        change=lambda recipe: override(recipe, changes),
        allow_changes=options.allow_changes,
        from_update=options.from_update,
        console=Console(),
    )
    return _ended(outcome)


def _sample(options: argparse.Namespace, changes: dict[str, str]) -> int:
    model = build.load(options.folder, update=options.update, averaged=not options.raw, device=options.device)
    states = model.stream(options.n, steps=options.steps, seed=options.seed)
    output.write(options.out, states, n=options.n, shape=model.shape)
    print(f"{options.n} samples: {options.out}")
    return 0


def _fid(options: argparse.Namespace, changes: dict[str, str]) -> int:
    model = build.load(options.folder, update=options.update)
    data = build.DATA.make(model.recipe.data)
    n = options.n or (2000 if model.recipe.data.kind == "digits" else 5000)
    score = partial(score_samples, data=data, n=n, seed=options.seed, progress=_progress)
    if options.checkpoints:
        steps = _counts(options.steps)[0] if options.steps else model.recipe.sampling_steps
        models = {update: build.load(options.folder, update=update) for update in checkpoint.updates(options.folder)}
        found = _scored({update: partial(score, model, steps=steps) for update, model in models.items()}, "update")
        name = next(iter(next(iter(found.values()))))
        best = min(found, key=lambda update: found[update][name])
        print(f"best: update {best}, {name} {found[best][name]:.4g}")
        file = _plot(options.folder / "fid-checkpoints.png", found, "update")
    else:
        counts = _counts(options.steps) if options.steps else [0, model.recipe.sampling_steps]
        found = _scored({steps: partial(score, model, steps=steps) for steps in counts}, "Langevin steps")
        file = _plot(options.folder / "fid-steps.png", found, "Langevin steps")
        ages = [model.sample(10, steps=steps, seed=options.seed) for steps in counts]  # the same chains growing old
        pictures.save(options.folder / "fid-steps-strips.png", pictures.grid(torch.cat(ages), columns=10))
        print(f"strips, a row for each number of steps: {options.folder / 'fid-steps-strips.png'}")
    print(f"plot: {file}")
    return 0


def _scored(cases: dict[int, Callable[[], dict[str, float]]], of: str) -> dict[int, dict[str, float]]:
    """Every case's scores, printed as they come."""
    found = {}
    for key, score in cases.items():
        found[key] = score()
        print(f"{of} {key:>7}  ", "  ".join(f"{name} {value:.4g}" for name, value in found[key].items()), flush=True)
    return found


def _plot(file: Path, found: dict[int, dict[str, float]], x: str) -> Path:
    name = next(iter(next(iter(found.values()))))
    line = {name: {key: scores[name] for key, scores in found.items()}}
    pictures.save(file, pictures.curves(line, title=str(file.parent), x=x, y=name))
    return file


def _progress(batches: Iterable[Tensor], total: int, what: str) -> Iterator[Tensor]:
    """A bar with the time left, on a terminal."""
    console = Console(stderr=True)
    with Progress(*Progress.get_default_columns(), console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        for batch in batches:
            yield batch
            bar.advance(task, len(batch))


def _counts(text: str) -> list[int]:
    try:
        return [int(word) for word in text.split(",")]
    except ValueError as error:
        raise BadInput(f"--steps takes whole numbers with commas between them, not {text!r}") from error


def _bench(options: argparse.Namespace, changes: dict[str, str]) -> int:
    if options.rounds < 1 or not 0 < options.seconds < float("inf"):
        raise BadInput(
            f"bench needs --rounds of at least 1 and --seconds above 0, got {options.rounds}, {options.seconds}"
        )
    bench(options.out, Console(), rounds=options.rounds, seconds=options.seconds)
    return 0


def _demo(options: argparse.Namespace, changes: dict[str, str]) -> int:
    return _ended(demo(options.out, Console()))


def _ended(outcome: Outcome) -> int:
    if outcome.finished:
        print(f"done: {outcome.update} updates in {outcome.folder}")
    else:
        print(f"stopped and saved at update {outcome.update}; go on with: ebmlife resume {quote(str(outcome.folder))}")
    return 0
