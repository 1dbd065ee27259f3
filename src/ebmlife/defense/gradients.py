"""Gradients through the defense: each mode takes v at the logits back to the attacked images."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ebmlife.defense.adjoint import Curvature, PullInfo, pull_back
from ebmlife.errors import BadInput, by_name
from ebmlife.sampling.energy import Energy, curvature, frozen
from ebmlife.sampling.rng import PerImageNoise


@dataclass(frozen=True)
class Passage:
    """Chains through the defense: from x by Langevin steps to `walked`, and from there into the classifier."""

    classifier: nn.Module  # includes what precedes the average, such as softmax
    energy: Energy
    steps: int
    step_size: float
    clip: float | None
    x: Tensor
    walked: Tensor
    noise: PerImageNoise  # at the beginning of the chains

    def through_walk(self, v: Tensor, curved: Curvature) -> tuple[Tensor, PullInfo]:
        """Returns v at the end of the chains brought back to x."""
        return pull_back(
            self.energy,
            self.x,
            v,
            steps=self.steps,
            step_size=self.step_size,
            noise=self.noise,
            clip=self.clip,
            curved=curved,
        )


class Gradient(Protocol):
    """A mode: how v at the logits is brought back to the attacked images. `MODES` has them by name."""

    @property
    def name(self) -> str: ...

    @property
    def known_noise(self) -> bool:
        """Whether the defense draws the same noise each time, and the attacker knows it."""
        ...

    @property
    def walks(self) -> int:
        """The number of times that a gradient walks the chain again."""
        ...

    def __call__(self, passage: Passage, v: Tensor) -> Tensor:
        """Returns v (chains, classes) at the logits brought back to x, one for each chain."""
        ...


def through(module: nn.Module, x: Tensor, v: Tensor) -> Tensor:
    """Returns v^T dm/dx of the module m."""
    with frozen(module, walking=False), torch.enable_grad():
        leaf = x.detach().requires_grad_()
        return torch.autograd.grad(module(leaf), leaf, v)[0]


class _NewNoise:
    """A mode against a defense that draws new noise each time. By default, it walks no chain again."""

    known_noise = False
    walks = 0


@dataclass(frozen=True)
class Bpda(_NewNoise):
    """Treats the purifier's derivative as the identity: the classifier's gradient at the purified images."""

    name = "bpda"

    def __call__(self, passage: Passage, v: Tensor) -> Tensor:
        return through(passage.classifier, passage.walked, v)


@dataclass(frozen=True)
class Full(_NewNoise):
    """The exact gradient through every Langevin step, with the noise replayed.

    The Hessian of a ReLU network is zero almost everywhere: this gradient is then that of `Bpda`, up to a Gaussian term
    of the energy.
    """

    name = "full"
    walks = 2

    def __call__(self, passage: Passage, v: Tensor) -> Tensor:
        return passage.through_walk(through(passage.classifier, passage.walked, v), self.curved)[0]

    def curved(self, energy: Energy, x: Tensor, v: Tensor) -> Tensor:
        return curvature(energy, x, v)


@dataclass(frozen=True)
class Smooth(Full):
    """Like `Full`, with the Hessians of the energy in which softplus replaces ReLU. The chain itself is unchanged.

    The exact gradient misses the jumps in the drift of a ReLU energy, and softplus spreads them out. For an energy
    without ReLU this is `Full`.

    Args:
        beta: The beta of softplus. A larger one is closer to ReLU and gives rougher gradients.
    """

    beta: float = 10.0
    name = "smooth"

    def __post_init__(self) -> None:
        if not 0 < self.beta < float("inf"):
            raise BadInput(f"the softplus beta of the smooth gradient must be above 0, got {self.beta}")

    def curved(self, energy: Energy, x: Tensor, v: Tensor) -> Tensor:
        with _SoftplusForReLU(self.beta):
            return curvature(energy, x, v)

    def kinks(self, energy: Energy, x: Tensor) -> int:
        """Returns the number of operations that softplus replaces in one Hessian-vector product at x."""
        softened = _SoftplusForReLU(self.beta)
        with softened:
            curvature(energy, x, torch.zeros_like(x))
        return softened.count


@dataclass(frozen=True)
class Transfer(_NewNoise):
    """The bare classifier's gradient at the attacked images: the attacker does not know the defense."""

    name = "transfer"

    def __call__(self, passage: Passage, v: Tensor) -> Tensor:
        return through(passage.classifier, passage.x, v)


