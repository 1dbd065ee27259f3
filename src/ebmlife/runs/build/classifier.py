"""Classifiers."""

from functools import partial
from typing import Any

import torch
from torch import nn

from ebmlife.data import Dataset
from ebmlife.errors import BadInput
from ebmlife.recipes.schema import ClassifierRecipe
from ebmlife.runs.build.single import Single, batches
from ebmlife.runs.build.tables import CLASSIFIERS, DATA
from ebmlife.sampling.energy import Energy
from ebmlife.sampling.rng import Streams, normal
from ebmlife.training.base import Loop
from ebmlife.training.classifier import ClassifierTrainer, ImpliedEnergy, accuracy
from ebmlife.training.learner import Learner


class Classifier(Single[ClassifierRecipe]):
    nets, learner = CLASSIFIERS, "classifier"

    def resolve(self, recipe: ClassifierRecipe) -> ClassifierRecipe:
        test = None if recipe.test is None else DATA.resolve(recipe.test)
        return super().resolve(recipe).model_copy(update={"test": test})

    def trainer(self, recipe: ClassifierRecipe, dataset: Dataset, learned: Learner, streams: Streams) -> Loop[Any]:
        test: Dataset | None = None if recipe.test is None else DATA.make(recipe.test)
        for name, data in (("data", dataset), ("test", test)):
            _check_labels(name, data, classes=int(learned.net.classes))  # type: ignore[arg-type]  # a plain attribute
        device = torch.device(streams.device)
        return ClassifierTrainer(
            batches(recipe, dataset, crop=recipe.crop),
            classifier=learned,
            test=None if test is None else partial(accuracy, data=test, device=device),
            test_every=recipe.test_every,
            data_noise=recipe.data_noise,
            noise=normal(streams["data noise"]),
            device=device,
        )

    def energy(self, recipe: ClassifierRecipe, net: nn.Module) -> Energy:
        return ImpliedEnergy(net)


def _check_labels(name: str, data: Dataset | None, *, classes: int) -> None:
    if data is None:
        return
    if data.labels is None:
        raise BadInput(
            f"{name} has no labels, which a classifier needs; use digits, mnist, cifar10 or a folder of folders"
        )
    if int(data.labels.max()) >= classes:
        raise BadInput(f"{name} has labels up to {int(data.labels.max())}; net.classes must be more, got {classes}")
