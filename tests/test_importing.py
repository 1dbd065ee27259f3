"""`ebmlife import`: other people's weights become runs that every command takes."""

from pathlib import Path

import pytest
import torch
from importers import foreign
from PIL import Image

from ebmlife import load, recipes
from ebmlife.cli import main
from ebmlife.defense import classifiers
from ebmlife.errors import BadInput
from ebmlife.recipes.schema import override
from ebmlife.runs import build
from ebmlife.sharing.importers import load_authors_tf

Capture = pytest.CaptureFixture[str]
ENERGY = [0.4048, 0.84968]  # of foreign.images(2, 32), as the authors' code has it


def works(*arguments: str | Path) -> None:
    assert main([str(word) for word in arguments]) == 0


def fails(capsys: Capture, *arguments: str | Path) -> str:
    capsys.readouterr()
    assert main([str(word) for word in arguments]) == 2
    return capsys.readouterr().err


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an energy and a generator of the authors', and a generator of each of the others'."""
    folder = tmp_path_factory.mktemp("weights")
    foreign.write_checkpoint(folder / "ebm.ckpt", foreign.filled(foreign.sngan_energy(32, 8)))
    foreign.write_checkpoint(folder / "gen.ckpt", foreign.filled(foreign.sngan_generator(32, 8)))
    arrays = foreign.filled(foreign.mimicry_generator(32, 8))
    torch.save({"model_state_dict": {n: torch.from_numpy(a) for n, a in arrays.items()}}, folder / "netG.pth")
    torch.save(foreign.with_singular_vectors(foreign.filled(foreign.biggan_deep(128, 8))), folder / "biggan.bin")
    return folder


def test_an_energy_and_a_generator_make_a_run(weights: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    works("import", weights / "ebm.ckpt", weights / "gen.ckpt.index", "--out", run)
    model = load(run)
    assert model.net(foreign.images(2, 32)).tolist() == pytest.approx(ENERGY, abs=1e-4)
    assert model.energy(foreign.images(2, 32)).tolist() == pytest.approx([e / 1e-4 for e in ENERGY], abs=1)
    assert model.recipe.langevin.step_size == recipes.get("cifar10-shortrun").langevin.step_size
    works("sample", run, "--n", "2", "--steps", "3", "--out", tmp_path / "samples.png")
    with Image.open(tmp_path / "samples.png") as picture:
        assert picture.mode == "RGB"


def test_the_recipe_and_its_fields_can_be_chosen(weights: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = ("--recipe", "folder-shortrun", "--data.folder", tmp_path, "--langevin.step_size", "0.02")
    works("import", weights / "ebm.ckpt", "--net", "ebm-sngan32", "--out", run, *options)
    recipe = load(run).recipe
    assert (recipe.temperature, recipe.langevin.step_size) == (1e-3, 0.02)


def test_an_energy_without_a_generator_starts_from_data(weights: Path, tmp_path: Path) -> None:
    Image.new("RGB", (32, 32), "red").save(tmp_path / "1.png")
    options = ("--recipe", "folder-shortrun", "--data.folder", tmp_path)
    works("import", weights / "ebm.ckpt", "--out", tmp_path / "run", *options)
    model = load(tmp_path / "run")
    assert model.generator is None
    assert model.sample(1, steps=0)[0, :, 5, 5].tolist() == [1, -1, -1]


@pytest.mark.parametrize(("file", "size"), [("gen.ckpt", 32), ("netG.pth", 32), ("biggan.bin", 128)])
def test_a_generator_without_an_energy_samples_its_images(weights: Path, tmp_path: Path, file: str, size: int) -> None:
    works("import", weights / file, "--out", tmp_path / "run")
    model = load(tmp_path / "run")
    assert model.generator is not None
    x = model.sample(3)
    assert x.shape == (3, 3, size, size)
    assert 0.05 < x.std() < 1
    z = torch.randn(2, model.generator.latent, generator=torch.Generator().manual_seed(0))
    assert (model.energy(model.generator(z)) == 0).all()


def test_a_training_takes_an_imported_generator_resized(weights: Path, tmp_path: Path) -> None:
    works("import", weights / "biggan.bin", "--out", tmp_path / "biggan")
    options = load(tmp_path / "biggan").recipe.generator.net.options
    fields = {f"generator.net.{name}": str(value) for name, value in options.items()}
    fields |= {"generator.run": str(tmp_path / "biggan"), "net.width": "8"}
    recipe = override(build.resolve(recipes.get("imagenet224-midrun")), fields)
    _, maker = build.networks(recipe, (3, 64, 64), torch.device("cpu"))
    z = torch.zeros(1, maker.latent)
    large = load(tmp_path / "biggan").generator(z)
    torch.testing.assert_close(maker(z), torch.nn.functional.avg_pool2d(large, 2))


def test_weights_can_be_used_and_not_resumed(weights: Path, tmp_path: Path, capsys: Capture) -> None:
    run = tmp_path / "run"
    works("import", weights / "ebm.ckpt", weights / "gen.ckpt", "--out", run)
    assert "holds weights without the state of a training" in fails(capsys, "resume", run)
    assert "averaged weights only" in fails(capsys, "sample", run, "--raw", "--out", tmp_path / "x.png")
    assert "exists already" in fails(capsys, "import", weights / "ebm.ckpt", "--out", run)


def test_a_longrun_energy_comes_with_its_prior(weights: Path, tmp_path: Path, capsys: Capture) -> None:
    energy, out = weights / "ebm.ckpt", ("--recipe", "cifar10-longrun", "--out", tmp_path / "run")
    assert "has a prior energy; give its file with --prior" in fails(capsys, "import", energy, *out)
    works("import", energy, weights / "gen.ckpt", "--prior", energy, *out)
    model, x = load(tmp_path / "run"), foreign.images(2, 32)
    gaussian = x.square().flatten(1).sum(1) / (2 * 0.15**2)
    expected = 2 * torch.tensor(ENERGY) / 1e-4 + gaussian
    torch.testing.assert_close(model.energy(x), expected, rtol=1e-3, atol=0)
    elsewhere = ("import", energy, "--prior", energy, "--out", tmp_path / "other")
    assert "has no prior energy; run it without --prior" in fails(capsys, *elsewhere)
    generator = ("import", energy, "--prior", weights / "gen.ckpt", *out[:2], "--out", tmp_path / "other")
    assert "expected the file of an energy" in fails(capsys, *generator)


def test_a_classifier_becomes_a_file_that_is_found_by_name(tmp_path: Path, capsys: Capture) -> None:
    foreign.write_checkpoint(tmp_path / "wrn", foreign.filled(foreign.wide_resnet(1, 2)))
    file = tmp_path / "wrn.safetensors"
    works("import", tmp_path / "wrn", "--out", file)
    x = foreign.images(2, 32)
    assert torch.equal(classifiers.find(f"wrn:{file}")(x), load_authors_tf(tmp_path / "wrn", net="wrn")(x))
    assert "a classifier is written to a file" in fails(capsys, "import", tmp_path / "wrn", "--out", tmp_path / "run")
    with pytest.raises(BadInput, match="WideResNet"):
        classifiers.find(f"wrn:{tmp_path / 'absent.safetensors'}")


def test_mistakes(weights: Path, tmp_path: Path, capsys: Capture) -> None:
    out = ("--out", tmp_path / "run")
    energy = weights / "ebm.ckpt"
    assert "no such file" in fails(capsys, "import", weights / "absent", *out)
    assert "not ebm-sngan32 and ebm-sngan32" in fails(capsys, "import", energy, energy, *out)
    assert "it looks like ebm-sngan32" in fails(capsys, "import", energy, "--net", "ebm-sngan64", *out)
    assert "have 64x64; add --data.size 32" in fails(capsys, "import", energy, "--recipe", "celeba-shortrun", *out)
    torch.save({"weight": torch.zeros(2)}, tmp_path / "other.pth")
    assert "no network known here" in fails(capsys, "import", tmp_path / "other.pth", *out)
    foreign.write_checkpoint(tmp_path / "big", foreign.filled(foreign.biggan_energy(64, 8)))
    assert "with --recipe" in fails(capsys, "import", tmp_path / "big", *out)
    assert not (tmp_path / "run").exists()
