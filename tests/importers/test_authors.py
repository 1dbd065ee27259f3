"""Expected outputs were computed with the authors' own network code under TensorFlow 2.14 and tensorflow_addons 0.22,
on checkpoints that it wrote with these names and values."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ebmlife.errors import BadInput
from ebmlife.sharing.importers import load_authors_tf

from . import foreign

FIXTURES = Path(__file__).parents[2].parent / "shared" / "fixtures" / "authors-tf"
WIDTHS = {"sngan32": 8, "sngan64": 32, "sngan128": 32, "biggan64": 8, "biggan128": 8, "biggan224": 8, "biggan256": 8}
SHAPES = {
    "ebm-sngan": foreign.sngan_energy,
    "gen-sngan": foreign.sngan_generator,
    "ebm-biggan": foreign.biggan_energy,
    "gen-biggan": foreign.biggan_generator,
}
ENERGIES = {
    "ebm-sngan32": [0.4048, 0.84968],
    "ebm-sngan64": [-0.50293, -0.49878],
    "ebm-sngan128": [0.13495, 0.07906],
    "ebm-biggan64": [1.10129, 1.23233],
    "ebm-biggan128": [0.06576, -1.89127],
    "ebm-biggan224": [-1.06803, 2.32348],
}
PIXELS = {  # of two images, at a third of the width, at the top and in the middle: the first eight numbers
    "gen-sngan32": [0.38802, 0.97295, -0.27304, -0.33988, 0.79015, -0.46824, -0.27045, 0.698],
    "gen-sngan64": [0.23765, -0.20406, -0.35199, -0.56533, -0.29471, -0.60424, -0.96913, -0.99941],
    "gen-sngan128": [-0.56052, 0.26157, 0.88318, 0.44569, 0.09252, -0.26686, 0.25012, 0.43468],
    "gen-biggan128": [-0.19187, 0.224, -0.03734, -0.44783, 0.14048, -0.57072, -0.46811, 0.33521],
    "gen-biggan256": [-0.21826, 0.10646, 0.02191, -0.43815, 0.13611, -0.18531, -0.39155, 0.20206],
}
LOGITS = [-0.51702, 1.02742, -0.99685, -0.57654, 1.42168, -1.16089, -0.43518, 1.11431, -0.86564]
RESIZED = {
    64: [-0.16627, 0.16808, -0.09008, -0.43221, 0.02078, -0.6007, -0.41076, 0.25462],
    224: [-0.21434, 0.10519, 0.02093, -0.42119, 0.13542, -0.18851, -0.38059, 0.20217],
}


def imported(kind: str, folder: Path) -> nn.Module:
    sort, size = kind.rstrip("0123456789"), int(kind.lstrip("abcdefghijklmnopqrstuvwxyz-"))
    width = WIDTHS[kind.split("-")[1]]
    foreign.write_checkpoint(folder / "weights.ckpt", foreign.filled(SHAPES[sort](size, width)))
    return load_authors_tf(folder / "weights.ckpt", net=kind)


@torch.no_grad()
def generated(net: nn.Module) -> Tensor:
    if not hasattr(net, "images"):
        return net(foreign.latents())
    return net.images(foreign.latents().clamp(-2, 2), torch.tensor([2, 5]))


def some(x: Tensor) -> list[float]:
    size = x.shape[-1]
    return x.permute(0, 2, 3, 1)[:, [0, size // 2], size // 3].flatten()[:8].tolist()


@pytest.mark.parametrize("kind", ENERGIES)
def test_energies_are_the_authors(kind: str, tmp_path: Path) -> None:
    net = imported(kind, tmp_path)
    energies = net(foreign.images(2, int(kind.lstrip("abcdefghijklmnopqrstuvwxyz-"))))
    assert energies.tolist() == pytest.approx(ENERGIES[kind], abs=1e-4)


@pytest.mark.parametrize("kind", PIXELS)
def test_images_are_the_authors(kind: str, tmp_path: Path) -> None:
    assert some(generated(imported(kind, tmp_path))) == pytest.approx(PIXELS[kind], abs=1e-4)


@pytest.mark.parametrize("size", RESIZED)
def test_resized_images_are_the_authors(size: int, tmp_path: Path) -> None:
    net = imported("gen-biggan128" if size == 64 else "gen-biggan256", tmp_path)
    net.size = size
    assert some(generated(net)) == pytest.approx(RESIZED[size], abs=1e-4)


def test_logits_are_the_authors(tmp_path: Path) -> None:
    foreign.write_checkpoint(tmp_path / "weights.ckpt", foreign.filled(foreign.wide_resnet(1, 2)))
    net = load_authors_tf(tmp_path / "weights.ckpt", net="wrn")
    logits = net(foreign.images(3, 32))[:, :3].flatten().tolist()
    assert logits == pytest.approx(LOGITS, abs=1e-4)
    foreign.write_checkpoint(tmp_path / "deeper", foreign.filled(foreign.wide_resnet(3, 2)))
    assert len(load_authors_tf(tmp_path / "deeper", net="wrn").stages[1]) == 3


@pytest.mark.skipif(not FIXTURES.is_dir(), reason=f"{FIXTURES} is not there")
@pytest.mark.parametrize(
    ("folder", "kind"), [("ebm_sngan32_ngf16", "ebm-sngan32"), ("gen_sngan32_ngf16", "gen-sngan32")]
)
def test_files_that_tensorflow_wrote(folder: str, kind: str) -> None:
    net = load_authors_tf(FIXTURES / folder / "weights.ckpt", net=kind)
    with np.load(FIXTURES / folder / "io.npz") as held:
        given, expected = (torch.from_numpy(held[name]) for name in ("input", "output"))
    with torch.no_grad():
        output = net(given.permute(0, 3, 1, 2) if given.ndim == 4 else given)
    output = output.permute(0, 2, 3, 1) if output.ndim == 4 else output[:, None]
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-4)


def test_networks_come_ready_for_use(tmp_path: Path) -> None:
    net = imported("gen-sngan32", tmp_path)
    assert not net.training
    assert net.latent == foreign.NOISE


def changed(tmp_path: Path, **shapes: tuple[int, ...] | None) -> Path:
    """An energy of 32x32 with tensors of other shapes, or without them."""
    wanted = foreign.sngan_energy(32, 8)
    for name, shape in shapes.items():
        path = "layer_with_weights-0/" + name.replace("__", "/")
        wanted.pop(path, None)
        if shape is not None:
            wanted[path] = shape
    foreign.write_checkpoint(tmp_path / "x", foreign.filled(wanted))
    return tmp_path / "x"


@pytest.mark.parametrize(
    ("net", "shapes", "message"),
    [
        ("ebm-sngan64", {}, "is not ebm-sngan64: it has no tensor 'lin_6/kernel'; it looks like ebm-sngan32"),
        ("gen-sngan32", {}, "is not gen-sngan32: it has no tensor 'lin_1/kernel'; it looks like ebm-sngan32"),
        ("ebm-sngan31", {}, "unknown kind of network 'ebm-sngan31'; did you mean 'ebm-sngan32'"),
        ("ebm-sngan32", {"block3__conv_2__bias": None}, "has no tensor 'block3/conv_2/bias'"),
        ("ebm-sngan32", {"block3__conv_2__bias": (9,)}, r"'block3/conv_2/bias' has the shape \(9,\), not \(8,\)"),
        ("ebm-sngan32", {"block9__bias": (2,)}, "its tensor 'block9/bias' has no place in one"),
    ],
)
def test_a_checkpoint_of_another_kind(net: str, shapes: dict, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=message):
        load_authors_tf(changed(tmp_path, **shapes), net=net)


def test_weights_that_are_not_finite(tmp_path: Path) -> None:
    arrays = foreign.filled(foreign.sngan_energy(32, 8))
    arrays["layer_with_weights-0/block2/sc/bias"][3] = np.nan
    foreign.write_checkpoint(tmp_path / "x", arrays)
    with pytest.raises(BadInput, match="'block2/sc/bias' is not finite"):
        load_authors_tf(tmp_path / "x", net="ebm-sngan32")
