"""Weights that other people trained."""

from ebmlife.importers.any import load
from ebmlife.importers.authors import load_authors_tf
from ebmlife.importers.biggan_deep import load_biggan_deep
from ebmlife.importers.mimicry import load_mimicry

__all__ = ["load", "load_authors_tf", "load_biggan_deep", "load_mimicry"]
