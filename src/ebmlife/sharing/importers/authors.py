"""Weights that the paper's authors released as TensorFlow checkpoints, with kernels (height, width, in, out)."""

from pathlib import Path

from torch import Tensor, nn

from ebmlife.nets import AuthorsWideResNet, BigGANEnergy, BigGANGenerator, SNGANEnergy, SNGANGenerator
from ebmlife.sharing.importers.formats import Format, Options, Tensors, imported
from ebmlife.sharing.importers.tensorflow import read_checkpoint

_WRAPPED = "layer_with_weights-0/"  # an energy is saved inside a model of one layer
_LAYER = {"weight": "kernel", "bias": "bias"}
_NORM = {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"}
_SPECTRAL = {"weight": "w", "bias": "layer/bias"}  # inside the wrapper for spectral normalization
_STATISTICS = {"means": "mean", "variances": "var"}
_ATTENTION = {"out": "o_conv"}
_RGB = 3


def load_authors_tf(path: str | Path, *, net: str) -> nn.Module:
    """Loads a network that the paper's authors released as a TensorFlow checkpoint.

    Args:
        path: The checkpoint: X for X.index.
        net: The kind of network: a key of `FORMATS`, such as "ebm-sngan32".

    Returns:
        The network in eval mode.

    Raises:
        BadInput: If the file is damaged or holds another network.
    """
    return imported(authors_tensors(path), FORMATS, net, str(path)).net


def authors_tensors(path: str | Path) -> Tensors:
    return {name.removeprefix(_WRAPPED): value for name, value in read_checkpoint(path).items()}


def _value(name: str, tensor: Tensor) -> Tensor:
    if name.endswith(("/kernel", "/w")) and name != "embeddings/kernel" and tensor.ndim > 1:
        return tensor.permute(3, 2, 0, 1) if tensor.ndim == 4 else tensor.T
    return tensor


def _rgb_value(name: str, tensor: Tensor) -> Tensor:
    """Keeps the first three outputs of the last layer, which are the image."""
    value = _value(name, tensor)
    return value[:_RGB] if name.startswith("conv_to_rgb/") else value


def _sngan_energy(size: int, blocks: int) -> Format:
    last = f"lin_{blocks + 1}"

    def options(tensors: Tensors) -> Options:
        width, channels = len(tensors[f"{last}/kernel"]), tensors["conv_1/conv_1/kernel"].shape[2]
        return {"size": size, "width": width, "channels": channels}

    def name(key: str) -> str:
        match key.split("."):
            case ["blocks", number, layer, leaf]:
                block = "conv_1" if number == "0" else f"block{int(number) + 1}"
                return f"{block}/{layer}/{_LAYER[leaf]}"
            case [_, leaf]:
                return f"{last}/{_LAYER[leaf]}"
        raise KeyError(key)

    return Format(f"{last}/kernel", SNGANEnergy, options, name, _value)


def _sngan_generator(size: int, blocks: int) -> Format:
    last = blocks + 2

    def options(tensors: Tensors) -> Options:
        latent, outputs = tensors["lin_1/kernel"].shape
        channels = tensors[f"conv_{last}/kernel"].shape[-1]
        return {"size": size, "width": outputs // 16, "channels": channels, "latent": latent, "batch_norm": True}

    def name(key: str) -> str:
        match key.split("."):
            case ["blocks", number, layer, leaf] if layer.startswith("norm_"):
                return f"block{int(number) + 2}/{layer.replace('norm', 'bn')}/{_NORM[leaf]}"
            case ["blocks", number, layer, leaf]:
                return f"block{int(number) + 2}/{layer}/{_LAYER[leaf]}"
            case ["norm", leaf]:
                return f"bn_{last}/{_NORM[leaf]}"
            case [layer, leaf]:
                return f"{ {'linear': 'lin_1', 'conv': f'conv_{last}'}[layer] }/{_LAYER[leaf]}"
        raise KeyError(key)

    return Format(f"conv_{last}/kernel", SNGANGenerator, options, name, _value)


def _biggan_energy(size: int, layers: int) -> Format:
    def options(tensors: Tensors) -> Options:
        *_, channels, width = tensors["rgb_conv/w"].shape
        return {"size": size, "width": width, "channels": channels}

    def name(key: str) -> str:
        match key.split("."):
            case ["layers", number, layer, leaf] if layer.startswith("conv_"):
                return f"layers_out/{number}/{layer}/{_SPECTRAL[leaf]}"
            case ["layers", number, "sc", leaf]:
                return f"layers_out/{number}/conv_sc/{_SPECTRAL[leaf]}"
            case ["layers", *rest]:
                return _attention(rest)
            case [layer, leaf]:
                return f"{ {'stem': 'rgb_conv', 'linear': 'linear_head'}[layer] }/{_SPECTRAL[leaf]}"
        raise KeyError(key)

    sign = f"layers_out/{layers - 1}/conv_0/w"
    return Format(sign, BigGANEnergy, options, name, _value, ignored=("/sn_u",))


def _biggan_generator(size: int, layers: int) -> Format:
    def options(tensors: Tensors) -> Options:
        classes, noise = tensors["embeddings/kernel"].shape
        statistics, width = tensors["bn/mean"].shape
        return {"size": size, "width": width, "noise": noise, "classes": classes, "statistics": statistics}

    def name(key: str) -> str:
        match key.split("."):
            case ["layers", number, "norms", norm, "standardised", leaf]:
                return f"layers_out/{number}/bn_{norm}/{_STATISTICS[leaf]}"
            case ["layers", number, "norms", norm, layer, _]:
                return f"layers_out/{number}/bn_{norm}/{layer}/w"
            case ["layers", number, layer, leaf] if layer.startswith("conv_"):
                return f"layers_out/{number}/{layer}/{_SPECTRAL[leaf]}"
            case ["layers", *rest]:
                return _attention(rest)
            case ["embedding", _]:
                return "embeddings/kernel"
            case ["norm", leaf]:
                return f"bn/{_STATISTICS[leaf]}"
            case [layer, leaf]:
                return f"{ {'linear': 'gen_z', 'conv': 'conv_to_rgb'}[layer] }/{_SPECTRAL[leaf]}"
            case [parameter]:
                return {"scale": "bn/w", "offset": "bn/b"}[parameter]
        raise KeyError(key)

    sign = f"layers_out/{layers - 1}/bn_0/mean"
    return Format(sign, BigGANGenerator, options, name, _rgb_value, ignored=("/sn_u",))


def _attention(path: list[str]) -> str:
    match path:
        case [number, "gamma"]:
            return f"layers_out/{number}/gamma"
        case [number, layer, _]:
            return f"layers_out/{number}/snconv1x1_{_ATTENTION.get(layer, layer)}/w"
    raise KeyError(".".join(path))


def _wide_resnet() -> Format:
    def options(tensors: Tensors) -> Options:
        *_, channels, _ = tensors["conv1/kernel"].shape
        width, classes = tensors["layer1/0/conv_1/kernel"].shape[-1], tensors["linear/kernel"].shape[-1]
        blocks = sum(f"layer1/{i}/conv_1/kernel" in tensors for i in range(len(tensors)))
        return {"blocks": blocks, "widen": width // 16, "classes": classes, "channels": channels}

    def name(key: str) -> str:
        match key.split("."):
            case ["stages", stage, block, layer, leaf]:
                leaves = _NORM if layer.startswith("bn") else _LAYER
                return f"layer{int(stage) + 1}/{block}/{layer}/{leaves[leaf]}"
            case ["bn", leaf]:
                return f"bn1/{_NORM[leaf]}"
            case [layer, leaf]:
                return f"{ {'conv': 'conv1', 'linear': 'linear'}[layer] }/{_LAYER[leaf]}"
        raise KeyError(key)

    return Format("layer1/0/conv_1/kernel", AuthorsWideResNet, options, name, _value)


FORMATS = {  # larger networks of a family first: they also contain the tensors that identify smaller ones
    **{f"ebm-sngan{size}": _sngan_energy(size, blocks) for size, blocks in ((32, 4), (64, 5), (128, 6))},
    **{f"gen-sngan{size}": _sngan_generator(size, blocks) for size, blocks in ((32, 3), (64, 4), (128, 5))},
    **{f"gen-biggan{size}": _biggan_generator(size, layers) for size, layers in ((256, 13), (128, 11))},
    **{f"ebm-biggan{size}": _biggan_energy(size, layers) for size, layers in ((224, 13), (128, 11), (64, 10))},
    "wrn": _wide_resnet(),
}
