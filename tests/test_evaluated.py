"""Which images a model is evaluated on: parts of data sets, other folders, and never training images unnoticed."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from test_cli import Capture, fails, works

from ebmlife import load
from ebmlife.attacks import Record
from ebmlife.data import digits, folder
from ebmlife.errors import BadInput
from ebmlife.plots import pictures
from ebmlife.recipes.schema import part
from ebmlife.runs import build, scores
from ebmlife.runs.build.splits import choose_split, overlap, split_of
from ebmlife.runs.evaluated import choose
from ebmlife.storage import checkpoint

SMALL = ["--batch", "8", "--net.width", "4", "--langevin.steps", "2", "--chains.size", "20", "--updates", "1"]
SMALL += ["--watch.pictures", "4", "--workers", "0", "--sampling_steps", "1", "--start.kind", "data"]
SMALL += ["--generator", "none", "--net.kind", "perceptron"]
ATTACK = [
    "--classifier",
    "ebmlife.exam.digits:digits_classifier",
    "--threat",
    "linf:8/255",
    "--n",
    "6",
    "--steps",
    "1",
    "--k",
    "1",
]
ATTACK += ["--replicas", "1", "--verify", "1", "--evaluations", "1"]


def written(place: Path, rows: range, *, by: str = "file-name") -> Path:
    """Some digits as files, their classes in their names, in sub-folders or in a list."""
    data = digits()
    assert data.labels is not None
    for label in range(10) if by == "sub-folder" else ():
        (place / str(label)).mkdir(parents=True)
    place.mkdir(parents=True, exist_ok=True)
    lines = []
    for row in rows:
        label = int(data.labels[row])
        name = {"file-name": f"{label}_{row}.png", "sub-folder": f"{label}/{row}.png", "list": f"{row}.png"}[by]
        pictures.image(data.take(torch.tensor([row]))[0]).save(place / name)
        lines.append(f"{name},{label}")
    if by == "list":
        (place / "labels.csv").write_text("\n".join(lines))
    return place


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of images, a run on all of it, and one that holds a part of it out."""
    place = tmp_path_factory.mktemp("evaluated")
    written(place / "images", range(60))
    data = ["--data.folder", place / "images", "--data.size", "8", "--data.channels", "1"]
    labels = ["--data.labels", "file-name"]
    works("train", "folder-shortrun", "--out", place / "all", *data, *labels, *SMALL)
    works("train", "folder-shortrun", "--out", place / "part", *data, *labels, "--data.held_out", "0.3", *SMALL)
    return place


@pytest.mark.parametrize("by", ["file-name", "sub-folder", "list"])
def test_labels_of_folders(tmp_path: Path, by: str) -> None:
    place = written(tmp_path / "images", range(12), by=by)
    how = {"file-name": "file-name", "sub-folder": None, "list": str(place / "labels.csv")}[by]
    data, all_digits = folder(place, size=8, channels=1, labels=how), digits()
    assert data.labels is not None
    assert all_digits.labels is not None
    for x, label in zip(data.take(torch.arange(12)), data.labels, strict=True):
        row = int((all_digits.take(torch.arange(12)) - x).flatten(1).abs().sum(1).argmin())
        assert label == all_digits.labels[row]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("file-name", r"cat\.png has no label; expected a whole number"),
        ("{here}/list.txt", r"list\.txt has no line for cat\.png; expected `cat\.png LABEL`"),
        ("{here}/bad.txt", r"line 'cat\.png one' has no label"),
        ("{here}/none.txt", r"none\.txt cannot be read"),
    ],
)
def test_labels_that_are_none(tmp_path: Path, labels: str, message: str) -> None:
    place = written(tmp_path / "images", range(1))
    shutil.copy(next(place.iterdir()), place / "cat.png")
    (tmp_path / "list.txt").write_text("dog.png 3\n0_0.png 0\n")
    (tmp_path / "bad.txt").write_text("cat.png one\n")
    with pytest.raises(BadInput, match=message):
        folder(place, size=8, channels=1, labels=labels.replace("{here}", str(tmp_path)))


def test_what_is_held_out_depends_on_nothing_but_names(tmp_path: Path) -> None:
    def parts(rows: range, name: str) -> tuple[set[bytes], set[bytes]]:
        place = written(tmp_path / name, rows)
        halves = [folder(place, size=8, channels=1, held_out=0.3, train=train) for train in (None, False)]
        a, b = ({x.numpy().tobytes() for x in half.take(torch.arange(len(half)))} for half in halves)
        assert len(a) + len(b) == len(rows)
        assert not a & b
        return a, b

    learned, held_out = parts(range(40), "few")
    more_learned, more_held_out = parts(range(100), "more")
    assert learned < more_learned
    assert held_out < more_held_out
    assert 0.15 < len(more_held_out) / 100 < 0.45


