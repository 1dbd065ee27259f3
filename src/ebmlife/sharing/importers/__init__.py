"""Importers for weights that were not trained with ebmlife."""

from ebmlife.sharing.importers.any import load
from ebmlife.sharing.importers.authors import load_authors_tf
from ebmlife.sharing.importers.biggan_deep import load_biggan_deep
from ebmlife.sharing.importers.mimicry import load_mimicry

__all__ = ["load", "load_authors_tf", "load_biggan_deep", "load_mimicry"]
