import pytest
import torch
from torch import nn

from ebmlife import langevin
from ebmlife.data import digits
from ebmlife.errors import BadInput
from ebmlife.nets import SNGANGenerator
from ebmlife.sampling.energy import gaussian
from ebmlife.sampling.rng import normal
from ebmlife.training.starts import AfterLangevin, Augmented, Coarse, Downsampled, FromData, FromGenerator, Uniform


def test_uniform_fills_the_cube(rng: torch.Generator) -> None:
    x = Uniform((3, 4, 4))(500, rng=rng).x
    assert x.shape == (500, 3, 4, 4)
    assert -1 <= x.min() < -0.99
    assert 0.99 < x.max() <= 1
    assert x.var().item() == pytest.approx(1 / 3, rel=0.02)


def test_from_data_gives_images_of_the_data(rng: torch.Generator) -> None:
    data = digits()
    x = FromData(data)(20, rng=rng).x
    everything = data.take(torch.arange(len(data)))
    assert all((everything == image).flatten(1).all(1).any() for image in x)


def test_from_generator_pairs_images_with_latents_and_follows_the_weights(rng: torch.Generator) -> None:
    generator = SNGANGenerator(size=8, width=4, channels=1, latent=5, batch_norm=False)
    start = FromGenerator(generator)
    x, z = start(6, rng=rng)
    assert z is not None
    assert not x.requires_grad
    torch.testing.assert_close(x, generator(z).detach())
    nn.init.zeros_(generator.conv.weight)
    assert torch.equal(start(6, rng=rng).x, torch.zeros(6, 1, 8, 8))


def test_augmented_keeps_most_of_the_old_states(rng: torch.Generator) -> None:
    old = digits().take(torch.arange(400))
    start = Augmented((1, 8, 8), anew=0.25, zoom=0.1, brightness=0.1)
    assert start(400, rng=rng).x.shape == old.shape  # nothing to augment yet: noise
    x = start(400, rng=rng, old=old).x
    change = (x - old).flatten(1).norm(dim=1)
    anew = (change > 6).double().mean().item()  # a digit and noise are far apart, a digit and its blur near
    assert anew == pytest.approx(0.25, abs=5 * (0.25 * 0.75 / 400) ** 0.5)
    assert change.min() > 0


def test_augmented_without_strength_is_the_identity_but_for_blur(rng: torch.Generator) -> None:
    old = torch.full((3, 1, 8, 8), 0.3)
    x = Augmented((1, 8, 8), anew=0.0, zoom=0.0, brightness=0.0)(3, rng=rng, old=old).x
    torch.testing.assert_close(x, old)


def test_augmented_flip_mirrors_half(rng: torch.Generator) -> None:
    old = torch.linspace(-1, 1, 8).expand(400, 1, 8, 8).clone()
    x = Augmented((1, 8, 8), anew=0.0, zoom=0.0, brightness=0.0, flip=True)(400, rng=rng, old=old).x
    mirrored = (x[:, 0, 0, 0] > 0).double().mean().item()
    assert mirrored == pytest.approx(0.5, abs=0.125)


def test_coarse_keeps_the_mean_of_each_cell(rng: torch.Generator) -> None:
    flat = Coarse(Downsampled(FromData(digits()), size=1), (1, 8, 8))(5, rng=rng).x
    assert flat.shape == (5, 1, 8, 8)
    torch.testing.assert_close(flat, flat[:, :, :1, :1].expand_as(flat))  # enlarged from one pixel


def test_after_langevin_walks_from_another_start() -> None:
    start, energy = Uniform((2,)), gaussian(0.3)
    x = AfterLangevin(start, energy, steps=4, step_size=0.1)(7, rng=torch.Generator().manual_seed(3)).x
    rng = torch.Generator().manual_seed(3)
    initial = start(7, rng=rng).x
    assert torch.equal(x, langevin(energy, initial, steps=4, step_size=0.1, noise=normal(rng))[0])


@pytest.mark.parametrize("make", [lambda: Augmented((2,)), lambda: Coarse(Uniform((2,)), (2,))])
def test_image_starts_refuse_points(make: object) -> None:
    with pytest.raises(BadInput, match="needs images"):
        make()  # type: ignore[operator]
