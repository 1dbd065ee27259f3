import json
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import pytest

from attacks.small import Linear, defended, images
from ebmlife.attacks import Attack, AttackConfig, Record, Threat, check_masking, evaluate
from ebmlife.errors import BadInput

SMALL: dict[str, Any] = {"steps": 2, "replicas": 4, "verify": 8, "evaluations": 1}
CONFIG = AttackConfig(threat=Threat("linf", 0.1), **SMALL)


def test_a_ready_configuration_gives_the_record_of_its_arguments() -> None:
    x, y = images(4)
    record = Attack(defended(), x, y, CONFIG).run()
    assert record.settings == evaluate(defended(), x, y, threat="linf:0.1", **SMALL).settings
    assert record.settings.items() >= replace(CONFIG, group=record.settings["group"]).settings().items()


def test_it_is_frozen_and_takes_a_threat_as_text() -> None:
    assert AttackConfig(threat="linf:8/255").threat == Threat("linf", 8 / 255)  # type: ignore[arg-type]
    with pytest.raises(FrozenInstanceError):
        CONFIG.steps = 3  # type: ignore[misc]


def test_defaults_follow_from_the_threat_and_the_model() -> None:
    config = AttackConfig(threat=Threat("linf", 0.1))
    assert config.settings()["step_size"] == 0.1 / 4
    assert replace(config, threat=Threat("linf", 0.2)).settings()["step_size"] == 0.2 / 4
    assert config.for_defense(defended()).replicas == 4
    assert config.for_defense(defended("fixed")).verify == 4
    with pytest.raises(BadInput, match="verify must be at least the 4 replicas"):
        AttackConfig(threat=Threat("linf", 0.1), verify=3).for_defense(defended())


def test_settings_of_earlier_versions_are_those_of_the_same_attack(tmp_path: Path) -> None:
    """As they were saved before there were methods to choose from."""
    x, y = images(4)
    evaluate(defended(), x, y, threat="linf:0.1", folder=tmp_path, **SMALL)
    saved = json.loads((tmp_path / "settings.json").read_text())
    assert sorted(saved) == [
        *("evaluations", "gradient", "group", "images", "langevin_clip", "langevin_step_size", "langevin_steps"),
        *("loss", "mode", "model", "radius", "replicas", "seed", "step_size", "steps", "threat", "verify"),
    ]
    assert Attack(defended(), x, y, CONFIG, folder=tmp_path).run().settings == saved


def test_a_folder_of_another_attack_is_refused_before_it_runs(tmp_path: Path) -> None:
    x, y = images(4)
    evaluate(defended(), x, y, threat="linf:0.1", folder=tmp_path, **SMALL)
    with pytest.raises(BadInput, match=r"holds another attack \(steps: 2 -> 3\)"):
        Attack(defended(), x, y, replace(CONFIG, steps=3), folder=tmp_path)


def test_nothing_is_written_before_it_runs(tmp_path: Path) -> None:
    x, y = images(4)
    attack = Attack(Linear(), x, y, CONFIG, folder=tmp_path / "a")
    assert not (tmp_path / "a").exists()
    attack.run()
    assert Record.load(tmp_path / "a").settings == attack.settings


def test_an_unknown_method_names_the_known_ones() -> None:
    with pytest.raises(BadInput, match="unknown attack method 'pgdd'; did you mean 'pgd'"):
        AttackConfig(threat=Threat("linf", 0.1), method="pgdd")


def test_masking_checks_take_a_configuration_or_its_fields() -> None:
    x, y = images(6)
    assert check_masking(defended(), x, y, config=CONFIG) == check_masking(defended(), x, y, threat="linf:0.1", **SMALL)
    with pytest.raises(BadInput, match="not both: steps"):
        check_masking(defended(), x, y, config=CONFIG, steps=3)
