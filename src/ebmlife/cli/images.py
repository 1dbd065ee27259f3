"""Which images a command is to use: `--split NAME` and fields `--data.*`, the same for all commands."""

import argparse
from shlex import quote

from ebmlife.errors import BadInput
from ebmlife.runs.evaluated import Images, choose
from ebmlife.runs.model import Model

_SPLIT = "choose others with --split test"
_ADVICE = {  # by the kind of the training data
    "folder": "choose others with --data.folder FOLDER, or train with --data.held_out 0.1",
    "webdataset": "choose others with --data.shards PATTERN",
    "digits": "choose others with --split test of a run that was trained with --data.train true",
}


def declare(parser: argparse.ArgumentParser, *, default: str) -> None:
    parser.add_argument(
        "--split", metavar="NAME", help=f"the part of the data: train, test, validation, all (default: {default})"
    )
    parser.epilog = (
        "other images than the run's own: --data.folder FOLDER, with --data.kind folder where the run's data are of "
        "another kind, and --data.labels file-name or FILE where sub-folders are not the classes"
    )


def typed(options: argparse.Namespace, changes: dict[str, str]) -> bool:
    """Whether images were asked for."""
    return bool(changes) or options.split is not None


def words(options: argparse.Namespace, changes: dict[str, str]) -> str:
    """What was asked for, as it is typed."""
    split = {} if options.split is None else {"split": options.split}
    return "".join(f" --{name} {quote(value)}" for name, value in (split | changes).items())


def find(model: Model, options: argparse.Namespace, changes: dict[str, str], *, tests: bool) -> Images:
    return choose(model, changes, options.split, tests=tests)


def refuse_training_images(images: Images, n: int, options: argparse.Namespace) -> str | None:
    """BadInput if some of n images are the run's training images, unless that is asked for; a note where it matters."""
    repeated = images.repeated(images.spread(n))
    if repeated and not options.on_training_data:
        raise BadInput(
            f"{repeated} of the {n} images are training images of {options.folder}; "
            f"{_ADVICE.get(images.trained.kind, _SPLIT)}, or add --on-training-data"
        )
    if repeated:
        return f"note: {repeated} of the {n} images are training images"
    return None if repeated == 0 else "note: the training images are not at hand; these may be among them"
