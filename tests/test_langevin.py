import math

import pytest
import torch
from torch import nn

from ebmlife import langevin, seeded
from ebmlife.errors import BadInput
from ebmlife.nets import SNGANEnergy
from ebmlife.sampling.energy import gaussian, tempered
from ebmlife.sampling.loop import Walk
from ebmlife.sampling.schedule import Phase, Piecewise


@pytest.mark.parametrize("step_size", [0.1, 0.5, 1.0])
def test_stationary_variance_of_a_gaussian_is_exact(step_size: float) -> None:
    """x <- (1 - a) x + step_size z has variance 2 s^2 / (2 - a), a = step_size^2 / (2 s^2)."""
    s, chains = 0.8, 40_000
    steps = math.ceil(12 * s**2 / step_size**2)  # the start's share has decayed by e^-12 in variance
    x, _ = langevin(gaussian(s), torch.zeros(chains, 1), steps=steps, step_size=step_size, noise=seeded(1))
    expected = 2 * s**2 / (2 - step_size**2 / (2 * s**2))
    # The sample variance of N normals has relative standard deviation sqrt(2 / N).
    assert x.var().item() == pytest.approx(expected, rel=5 * math.sqrt(2 / chains))
    assert x.mean().item() == pytest.approx(0, abs=5 * math.sqrt(expected / chains))


def test_one_step_is_the_equation() -> None:
    x = torch.randn(4, 3, 2)
    z = torch.randn(4, 3, 2)
    got, info = langevin(gaussian(0.5), x, steps=1, step_size=0.2, noise=lambda _: z)
    torch.testing.assert_close(got, x - 0.2**2 / 2 * x / 0.5**2 + 0.2 * z)
    torch.testing.assert_close(info.gradient, (x / 0.5**2).flatten(1).norm(dim=1).mean())


def test_temperature_divides_the_gradient() -> None:
    x = torch.randn(4, 2)
    cold, _ = langevin(tempered(gaussian(1.0), 0.1), x, steps=1, step_size=0.1, noise=torch.zeros_like)
    torch.testing.assert_close(cold, x - 0.1**2 / 2 * x / 0.1)


def test_clip_shortens_long_steps_and_leaves_short_ones() -> None:
    x = torch.tensor([[100.0, 0.0], [0.0, 1e-3], [0.0, 0.0]])
    got, _ = langevin(gaussian(0.1), x, steps=1, step_size=0.1, noise=torch.zeros_like, clip=0.05)
    drift = 0.1**2 / 2 / 0.1**2
    torch.testing.assert_close(got, torch.tensor([[99.95, 0.0], [0.0, 1e-3 * (1 - drift)], [0.0, 0.0]]))


def test_network_is_left_untouched_and_no_grad_is_no_obstacle() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.Dropout(), nn.Linear(4, 1), nn.Flatten(0))
    x = torch.randn(5, 2, 3)
    start = x.clone()
    with torch.no_grad():
        got, _ = langevin(net, x, steps=3, step_size=0.1, noise=seeded(0))
    again, _ = langevin(net, x, steps=3, step_size=0.1, noise=seeded(0))
    assert torch.equal(got, again)  # dropout is off while walking
    assert torch.equal(x, start)
    assert not got.requires_grad
    assert net.training
    assert all(p.grad is None and p.requires_grad for p in net.parameters())


def test_no_steps_return_a_copy() -> None:
    x = torch.randn(2, 2)
    got, info = langevin(gaussian(1.0), x, steps=0, step_size=0.1)
    assert torch.equal(got, x)
    assert got.data_ptr() != x.data_ptr()
    assert info.gradient == 0


def test_nan_is_never_hidden() -> None:
    x = torch.tensor([[float("nan")], [1.0]])
    got, info = langevin(gaussian(1.0), x, steps=2, step_size=0.1, clip=1.0)
    assert got[0].isnan()
    assert got[1].isfinite()
    assert info.gradient.isnan()


def test_walk_follows_its_schedule() -> None:
    walk = Walk(steps=Piecewise((Phase(0, 1), Phase(10, 4))), step_size=1.0, noise=torch.ones_like)
    flat = lambda x: (0 * x).sum(1)  # noqa: E731
    assert walk(flat, torch.zeros(1, 1), update=9)[0].item() == 1
    assert walk(flat, torch.zeros(1, 1), update=10)[0].item() == 4
    assert walk.with_steps(7)(flat, torch.zeros(1, 1), update=0)[0].item() == 7


def test_memory_of_a_walk_does_not_grow_with_its_steps() -> None:
    net = SNGANEnergy(size=8, width=4, channels=1)
    alive: list[int] = []

    def noise(x: torch.Tensor) -> torch.Tensor:
        alive.append(x.data_ptr())
        assert x.grad_fn is None  # no graph reaches back to earlier steps
        return torch.zeros_like(x)

    langevin(net, torch.zeros(2, 1, 8, 8), steps=5, step_size=0.1, noise=noise)
    assert len(set(alive)) == 1  # one buffer, updated in place


def test_states_may_be_numbers_and_gradients_expanded() -> None:
    x, _ = langevin(lambda x: x**2, torch.ones(4), steps=1, step_size=0.1, noise=torch.zeros_like)
    torch.testing.assert_close(x, torch.full((4,), 1 - 0.1**2))
    y, _ = langevin(lambda x: x.sum(1), torch.zeros(4, 2), steps=1, step_size=1.0, noise=torch.zeros_like, clip=0.1)
    torch.testing.assert_close(y, torch.full((4, 2), -0.1 / 2**0.5))


@pytest.mark.parametrize(("steps", "step_size"), [(-1, 0.1), (1, 0.0), (1, -0.1), (1, float("nan"))])
def test_impossible_walks_are_refused(steps: int, step_size: float) -> None:
    with pytest.raises(BadInput, match="langevin needs"):
        langevin(gaussian(1.0), torch.zeros(2, 2), steps=steps, step_size=step_size)
