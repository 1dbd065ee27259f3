"""What is measured of a model."""

from ebmlife.exam.cycle import LifeCycle, life_cycle
from ebmlife.exam.frechet import Moments, frechet_distance, moments
from ebmlife.exam.metrics import contrast, diversity, outside, variation
from ebmlife.exam.reference import Features
from ebmlife.exam.scores import fd_digits, score_samples

__all__ = [
    "Features",
    "LifeCycle",
    "Moments",
    "contrast",
    "diversity",
    "fd_digits",
    "frechet_distance",
    "life_cycle",
    "moments",
    "outside",
    "score_samples",
    "variation",
]
