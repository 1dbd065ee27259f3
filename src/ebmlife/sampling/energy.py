"""Energies and how they combine. An energy is any callable from states (B, ...) to one number each (B,)."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import torch
from torch import Tensor, nn

from ebmlife.sampling.freezing import turned_off

Energy = Callable[[Tensor], Tensor]


def gradient(energy: Energy, x: Tensor) -> Tensor:
    """grad E(x) of each state of the batch, with no trace left on the energy's parameters.

    An energy that knows a faster way than autograd has a method `gradient`; combinations ask their parts.
    """
    own = getattr(energy, "gradient", None)
    if own is not None:
        grad: Tensor = own(x)
        return grad.detach()  # a network's own output would remember its way
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        return torch.autograd.grad(energy(leaf).sum(), leaf)[0]


def curvature(energy: Energy, x: Tensor, v: Tensor) -> Tensor:
    """H(x) v of each state, H the Hessian of E: the derivative of <grad E(x), v>, by autograd through `energy` itself.

    An energy that knows a better way has a method `curvature`; one that is only a drift, with no E, needs it.
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
        # A plain list hides its modules from .to() and from `frozen`: register them by hand, so that
        # terms that are not modules stay welcome.
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

    def curvature(self, x: Tensor, v: Tensor) -> Tensor:
        first, *rest = self.terms
        product = curvature(first, x, v)
        for term in rest:
            product = product + curvature(term, x, v)
        return product


class Score(nn.Module):
    """What chains walk on where there is a score s(x) = grad log p(x) and no energy: grad E(x) = -s(x)."""

    conservative = False

    def __init__(self, score: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.score = score

    @torch.no_grad()
    def gradient(self, x: Tensor) -> Tensor:
        return -self.score(x)


def is_energy(walked: object) -> bool:
    """Whether E(x) can be asked for, not the slope alone: a score says that it is not `conservative`."""
    return callable(walked) and getattr(walked, "conservative", True)


def tempered(energy: Energy, temperature: float) -> Energy:
    """E(x) / temperature."""
    return _Tempered(energy, temperature)


def gaussian(tau: float) -> Energy:
    """|x|^2 / (2 tau^2): keeps long chains inside the image cube."""
    return _Gaussian(tau)


def total(*terms: Energy) -> Energy:
    """E_1(x) + E_2(x) + ..."""
    return terms[0] if len(terms) == 1 else _Total(*terms)


@contextmanager
def frozen(energy: Energy, *, walking: bool = True) -> Iterator[Energy]:
    """Within: parameters need no gradient and modules are in eval mode; afterwards all is as it was.

    Only the gradient with respect to x is wanted while walking, so that half of the backward pass is saved. A module
    with more to arrange for a walk does so in its context manager `walking`; `walking=False` where none is made. Where
    several threads walk at a time, all is as it was after the last of them.
    """
    if not isinstance(energy, nn.Module):
        yield energy
        return
    with turned_off(energy), ExitStack() as stack:
        for module in energy.modules() if walking else ():
            arrange: Callable[[], AbstractContextManager[None]] | None = getattr(module, "walking", None)
            if arrange is not None:
                stack.enter_context(arrange())
        yield energy
