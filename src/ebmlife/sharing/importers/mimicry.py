"""SNGAN generators that mimicry (torch-mimicry) trained."""

from pathlib import Path

from torch import Tensor, nn

from ebmlife.nets import SNGANGenerator
from ebmlife.sharing.importers.formats import Format, Options, Tensors, imported
from ebmlife.sharing.importers.states import read_state_dict

_LAYERS = {"conv_1": "c1", "conv_2": "c2", "sc": "c_sc", "norm_1": "b1", "norm_2": "b2"}
_THEIR_EPSILON, _OUR_EPSILON = 1e-5, 1e-3  # of batch norm


def load_mimicry(path: str | Path, *, net: str) -> nn.Module:
    """Loads a generator from a checkpoint of mimicry.

    Args:
        path: The checkpoint.
        net: The kind of network: "gen-sngan32", "gen-sngan64" or "gen-sngan128".

    Returns:
        The network in eval mode.

    Raises:
        BadInput: If the file is damaged or holds another network.
    """
    return imported(mimicry_tensors(path), FORMATS, net, str(path)).net


def mimicry_tensors(path: str | Path) -> Tensors:
    return with_our_epsilon(read_state_dict(path))


def with_our_epsilon(tensors: Tensors) -> Tensors:
    """Rescales batch norms to give the same output with our epsilon: g sqrt((v + ours) / (v + theirs))."""
    changed = dict(tensors)
    for name, variance in tensors.items():
        if name.endswith(".running_var"):
            scale = name.replace("running_var", "weight")
            changed[scale] = tensors[scale] * ((variance + _OUR_EPSILON) / (variance + _THEIR_EPSILON)).sqrt()
    return changed


def _generator(size: int, blocks: int) -> Format:
    last = blocks + 2

    def options(tensors: Tensors) -> Options:
        outputs, latent = tensors["l1.weight"].shape
        channels = len(tensors[f"c{last}.weight"])
        return {"size": size, "width": outputs // 16, "channels": channels, "latent": latent, "batch_norm": True}

    def name(key: str) -> str:
        match key.split("."):
            case ["blocks", number, layer, leaf]:
                return f"block{int(number) + 2}.{_LAYERS[layer]}.{leaf}"
            case [layer, leaf]:
                return f"{ {'linear': 'l1', 'norm': f'b{last}', 'conv': f'c{last}'}[layer] }.{leaf}"
        raise KeyError(key)

    return Format(f"c{last}.weight", SNGANGenerator, options, name, _same, ignored=(".num_batches_tracked",))


def _same(name: str, tensor: Tensor) -> Tensor:
    return tensor


FORMATS = {f"gen-sngan{size}": _generator(size, blocks) for size, blocks in ((32, 3), (64, 4), (128, 5))}
