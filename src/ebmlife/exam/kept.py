"""Features of data that take minutes: computed once, then read from the cache."""

from collections.abc import Callable

from safetensors.torch import load_file, save_file
from torch import Tensor

from ebmlife.distributed import ALONE, Ranks
from ebmlife.files import cache_folder, whole


def once(name: str, make: Callable[[], Tensor], *, ranks: Ranks = ALONE) -> Tensor:
    """What `make` made the first time that something of this name was asked for. All ranks make it together."""
    file = cache_folder() / f"{name}.safetensors"
    if not ranks.any(not file.exists()):
        return load_file(file)["features"]
    features = make()
    if ranks.local == 0:
        with whole(file) as unfinished:
            save_file({"features": features}, unfinished)
    return features