@pytest.mark.parametrize(("held_out", "train"), [(0.0, None), (1.0, None), (None, False), (None, True), (1e-9, False)])
def test_parts_that_are_none(tmp_path: Path, held_out: float | None, train: bool | None) -> None:
    with pytest.raises(BadInput, match="held_out"):
        folder(written(tmp_path / "images", range(5)), size=8, channels=1, held_out=held_out, train=train)


HELD = {"size": 8, "held_out": 0.2}


@pytest.mark.parametrize(
    ("trained", "chosen", "told"),
    [
        (part("digits", train=True), part("digits", train=False), False),
        (part("digits"), part("digits", train=False), True),
        (part("cifar10"), part("cifar10", train=False, folder="elsewhere"), False),
        (part("cifar10"), part("cifar10"), True),
        (part("folder", folder="a", size=8), part("folder", folder="./a", size=8), True),
        (part("folder", folder="a", size=8), part("folder", folder="b", size=8), None),
        (part("folder", folder="a", **HELD), part("folder", folder="a", train=False, **HELD), False),
        (part("folder", folder="a", **HELD), part("folder", folder="a", train=True, **HELD), True),
        (part("folder", folder="a", **HELD), part("folder", folder="a", size=8, held_out=0.5, train=False), True),
        (part("huggingface", name="u/d", size=8), part("huggingface", name="u/d", size=8, split="test"), False),
        (part("huggingface", name="u/d", size=8), part("huggingface", name="u/d", size=8, split="train[:9]"), True),
        (
            part("huggingface", name="u/d", size=8, split="train[:80%]"),
            part("huggingface", name="u/d", size=8, split="train[80%:]"),
            False,
        ),
        (
            part("huggingface", name="u/d", size=8, split="train[:80%]"),
            part("huggingface", name="u/d", size=8, split="test+train[70%:]"),
            True,
        ),
        (part("digits"), part("folder", folder="a", size=8), None),
    ],
)
def test_what_settings_tell(trained: part, chosen: part, told: bool | None) -> None:
    assert overlap(trained, chosen) is told


@pytest.mark.parametrize(
    ("data", "split", "options"),
    [
        (part("digits"), "test", {"train": False}),
        (part("digits", train=True), "all", {"train": None}),
        (part("torchvision", name="ImageNet", folder="a", size=8), "validation", {"train": False}),
        (part("huggingface", name="u/d", size=8), "test[:5%]", {"split": "test[:5%]"}),
        (part("folder", folder="a", **HELD), "test", {"train": False}),
        (part("folder", folder="a", size=8), "all", {}),
    ],
)
def test_parts_by_name(data: part, split: str, options: dict[str, object]) -> None:
    chosen = choose_split(data, split)
    assert {name: chosen.options[name] for name in options} == options
    assert split_of(build.DATA.resolve(chosen)) == split


@pytest.mark.parametrize(
    ("data", "split", "message"),
    [
        (part("cifar10"), "validation", "no split 'validation' here; known: test, train"),
        (part("folder", folder="a", size=8), "test", r"no split 'test' here.*train with --data\.held_out"),
        (part("webdataset", shards="a", size=8), "test", r"name other images with --data\.folder"),
    ],
)
def test_parts_that_a_set_does_not_have(data: part, split: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        choose_split(data, split)


def test_an_attack_takes_what_was_held_out(made: Path, tmp_path: Path, capsys: Capture) -> None:
    works("attack", made / "part", *ATTACK, "--out", tmp_path / "out")
    said = Record.load(tmp_path / "out" / "bpda-k1").settings["evaluated_on"]
    assert (said["kind"], said["split"], said["trained_on"]) == ("folder", "test", False)
    held_out = folder(made / "images", size=8, channels=1, held_out=0.3, train=False)
    assert said["images"] == len(held_out)
    assert "split test (not trained on)" in capsys.readouterr().out
    shown = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert shown["undefended"]["settings"]["evaluated_on"] == said


def test_the_page_of_a_run_says_which_images_were_attacked(made: Path, tmp_path: Path) -> None:
    run = shutil.copytree(made / "all", tmp_path / "run")
    other = written(tmp_path / "other", range(100, 110), by="sub-folder")
    works("attack", run, *ATTACK, "--data.folder", other)
    works("report", run, "--no-walk", "--out", tmp_path / "page.html")
    assert "6 test images (folder, split all)" in (tmp_path / "page.html").read_text()
    works("attack", run, *ATTACK, "--on-training-data", "--out", run / "attacks" / "other")
    works("report", run, "--no-walk", "--out", tmp_path / "page.html")
    assert "6 images that the energy was trained on (folder, split all)" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--split", "all"],
        ["--data.folder", "{made}/images/../images", "--data.labels", "file-name"],
        ["--data.folder", "{tmp}/copies", "--data.labels", "file-name"],
        ["--data.kind", "folder", "--data.folder", "{tmp}/mixed"],
    ],
)
def test_training_images_are_refused_wherever_they_lie(
    made: Path, tmp_path: Path, capsys: Capture, options: list[str]
) -> None:
    shutil.copytree(made / "images", tmp_path / "copies")
    (tmp_path / "copies" / "labels").mkdir()
    written(tmp_path / "mixed", range(58, 64), by="sub-folder")  # two of them were trained on
    filled = [word.replace("{made}", str(made)).replace("{tmp}", str(tmp_path)) for word in options]
    out = tmp_path / "out"
    line = fails(capsys, "attack", made / "all", *ATTACK, *filled, "--out", out)
    count = 2 if any("mixed" in word for word in options) else 6
    assert f"{count} of the 6 images are training images of {made / 'all'}" in line
    assert "add --on-training-data" in line
    assert not out.exists()
    works("attack", made / "all", *ATTACK, *filled, "--out", out, "--on-training-data")
    assert Record.load(out / "bpda-k1").settings["evaluated_on"]["trained_on"] is True


