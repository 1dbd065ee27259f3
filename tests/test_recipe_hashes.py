"""Hashes of recipes, as saved runs have them: `resume` compares them, and records of experiments cite them."""

import json
from pathlib import Path
from typing import Any

import pytest

import ebmlife
from ebmlife import recipes
from ebmlife.recipes.schema import EBMRecipe, differences, override, validate
from ebmlife.recipes.sections import LATER, Section, without_later
from ebmlife.runs import build

NAMED = {
    "celeba-gan": "278a420fa48b",
    "celeba-longrun": "8cdf95eac093",
    "celeba-longrun-no-anneal": "3cab3a70606d",
    "celeba-longrun-no-prior": "f7e2ba729b81",
    "celeba-longrun-one-bank": "77af893261a6",
    "celeba-prior": "61c2f4aca12b",
    "celeba-shortrun": "abe97e46206d",
    "celeba-shortrun-coop": "b50b42ed1be0",
    "celeba-shortrun-data": "229cb183a5db",
    "celeba-shortrun-noise": "7381be38a430",
    "celeba-shortrun-persistent": "55a331b9d23e",
    "cifar10-gan": "44f4f18e96e0",
    "cifar10-gan-small": "66a62fecc3d8",
    "cifar10-longrun": "f884e23be786",
    "cifar10-longrun-no-anneal": "c55ca5142def",
    "cifar10-longrun-no-prior": "98b1c6018d7e",
    "cifar10-longrun-one-bank": "d5deb911440e",
    "cifar10-longrun-small": "46d88da7564f",
    "cifar10-longrun-small-no-anneal": "e1e381a3287f",
    "cifar10-longrun-small-no-prior": "55644833dea0",
    "cifar10-longrun-small-one-bank": "2d9e756064ad",
    "cifar10-midrun": "9c66d6e85400",
    "cifar10-midrun-no-anneal": "e6de5cfc5017",
    "cifar10-midrun-small": "a3ee620e6893",
    "cifar10-midrun-small-no-anneal": "29715858db64",
    "cifar10-prior": "1f8797949a4d",
    "cifar10-prior-small": "f67d2817b65f",
    "cifar10-score-small": "5171bef6031e",
    "cifar10-shortrun": "0109b9399c86",
    "cifar10-shortrun-coop": "26855b71985a",
    "cifar10-shortrun-data": "4da49bd35917",
    "cifar10-shortrun-noise": "95ab049cfb02",
    "cifar10-shortrun-persistent": "4f1fd54a76f5",
    "cifar10-shortrun-small": "f0c21ac2acd2",
    "cifar10-shortrun-small-coop": "4aee19d15f42",
    "cifar10-shortrun-small-data": "24c61f047414",
    "cifar10-shortrun-small-noise": "76db7953e9c8",
    "cifar10-shortrun-small-persistent": "c32cdfc7a713",
    "cifar10-wrn": "7a4b20e50dcf",
    "digits-classifier": "cffed0ad6f08",
    "digits-gan": "8ca693419f93",
    "digits-glow": "58fe1ad4bd04",
    "digits-longrun": "b8917d0c9092",
    "digits-longrun-no-anneal": "9be5a216b07d",
    "digits-longrun-no-prior": "f24479c2495e",
    "digits-longrun-one-bank": "40a187286b54",
    "digits-midrun": "4bb9a66a6eb3",
    "digits-midrun-no-anneal": "cdb4ac61481d",
    "digits-prior": "49779b5dab3e",
    "digits-recovery": "34dc12213a01",
    "digits-score": "81cdfc228fc2",
    "digits-shortrun": "98a3566cb9af",
    "digits-shortrun-coop": "1af818aafcab",
    "digits-shortrun-data": "5cf22081133e",
    "digits-shortrun-noise": "6c2ff99e6a5a",
    "digits-shortrun-persistent": "533094cdac00",
    "folder-shortrun": "b42a1fe72425",
    "imagenet128-shortrun": "a7b888738cb6",
    "imagenet128-shortrun-coop": "fee3a441d153",
    "imagenet128-shortrun-data": "751ace5b94b6",
    "imagenet128-shortrun-noise": "5e2b0391ae6b",
    "imagenet128-shortrun-persistent": "b04481f1c942",
    "imagenet224-midrun": "b8fd3e7649f9",
    "imagenet224-midrun-no-anneal": "2cb919df741c",
    "imagenet64-longrun": "3f0a6efb4ee2",
    "imagenet64-longrun-no-anneal": "8817bf4e6d4b",
    "imagenet64-longrun-no-prior": "bf478d0d0b2a",
    "imagenet64-longrun-one-bank": "06c70563ee0f",
    "imagenet64-prior": "a2ef700db92e",
    "mnist-classifier": "eba23611d896",
    "mnist-gan": "47c5a4f61312",
    "mnist-glow": "b300b63edc30",
    "mnist-longrun": "c1178ef0120f",
    "mnist-longrun-no-anneal": "9a6cf5820a9d",
    "mnist-longrun-no-prior": "0ee9e19a9b29",
    "mnist-longrun-one-bank": "ac89be54b730",
    "mnist-midrun": "2e65936fd245",
    "mnist-midrun-no-anneal": "d969586a6f53",
    "mnist-prior": "2c3bd16f88c6",
    "mnist-score": "43a37f967cf3",
    "mnist-shortrun": "bcd214d09a65",
    "mnist-shortrun-coop": "37845830f755",
    "mnist-shortrun-data": "60a2b65fe496",
    "mnist-shortrun-noise": "0c0e3be67537",
    "mnist-shortrun-persistent": "ca83e141248b",
    "toy-mixture": "613b809c8a14",
    "toy-mixture-longrun": "ede7947fed69",
    "toy-mixture-longrun-no-anneal": "9855e483346c",
    "toy-mixture-longrun-one-bank": "5e75af24d23b",
    "toy-mixture-longrun-with-prior": "4bc5e853fd71",
    "toy-mixture-midrun": "2471de7e27d7",
    "toy-rings": "d8b34e102a1f",
    "toy-rings-longrun": "970dd98a45d2",
    "toy-rings-longrun-no-anneal": "ce9965415da3",
    "toy-rings-longrun-one-bank": "7b5993c1feec",
    "toy-rings-longrun-with-prior": "3bfbb53d43aa",
    "toy-rings-midrun": "7bfd98b971b0",
    "toy-spirals": "c6eb89a65371",
    "toy-spirals-longrun": "05d65b57650f",
    "toy-spirals-longrun-no-anneal": "14bc9228f481",
    "toy-spirals-longrun-one-bank": "d0af44b3ff79",
    "toy-spirals-longrun-with-prior": "609ff5a68619",
    "toy-spirals-midrun": "561fa42f7ba6",
}
ZOO = {
    "cifar10-longrun-small": "46d88da7564f",
    "cifar10-midrun-small": "a3ee620e6893",
    "cifar10-shortrun-small": "f0c21ac2acd2",
    "digits-longrun": "b8917d0c9092",
    "digits-midrun": "4bb9a66a6eb3",
    "digits-shortrun": "98a3566cb9af",
}
ADVICE = "a new field belongs into `LATER` of recipes/sections.py, with the value at which it changes nothing"


