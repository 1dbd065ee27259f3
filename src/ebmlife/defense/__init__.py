"""Classifiers behind midrun Langevin chains, and gradients through those chains."""

from ebmlife.defense.purifier import DefendedClassifier, Purifier

__all__ = ["DefendedClassifier", "Purifier"]
