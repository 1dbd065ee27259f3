import json
from typing import Any

import pytest
from conftest import small_digits
from pydantic import ValidationError

from ebmlife import recipes
from ebmlife.errors import BadInput
from ebmlife.recipes.schema import EBMRecipe, Recipe, differences, override, part, validate
from ebmlife.runs import build
from ebmlife.sampling.schedule import GAMMA_ANNEAL, Phase, Piecewise, constant


def changed(**changes: str) -> Recipe:
    """digits-shortrun; field__name='value' changes field.name."""
    given = {name.replace("__", "."): value for name, value in changes.items()}
    return build.resolve(override(build.resolve(recipes.get("digits-shortrun")), given))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("batch", "many", "field 'batch': .*integer"),
        ("batch", "0", "field 'batch': .*greater than or equal to 1, got '0'"),
        ("seed", "-1", "field 'seed'"),
        ("flip", "perhaps", "field 'flip': .*boolean"),
        ("temperature", "0", "field 'temperature': .*greater than 0"),
        ("temperature", "nan", "field 'temperature': .*finite"),
        ("langevin.step_size", "-0.1", r"field 'langevin\.step_size': .*greater than 0, got '-0\.1'"),
        ("langevin.steps", "2.5", r"field 'langevin\.steps': .*whole"),
        ("langevin.steps", "-1", r"field 'langevin\.steps': .*not negative"),
        ("langevin.steps", "ten", r"field 'langevin\.steps'.*'ten'"),
        ("langevin.steps", "5 @ 10", r"field 'langevin\.steps': .*update 0"),
        ("optimizer.learning_rate", "0", r"field 'optimizer\.learning_rate': .*above 0"),
        ("optimizer.kind", "adamm", r"field 'optimizer\.kind': .*'adam' or 'sgd'"),
        ("optimizer.ema", "1", r"field 'optimizer\.ema': .*less than 1"),
        ("optimizer.ema", "0.9, -0.1 @ 50", r"field 'optimizer\.ema': .*at least 0"),
        ("generator.optimizer.clip", "x", r"field 'generator\.optimizer\.clip': .*number"),
        ("langevin", "5", "field 'langevin'"),
        ("chains.size", "big", r"field 'chains\.size': .*integer"),
        ("langevin.step", "5", r"unknown field 'langevin\.step'; did you mean 'steps'\?"),
        ("generator.optimizer.emma", "0.5", r"unknown field 'generator\.optimizer\.emma'; did you mean 'ema'\?"),
        ("bacth", "5", r"unknown field 'bacth'; did you mean 'batch'\?"),
        ("lngevin.steps", "5", r"unknown field 'lngevin\.steps'; did you mean 'langevin\.steps'\?"),
        ("batch.size", "5", r"unknown field 'batch\.size'"),
        ("net.wdith", "5", r"unknown field 'net\.wdith'; did you mean 'width'\?"),
    ],
)
def test_a_mistake_is_named_in_one_line(field: str, value: str, message: str) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        changed(**{field: value})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kind", "adam"),
        ("langevin.kind", "x"),
        ("langevin.steps", "inf"),
        ("chains.rejuvenate", "nan"),
    ],
)
def test_unusual_mistakes_are_bad_input_too(field: str, value: str) -> None:
    with pytest.raises(BadInput, match=field):
        changed(**{field: value})


def test_phases_of_a_broken_file_are_bad_input() -> None:
    values = small_digits().model_dump(mode="json")
    values["langevin"]["steps"] = [{"from_update": 0, "value": 3}, {"value": 4}]
    with pytest.raises(BadInput, match=r"langevin\.steps"):
        validate(values)


def test_a_missing_field_is_named() -> None:
    values = small_digits().model_dump(mode="json")
    del values["langevin"]["step_size"]
    with pytest.raises(BadInput, match=r"field 'langevin\.step_size' is missing"):
        validate(values)


def test_text_becomes_the_fields_type() -> None:
    recipe = changed(batch="32", flip="true", data_noise="1e-2", name="mine", langevin__clip="2")
    assert (recipe.batch, recipe.flip, recipe.data_noise, recipe.name, recipe.langevin.clip) == (
        *(32, True, 0.01),
        *("mine", 2.0),
    )