@dataclass(frozen=True)
class Fixed:
    """Another mode against a defense whose noise the attacker knows: it is the same in attack and evaluation."""

    mode: Gradient = Bpda()
    known_noise = True

    @property
    def name(self) -> str:
        return "fixed" if isinstance(self.mode, Bpda) else f"fixed-{self.mode.name}"

    @property
    def walks(self) -> int:
        return self.mode.walks

    def __call__(self, passage: Passage, v: Tensor) -> Tensor:
        return self.mode(passage, v)


MODES: dict[str, Gradient] = {
    mode.name: mode for mode in (Bpda(), Full(), Smooth(), Transfer(), Fixed(), Fixed(Full()), Fixed(Smooth()))
}


def attacked_through(gradient: Gradient) -> Gradient:
    """Returns the mode without `Fixed`."""
    return gradient.mode if isinstance(gradient, Fixed) else gradient


def find(gradient: str | Gradient) -> Gradient:
    """Returns the mode of that name, or the mode itself."""
    return by_name(MODES, gradient, "gradient") if isinstance(gradient, str) else gradient


class _SoftplusForReLU(TorchFunctionMode):
    """A context in which softplus replaces relu, leaky_relu, prelu, relu6 and clamp at 0, in-place calls included."""

    def __init__(self, beta: float) -> None:
        super().__init__()
        self.beta, self.count = beta, 0

    def __torch_function__(
        self, func: Any, types: Iterable[Any], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        soften = _SOFT.get(func)
        soft = None if soften is None else soften(partial(F.softplus, beta=self.beta), *args, **kwargs)
        if soft is None:
            return func(*args, **kwargs)
        self.count += 1
        return soft


_Soft = Callable[[Tensor], Tensor]  # softplus with its beta


def _relu(soft: _Soft, input: Tensor, inplace: bool = False) -> Tensor:
    return input.copy_(soft(input.clone())) if inplace else soft(input)


def _leaky_relu(soft: _Soft, input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    return _relu(lambda x: negative_slope * x + (1 - negative_slope) * soft(x), input, inplace)


def _prelu(soft: _Soft, input: Tensor, weight: Tensor) -> Tensor:
    negative_slope = weight.view(-1, *[1] * (input.ndim - 2)) if weight.numel() > 1 else weight  # of each channel
    return negative_slope * input + (1 - negative_slope) * soft(input)


def _relu6(soft: _Soft, input: Tensor, inplace: bool = False) -> Tensor:
    return _relu(lambda x: soft(x) - soft(x - 6), input, inplace)


def _clamp(soft: _Soft, input: Tensor, min: Any = None, max: Any = None, *, inplace: bool = False) -> Tensor | None:
    """Returns None for a clamp that is not a ReLU, such as a guard against small numbers, which is left as it is."""
    if not isinstance(min, int | float) or min != 0 or not isinstance(max, int | float | None):
        return None
    return _relu(lambda x: soft(x) if max is None else soft(x) - soft(x - max), input, inplace)


def _hardtanh(soft: _Soft, input: Tensor, min_val: float = -1, max_val: float = 1, inplace: bool = False) -> Any:
    return _clamp(soft, input, min_val, max_val, inplace=inplace)  # nn.ReLU6 calls it


_SOFT: dict[Any, Callable[..., Tensor | None]] = {
    **dict.fromkeys((F.relu, torch.relu, Tensor.relu), _relu),
    **dict.fromkeys((torch.relu_, Tensor.relu_), partial(_relu, inplace=True)),
    F.leaky_relu: _leaky_relu,
    **dict.fromkeys((torch.prelu, Tensor.prelu), _prelu),
    F.relu6: _relu6,
    F.hardtanh: _hardtanh,
    **dict.fromkeys((torch.clamp, Tensor.clamp, torch.clamp_min, Tensor.clamp_min), _clamp),
    **dict.fromkeys((torch.clamp_, Tensor.clamp_, torch.clamp_min_, Tensor.clamp_min_), partial(_clamp, inplace=True)),
}
