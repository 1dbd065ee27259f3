"""Measures a model: how long its samples stay like the data, distances to the data, basins, outliers."""

from ebmlife.exam.config import ExamConfig
from ebmlife.exam.cycle import Exam, LifeCycle, life_cycle
from ebmlife.exam.features import Features
from ebmlife.exam.frechet import Moments, frechet_distance, moments
from ebmlife.exam.metrics import contrast, diversity, outside, variation
from ebmlife.exam.scores import fd_digits, fd_mnist, score_samples
from ebmlife.exam.targets import of_function, of_run

__all__ = [
    "Exam",
    "ExamConfig",
    "Features",
    "LifeCycle",
    "Moments",
    "contrast",
    "diversity",
    "fd_digits",
    "fd_mnist",
    "frechet_distance",
    "life_cycle",
    "moments",
    "of_function",
    "of_run",
    "outside",
    "score_samples",
    "variation",
]