def test_schedules_come_from_text() -> None:
    recipe = changed(optimizer__learning_rate="1e-4, 1e-5 @ 50000", langevin__steps="7", chains__rejuvenate="1, 0.5@9")
    assert recipe.optimizer.learning_rate == Piecewise((Phase(0, 1e-4), Phase(50_000, 1e-5)))
    assert recipe.langevin.steps == constant(7)
    assert recipe.chains.options["rejuvenate"] == [
        {"from_update": 0, "value": 1},
        {"from_update": 9, "value": 0.5},
    ]


@pytest.mark.parametrize("word", ["none", "None"])
def test_optional_fields_take_none(word: str) -> None:
    given = changed(tau="0.5", langevin__clip="2", generator__optimizer__clip="1")
    assert (given.tau, given.langevin.clip) == (0.5, 2.0)
    recipe = override(given, {"tau": word, "langevin.clip": word, "generator.optimizer": word})
    assert recipe.tau is None
    assert recipe.langevin.clip is None
    assert recipe.generator is not None
    assert recipe.generator.optimizer is None


def test_optional_options_of_parts_take_none() -> None:
    assert changed(chains__rounds="none").chains.options["rounds"] is None


MATURING = {"size": 10_000, "burn_in_size": 1000, "mature": 750, "burn_in_steps": None, "count_first_walk": True}


def test_another_kind_brings_its_own_defaults() -> None:
    recipe = changed(chains__kind="maturing", net__kind="perceptron")
    assert recipe.chains.options == MATURING
    assert recipe.net.options == build.NETS.resolve(part("perceptron")).options
    assert changed(chains__kind="persistent").chains == changed().chains  # the same kind keeps its options


def test_the_kind_goes_first_whatever_the_order() -> None:
    forth = changed(chains__mature="9", chains__kind="maturing", chains__size="50")
    assert forth.chains.options == MATURING | {"size": 50, "mature": 9}


def test_another_optimizer_keeps_the_learning_rate() -> None:
    assert changed(optimizer__kind="sgd").optimizer.learning_rate == changed().optimizer.learning_rate


FREE = {
    "updates": "7",
    "watch.pictures": "9",
    "watch.tensorboard_every": "3",
    "checkpoint.every": "5",
    "checkpoint.keep_every": "50",
    "device": "cuda:1",
    "name": "other",
    "summary": "other",
}
LEARNED = {
    "seed": "1",
    "batch": "65",
    "flip": "true",
    "data.kind": "toy",
    "data_noise": "0.04",
    "net.width": "32",
    "net.kind": "perceptron",
    "temperature": "0.02",
    "tau": "0.1",
    "langevin.step_size": "0.07",
    "langevin.steps": "40, 50 @ 100",
    "langevin.clip": "1",
    "start.kind": "uniform",
    "chains.size": "2001",
    "chains.rejuvenate": "0.25",
    "chains.rounds": "3",
    "optimizer.kind": "sgd",
    "optimizer.learning_rate": "4e-4",
    "optimizer.momentum": "0",
    "optimizer.ema": "0.9",
    "generator.net.latent": "64",
    "generator.net.batch_norm": "false",
    "generator.optimizer": "none",
    "generator.run": "runs/a",
}


@pytest.mark.parametrize("field", FREE)
def test_the_hash_ignores_what_is_not_learned_from(field: str) -> None:
    recipe = override(changed(), {field: FREE[field]})
    assert recipe != changed()
    assert recipe.hash == changed().hash


@pytest.mark.parametrize("field", LEARNED)
def test_the_hash_knows_what_is_learned_from(field: str) -> None:
    assert override(changed(), {field: LEARNED[field]}).hash != changed().hash


@pytest.mark.parametrize(
    ("field", "whole", "real"),
    [("langevin.steps", "40", "40.0"), ("temperature", "1", "1.0"), ("chains.rejuvenate", "1", "1.0")],
)
def test_a_number_hashes_alike_however_it_is_written(field: str, whole: str, real: str) -> None:
    assert changed(**{field: whole}).hash == changed(**{field: real}).hash


