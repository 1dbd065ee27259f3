"""Features of data that take minutes: computed once, then read from the cache."""

from collections.abc import Callable

from torch import Tensor

from ebmlife.distributed import SINGLE_PROCESS, Ranks
from ebmlife.storage import cache


def once(name: str, make: Callable[[], Tensor], *, ranks: Ranks = SINGLE_PROCESS) -> Tensor:
    """What `make` made the first time that something of this name was asked for. All ranks make it together."""
    held = cache.find(name)
    if not ranks.any(held is None) and held is not None:
        return held["features"]
    features = make()
    if ranks.local == 0:
        cache.keep(name, {"features": features})
    return features
