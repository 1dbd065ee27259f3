import json
from pathlib import Path

import pytest

from ebmlife.errors import BadInput
from ebmlife.exam import record
from ebmlife.report import life
from report.conftest import CHAINS, STEPS


def never(*_: object, **__: object) -> None:
    raise AssertionError("a walk was made")


def test_the_walk_is_what_was_asked_for(made: Path) -> None:
    found = life.read(made)
    assert found is not None
    assert (found.update, found.examined, found.chains) == (12, False, CHAINS)
    assert found.cycle.steps[-1] == STEPS
    assert found.cycle.strip.shape == (len(found.cycle.steps), CHAINS, 1, 8, 8)
    assert found.distance.startswith("fd_digits")
    assert "not FID" in found.measure


def test_a_walk_that_is_there_is_kept(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(life, "of_run", never)
    assert life.walk(run)  # no wishes: any walk will do
    assert life.walk(run, steps=STEPS, chains=CHAINS)


def test_other_steps_or_newer_weights_are_walked_again(run: Path) -> None:
    assert life.walk(run, steps=3, chains=CHAINS)
    found = life.read(run)
    assert found is not None
    assert found.cycle.steps[-1] == 3
    settings = run / "report" / "life" / "walk.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"weights": "of an older checkpoint"}))
    assert life.walk(run, steps=4)
    assert json.loads(settings.read_text())["weights"] != "of an older checkpoint"
    assert life.read(run).cycle.steps[-1] == 4  # type: ignore[union-attr]


def test_an_exam_takes_the_place_of_the_walk(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record.save(record.load(run / "report" / "life"), run / "exam")
    (run / "exam" / "exam.json").write_text(json.dumps({"update": 6}))
    found = life.read(run)
    assert found is not None
    assert (found.update, found.examined) == (6, True)
    monkeypatch.setattr(life, "of_run", never)
    assert life.walk(run, steps=10**9)


def test_a_stopped_walk_is_no_life_yet_and_goes_on(run: Path) -> None:
    assert not life.walk(run, steps=7, chains=2, stopping=lambda: True)
    assert life.read(run) is None
    assert life.walk(run, steps=7, chains=2)
    assert life.read(run).cycle.steps[-1] == 7  # type: ignore[union-attr]


def test_without_a_checkpoint_nothing_can_walk(run: Path) -> None:
    for folder in sorted((run / "checkpoints").iterdir(), reverse=True):
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
    with pytest.raises(BadInput, match="holds no checkpoint yet; wait for its first, or add --no-walk"):
        life.walk(run)


def test_figure_1_has_the_record_and_the_three_lengths(made: Path) -> None:
    found = life.read(made)
    assert found is not None
    chart = life.distance_chart(found)
    assert list(chart.x) == found.cycle.steps
    assert chart.lines[0].values == found.cycle.metrics["distance"]
    assert [name.partition(":")[0] for name in chart.regions] == ["short", "middle", "long"]
    assert (chart.log_x, chart.log_y) == (True, True)
