"""`ebmlife purify`, and the options that it shares with `ebmlife attack`."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from PIL.Image import Image
from torch import Tensor

from ebmlife.cli import images as evaluated
from ebmlife.cli.parsing import Command, add_sampler_option, add_weights_options, raw_weights
from ebmlife.data import images
from ebmlife.data.dataset import from_bytes
from ebmlife.data.folders import decode
from ebmlife.errors import BadInput, shown
from ebmlife.plots import pictures
from ebmlife.runs import build, locate
from ebmlife.runs.model import Model
from ebmlife.sampling import fingerprint
from ebmlife.sampling.purifier import Purifier
from ebmlife.sampling.rng import derive_seed
from ebmlife.storage import checkpoint
from ebmlife.storage.atomic import atomic_write, can_be_made

_STRIP = 16  # most images in strip.png
_IMAGES = 16  # purified where FILES and --n are missing


def register(command: Command) -> None:
    purify = command("purify", _purify, "purify images by Langevin steps on the energy of a run", fields="data")
    purify.add_argument("folder", type=Path, metavar="RUN", help="The run whose energy purifies.")
    purify.add_argument("files", type=Path, nargs="*", metavar="FILES", help="Image files to purify.")
    purify.add_argument("--out", type=Path, required=True, help="A new folder for the purified images.")
    purify.add_argument(
        "--steps", type=int, help="Number of Langevin steps (default: the sampling_steps of the recipe)."
    )
    add_sampler_option(purify)
    purify.add_argument(
        "--strip",
        action="store_true",
        help=f"Also write strip.png: the states of the first {_STRIP} images along their chains, a row for each.",
    )
    purify.add_argument("--n", type=int, help=f"Number of images of the data set, without FILES (default: {_IMAGES}).")
    evaluated.declare(purify, default="test, where the data have one; replaces FILES")
    add_model_options(purify)
    add_weights_options(purify)


def add_model_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=0, help="Seed of all random draws (default: %(default)s).")
    parser.add_argument("--update", type=int, help="The checkpoint to load, by its update (default: the newest).")
    parser.add_argument("--device", default="auto", help="Device, such as cpu or cuda (default: %(default)s).")


def load_model(options: argparse.Namespace, *, averaged: bool = True) -> Model:
    model = build.load(
        options.folder,
        update=options.update,
        averaged=averaged,
        device=options.device,
        trust_code=options.trust,
    )
    if len(model.shape) != 3:
        raise BadInput(f"{options.folder} models states of shape {model.shape}; expected a model of images")
    return model


def _purify(options: argparse.Namespace, changes: dict[str, str]) -> int:
    model = load_model(options, averaged=not raw_weights(options))
    purifier = model.purifier(options.steps, sampler=options.sampler)
    names, x, inputs = _inputs(model, options, changes)
    x = x.to(model.device)
    seeds = [derive_seed(options.seed, f"purify/{i}") for i in range(len(x))]
    purified = purifier(x, seeds=seeds)
    with atomic_write(options.out) as unfinished:
        unfinished.mkdir()
        for name, image in zip(names, purified, strict=True):
            pictures.image(image).save(unfinished / name)
        if options.strip:
            _strip(purifier, x[:_STRIP], seeds[:_STRIP]).save(unfinished / "strip.png")
        at = checkpoint.choose(locate.find(options.folder, update=options.update), options.update)
        about = {
            "recipe_hash": model.recipe.hash,
            "update": at,
            "steps": purifier.steps,
            "seed": options.seed,
            **({} if options.sampler == "langevin" else {"sampler": options.sampler}),
            **inputs,
        }
        (unfinished / "purified.json").write_text(json.dumps(about, indent=1))
    print(f"{len(x)} images after {purifier.steps} Langevin steps: {shown(options.out)}")
    if options.strip:
        if len(x) > _STRIP:
            print(f"note: the strip shows the first {_STRIP} images only")
        print(f"strip at steps {', '.join(map(str, _marks(purifier.steps)))}: {shown(options.out / 'strip.png')}")
    return 0


def _inputs(
    model: Model, options: argparse.Namespace, changes: dict[str, str]
) -> tuple[list[str], Tensor, dict[str, Any]]:
    """Returns the names of the purified images, the images, and their description for purified.json."""
    if evaluated.typed(options, changes) == bool(options.files):
        raise BadInput("purify takes image FILES, or images of a data set (--split test, --data.folder FOLDER)")
    if options.files:
        names = _names(options.files, options.out)
        x = torch.stack([_decoded(file, model) for file in options.files])
        _note_sizes(options.files, model.shape[1])
        return names, x, {"files": [str(file) for file in options.files], "fingerprint": fingerprint.of_tensors(x)}
    chosen = evaluated.find(model, options, changes, tests=True)
    if options.n is not None and not 1 <= options.n <= len(chosen.data):
        raise BadInput(f"--n {options.n}: there are {len(chosen.data)} images")
    rows = chosen.spread(options.n or _IMAGES)
    names = _names([Path(f"{row:06d}") for row in rows.tolist()], options.out)
    print(f"purified: {len(rows)} of {chosen}")
    return names, chosen.data.take(rows), {"rows": rows.tolist(), "evaluated_on": chosen.about}


def _names(files: Sequence[Path], out: Path) -> list[str]:
    """Returns the file names of the purified images, checked before any of them is purified."""
    if out.exists():
        raise BadInput(f"--out {out} exists already; choose another name")
    can_be_made(out)
    names = [f"{file.stem}.png" for file in files]
    taken = {"strip.png"}
    for name in names:
        if name in taken:
            raise BadInput(
                f"two images would be written as {out / name}; rename one of them, or purify it in another folder"
            )
        taken.add(name)
    return names


def _decoded(file: Path, model: Model) -> Tensor:
    channels, size, _ = model.shape
    return from_bytes(torch.from_numpy(decode(file, size=size, channels=channels).copy()))


def _note_sizes(files: Sequence[Path], size: int) -> None:
    """Notes that photographs are cropped and resized before they are purified."""
    others = sum(_size(file) != (size, size) for file in files)
    if others:
        of_model = f"{size}x{size}"
        print(f"note: {others} of {len(files)} images are not {of_model}: they are center-cropped and resized")


def _size(file: Path) -> tuple[int, int]:
    with images.opened(images.read(file)) as image:
        return image.size


def _strip(purifier: Purifier, x: Tensor, seeds: Sequence[int]) -> Image:
    states = purifier.trajectory(x, at=_marks(purifier.steps), seeds=seeds)  # (columns, rows, C, H, W)
    return pictures.grid(states.transpose(0, 1).flatten(0, 1), columns=len(states))


def _marks(steps: int, *, count: int = 10) -> list[int]:
    """Returns 0 and integers up to `steps` that are nearly evenly spaced in their logarithm."""
    return sorted({0, *(round(steps ** (i / (count - 2))) for i in range(count - 1))}) if steps else [0]