@pytest.mark.parametrize("by", ["file-name", "sub-folder", "list"])
def test_an_attack_takes_other_images(made: Path, tmp_path: Path, by: str) -> None:
    other = written(tmp_path / "other", range(100, 110), by=by)
    options = ["--data.folder", other]
    options += (
        [] if by == "sub-folder" else ["--data.labels", "file-name" if by == "file-name" else other / "labels.csv"]
    )
    works("attack", made / "part", *ATTACK, *options, "--out", tmp_path / "out")
    record = Record.load(tmp_path / "out" / "bpda-k1")
    said = record.settings["evaluated_on"]
    assert (said["images"], said["split"], said["trained_on"]) == (10, "all", False)  # all: nothing is held out of it
    rows = [100, 102, 104, 105, 107, 109]
    labels = digits().labels
    assert labels is not None
    assert sorted(record.tally.labels.tolist()) == sorted(labels[rows].tolist()) or by != "list"


def test_images_of_another_kind_are_told_by_their_pixels(tmp_path: Path, capsys: Capture) -> None:
    works("train", "digits-shortrun", "--out", tmp_path / "run", "--data.train", "true", *SMALL)
    seen = written(tmp_path / "seen", range(8), by="sub-folder")
    other = written(tmp_path / "other", range(1600, 1608), by="sub-folder")
    chosen = ["--data.kind", "folder", "--data.folder"]
    line = fails(capsys, "attack", tmp_path / "run", *ATTACK, *chosen, seen)
    assert "6 of the 6 images are training images" in line
    works("attack", tmp_path / "run", *ATTACK, *chosen, other)


def test_where_training_images_are_gone_it_is_said(made: Path, tmp_path: Path, capsys: Capture) -> None:
    images = shutil.copytree(made / "images", tmp_path / "images")
    data = ["--data.folder", images, "--data.size", "8", "--data.channels", "1"]
    works("train", "folder-shortrun", "--out", tmp_path / "run", *data, *SMALL)
    shutil.rmtree(images)
    other = written(tmp_path / "other", range(100, 110), by="sub-folder")
    works("attack", tmp_path / "run", *ATTACK, "--data.folder", other, "--out", tmp_path / "out")
    assert "note: the training images are not available" in capsys.readouterr().out
    assert Record.load(tmp_path / "out" / "bpda-k1").settings["evaluated_on"]["trained_on"] is None


