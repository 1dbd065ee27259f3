"""The gradient through the whole chain, against plain autograd and closed forms."""

from math import isqrt

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ebmlife.defense.adjoint import pull_back
from ebmlife.nets import PerceptronEnergy, SNGANEnergy
from ebmlife.sampling.energy import Energy, curvature, gaussian, gradient, tempered, total
from ebmlife.sampling.fast import prepare
from ebmlife.sampling.loop import langevin
from ebmlife.sampling.rng import PerImageNoise

SIZES = [3, 1, 4]


def per_image_noise() -> PerImageNoise:
    return PerImageNoise([5, 6, 7], SIZES)


def by_autograd(energy: Energy, x: Tensor, v: Tensor, *, steps: int, step_size: float, clip: float | None) -> Tensor:
    """The chain of equation (3) written out, differentiated as it stands."""
    noise, leaf = per_image_noise(), x.clone().requires_grad_()
    state = leaf
    for _ in range(steps):
        (grad,) = torch.autograd.grad(energy(state).sum(), state, create_graph=True)
        if clip is not None:
            lengths = grad.flatten(1).norm(dim=1).view(-1, *[1] * (x.ndim - 1))
            grad = torch.where(lengths > 2 * clip / step_size**2, grad / lengths * 2 * clip / step_size**2, grad)
        state = state - step_size**2 / 2 * grad + step_size * noise(state)
    return torch.autograd.grad(state, leaf, v)[0]


class SmoothImages(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 6, 3), nn.Softplus(), nn.Conv2d(6, 1, 3), nn.Tanh(), nn.Flatten())

    def forward(self, x: Tensor) -> Tensor:
        energy: Tensor = self.net(x).sum(1)
        return energy


@pytest.mark.parametrize("steps", [0, 1, 2, 7, 16])
@pytest.mark.parametrize("clip", [None, 0.065])
def test_it_is_what_autograd_gives(steps: int, clip: float | None) -> None:
    torch.manual_seed(0)
    energy = total(tempered(SmoothImages(), 0.05), gaussian(0.7))
    x, v = torch.randn(8, 1, 6, 6), torch.randn(8, 1, 6, 6)
    got, _ = pull_back(energy, x, v, steps=steps, step_size=0.1, noise=per_image_noise(), clip=clip)
    wanted = by_autograd(energy, x, v, steps=steps, step_size=0.1, clip=clip)
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5 * float(wanted.abs().max()))
    if steps > 1:
        assert (wanted - v).norm() > 1e-2 * v.norm()  # far more than the tolerance


def test_the_clip_of_the_case_above_is_at_work() -> None:
    torch.manual_seed(0)
    energy = total(tempered(SmoothImages(), 0.05), gaussian(0.7))
    x = torch.randn(8, 1, 6, 6)
    lengths = gradient(energy, x).flatten(1).norm(dim=1) * 0.1**2 / 2
    assert lengths.min() < 0.065 < lengths.max()


def test_of_a_gaussian_energy_in_closed_form() -> None:
    """x' = (1 - a) x + ..., a = step_size^2 / (2 tau^2): v (1 - a)^steps."""
    x, v = torch.randn(8, 2), torch.randn(8, 2)
    got, info = pull_back(gaussian(0.5), x, v, steps=30, step_size=0.1, noise=per_image_noise())
    torch.testing.assert_close(got, v * (1 - 0.1**2 / (2 * 0.5**2)) ** 30)
    torch.testing.assert_close(info.norms[0].float(), v.norm(dim=1))
    torch.testing.assert_close(info.norms[-1].float(), got.norm(dim=1))


@pytest.mark.parametrize("growth", [2.0, 0.25])
def test_beyond_what_a_float_holds_the_direction_stays(growth: float) -> None:
    """2^500 and 2^-1000: the gradient of a long chain whose steps all stretch or shrink it."""
    x, v = torch.randn(8, 2), torch.randn(8, 2)

    def curved(energy: Energy, x: Tensor, v: Tensor) -> Tensor:
        return (1 - growth) / (0.1**2 / 2) * v

    got, info = pull_back(gaussian(0.5), x, v, steps=500, step_size=0.1, noise=per_image_noise(), curved=curved)
    torch.testing.assert_close(F.normalize(got.double(), dim=1, eps=1e-99), F.normalize(v.double(), dim=1))
    torch.testing.assert_close((info.norms[-1] / info.norms[0]).log2(), torch.full((8,), growth).log2().double() * 500)


