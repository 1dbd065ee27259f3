"""Named recipes."""

from ebmlife.recipes import (  # noqa: F401 (they register their recipes)
    celeba,
    cifar10,
    classifier,
    digits,
    folder,
    gan,
    imagenet,
    midrun,
    mnist,
    others,
    toy2d,
)
from ebmlife.recipes.registry import get, names

__all__ = ["get", "names"]
