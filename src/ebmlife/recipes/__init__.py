"""Named recipes."""

from ebmlife.recipes import cifar10, digits, folder, toy2d  # noqa: F401 (they register their recipes)
from ebmlife.recipes.registry import get, names

__all__ = ["get", "names"]