@pytest.mark.parametrize("prepared", [False, True])
def test_the_hessian_of_a_relu_energy_is_zero(prepared: bool) -> None:
    """So that v comes back as it went, but for what a Gaussian term does to it."""
    torch.manual_seed(0)
    net = SNGANEnergy(size=8, width=8, channels=1)
    energy = tempered(prepare(net) if prepared else net, 0.01)
    x, v = torch.rand(8, 1, 8, 8) * 2 - 1, torch.randn(8, 1, 8, 8)
    alone, _ = pull_back(energy, x, v, steps=9, step_size=0.03, noise=per_image_noise())
    assert torch.equal(alone, v)
    damped, _ = pull_back(total(energy, gaussian(0.2)), x, v, steps=9, step_size=0.03, noise=per_image_noise())
    torch.testing.assert_close(damped, v * (1 - 0.03**2 / (2 * 0.2**2)) ** 9)


@pytest.mark.parametrize("steps", [1, 10, 100, 400, 1000])
def test_memory_grows_as_the_square_root_of_the_length(steps: int) -> None:
    x = torch.zeros(8, 1)
    _, info = pull_back(gaussian(1.0), x, x, steps=steps, step_size=0.1, noise=per_image_noise())
    assert info.stored <= 2 * (isqrt(steps) + 1)


def test_the_states_are_those_of_the_walk_to_the_bit() -> None:
    torch.manual_seed(0)
    energy = prepare(SNGANEnergy(size=8, width=8, channels=1), temperature=0.01)
    x = torch.rand(8, 1, 8, 8)
    seen: list[Tensor] = []

    def recording(energy: Energy, x: Tensor, v: Tensor) -> Tensor:
        seen.append(x)
        return torch.zeros_like(v)

    pull_back(energy, x, x, steps=11, step_size=0.05, noise=per_image_noise(), curved=recording)
    for k, state in enumerate(reversed(seen)):
        walked, _ = langevin(energy, x, steps=k, step_size=0.05, noise=per_image_noise())
        assert torch.equal(state, walked)
    assert len(seen) == 11


def test_curvature_is_the_hessian() -> None:
    energy = PerceptronEnergy(shape=(3,), width=16)
    x, v = torch.randn(4, 3), torch.randn(4, 3)
    mixture = total(tempered(energy, 0.3), gaussian(0.4))
    wanted = [
        torch.autograd.functional.hessian(lambda s: mixture(s[None])[0], row) @ u for row, u in zip(x, v, strict=True)
    ]
    torch.testing.assert_close(curvature(mixture, x, v), torch.stack(wanted), rtol=1e-4, atol=1e-5)
    assert all(p.grad is None and p.requires_grad for p in energy.parameters())


def test_curvature_of_a_linear_energy_is_zero() -> None:
    x = torch.randn(4, 3)
    assert torch.equal(curvature(lambda s: s.sum(1), x, x), torch.zeros(4, 3))
    assert torch.equal(curvature(lambda s: F.relu(s).sum(1), x, x), torch.zeros(4, 3))


def test_noise_of_an_image_does_not_depend_on_the_others() -> None:
    together = PerImageNoise([5, 6, 7], SIZES)
    alone = PerImageNoise([6], [1])
    x = torch.zeros(8, 5)
    for _ in range(3):
        assert torch.equal(together(x)[3:4], alone(x[:1]))


def test_per_image_noise_can_be_replayed() -> None:
    noise, x = per_image_noise(), torch.zeros(8, 5)
    noise(x)
    place = noise.position()
    first = [noise(x) for _ in range(3)]
    noise.seek(place)
    assert all(torch.equal(a, noise(x)) for a in first)
    assert not torch.equal(first[0], first[1])
