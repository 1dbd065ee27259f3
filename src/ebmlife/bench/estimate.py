"""The cost of a recipe before it is run: operations, memory, traffic, and hours at a given rate.

Nothing is computed: the networks are made of tensors without data, whose operations PyTorch counts.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from ebmlife.errors import BadInput
from ebmlife.recipes.schema import EBMRecipe, Part
from ebmlife.runs import build
from ebmlife.runs.user_code import NOTHING, Trust
from ebmlife.sampling.energy import frozen
from ebmlife.training.chains import UpdateCost

_FLOAT = 4  # bytes
_COPIES = 5  # of each learned weight: itself, its gradient, two moments of Adam, its moving average
_META = torch.device("meta")


@dataclass(frozen=True)
class Network:
    """The cost of a network: operations, and bytes that the backward pass keeps, per image."""

    weights: int  # their number
    learned: bool
    forward: int = 0  # operations of one forward pass
    input_gradient: int = 0  # operations of one gradient with respect to the image
    weight_gradient: int = 0  # operations of one gradient with respect to the weights
    input_gradient_bytes: int = 0
    weight_gradient_bytes: int = 0


@dataclass(frozen=True)
class Estimate:
    """The cost of one update, in operations and bytes. Memory and traffic are those of each device."""

    recipe: EBMRecipe
    devices: int
    walk: int  # operations of the Langevin walk
    learning: int  # operations of the updates of the energy and, if it learns, the generator
    initialization: int  # operations of a generator that makes new states
    weights: int  # bytes, with gradients, moments and averages
    bank: int  # bytes
    activations: int  # bytes
    traffic: int  # bytes sent to average gradients over the devices, in a ring
    sample: int  # operations of one sample after training

    @property
    def update(self) -> int:
        """Operations of one update."""
        return self.walk + self.learning + self.initialization

    @property
    def memory(self) -> int:
        """Bytes on each device."""
        return self.weights + self.bank + self.activations

    def seconds(self, rate: float, link: float = float("inf")) -> float:
        """Seconds of one update: its operations at `rate` per second on each device, then its traffic at `link` bytes
        per second."""
        return self.update / self.devices / rate + self.traffic / link

    def hours(self, rate: float, link: float = float("inf")) -> float:
        """Hours of the whole training."""
        return self.recipe.updates * self.seconds(rate, link) / 3600


def estimate(recipe: EBMRecipe, *, devices: int = 1, trust: Trust = NOTHING) -> Estimate:
    """Estimates the cost of a recipe.

    Args:
        recipe: The recipe, resolved.
        devices: Number of devices that share batch and banks evenly.
        trust: The functions that the recipe may call.

    Returns:
        The cost of one update.
    """
    if not 1 <= devices <= recipe.batch:
        raise BadInput(f"devices must be from 1 to the batch of {recipe.batch}, got {devices}")
    shape = shape_of(recipe.data)
    energy, generator = _networks(recipe, shape, trust)
    energies = 1 if recipe.prior is None else 2  # a prior is assumed to be as large as the learned network
    share = -(-recipe.batch // devices)
    cost = chain_cost(recipe)
    learning, sent = 2 * recipe.batch * energy.weight_gradient, energy.weights
    if generator.learned:
        learning += recipe.batch * generator.weight_gradient
        sent += generator.weights
    states = sum(build.bank_sizes(recipe.chains).values())
    held = sum(net.weights * (_COPIES if net.learned else 1) for net in (energy, generator))
    held += (energies - 1) * energy.weights
    return Estimate(
        recipe=recipe,
        devices=devices,
        walk=round(cost.langevin_steps * energies * energy.input_gradient),
        learning=learning,
        initialization=round(cost.initialized * generator.forward) if _starts_from_generator(recipe) else 0,
        weights=_FLOAT * held,
        bank=-(-states // devices) * _FLOAT * torch.Size(shape).numel(),
        activations=share
        * max(energy.input_gradient_bytes, 2 * energy.weight_gradient_bytes, generator.weight_gradient_bytes),
        traffic=round(_FLOAT * sent * 2 * (devices - 1) / devices),
        sample=recipe.sampling_steps * energies * energy.input_gradient + generator.forward,
    )


def shape_of(data: Part) -> tuple[int, ...]:
    """Returns the shape of one item. The data are read only if their description does not include it."""
    declared = build.describe(data).shape
    if declared is not None:
        return declared
    size, channels = data.options.get("size"), data.options.get("channels")
    shape: tuple[int, ...] = build.DATA.make(data).shape if size is None else (channels or 3, size, size)
    return shape


def _networks(recipe: EBMRecipe, shape: tuple[int, ...], trust: Trust) -> tuple[Network, Network]:
    with _META:
        net, generator = build.networks(build.self_contained(recipe), shape, _META, trust=trust)
        images = torch.zeros(1, *shape)
        forward, _ = _counted(net, images, _forward)
        input_gradient, input_bytes = _counted(net, images, _input_gradient)
        weight_gradient, weight_bytes = _counted(net, images, _weight_gradient)
        energy = Network(_size(net), True, forward, input_gradient, weight_gradient, input_bytes, weight_bytes)
        if generator is None:
            return energy, Network(0, False)
        learned = recipe.generator is not None and recipe.generator.optimizer is not None
        latents = torch.zeros(1, int(generator.latent))  # type: ignore[arg-type]  # a plain attribute of the network
        forward, _ = _counted(generator, latents, _forward)
        weight_gradient, weight_bytes = _counted(generator.train(), latents, _weight_gradient) if learned else (0, 0)
        return energy, Network(_size(generator), learned, forward, 0, weight_gradient, 0, weight_bytes)


def _size(net: nn.Module) -> int:
    return sum(parameter.numel() for parameter in net.parameters())


def _counted(net: nn.Module, x: Tensor, work: Callable[[nn.Module, Tensor], None]) -> tuple[int, int]:
    """Operations, and bytes kept for the backward pass, that one more input adds."""
    (one, kept_one), (two, kept_two) = (_total(net, x.repeat(n, *[1] * (x.ndim - 1)), work) for n in (1, 2))
    return two - one, kept_two - kept_one


def _total(net: nn.Module, x: Tensor, work: Callable[[nn.Module, Tensor], None]) -> tuple[int, int]:
    kept: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with FlopCounterMode(display=False) as counter, saved_tensors_hooks(keep, lambda tensor: tensor):
        work(net, x)
    storages = {tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes() for tensor in kept}
    return int(counter.get_total_flops()), sum(storages.values())


@torch.no_grad()
def _forward(net: nn.Module, x: Tensor) -> None:
    net(x)


def _input_gradient(net: nn.Module, x: Tensor) -> None:
    with frozen(net):
        net(x.clone().requires_grad_()).sum().backward()  # not `gradient`: the counter does not follow autograd.grad


def _weight_gradient(net: nn.Module, x: Tensor) -> None:
    net(x).sum().backward()


def chain_cost(recipe: EBMRecipe) -> UpdateCost:
    """What the recipe's chains declare that its first update costs."""
    options = build.CHAINS.options(recipe.chains)
    return build.declared(recipe.chains).cost(options, batch=recipe.batch, steps=recipe.langevin.steps(0))


def _starts_from_generator(recipe: EBMRecipe) -> bool:
    return build.STARTS.accepts(recipe.start, "generator")
