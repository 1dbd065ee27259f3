"""Energies and their combinations. An energy is any callable from states (B, ...) to one number per state (B,)."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import torch
from torch import Tensor, nn

from ebmlife.sampling.freezing import flags_off

Energy = Callable[[Tensor], Tensor]


def gradient(energy: Energy, x: Tensor) -> Tensor:
    """Returns grad E(x) of each state, without gradients on the energy's parameters.

    An energy with a faster way than autograd provides a method `gradient`. Combinations of energies call their parts.

    Args:
        energy: Any callable from states (B, ...) to energies (B,), or an object with a method `gradient`.
        x: States (B, ...).

    Returns:
        Gradients of the shape of x.
    """
    own = getattr(energy, "gradient", None)
    if own is not None:
        grad: Tensor = own(x)
        return grad.detach()  # it may be the output of a network
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        return torch.autograd.grad(energy(leaf).sum(), leaf)[0]


def energy_and_gradient(energy: Energy, x: Tensor) -> tuple[Tensor, Tensor]:
    """Returns E(x) (B,) and grad E(x) of each state of the batch, from one forward pass where that is possible.

    An energy with a faster way than autograd has a method `energy_and_gradient`. A combination of energies asks its
    parts.
    """
    own = getattr(energy, "energy_and_gradient", None)
    if own is not None:
        value, grad = own(x)
        return value.detach(), grad.detach()
    if getattr(energy, "gradient", None) is not None:
        with torch.no_grad():
            return energy(x), gradient(energy, x)
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        value = energy(leaf)
        return value.detach(), torch.autograd.grad(value.sum(), leaf)[0]


def curvature(energy: Energy, x: Tensor, v: Tensor) -> Tensor:
    """Returns the Hessian-vector product H(x) v of each state, the derivative of <grad E(x), v>, by autograd.

    An energy with a better way provides a method `curvature`. A drift without an energy must provide it.

    Args:
        energy: Any callable from states (B, ...) to energies (B,).
        x: States (B, ...).
        v: Vectors of the shape of x.

    Returns:
        Products of the shape of x.
    """
    own = getattr(energy, "curvature", None)
    if own is not None:
        product: Tensor = own(x, v)
        return product
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        (grad,) = torch.autograd.grad(energy(leaf).sum(), leaf, create_graph=True)
        if not grad.requires_grad:  # E is linear
            return torch.zeros_like(x)
        return torch.autograd.grad(grad, leaf, v, materialize_grads=True)[0]


class _Tempered(nn.Module):
    def __init__(self, energy: Energy, temperature: float) -> None:
        super().__init__()
        self.energy = energy
        self.temperature = temperature

    def forward(self, x: Tensor) -> Tensor:
        return self.energy(x) / self.temperature

    def gradient(self, x: Tensor) -> Tensor:
        return gradient(self.energy, x) / self.temperature

    def energy_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        value, grad = energy_and_gradient(self.energy, x)
        return value / self.temperature, grad / self.temperature

    def curvature(self, x: Tensor, v: Tensor) -> Tensor:
        return curvature(self.energy, x, v) / self.temperature


class _Gaussian(nn.Module):
    def __init__(self, tau: float) -> None:
        super().__init__()
        self.tau = tau

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(len(x), -1).square().sum(1) / (2 * self.tau**2)

    def gradient(self, x: Tensor) -> Tensor:
        return x.detach() / self.tau**2

    def curvature(self, x: Tensor, v: Tensor) -> Tensor:
        return v / self.tau**2


class _Total(nn.Module):
    def __init__(self, *terms: Energy) -> None:
        super().__init__()
        self.terms = list(terms)
        # nn.ModuleList takes modules only. A plain list takes any callable but hides modules from .to() and `frozen`,
        # so they are registered by hand.
        for i, term in enumerate(terms):
            if isinstance(term, nn.Module):
                self.add_module(str(i), term)

    def forward(self, x: Tensor) -> Tensor:
        first, *rest = self.terms
        energy = first(x)
        for term in rest:
            energy = energy + term(x)
        return energy

    def gradient(self, x: Tensor) -> Tensor:
        first, *rest = self.terms
        grad = gradient(first, x)
        for term in rest:
            grad = grad + gradient(term, x)
        return grad

    def energy_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        first, *rest = self.terms
        value, grad = energy_and_gradient(first, x)
        for term in rest:
            of_term, grad_of_term = energy_and_gradient(term, x)
            value, grad = value + of_term, grad + grad_of_term
        return value, grad

    def curvature(self, x: Tensor, v: Tensor) -> Tensor:
        first, *rest = self.terms
        product = curvature(first, x, v)
        for term in rest:
            product = product + curvature(term, x, v)
        return product


class Score(nn.Module):
    """A score s(x) = grad log p(x) in place of an energy, for Langevin sampling: grad E(x) = -s(x).

    Args:
        score: Callable from states (B, ...) to scores of the same shape.
    """

    conservative = False

    def __init__(self, score: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.score = score

    @torch.no_grad()
    def gradient(self, x: Tensor) -> Tensor:
        return -self.score(x)


def is_energy(sampled: object) -> bool:
    """Whether E(x) is defined, and not only its gradient: a score has `conservative = False`."""
    return callable(sampled) and getattr(sampled, "conservative", True)


def tempered(energy: Energy, temperature: float) -> Energy:
    """Returns the energy E(x) / temperature."""
    return _Tempered(energy, temperature)


def gaussian(tau: float) -> Energy:
    """Returns the energy |x|^2 / (2 tau^2), which keeps long chains near the image cube."""
    return _Gaussian(tau)


def total(*terms: Energy) -> Energy:
    """Returns the energy E_1(x) + E_2(x) + ..."""
    return terms[0] if len(terms) == 1 else _Total(*terms)


@contextmanager
def frozen(energy: Energy, *, walking: bool = True) -> Iterator[Energy]:
    """Turns off parameter gradients and training mode within a `with` block.

    Sampling needs the gradient with respect to x only, which saves half of the backward pass. The flags are restored
    at the end of the block; if several threads are inside, at the end of the last one.

    Args:
        energy: The energy. If it is not a module, nothing changes.
        walking: Whether Langevin sampling takes place in the block. If so, modules that have a context manager
            `walking` are inside it.
    """
    if not isinstance(energy, nn.Module):
        yield energy
        return
    with flags_off(energy), ExitStack() as stack:
        for module in energy.modules() if walking else ():
            arrange: Callable[[], AbstractContextManager[None]] | None = getattr(module, "walking", None)
            if arrange is not None:
                stack.enter_context(arrange())
        yield energy
