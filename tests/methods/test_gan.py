from pathlib import Path

import pytest
import torch
from conftest import small, small_digits
from rich.console import Console
from safetensors.torch import save_file
from torch import Tensor, nn

from ebmlife.data import Batches, InMemory
from ebmlife.errors import BadInput
from ebmlife.nets import SNGANDiscriminator
from ebmlife.nets.sngan import SIZES
from ebmlife.runs import build, run
from ebmlife.runs.user_code import Trust
from ebmlife.training.gan import CriticEnergy, GANTrainer, hinge_loss
from ebmlife.training.learner import Learner

QUIET = Console(quiet=True)


def test_the_hinge_loss_is_its_formula() -> None:
    of_data, of_samples = torch.tensor([2.0, 0.5, -1.0]), torch.tensor([-3.0, -0.5, 1.0])
    assert hinge_loss(of_data, of_samples).item() == pytest.approx((0 + 0.5 + 2) / 3 + (0 + 0.5 + 2) / 3)
    assert hinge_loss(torch.zeros(4), torch.zeros(4)).item() == 2  # for a discriminator that separates nothing


@pytest.mark.parametrize("size", SIZES)
def test_every_layer_of_the_discriminator_has_spectral_norm_1(size: int) -> None:
    net = SNGANDiscriminator(size, width=16, channels=3)
    x = torch.randn(2, 3, size, size)
    for _ in range(30):  # each training pass sharpens the estimate by one power iteration
        assert net(x).shape == (2,)
    layers = [m for m in net.eval().modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert len(layers) > 6
    for layer in layers:
        norm = torch.linalg.matrix_norm(layer.weight.detach().flatten(1), ord=2).item()
        assert 0.9 < norm < 1.05


def test_a_discriminator_sums_over_pixels() -> None:
    """Of images whose features are all alike, four times the pixels give four times the sum: w . sum relu(h) + b."""
    net = SNGANDiscriminator(8, width=4, channels=1).eval()
    features = net.blocks(torch.zeros(1, 1, 8, 8))
    weight, bias = net.linear.weight, net.linear.bias
    torch.testing.assert_close(net(torch.zeros(1, 1, 8, 8)), (features.relu().sum((2, 3)) @ weight.T + bias)[:, 0])
    assert CriticEnergy(net)(torch.zeros(1, 1, 8, 8)).item() == -net(torch.zeros(1, 1, 8, 8)).item()


class Shift(nn.Module):
    """g(z) = z + shift: with the right shift, samples are data."""

    latent = 1

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(1))

    def forward(self, z: Tensor) -> Tensor:
        return z + self.shift


def linear_gan(**options: int) -> GANTrainer:
    rng = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    critic = nn.Sequential(nn.Linear(1, 16), nn.ReLU(), nn.Linear(16, 1), nn.Flatten(0))
    discriminator = Learner(critic, torch.optim.Adam(critic.parameters(), betas=(0.0, 0.9)), learning_rate=1e-2)
    shift = Shift()
    generator = Learner(shift, torch.optim.Adam(shift.parameters(), betas=(0.0, 0.9)), learning_rate=1e-2, ema=0.98)
    data = InMemory(torch.randn(2000, 1, generator=rng) + 3)
    batches = Batches(data, size=64, seed=0)
    return GANTrainer(
        batches, discriminator=discriminator, generator=generator, rng=rng, **({"generator_batch": 64} | options)
    )


def test_the_generator_finds_the_data() -> None:
    trainer = linear_gan(discriminator_steps=2)
    trainer.fit(800)
    assert trainer.generator.ema.shift.item() == pytest.approx(3, abs=0.3)


def test_one_update_is_so_many_steps_of_the_discriminator_and_one_of_the_generator() -> None:
    trainer = linear_gan(discriminator_steps=3)
    counts = {"discriminator": 0, "generator": 0}
    for name in counts:
        learner = getattr(trainer, name)

        def count(loss: Tensor, *, update: int, name: str = name, descend: object = learner.descend) -> None:
            counts[name] += 1
            descend(loss, update=update)  # type: ignore[operator]

        learner.descend = count
    trainer.step()
    assert counts == {"discriminator": 3, "generator": 1}
    assert trainer.batches.position == 3


