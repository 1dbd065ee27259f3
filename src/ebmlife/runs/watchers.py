"""The watchers of a run while it trains: its log, TensorBoard, the progress bar and pictures."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor

from ebmlife.runs import build, logging
from ebmlife.runs.progress import ProgressDisplay, TrainingProgress
from ebmlife.sampling.rng import generator
from ebmlife.training.base import Report
from ebmlife.training.starts import FromGenerator


def watchers(
    training: build.Training, folder: Path, console: Console, stack: ExitStack
) -> list[Callable[[Report], None]]:
    """Returns the watchers of a run, each called with the report of every update; `stack` closes them."""
    trainer, recipe = training.trainer, training.model.recipe
    log = logging.Log(folder / "log.jsonl", trainer.chains, after=trainer.update)
    every = recipe.watch.tensorboard_every
    board = logging.Board(folder / "tensorboard", trainer.chains, every=every, after=trainer.update)
    for open_file in (log, board):
        stack.callback(open_file.close)
    display = stack.enter_context(ProgressDisplay("update", console=console))
    progress = TrainingProgress(display, updates=recipe.updates)
    if log.damaged:
        line = f"{log.damaged} damaged lines of log.jsonl were moved to {logging.DAMAGED_LOG}"
        console.print(line, soft_wrap=True, highlight=False)
    return [log, board, progress, pictures(training, folder)]


def pictures(training: build.Training, folder: Path) -> logging.Pictures:
    """Draws the pictures of a run at the intervals of its recipe."""
    every = training.model.recipe.watch.pictures_every
    return logging.Pictures(folder, sources(training), training.trainer.chains, every=every)


def sources(training: build.Training) -> dict[str, Callable[[], Tensor]]:
    """Returns the sources of pictures: samples of the averaged model, states of the bank, images of the generator."""
    n, model, chains = training.model.recipe.watch.pictures, training.model, training.trainer.chains
    drawn: dict[str, Callable[[], Tensor]] = {"samples": lambda: model.sample(n, scope="picture")}
    if chains is not None and chains.bank is not None:
        drawn["bank"] = lambda: chains.bank.x[:n] if chains.bank else torch.empty(0)
    if model.generator is not None:
        start = FromGenerator(model.generator)
        drawn["generator"] = lambda: start(n, rng=generator(0, "picture/generator", device=model.device)).x
    return drawn
