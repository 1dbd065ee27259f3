from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ebmlife.defense import DefendedClassifier, Purifier
from ebmlife.defense.gradients import MODES, Fixed, Full, Smooth, find
from ebmlife.errors import BadInput
from ebmlife.nets import SNGANEnergy
from ebmlife.sampling.energy import gaussian, tempered, total
from ebmlife.sampling.fast import prepare


class Relu(nn.Module):
    """A small energy whose kinks are ReLU or softplus, in every spelling of them."""

    def __init__(self, beta: float | None) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(3)
            self.a, self.b, self.c = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.beta, self.spelt = beta, nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        if self.beta is not None:
            h = F.softplus(self.b(F.softplus(self.a(x.flatten(1)), self.beta)), self.beta)
            h = F.softplus(self.c(h), self.beta)
            return (0.2 * h + 0.8 * F.softplus(h, self.beta)).square().sum(1)
        h = torch.relu(self.b(F.relu(self.a(x.flatten(1)))))
        h = self.spelt(self.c(h))
        return F.leaky_relu(h, 0.2).square().sum(1)


def classifier() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 4))


def grad(robust: DefendedClassifier, x: Tensor, y: Tensor) -> Tensor:
    leaf = x.clone().requires_grad_()
    F.cross_entropy(robust(leaf, seeds=[7] * len(x)), y).backward()  # type: ignore[no-untyped-call]
    assert leaf.grad is not None
    return leaf.grad


def defended(gradient: object, *, tau: float | None = None, steps: int = 5) -> DefendedClassifier:
    with torch.random.fork_rng():
        torch.manual_seed(2)
        learned = tempered(prepare(SNGANEnergy(size=8, width=8, channels=1)), 0.01)
    energy = learned if tau is None else total(learned, gaussian(tau))
    purifier = Purifier(energy, steps=steps, step_size=0.03)
    return DefendedClassifier(classifier(), purifier, replicas=9, gradient=gradient)  # type: ignore[arg-type]


X, Y = torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(0)) * 2 - 1, torch.tensor([0, 3, 1])


def test_bpda_is_the_classifiers_gradient_at_the_purified_images_averaged() -> None:
    robust = defended("bpda")
    leaf = X.repeat_interleave(9, 0)
    lanes = [lane for part in robust.purifier.parts([7] * 3, replicas=9) for lane in part]
    walked = robust.purifier.walk(leaf, robust.purifier.noise(lanes, X.device)).requires_grad_()
    logits = robust.classifier(walked).view(3, 9, 4).mean(1)
    (at_walked,) = torch.autograd.grad(F.cross_entropy(logits, Y), walked)
    torch.testing.assert_close(grad(robust, X, Y), at_walked.view(3, 9, 1, 8, 8).sum(1))


def test_full_is_bpda_on_a_relu_energy() -> None:
    torch.testing.assert_close(grad(defended("full"), X, Y), grad(defended("bpda"), X, Y), rtol=0, atol=0)


def test_full_is_bpda_but_for_the_gaussian_term() -> None:
    exact, straight = (grad(defended(mode, tau=0.15), X, Y) for mode in ("full", "bpda"))
    torch.testing.assert_close(exact, straight * (1 - 0.03**2 / (2 * 0.15**2)) ** 5)


def test_smooth_differs_from_full_and_does_not_change_the_logits() -> None:
    smooth, full = defended("smooth"), defended("full")
    assert torch.equal(smooth(X, seeds=[7] * 3), full(X, seeds=[7] * 3))
    assert (grad(smooth, X, Y) - grad(full, X, Y)).norm() > 1e-3 * grad(full, X, Y).norm()


@pytest.mark.parametrize("beta", [1.0, 20.0])
def test_smooth_takes_the_curvature_of_the_softplus_energy(beta: float) -> None:
    x, v = torch.randn(6, 1, 2, 2), torch.randn(6, 1, 2, 2)
    wanted = Full().curved(Relu(beta), x, v)
    torch.testing.assert_close(Smooth(beta).curved(Relu(None), x, v), wanted)
    assert not torch.allclose(Full().curved(Relu(None), x, v), wanted, rtol=1e-2)
    energy = Relu(None)
    torch.testing.assert_close(energy(x), Relu(1e6)(x), rtol=1e-3, atol=1e-3)  # outside, ReLU is itself again