def test_differences_list_what_is_learned_otherwise() -> None:
    new = changed(langevin__steps="50", tau="0.1", updates="7", chains__kind="fresh", watch__pictures="3")
    assert differences(changed(), new) == [
        "chains.kind: persistent -> fresh",
        "chains.rejuvenate: 0.5 -> None",
        "chains.rounds: 2 -> None",
        "chains.size: 2000 -> None",
        "langevin.steps: 30 -> 50",
        "tau: None -> 0.1",
    ]
    assert differences(new, new) == []


@pytest.mark.parametrize(
    "field",
    [
        *("updates", "watch.pictures", "checkpoint.every", "device"),
        *("name", "summary"),
    ],
)
def test_no_difference_without_another_hash(field: str) -> None:
    assert differences(changed(), override(changed(), {field: FREE[field]})) == []


@pytest.mark.parametrize("name", recipes.names())
def test_every_named_recipe_is_complete_and_survives_its_json(name: str) -> None:
    recipe = build.resolve(recipes.get(name))
    assert recipe.name == name
    assert recipe.summary.endswith(".")
    again = validate(json.loads(recipe.model_dump_json()))
    assert again == recipe
    assert again.hash == recipe.hash
    assert build.resolve(again) == recipe


def test_schedules_survive_json() -> None:
    recipe = changed(optimizer__learning_rate="1e-4, 1e-5 @ 50000", chains__rejuvenate="1, 0.5 @ 9")
    again = build.resolve(validate(json.loads(recipe.model_dump_json())))
    assert again == recipe
    assert again.hash == recipe.hash


def test_an_unknown_recipe_suggests_the_nearest() -> None:
    with pytest.raises(BadInput, match="unknown recipe 'digits-shortrum'; did you mean 'digits-shortrun'"):
        recipes.get("digits-shortrum")


@pytest.mark.parametrize(
    ("section", "field"),
    [(lambda r: r, "batch"), (lambda r: r.langevin, "steps"), (lambda r: r.net, "width"), (lambda r: r.net, "kind")],
)
def test_recipes_are_frozen(section: Any, field: str) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        setattr(section(changed()), field, 1)


def test_a_generator_start_needs_a_generator() -> None:
    with pytest.raises(BadInput, match=r"start\.kind 'generator' needs the section 'generator'"):
        changed(generator="none")


# Of the first recipes: runs and result pages name these. A recipe that is changed on purpose gets a new line here.
HASHES = {
    "cifar10-shortrun": "0109b9399c86",
    "cifar10-shortrun-coop": "26855b71985a",
    "cifar10-shortrun-data": "4da49bd35917",
    "cifar10-shortrun-noise": "95ab049cfb02",
    "cifar10-shortrun-persistent": "4f1fd54a76f5",
    "digits-shortrun": "98a3566cb9af",
    "digits-shortrun-coop": "1af818aafcab",
    "digits-shortrun-data": "5cf22081133e",
    "digits-shortrun-noise": "6c2ff99e6a5a",
    "digits-shortrun-persistent": "533094cdac00",
    "folder-shortrun": "b42a1fe72425",
}


@pytest.mark.parametrize("name", HASHES)
def test_hashes_of_earlier_runs_stay(name: str) -> None:
    recipe = build.resolve(recipes.get(name))
    assert recipe.hash == HASHES[name]
    values = recipe.model_dump(mode="json")
    for later in ("weight_decay", "nesterov", "decay_until"):  # as in a recipe.json that was written before
        del values["optimizer"][later]
    del values["method"], values["prior"]
    assert build.resolve(validate(values)).hash == HASHES[name]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("optimizer.weight_decay", "1e-4"),
        ("optimizer.nesterov", "true"),
        ("optimizer.decay_until", "500"),
        ("generator.optimizer.weight_decay", "1e-4"),
        ("data.train", "true"),
        ("data.train", "false"),
    ],
)
def test_later_fields_are_in_the_hash_where_they_change_something(field: str, value: str) -> None:
    assert build.resolve(override(changed(), {field: value})).hash != changed().hash


