"""Named recipes."""

from ebmlife.recipes import celeba, cifar10, digits, folder, imagenet, toy2d  # noqa: F401 (they register their recipes)
from ebmlife.recipes.registry import get, names

__all__ = ["get", "names"]