@pytest.mark.parametrize("name", NAMED)
def test_named_recipes_keep_their_hashes(name: str) -> None:
    assert build.resolve(recipes.get(name)).hash == NAMED[name], ADVICE


def test_every_recipe_is_in_the_table() -> None:
    assert recipes.names() == list(NAMED)


@pytest.mark.parametrize("name", ZOO)
def test_models_of_the_zoo_keep_their_hashes(name: str) -> None:
    saved = Path(ebmlife.__file__).parent / "runs" / "zoo" / name / "recipe.json"
    assert build.resolve(validate(json.loads(saved.read_text()))).hash == ZOO[name], ADVICE


def test_a_field_of_the_same_name_elsewhere_is_hashed() -> None:
    """`train` is a later field of the data, not of every section."""
    assert without_later({"data": {"train": None}, "chains": {"train": None}}) == {
        "data": {},
        "chains": {"train": None},
    }
    assert without_later({"optimizer": {"weight_decay": 0.0}, "net": {"weight_decay": 0.0}, "weight_decay": 0.0}) == {
        "optimizer": {},
        "net": {"weight_decay": 0.0},
        "weight_decay": 0.0,
    }


def test_later_fields_are_fields_of_some_recipe() -> None:
    """A path that is misspelt would protect nothing."""
    known: set[str] = set()
    for name in recipes.names():
        known |= set(_paths(build.resolve(recipes.get(name)).model_dump(mode="json")))
    assert {path.partition(" (")[0] for path in LATER} <= known  # some hold for one kind of part only


def _paths(values: dict[str, Any], prefix: str = "") -> list[str]:
    return [
        path
        for name, value in values.items()
        for path in (prefix + name, *(_paths(value, f"{prefix}{name}.") if isinstance(value, dict) else ()))
    ]


@pytest.mark.parametrize(
    ("field", "value", "shown"),
    [
        ("generator.optimizer.weight_decay", "0.1", "0 -> 0.1"),
        ("optimizer.clip_by", "weight", "global -> weight"),
        ("chains.count_first_walk", "false", "True -> False"),
        ("energy_l2", "0.1", "0 -> 0.1"),
    ],
)
def test_a_later_field_that_changes_something_is_hashed_and_named(field: str, value: str, shown: str) -> None:
    recipe = build.resolve(recipes.get("digits-shortrun"))
    changed = build.resolve(override(recipe, {field: value}))
    assert changed.hash != recipe.hash
    assert differences(recipe, changed) == [f"{field}: {shown}"]


def test_a_new_field_that_is_not_declared_changes_the_hash() -> None:
    """So the table above fails, and says what to do."""

    class Extra(Section):
        nesterov: bool = False

    class Extended(EBMRecipe):
        extra: Extra = Extra()

    recipe = build.resolve(recipes.get("digits-shortrun"))
    assert Extended.model_validate(recipe.model_dump(mode="json")).hash != recipe.hash