def _in_place(change: Callable[[Tensor], object]) -> Callable[[Tensor], Tensor]:
    """What is left in a tensor that is changed, whatever the call returns."""

    def changed(x: Tensor) -> Tensor:
        x = x + 0
        change(x)
        return x

    return changed


def soft(x: Tensor) -> Tensor:
    return F.softplus(x, 5.0)


def soft6(x: Tensor) -> Tensor:
    return soft(x) - soft(x - 6)


SLOPES = torch.tensor([0.1, 0.3])


def soft_prelu(x: Tensor) -> Tensor:
    grads = SLOPES.view(1, 2, 1, 1)
    return grads * x + (1 - grads) * soft(x)


@pytest.mark.parametrize(
    ("spelling", "softened"),
    [
        (_in_place(torch.relu_), soft),
        (_in_place(Tensor.relu_), soft),
        (_in_place(nn.ReLU(inplace=True)), soft),
        (lambda x: x.clamp(min=0), soft),
        (lambda x: torch.clamp(x, 0.0), soft),
        (lambda x: x.clamp_min(0), soft),
        (_in_place(lambda x: x.clamp_(min=0)), soft),
        (lambda x: torch.clamp(x, 0, 6), soft6),
        (F.relu6, soft6),
        (nn.ReLU6(), soft6),
        (lambda x: F.prelu(x, SLOPES), soft_prelu),
        (lambda x: F.prelu(x, SLOPES[:1]), lambda x: 0.1 * x + 0.9 * soft(x)),
        (_in_place(lambda x: F.leaky_relu(x, 0.1, inplace=True)), lambda x: 0.1 * x + 0.9 * soft(x)),
    ],
)
def test_other_spellings_of_relu_are_smoothed_too(
    spelling: Callable[[Tensor], Tensor], softened: Callable[[Tensor], Tensor]
) -> None:
    x, v = torch.randn(5, 2, 3, 3), torch.randn(5, 2, 3, 3)

    def energy(kinked: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        return lambda x: kinked(3 * x).flatten(1).square().sum(1)

    wanted = Full().curved(energy(softened), x, v)
    torch.testing.assert_close(Smooth(5.0).curved(energy(spelling), x, v), wanted)
    assert not torch.allclose(Full().curved(energy(spelling), x, v), wanted)


def test_a_guard_against_small_numbers_is_no_kink() -> None:
    x, v = torch.randn(5, 2, 3, 3), torch.randn(5, 2, 3, 3)
    guarded = lambda x: x.clamp(min=-0.5).clamp(max=0.5).flatten(1).square().sum(1)  # noqa: E731
    assert torch.equal(Smooth(5.0).curved(guarded, x, v), Full().curved(guarded, x, v))


def test_kinks_are_counted() -> None:
    x = torch.randn(6, 1, 2, 2)
    assert Smooth().kinks(Relu(None), x) == 4  # one for each spelling
    assert Smooth().kinks(Relu(5.0), x) == 0
    assert Smooth().kinks(gaussian(1.0), x) == 0


def test_transfer_is_the_bare_classifiers_gradient_at_the_image() -> None:
    robust = defended("transfer")
    logits = robust(X, seeds=[7] * 3).requires_grad_()
    (v,) = torch.autograd.grad(F.cross_entropy(logits, Y), logits)
    leaf = X.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(robust.classifier(leaf), leaf, v)
    torch.testing.assert_close(grad(robust, X, Y), wanted)


def test_fixed_noise_is_always_the_same() -> None:
    fixed, free = defended("fixed"), defended("bpda")
    assert torch.equal(fixed(X), fixed(X))
    assert not torch.equal(free(X), free(X))
    assert torch.equal(grad(fixed, X, Y), grad(free, X, Y))  # with given seeds it is bpda


def test_modes_by_name() -> None:
    assert find("full") == Full()
    assert find(Smooth(3.0)) == Smooth(3.0)
    assert find("fixed-full") == Fixed(Full())
    assert {"bpda", "full", "smooth", "transfer", "fixed"} <= set(MODES)
    with pytest.raises(BadInput, match="unknown gradient 'bdpa'; did you mean 'bpda'"):
        find("bdpa")
    with pytest.raises(BadInput, match="beta"):
        Smooth(0.0)
