"""What is measured of a model."""

from ebmlife.exam.frechet import Moments, frechet_distance, moments
from ebmlife.exam.scores import fd_digits, score_samples

__all__ = ["Moments", "fd_digits", "frechet_distance", "moments", "score_samples"]
