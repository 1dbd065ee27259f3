"""`ebmlife sample | fid`."""

import argparse
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from ebmlife.cli import images, output
from ebmlife.cli.parsing import Command, add_sampler_option, add_weights_options, counts, raw_weights
from ebmlife.distributed import Ranks
from ebmlife.errors import shown
from ebmlife.exam import score_samples
from ebmlife.plots import charts, pictures
from ebmlife.runs import build, locate, scores
from ebmlife.runs.evaluated import Images, choose
from ebmlife.runs.model import Model
from ebmlife.runs.progress import ProgressDisplay
from ebmlife.storage import checkpoint


def register(command: Command) -> None:
    sample = command("sample", _sample, "draw samples from a model", shared=True)
    sample.add_argument("folder", type=Path, metavar="RUN", help="A run's folder, zoo:NAME or hf:user/model.")
    sample.add_argument("--n", type=int, default=64, help="Number of samples (default: %(default)s).")
    sample.add_argument("--steps", type=int, help="Number of Langevin steps (default: the recipe's sampling_steps).")
    add_sampler_option(sample)
    sample.add_argument(
        "--out", type=Path, required=True, help="Output: a .png, .npy or .safetensors file, or a folder for images."
    )
    sample.add_argument("--seed", type=int, default=0, help="Random seed (default: %(default)s).")
    sample.add_argument("--update", type=int, help="Update of the checkpoint (default: the newest).")
    add_weights_options(sample)
    sample.add_argument("--device", default="auto", help="Device, such as cpu or cuda (default: %(default)s).")
    fid = command(
        "fid",
        _fid,
        "measure the Fréchet distance (FID) between a model's samples and its data",
        fields="data",
        shared=True,
    )
    fid.add_argument(
        "folder",
        type=Path,
        help="A run's folder, zoo:NAME or hf:user/NAME; plots of the latter two are written to ./NAME.",
    )
    fid.add_argument("--n", type=int, help="Number of samples (default: 2000 for digits, else 5000).")
    fid.add_argument(
        "--steps", help="Numbers of Langevin steps, such as 0,30,60 (default: 0 and the recipe's sampling_steps)."
    )
    fid.add_argument(
        "--checkpoints", action="store_true", help="Score every checkpoint of the run and print the best one."
    )
    fid.add_argument("--seed", type=int, default=0, help="Random seed (default: %(default)s).")
    fid.add_argument("--update", type=int, help="Update of the checkpoint (default: the newest).")
    add_weights_options(fid)
    images.declare(fid, default="the training images, or all digits")


def _sample(options: argparse.Namespace, changes: dict[str, str]) -> int:
    ranks: Ranks = options.ranks
    with ranks.raise_on_all(), ranks.rank0_first():
        model = build.load(
            options.folder,
            update=options.update,
            averaged=not raw_weights(options),
            device=options.device,
            trust_code=options.trust,
        )
        blocks = model.blocks(options.n, steps=options.steps, seed=options.seed, sampler=options.sampler)
        output.check(options.out, n=options.n, shape=model.shape)
    states = _shown(ranks, ranks.in_order(blocks), options.n, "samples")
    if ranks.first:
        output.write(options.out, states, n=options.n, shape=model.shape)
        print(f"{options.n} samples: {shown(options.out)}")
    else:
        deque(states, maxlen=0)
    return 0


def _fid(options: argparse.Namespace, changes: dict[str, str]) -> int:
    ranks: Ranks = options.ranks
    with ranks.raise_on_all(), ranks.rank0_first():
        averaged = not raw_weights(options)
        load = partial(build.load, options.folder, averaged=averaged, trust_code=options.trust)
        model = load(update=options.update)
        place, source = locate.own(options.folder), locate.find(options.folder, update=options.update)
        chosen = _reference(model, options, changes)
        chosen_steps = counts(options.steps) if options.steps else None
    n = build.describe(model.recipe.data).samples if options.n is None else options.n
    score = partial(
        score_samples, data=chosen.data, n=n, seed=options.seed, progress=partial(_shown, ranks), ranks=ranks
    )
    if options.checkpoints:
        steps = chosen_steps[0] if chosen_steps else model.recipe.sampling_steps
        models = {update: load(update=update) for update in checkpoint.updates(source)}
        cases = {update: partial(score, model, steps=steps) for update, model in models.items()}
        found = _scored(cases, "update", ranks)
    else:
        choices = chosen_steps or [0, model.recipe.sampling_steps]
        found = _scored({steps: partial(score, model, steps=steps) for steps in choices}, "Langevin steps", ranks)
    if ranks.first and options.checkpoints:
        _show_checkpoints(found, place)
    elif ranks.first:
        at = f" --update {checkpoint.choose(source, options.update)}{'' if averaged else ' --raw'}"
        at += images.words(options, changes)
        for steps, measured in found.items():
            command = f"ebmlife fid --n {n} --steps {steps} --seed {options.seed}{at}"
            scores.record(place, command, measured, evaluated_on=chosen.about)
        print(f"compared with: {chosen}")
        _show_steps(found, model, place, seed=options.seed)
    return 0


def _reference(model: Model, options: argparse.Namespace, changes: dict[str, str]) -> Images:
    """Returns the images that samples are compared with: the training images, as usual with FID, or all digits."""
    split = build.describe(model.recipe.data).reference
    if split is not None and not images.typed(options, changes):
        return choose(model, {}, split, tests=False)
    return images.find(model, options, changes, tests=False)


def _show_checkpoints(found: dict[int, dict[str, float]], folder: Path) -> None:
    name = next(iter(next(iter(found.values()))))
    best = min(found, key=lambda update: found[update][name])
    print(f"best: update {best}, {name} {found[best][name]:.4g}")
    print(f"plot: {shown(_plot(folder / 'fid-checkpoints.png', found, 'update'))}")


def _show_steps(found: dict[int, dict[str, float]], model: Model, folder: Path, *, seed: int) -> None:
    strips = [model.sample(10, steps=steps, seed=seed, scope="picture") for steps in found]  # of the same chains
    pictures.save(folder / "fid-steps-strips.png", pictures.grid(torch.cat(strips), columns=10))
    print(f"samples, one row for each number of steps: {shown(folder / 'fid-steps-strips.png')}")
    print(f"plot: {shown(_plot(folder / 'fid-steps.png', found, 'Langevin steps'))}")


def _scored(cases: Mapping[int, Callable[[], dict[str, float]]], of: str, ranks: Ranks) -> dict[int, dict[str, float]]:
    """Returns the scores of every case and prints each as soon as it is known."""
    found = {}
    for key, score in cases.items():
        found[key] = score()
        metrics = "  ".join(f"{name} {value:.4g}" for name, value in found[key].items())
        if ranks.first:
            print(f"{of} {key:>7}  ", metrics, flush=True)
    return found


def _plot(file: Path, found: dict[int, dict[str, float]], x: str) -> Path:
    name = next(iter(next(iter(found.values()))))
    line = {name: {key: scores[name] for key, scores in found.items()}}
    pictures.save(file, charts.curves(line, title=str(file.parent), x=x, y=name))
    return file


def _shown(ranks: Ranks, batches: Iterable[Tensor], total: int, title: str) -> Iterator[Tensor]:
    """Yields the batches under a progress display."""
    with ProgressDisplay(title, quiet=not ranks.first) as display:
        yield from display.track(batches, total)