def test_every_method_has_a_name_and_keeps_it() -> None:
    assert changed().method == "ebm"
    with pytest.raises(BadInput, match="method of digits-shortrun is 'ebm'"):
        changed(method="gan")
    with pytest.raises(BadInput, match="unknown method 'gam'; did you mean 'gan'"):
        validate({"method": "gam", "name": "x"})


def test_fields_of_another_method_are_unknown() -> None:
    with pytest.raises(BadInput, match="unknown field 'discriminator_steps'"):
        changed(discriminator_steps="3")
    gan = build.resolve(recipes.get("digits-gan"))
    with pytest.raises(BadInput, match="unknown field 'temperature'"):
        override(gan, {"temperature": "3"})
    with pytest.raises(BadInput, match=r"generator\.optimizer of a GAN must not be none"):
        build.resolve(override(gan, {"generator.optimizer": "none"}))


def test_tests_do_not_change_what_is_learned() -> None:
    recipe = build.resolve(recipes.get("digits-classifier"))
    assert build.resolve(override(recipe, {"test": "none", "test_every": "7"})).hash == recipe.hash
    assert build.resolve(override(recipe, {"crop": "0"})).hash != recipe.hash


def test_the_midrun_recipe_is_the_papers_table() -> None:
    recipe = build.resolve(recipes.get("cifar10-midrun"))
    assert isinstance(recipe, EBMRecipe)
    assert (recipe.updates, recipe.data_noise, recipe.temperature) == (150_000, 2e-2, 1e-4)
    assert (recipe.optimizer.kind, recipe.optimizer.learning_rate) == ("adam", GAMMA_ANNEAL)
    assert (recipe.langevin.step_size, recipe.langevin.steps) == (1e-2, constant(100))
    assert recipe.chains.options == {"size": 20_000, "rejuvenate": 0.025, "rounds": None, "count_first_walk": True}
    assert recipe.sampling_steps == 2000
    assert recipe.generator is not None
    assert recipe.generator.optimizer is None
    assert recipe.generator.net == build.resolve(recipes.get("cifar10-gan")).generator.net  # so that its weights fit


@pytest.mark.parametrize("name", ["cifar10-midrun", "cifar10-midrun-small", "digits-midrun"])
def test_midrun_chains_are_as_long_as_the_defense_and_the_ablation_never_anneals(name: str) -> None:
    recipe, ablation = (build.resolve(recipes.get(each)) for each in (name, f"{name}-no-anneal"))
    assert isinstance(recipe, EBMRecipe)
    if name != "cifar10-midrun":  # whose tables contradict its rule
        lifetime = recipe.langevin.steps(0) / recipe.chains.options["rejuvenate"]
        assert lifetime >= recipe.sampling_steps * (1 - 1e-6)  # what the defense walks was learned from
    assert len(recipe.optimizer.learning_rate.values) > 1
    assert ablation.optimizer.learning_rate == constant(recipe.optimizer.learning_rate(0))
    assert [line.split(":")[0] for line in differences(recipe, ablation)] == ["optimizer.learning_rate"]


def test_comparisons_change_the_initialization_and_nothing_else() -> None:
    hybrid = build.resolve(recipes.get("cifar10-shortrun"))
    for suffix, start, kind in (
        ("coop", "generator", "fresh"),
        ("persistent", "uniform", "persistent"),
        ("noise", "uniform", "fresh"),
        ("data", "data", "fresh"),
    ):
        other = build.resolve(recipes.get(f"cifar10-shortrun-{suffix}"))
        assert (other.start.kind, other.chains.kind) == (start, kind)
        changed = {line.split(":")[0].split(".")[0] for line in differences(hybrid, other)}
        assert changed <= {"start", "chains", "generator"}


def test_a_prior_is_learned_from() -> None:
    values = changed().model_dump(mode="json")
    assert validate({**values, "prior": {"run": "runs/a"}}).hash != changed().hash
    assert validate({**values, "prior": None}).hash == changed().hash