def test_the_generators_step_does_not_change_the_discriminator() -> None:
    trainer = linear_gan(discriminator_steps=1)
    seen = []
    descend = trainer.generator.descend
    trainer.generator.descend = lambda loss, update: (  # type: ignore[assignment]
        seen.append([p.clone() for p in trainer.discriminator.net.parameters()]),
        descend(loss, update=update),
    )
    trainer.step()
    assert all(torch.equal(a, b) for a, b in zip(seen[0], trainer.discriminator.net.parameters(), strict=True))
    assert all(p.requires_grad for p in trainer.discriminator.net.parameters())


@pytest.fixture(scope="module")
def gan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gan") / "run"
    run.begin(small("digits-gan"), folder, console=QUIET)
    return folder


def midrun(origin: str, **changes: str) -> dict[str, str]:
    return {"generator__run": origin, "generator__optimizer": "none", "chains__rejuvenate": "0.1", **changes}


def test_a_gans_generator_is_the_frozen_start_of_an_ebm(gan: Path, tmp_path: Path) -> None:
    run.begin(small_digits(**midrun(str(gan))), tmp_path / "ebm", console=QUIET)
    theirs, ours = build.load(gan), build.load(tmp_path / "ebm")
    assert torch.equal(ours.sample(4, steps=0), theirs.sample(4))


def test_a_file_of_weights_is_a_generator_too(gan: Path, tmp_path: Path) -> None:
    generator = build.load(gan).generator
    assert generator is not None
    save_file(generator.state_dict(), tmp_path / "g.safetensors")
    run.begin(small_digits(**midrun(str(tmp_path / "g.safetensors"))), tmp_path / "ebm", console=QUIET)
    (tmp_path / "g.safetensors").unlink()  # it travels with the run
    assert torch.equal(build.load(tmp_path / "ebm").sample(4, steps=0), build.load(gan).sample(4))


OWN = """
from torch import nn

class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.latent, self.linear = 5, nn.Linear(5, 64)

    def forward(self, z):
        return self.linear(z).tanh().view(-1, 1, 8, 8)

def plain():
    def generate(z):
        return z.new_zeros(len(z), 1, 8, 8) + z.mean()
    generate.latent = 3
    return generate

def wrong():
    net = Own()
    net.forward = lambda z: z
    return net

def blank():
    return nn.Identity()
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_generator.py").write_text(OWN)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("function", ["Own", "plain"])
def test_a_function_of_the_users_own_is_a_generator(tmp_path: Path, function: str) -> None:
    called = {"generator__net__kind": "python", "generator__net__call": f"own_generator:{function}"}
    fields = {"generator.net.width", "generator.net.latent"}
    recipe = small_digits(**called, generator__optimizer="none", drop=fields)
    name = f"own_generator:{function}"
    trust = Trust.of(name)
    run.begin(recipe, tmp_path / "run", console=QUIET, trust=trust)
    model = build.load(tmp_path / "run", trust_code=name)
    longer = recipe.model_copy(update={"updates": 8})
    with pytest.raises(BadInput, match=f"add --trust-code {name}"):
        run.resume(tmp_path / "run", change=lambda _: longer, console=QUIET)
    again = run.resume(tmp_path / "run", change=lambda _: longer, console=QUIET, trust=trust)
    assert again.update == 8
    with pytest.raises(BadInput, match=f"add --trust-code {name}"):
        build.load(tmp_path / "run")
    assert torch.equal(model.sample(3, steps=0), build.load(tmp_path / "run", trust_code=[name]).sample(3, steps=0))


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("wrong", r"own_generator:wrong must make states of shape \(1, 8, 8\), not \(5,\)"),
        ("blank", "as `latent`"),
        ("none", "no function 'none'"),
    ],
)
def test_generators_that_do_not_fit_are_one_clear_line(function: str, message: str) -> None:
    called = {"generator__net__kind": "python", "generator__net__call": f"own_generator:{function}"}
    fields = {"generator.net.width", "generator.net.latent"}
    with pytest.raises(BadInput, match=message):
        build.training(
            small_digits(**called, generator__optimizer="none", drop=fields),
            trust=Trust.of(f"own_generator:{function}"),
        )


@pytest.mark.parametrize(
    ("origin", "message"),
    [
        ("nowhere", r"generator\.run nowhere holds no checkpoint; make it first: ebmlife train .*--start\.kind data"),
        ("nowhere.safetensors", "cannot be read as safetensors"),
    ],
)
def test_a_generator_that_is_not_there_is_said_before_training(origin: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        build.training(small_digits(**midrun(origin)))


def test_a_generator_of_another_size_is_refused(gan: Path) -> None:
    with pytest.raises(BadInput, match="do not fit SNGANGenerator"):
        build.training(small_digits(**midrun(str(gan), generator__net__width="8")))
