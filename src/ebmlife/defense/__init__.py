"""Classifiers behind midrun Langevin chains, and gradients through those chains."""

from ebmlife.defense.defended import DefendedClassifier
from ebmlife.sampling.purifier import Purifier

__all__ = ["DefendedClassifier", "Purifier"]
