"""Networks with their weights and optimizers."""

from typing import Any

import torch
from torch import Tensor, nn

from ebmlife.distributed import SINGLE_PROCESS, Ranks
from ebmlife.errors import BadInput
from ebmlife.recipes.options import Registry
from ebmlife.recipes.sections import Optimizer, Part
from ebmlife.runs.build.context import Context
from ebmlife.runs.build.tables import OPTIMIZERS
from ebmlife.sampling.rng import generator
from ebmlife.sampling.schedule import LinearDecay
from ebmlife.storage.contents import mismatch, not_finite
from ebmlife.training.learner import Learner


def make_networks(*chosen: tuple[Registry, Part], seed: int, context: Context) -> list[nn.Module]:
    """Returns networks for states of the context's shape, in eval mode, with initial weights from the seed."""
    shape, provided = context.shape, image_options(context.shape)
    for table, net in chosen:
        if table.accepts(net, "channels") and len(shape) != 3:
            raise BadInput(f"{table.field} {net.kind!r} needs images, got states of shape {shape}; use 'perceptron'")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator(seed, "weights").initial_seed())
        try:
            made = [table.make(net, trust=context.trust, **provided) for table, net in chosen]
            return [net.to(context.device).eval() for net in made]
        except (
            RuntimeError,
            TypeError,
            ValueError,
            OverflowError,
            MemoryError,
        ) as error:  # the sizes exceed the memory
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise BadInput(f"the networks of this recipe cannot be made: {reason}; choose smaller ones") from error


def image_options(shape: tuple[int, ...]) -> dict[str, Any]:
    """Returns the parameters of networks that follow from the shape of a state."""
    if len(shape) != 3:
        return {"shape": shape}
    if shape[1] != shape[2]:
        raise BadInput(f"images must be square, got {shape[1]}x{shape[2]}; use data.kind 'folder' to crop them")
    return {"shape": shape, "channels": shape[0], "size": shape[1]}


def learner(net: nn.Module, options: Optimizer, ranks: Ranks = SINGLE_PROCESS) -> Learner:
    """Returns the learner of a network with a recipe's optimizer."""
    rate = (
        options.learning_rate
        if options.decay_until is None
        else LinearDecay(options.learning_rate, options.decay_until)
    )
    return Learner(
        net,
        OPTIMIZERS[options.kind](net.parameters(), options),
        learning_rate=rate,
        clip=options.clip,
        clip_by=options.clip_by,
        ema=options.ema,
        average=ranks.average,
    )


def fit_weights(net: nn.Module, weights: dict[str, Tensor], origin: str) -> None:
    """Loads weights that come from `origin` into the network."""
    try:
        net.load_state_dict(weights)
    except (RuntimeError, AttributeError, TypeError) as error:
        raise BadInput(f"the weights of {origin} do not fit {type(net).__name__} of this recipe") from error
    problem = not_finite(weights)
    if problem is not None:
        raise BadInput(
            f"the weights of {origin} cannot be used: {problem}; choose an earlier checkpoint, or train again"
        )


def restore_weights(net: nn.Module, weights: dict[str, Tensor]) -> None:
    """Loads a checkpoint's weights, which must agree with the network in number, name, shape and dtype."""
    problem = mismatch(weights, net.state_dict())
    if problem is not None:
        raise BadInput(f"the weights of the checkpoint do not fit {type(net).__name__} of this recipe: {problem}")
    fit_weights(net, weights, "the checkpoint")
