"""What a recipe costs before it is run: operations counted, memory and traffic added up, hours at a stated rate.

Nothing is computed: the networks are made of tensors without content, which PyTorch's own counter follows.
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

_FLOAT = 4  # bytes
_COPIES = 5  # of each learned weight: itself, its gradient, two moments of Adam, its moving average
_META = torch.device("meta")
_SHAPES = {"digits": (1, 8, 8), "cifar10": (3, 32, 32), "toy": (2,)}


@dataclass(frozen=True)
class Network:
    """Per image, but for the first two."""

    weights: int
    learned: bool
    forward: int = 0  # operations
    grad: int = 0  # of one gradient with respect to the image
    weight_gradient: int = 0  # of one gradient with respect to the weights
    kept_slope: int = 0  # bytes that the backward pass needs
    kept_lesson: int = 0


@dataclass(frozen=True)
class Estimate:
    """Of one update, in operations and bytes; memory and traffic are those of each of `devices`."""

    recipe: EBMRecipe
    devices: int
    walk: int
    learning: int  # of the energy and, where it learns, the generator
    births: int  # of states, by a generator
    weights: int
    bank: int
    activations: int
    traffic: int  # sent to average gradients over the devices, in a ring
    sample: int  # operations of one sample after training

    @property
    def update(self) -> int:
        return self.walk + self.learning + self.births

    @property
    def memory(self) -> int:
        return self.weights + self.bank + self.activations

    def seconds(self, rate: float, link: float = float("inf")) -> float:
        """Of one update: operations at `rate` a second on each device, then traffic at `link` bytes a second."""
        return self.update / self.devices / rate + self.traffic / link

    def hours(self, rate: float, link: float = float("inf")) -> float:
        return self.recipe.updates * self.seconds(rate, link) / 3600


def estimate(recipe: EBMRecipe, *, devices: int = 1, trust: Trust = NOTHING) -> Estimate:
    """What an update of the recipe costs on so many devices, batch and bank shared out evenly."""
    if not 1 <= devices <= recipe.batch:
        raise BadInput(f"devices must be from 1 to the batch of {recipe.batch}, got {devices}")
    shape = shape_of(recipe.data)
    energy, generator = _networks(recipe, shape, trust)
    energies = 1 if recipe.prior is None else 2  # a prior is taken to be as large as what is learned beside it
    share, steps = -(-recipe.batch // devices), recipe.langevin.steps(0)
    born = recipe.batch * births(recipe.chains) if recipe.start.kind == "generator" else 0
    learning, sent = 2 * recipe.batch * energy.weight_gradient, energy.weights
    if generator.learned:
        learning += recipe.batch * generator.weight_gradient
        sent += generator.weights
    states = sum(int(recipe.chains.options.get(name, 0)) for name in ("size", "burn_in_size"))
    held = sum(net.weights * (_COPIES if net.learned else 1) for net in (energy, generator))
    held += (energies - 1) * energy.weights
    return Estimate(
        recipe=recipe,
        devices=devices,
        walk=round(recipe.batch * (steps + _burn_in_steps(recipe)) * energies * energy.grad),
        learning=learning,
        births=round(born * generator.forward),
        weights=_FLOAT * held,
        bank=-(-states // devices) * _FLOAT * torch.Size(shape).numel(),
        activations=share * max(energy.kept_slope, 2 * energy.kept_lesson, generator.kept_lesson),
        traffic=round(_FLOAT * sent * 2 * (devices - 1) / devices),
        sample=recipe.sampling_steps * energies * energy.grad + generator.forward,
    )


def shape_of(data: Part) -> tuple[int, ...]:
    """Of an item of the data, which need not be there."""
    if data.kind in _SHAPES:
        return _SHAPES[data.kind]
    size, channels = data.options.get("size"), data.options.get("channels")
    shape: tuple[int, ...] = build.DATA.make(data).shape if size is None else (channels or 3, size, size)
    return shape


def _networks(recipe: EBMRecipe, shape: tuple[int, ...], trust: Trust) -> tuple[Network, Network]:
    with _META:
        net, maker = build.networks(build.self_contained(recipe), shape, _META, trust=trust)
        images = torch.zeros(1, *shape)
        forward, _ = _counted(net, images, _forward)
        grad, kept_slope = _counted(net, images, _input_gradient)
        weight_gradient, kept_lesson = _counted(net, images, _weight_gradient)
        energy = Network(_size(net), True, forward, grad, weight_gradient, kept_slope, kept_lesson)
        if maker is None:
            return energy, Network(0, False)
        learned = recipe.generator is not None and recipe.generator.optimizer is not None
        latents = torch.zeros(1, int(maker.latent))  # type: ignore[arg-type]  # a plain attribute of the network
        forward, _ = _counted(maker, latents, _forward)
        weight_gradient, kept = _counted(maker.train(learned), latents, _weight_gradient) if learned else (0, 0)
        return energy, Network(_size(maker), learned, forward, 0, weight_gradient, 0, kept)


def _size(net: nn.Module) -> int:
    return sum(parameter.numel() for parameter in net.parameters())


def _counted(net: nn.Module, x: Tensor, work: Callable[[nn.Module, Tensor], None]) -> tuple[int, int]:
    """Operations, and bytes kept for the backward pass, of one more input."""
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


def births(chains: Part) -> float:
    """The share of a batch that is born anew: 1 / (how often a state is walked in its life)."""
    options = chains.options
    if chains.kind == "maturing":
        return 1 / float(options["mature"])
    if chains.kind != "persistent":
        return 1.0
    schedule, rounds = options["rejuvenate"], options["rounds"]
    p = float(schedule[0]["value"] if isinstance(schedule, list) else schedule)
    if rounds is None:
        return p
    return 1 / sum((1 - p) ** walked for walked in range(int(rounds) + 1))


def _burn_in_steps(recipe: EBMRecipe) -> float:
    if recipe.chains.kind != "maturing":
        return 0
    own = recipe.chains.options["burn_in_steps"]
    return recipe.langevin.steps(0) if own is None else float(own)
