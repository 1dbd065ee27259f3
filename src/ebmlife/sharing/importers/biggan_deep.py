"""BigGAN-deep generators as Hugging Face published them (pytorch-pretrained-biggan)."""

from pathlib import Path

import torch
from torch import Tensor, nn

from ebmlife.nets import BigGANGenerator
from ebmlife.sharing.importers.formats import Format, Options, Tensors, imported
from ebmlife.sharing.importers.states import read_state_dict

_STATISTICS = {"means": "running_means", "variances": "running_vars"}
_ATTENTION = {"out": "o_conv"}
_RGB = 3


def load_biggan_deep(path: str | Path, *, net: str) -> nn.Module:
    """Loads a BigGAN-deep generator from a published file of weights.

    Args:
        path: The file.
        net: The kind of network: "gen-biggan128" or "gen-biggan256".

    Returns:
        The network in eval mode.

    Raises:
        BadInput: If the file is damaged or holds another network.
    """
    return imported(biggan_deep_tensors(path), FORMATS, net, str(path)).net


def biggan_deep_tensors(path: str | Path) -> Tensors:
    return normalized(read_state_dict(path))


def normalized(tensors: Tensors) -> Tensors:
    """Returns weights with spectral normalization applied: W / (u . W v), with the stored u and v."""
    plain = {}
    for name, value in tensors.items():
        module, _, leaf = name.rpartition(".")
        if leaf == "weight_orig":
            u, v = (tensors[f"{module}.{leaf}"] for leaf in ("weight_u", "weight_v"))
            plain[f"{module}.weight"] = value / torch.dot(u, value.flatten(1) @ v)
        elif leaf not in ("weight_u", "weight_v"):
            plain[name] = value
    return plain


def _generator(size: int, layers: int) -> Format:
    def options(tensors: Tensors) -> Options:
        noise, classes = tensors["embeddings.weight"].shape
        statistics, width = tensors["generator.bn.running_means"].shape
        return {"size": size, "width": width, "noise": noise, "classes": classes, "statistics": statistics}

    return Format(f"generator.layers.{layers - 1}.bn_0.running_means", BigGANGenerator, options, _name, _value)


def _name(key: str) -> str:
    match key.split("."):
        case ["layers", number, "norms", norm, "standardised", leaf]:
            return f"generator.layers.{number}.bn_{norm}.{_STATISTICS[leaf]}"
        case ["layers", number, "norms", norm, layer, leaf]:
            return f"generator.layers.{number}.bn_{norm}.{layer}.{leaf}"
        case ["layers", number, layer, leaf] if not layer.startswith("conv_"):
            return f"generator.layers.{number}.snconv1x1_{_ATTENTION.get(layer, layer)}.{leaf}"
        case ["embedding", leaf]:
            return f"embeddings.{leaf}"
        case ["norm", leaf]:
            return f"generator.bn.{_STATISTICS[leaf]}"
        case ["linear", leaf]:
            return f"generator.gen_z.{leaf}"
        case ["conv", leaf]:
            return f"generator.conv_to_rgb.{leaf}"
        case ["scale"]:
            return "generator.bn.weight"
        case ["offset"]:
            return "generator.bn.bias"
    return f"generator.{key}"


def _value(name: str, tensor: Tensor) -> Tensor:
    if name == "embeddings.weight":
        return tensor.T  # a linear layer on one-hot classes there, a table here
    return tensor[:_RGB] if name.startswith("generator.conv_to_rgb.") else tensor


FORMATS = {f"gen-biggan{size}": _generator(size, layers) for size, layers in ((256, 13), (128, 11))}
