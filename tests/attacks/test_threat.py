from typing import Any

import pytest
import torch

from ebmlife.attacks import Threat
from ebmlife.errors import BadInput

ORIGIN = torch.rand(20, 3, 5, 5, generator=torch.Generator().manual_seed(0)) * 2 - 1


def distance(threat: Threat, x: torch.Tensor, origin: torch.Tensor) -> torch.Tensor:
    """In pixels of [0, 1]."""
    offset = ((x - origin) / 2).flatten(1)
    return offset.abs().amax(1) if threat.norm == "linf" else offset.norm(dim=1)


@pytest.mark.parametrize("threat", [Threat("linf", 8 / 255), Threat("l2", 0.5)])
def test_nothing_leaves_the_ball_or_the_cube(threat: Threat) -> None:
    rng = torch.Generator().manual_seed(1)
    x = torch.stack([threat.start(origin, rng=rng) for origin in ORIGIN])
    assert distance(threat, x, ORIGIN).max() <= threat.radius * (1 + 1e-5)
    for _ in range(5):
        x = threat.step(x, torch.randn(x.shape, generator=rng), ORIGIN, size=threat.radius)
        assert distance(threat, x, ORIGIN).max() <= threat.radius * (1 + 1e-5)
        assert x.abs().max() <= 1
    assert distance(threat, x, ORIGIN).max() > 0.9 * threat.radius  # and it is used


def test_a_step_is_in_pixels_and_tensors_move_by_twice_as_much() -> None:
    origin, grad = torch.zeros(1, 1, 2, 2), torch.tensor([[[[0.3, -2.0], [0.0, 1.0]]]])
    linf = Threat("linf", 8 / 255).step(origin, grad, origin, size=2 / 255)
    torch.testing.assert_close(linf, torch.tensor([[[[4.0, -4.0], [0.0, 4.0]]]]) / 255)
    l2 = Threat("l2", 0.5).step(origin, grad, origin, size=0.25)
    torch.testing.assert_close(l2, grad / grad.norm() * 0.5)


def test_a_tiny_gradient_gives_a_full_step() -> None:
    """Of a confident classifier; the square of 1e-30 is 0 in float32."""
    origin, grad = torch.zeros(1, 1, 2, 2), torch.tensor([[[[0.3, -2.0], [0.0, 1.0]]]])
    l2 = Threat("l2", 0.5).step(origin, 1e-30 * grad, origin, size=0.25)
    torch.testing.assert_close(l2, grad / grad.norm() * 0.5)


def test_a_zero_gradient_moves_nothing() -> None:
    for threat in (Threat("linf", 0.1), Threat("l2", 0.1)):
        assert torch.equal(threat.step(ORIGIN, torch.zeros_like(ORIGIN), ORIGIN, size=0.1), ORIGIN)


def test_projections_are_exact() -> None:
    origin = torch.zeros(1, 1, 1, 2)
    x = torch.tensor([[[[0.9, -0.1]]]])
    torch.testing.assert_close(Threat("linf", 0.1).inside(x, origin), torch.tensor([[[[0.2, -0.1]]]]))
    torch.testing.assert_close(Threat("l2", 0.1).inside(x, origin), x / x.norm() * 0.2)


@pytest.mark.parametrize(("norm", "dimensions"), [("linf", 4), ("l2", 4)])
def test_starts_are_uniform_in_the_ball(norm: str, dimensions: int) -> None:
    """The share of a ball within r of its radius is r^d."""
    threat, rng = Threat(norm, 0.1), torch.Generator().manual_seed(0)  # type: ignore[arg-type]
    origin = torch.zeros(1, 2, 2)
    x = torch.stack([threat.start(origin, rng=rng) for _ in range(2000)])
    inner = (distance(threat, x, origin[None].expand_as(x)) < 0.08).double().mean().item()
    expected = 0.8**dimensions
    assert inner == pytest.approx(expected, abs=5 * (expected * (1 - expected) / 2000) ** 0.5)


@pytest.mark.parametrize(
    ("text", "norm", "radius", "said"),
    [
        ("linf:8/255", "linf", 8 / 255, "linf:8/255"),
        ("l2:0.5", "l2", 0.5, "l2:0.5"),
        ("linf:.1", "linf", 0.1, "linf:0.1"),
    ],
)
def test_text(text: str, norm: str, radius: float, said: str) -> None:
    threat = Threat.parse(text)
    assert (threat.norm, threat.radius) == (norm, radius)
    assert str(threat) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("linf:8", "of 255 levels, give 8/255"),
        ("l3:0.1", "unknown norm 'l3'"),
        ("linf", "such as linf:8/255"),
        ("linf:x", "'x' is not a number"),
        ("linf:1/0", "'1/0' is not a number"),
        ("l2:0", "above 0"),
        ("l2:-1", "above 0"),
        ("l2:1e400", "above 0 and finite, got inf"),
        (f"l2:1{400 * '0'}/3", "is not a number"),
        ("", "such as linf:8/255"),
    ],
)
def test_mistakes(text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said.replace("(", r"\(")):
        Threat.parse(text)


def test_an_l2_radius_may_be_large() -> None:
    assert Threat("l2", 3.0).radius == 3.0


@pytest.mark.parametrize("radius", ["8/255", None, [0.1]])
def test_a_radius_is_a_number(radius: Any) -> None:
    with pytest.raises(BadInput, match=r"the radius of a threat must be a number, got .*; Threat.parse") as error:
        Threat("linf", radius)
    assert "\n" not in str(error.value)
