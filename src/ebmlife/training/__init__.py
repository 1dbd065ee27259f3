"""Training: chains and where they start, the trainer of EBMs, and the other methods beside it.

Everything that a custom training needs is exported here:

    import ebmlife
    from ebmlife.training import Batches, Persistent, Trainer, Uniform, Walk
"""

from ebmlife.data import Batches
from ebmlife.sampling.energy import gaussian
from ebmlife.sampling.loop import Walk
from ebmlife.sampling.rng import Streams
from ebmlife.training.bank import Bank, Negatives
from ebmlife.training.chains import BurnIn, Chains, Fresh, Persistent, UpdateCost
from ebmlife.training.divergence import Divergence
from ebmlife.training.ebm import EBMMetrics, TrainableEnergy, Trainer
from ebmlife.training.learner import Learner
from ebmlife.training.starts import (
    AfterLangevin,
    Augmented,
    Coarse,
    Downsampled,
    FromData,
    FromGenerator,
    InitialStates,
    Start,
    Uniform,
)

__all__ = [
    "AfterLangevin",
    "Augmented",
    "Bank",
    "Batches",
    "BurnIn",
    "Chains",
    "Coarse",
    "Divergence",
    "Downsampled",
    "EBMMetrics",
    "Fresh",
    "FromData",
    "FromGenerator",
    "InitialStates",
    "Learner",
    "Negatives",
    "Persistent",
    "Start",
    "Streams",
    "TrainableEnergy",
    "Trainer",
    "Uniform",
    "UpdateCost",
    "Walk",
    "gaussian",
]
