"""The images that a command uses, chosen by `--split NAME` and fields `--data.*` in the same way for all commands."""

import argparse
from shlex import quote

from ebmlife.errors import BadInput
from ebmlife.runs.evaluated import Images, choose
from ebmlife.runs.model import Model

_SPLIT = "choose others with --split test"
_ADVICE = {  # by kind of the training data
    "folder": "choose others with --data.folder FOLDER, or train with --data.held_out 0.1",
    "webdataset": "choose others with --data.shards PATTERN",
    "digits": "choose others with --split test of a run that was trained with --data.train true",
}


def declare(parser: argparse.ArgumentParser, *, default: str) -> None:
    """Adds --split, and explains how to choose other images."""
    parser.add_argument(
        "--split", metavar="NAME", help=f"Split of the data: train, test, validation or all (default: {default})."
    )
    parser.epilog = (
        "To use other images than the run's own, add --data.folder FOLDER. Add --data.kind folder if the run's data "
        "are of another kind, and --data.labels file-name or --data.labels FILE if sub-folders are not the classes."
    )


def typed(options: argparse.Namespace, changes: dict[str, str]) -> bool:
    """Whether the options choose images."""
    return bool(changes) or options.split is not None


def words(options: argparse.Namespace, changes: dict[str, str]) -> str:
    """Returns the options that choose images, as they are typed."""
    split = {} if options.split is None else {"split": options.split}
    return "".join(f" --{name} {quote(value)}" for name, value in (split | changes).items())


def find(model: Model, options: argparse.Namespace, changes: dict[str, str], *, tests: bool) -> Images:
    """Returns the chosen images; with `tests`, test images if the data have some and nothing is chosen."""
    return choose(model, changes, options.split, tests=tests)


def refuse_training_images(images: Images, n: int, options: argparse.Namespace) -> str | None:
    """Raises BadInput if some of n images are training images and --on-training-data is not given.

    Returns:
        A note if some of them are, or may be, training images, else None.
    """
    repeated = images.repeated(images.spread(n))
    if repeated and not options.on_training_data:
        raise BadInput(
            f"{repeated} of the {n} images are training images of {options.folder}; "
            f"{_ADVICE.get(images.trained.kind, _SPLIT)}, or add --on-training-data"
        )
    if repeated:
        return f"note: {repeated} of the {n} images are training images"
    return None if repeated == 0 else "note: the training images are not available; some of these may be among them"
