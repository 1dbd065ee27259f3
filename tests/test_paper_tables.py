"""Every number of docs/paper-tables.md is that of its recipe."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ebmlife import recipes
from ebmlife.attacks.presets import Preset, preset
from ebmlife.recipes.schema import Optimizer, Recipe
from ebmlife.runs import build
from ebmlife.sampling.schedule import GAMMA_ANNEAL, constant

PAGE = Path(__file__).parents[1] / "docs" / "paper-tables.md"


def generator(recipe: Recipe) -> Optimizer:
    assert recipe.generator is not None
    assert recipe.generator.optimizer is not None
    return recipe.generator.optimizer


def number(text: str) -> float:
    above, _, below = text.partition("/")
    return float(above) / float(below or 1)


FIELDS: dict[str, Callable[[Recipe, str], tuple[Any, Any]]] = {  # row -> the recipe's value, the page's value
    "Training Steps": lambda r, t: (r.updates, int(t)),
    "Data Epsilon": lambda r, t: (r.data_noise, number(t)),
    "EBM LR": lambda r, t: (r.optimizer.learning_rate, GAMMA_ANNEAL if t == "gamma_anneal" else constant(number(t))),
    "EBM Optimizer": lambda r, t: (r.optimizer.kind, t.lower()),
    "EBM Gradient Clip": lambda r, t: (r.optimizer.clip or 0, number(t)),
    "Langevin Epsilon": lambda r, t: (r.langevin.step_size, number(t)),
    "MCMC Steps": lambda r, t: (r.langevin.steps, constant(number(t))),
    "MCMC Steps in evaluation": lambda r, t: (r.sampling_steps, int(t)),
    "MCMC Steps Burn-in": lambda r, t: (r.chains.options["burn_in_steps"] or r.langevin.steps(0), int(t)),
    "MCMC Temperature": lambda r, t: (r.temperature, number(t)),
    "Rejuvenation Probability": lambda r, t: (r.chains.options["rejuvenate"], number(t)),
    "Max Update Rounds": lambda r, t: (r.chains.options["rounds"], int(t)),
    "Burn-in Update Rounds": lambda r, t: (r.chains.options["mature"], int(t)),
    "Persistent Bank Size": lambda r, t: (r.chains.options["size"], int(t)),
    "Burn-in Bank Size": lambda r, t: (r.chains.options["burn_in_size"], int(t)),
    "Tau": lambda r, t: (r.tau, number(t)),
    "Generator LR": lambda r, t: (generator(r).learning_rate, constant(number(t))),
    "Generator Optimizer": lambda r, t: (generator(r).kind, t.lower()),
    "Generator Gradient Clip": lambda r, t: (generator(r).clip or 0, number(t)),
    "Generator Batch Norm": lambda r, t: (r.generator and r.generator.net.options["batch_norm"], t == "Yes"),
}
PRESETS = {"cifar10-midrun": "paper-cifar10", "imagenet224-midrun": "paper-imagenet"}
OF_THE_ATTACK: dict[str, Callable[[Preset], float]] = {
    "Adversarial Steps": lambda attack: attack.steps,
    "Adversarial Epsilon": lambda attack: attack.threat.radius,
    "Adversarial Eta": lambda attack: attack.step_size,
    "EOT Attack Reps": lambda attack: attack.replicas,
    "EOT Defense Reps": lambda attack: attack.verify,
    "Langevin Steps": lambda attack: attack.langevin_steps,
}


def cells() -> list[tuple[str, str, str]]:
    """(recipe, row, number) of every cell of the page."""
    found, columns = [], []
    for line in PAGE.read_text().splitlines():
        if not line.startswith("|") or set(line) <= set("|-"):
            continue
        row, *values = (cell.strip() for cell in line.strip("|").split("|"))
        if row == "recipe":
            columns = values
        elif row != "dataset":
            found += [(recipe, row, value) for recipe, value in zip(columns, values, strict=True)]
    return found


def test_the_page_has_all_experiments() -> None:
    assert len(cells()) == 3 * (15 + 3 + 12 + 10) + 2 * (9 + 8)
    assert {row for _, row, _ in cells()} == {*FIELDS, *OF_THE_ATTACK}


@pytest.mark.parametrize(("name", "row", "value"), [cell for cell in cells() if cell[1] not in OF_THE_ATTACK])
def test_recipes_have_the_papers_numbers(name: str, row: str, value: str) -> None:
    actual, expected = FIELDS[row](build.resolve(recipes.get(name)), value)
    assert actual == expected


@pytest.mark.parametrize(("name", "row", "value"), [cell for cell in cells() if cell[1] in OF_THE_ATTACK])
def test_presets_have_the_papers_numbers(name: str, row: str, value: str) -> None:
    assert OF_THE_ATTACK[row](preset(PRESETS[name])) == number(value)