def test_an_attack_from_before_is_found_and_loads(made: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    works("attack", made / "part", *ATTACK, "--out", out)
    for name in ("undefended", "bpda-k1"):  # as they were written before there was a description of the images
        file = out / name / "settings.json"
        settings = json.loads(file.read_text())
        del settings["evaluated_on"]
        file.write_text(json.dumps(settings))
        state, _ = checkpoint.load(out / name / "record")
        Record(settings, Record.load(out / name).tally).save(out / name / "record")
        assert "evaluated_on" in state["settings"]
    before = (out / "bpda-k1" / "record" / "manifest.json").read_bytes()
    works("attack", made / "part", *ATTACK, "--out", out)
    assert (out / "bpda-k1" / "record" / "manifest.json").read_bytes() == before


def test_fid_compares_with_the_images_that_are_asked_for(tmp_path: Path) -> None:
    works("train", "digits-shortrun", "--out", tmp_path / "run", "--data.train", "true", *SMALL)
    for options in ([], ["--split", "test"], ["--split", "train"]):
        works("fid", tmp_path / "run", "--n", "30", "--steps", "1", *options)
    found, said = scores.read(tmp_path / "run"), scores.evaluated_on(tmp_path / "run")
    assert [said[command]["split"] for command in found] == ["all", "test", "train"]
    assert [command.endswith("--split test") for command in found] == [False, True, False]
    assert [said[command]["trained_on"] for command in found] == [True, False, True]
    assert len({values["fd_digits_30"] for values in found.values()}) == 3
    assert len({said[command]["fingerprint"] for command in found}) == 3


def test_results_from_before_are_read(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text(json.dumps({"ebmlife fid": {"fid_5k": 3.5}}))
    assert scores.read(tmp_path) == {"ebmlife fid": {"fid_5k": 3.5}}
    assert scores.evaluated_on(tmp_path) == {}


def test_an_exam_says_what_it_was_compared_with(made: Path, tmp_path: Path, capsys: Capture) -> None:
    exam = ["--steps", "4", "--chains", "4", "--features", "moments"]
    works("exam", made / "part", *exam, "--out", tmp_path / "a")
    works("exam", made / "part", *exam, "--out", tmp_path / "b", "--split", "test")
    asked = [json.loads((tmp_path / name / "exam.json").read_text()) for name in "ab"]
    assert [one["evaluated_on"]["split"] for one in asked] == ["train", "test"]
    assert [one["evaluated_on"]["trained_on"] for one in asked] == [True, False]
    assert asked[0]["fingerprint"] != asked[1]["fingerprint"]
    kept = json.loads((tmp_path / "b" / "life-cycle.json").read_text())
    assert kept["settings"]["evaluated_on"] == asked[1]["evaluated_on"]
    line = fails(capsys, "exam", made / "part", *exam, "--out", tmp_path / "a", "--split", "test")
    assert "split: train -> test" in line
    file = tmp_path / "a" / "exam.json"  # of before
    file.write_text(
        json.dumps({k: v for k, v in asked[0].items() if k not in ("split", "fingerprint", "evaluated_on")})
    )
    works("exam", made / "part", *exam, "--out", tmp_path / "a")


def test_an_exam_of_a_function_takes_no_data(tmp_path: Path, capsys: Capture) -> None:
    line = fails(capsys, "exam", "some.module:function", "--out", tmp_path / "x", "--data.folder", "a")
    assert "--data.folder is only for runs" in line
    line = fails(capsys, "exam", "some.module:function", "--out", tmp_path / "x", "--split", "test")
    assert "--split is only for runs" in line


def test_purify_takes_images_of_data(made: Path, tmp_path: Path, capsys: Capture) -> None:
    works("purify", made / "part", "--split", "test", "--n", "3", "--steps", "1", "--out", tmp_path / "out")
    said = json.loads((tmp_path / "out" / "purified.json").read_text())
    assert (said["evaluated_on"]["split"], len(said["rows"]), said["steps"]) == ("test", 3, 1)
    assert len(list((tmp_path / "out").glob("*.png"))) == 3
    files = sorted((made / "images").iterdir())[:1]
    line = fails(capsys, "purify", made / "part", *files, "--split", "test", "--out", tmp_path / "b")
    assert "purify takes image FILES, or images of a data set" in line
    works("purify", made / "part", *files, "--steps", "1", "--out", tmp_path / "b")
    assert json.loads((tmp_path / "b" / "purified.json").read_text())["files"] == [str(files[0])]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--split", "tset"], "no split 'tset' here; did you mean 'test'?"),
        (["--data.foldr", "x"], "did you mean 'folder'"),
        (["--data.kind", "foldr"], "unknown data.kind 'foldr'"),
        (["--langevin.steps", "3"], "unknown argument '--langevin.steps'"),
        (["--data.size", "16"], "have the shape (1, 16, 16); the model expects (1, 8, 8)"),
        (["--data.folder", "nowhere"], "nowhere: no such folder"),
        (["word", "--data.folder", "x"], "unknown argument 'word'"),
    ],
)
def test_mistakes(made: Path, capsys: Capture, options: list[str], said: str) -> None:
    assert said in fails(capsys, "attack", made / "part", *ATTACK, *options)


def test_a_model_is_evaluated_at_its_own_size(made: Path) -> None:
    model = load(made / "part")
    other = choose(model, {"data.kind": "digits"}, "test", tests=True)
    assert (len(other.data), other.about["trained_on"]) == (297, None)
