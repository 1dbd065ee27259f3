import shutil
from pathlib import Path

import pytest
from conftest import small_digits

from ebmlife.errors import BadInput
from ebmlife.report import prepare, summary
from ebmlife.report.contents import read_contents
from ebmlife.runs import build, scores
from ebmlife.runs.model import Model


def test_the_contents_of_a_run_are_complete(made: Path) -> None:
    found = read_contents(made)
    assert (found.name, found.finished) == ("tiny", True)
    assert found.headline.startswith("An energy-based model of 8x8 gray images: handwritten digits. ")
    assert [picture.title for picture in found.pictures] == ["Samples", "Bank", "Generator"]
    assert "at update 12" in found.pictures[0].caption
    assert len(found.attacks) == 1
    assert found.versions["torch"]
    said = {fact.name: fact.value for fact in found.facts}
    assert said["update"] == "12"
    assert said["image-steps"] == f"{8 * 3 * 12}"


def test_parameters_are_those_of_the_networks(made: Path) -> None:
    model = build.load(made)
    assert summary.parameters(made, ("trainer/ebm/ema/",)) == sum(p.numel() for p in model.net.parameters())


def test_the_steps_shown_go_from_the_start_to_the_end(made: Path) -> None:
    found = read_contents(made)
    assert found.strip is not None
    assert (found.ages[0], found.ages[-1]) == (0, found.strip.rows - 1)
    assert len(found.ages) <= 12


def test_measured_metrics_are_shown_by_their_command(run: Path) -> None:
    scores.record(run, "ebmlife fid tiny --n 500", {"fd_digits_500": 1.5})
    assert read_contents(run).results == {"ebmlife fid tiny --n 500": {"fd_digits_500": 1.5}}


def test_a_run_that_has_hardly_begun_has_a_page_too(run: Path) -> None:
    for name in ("checkpoints", "pictures", "attacks", "report"):
        shutil.rmtree(run / name)
    (run / "log.jsonl").unlink()
    found = read_contents(run)
    assert (found.life, found.strip, found.finished, found.attacks) == (None, None, False, [])
    assert [fact.name for fact in found.facts] == ["update", "Langevin steps per update"]
    assert found.headline.startswith("An energy-based model of handwritten digits.")


def test_folders_that_are_no_runs_are_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"is not the folder of a run: it has no recipe\.json"):
        read_contents(tmp_path)


def test_models_of_the_zoo_keep_what_is_measured_where_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = read_contents("zoo:digits-shortrun")
    assert (found.name, found.place) == ("digits-shortrun", "zoo:digits-shortrun")
    assert list(tmp_path.iterdir()) == []


def test_a_model_without_pictures_gets_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):  # and keeps them
        assert prepare("zoo:digits-shortrun", steps=2, chains=2)
        monkeypatch.setattr(Model, "sample", None)
    (picture,) = read_contents("zoo:digits-shortrun").pictures
    assert (picture.title, picture.caption) == ("Samples", "64 new samples from the averaged weights, at update 1,000.")


def test_a_run_with_pictures_draws_none(made: Path) -> None:
    assert not (made / "report" / "pictures").exists()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"start__kind": "data", "chains__kind": "fresh"}, "start from data and are new at every update."),
        ({"start__kind": "uniform"}, "start from noise and are kept in a bank between updates."),
    ],
)
def test_headlines_say_where_chains_start(fields: dict[str, str], said: str) -> None:
    assert summary.headline(small_digits(**fields), (1, 8, 8)).endswith(said)
