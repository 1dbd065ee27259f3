"""The commands `ebmlife purify` and `ebmlife attack`."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image
from test_cli import Capture, fails, tree, words, works

from ebmlife.attacks import Examples, Record
from ebmlife.cli import main
from ebmlife.data import digits
from ebmlife.errors import BadInput
from ebmlife.plots import pictures
from ebmlife.runs.folder import read_recipe
from ebmlife.storage.locking import locked

QUICK = ["--n", "6", "--steps", "2", "--replicas", "2", "--verify", "3", "--evaluations", "2", "--k", "2"]
SPREAD = torch.linspace(0, 296, 6).round().long()  # of the test digits: some of all of them
ATTACK = ["--classifier", "attacks.small:digits_net", "--threat", "linf:8/255", *QUICK]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("defending") / "run"
    works("train", "digits-shortrun", "--out", folder, *words(updates="2", data__train="true"))
    return folder


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    made = [tmp_path / "in" / f"{name}.png" for name in ("a", "b", "c")]
    (tmp_path / "in").mkdir()
    for file, x in zip(made, digits(train=False).take(torch.arange(3)), strict=True):
        pictures.image(x).save(file)
    return made


def test_purify_writes_an_image_for_each_file(run: Path, files: list[Path], tmp_path: Path, capsys: Capture) -> None:
    works("purify", run, *files, "--out", tmp_path / "out", "--steps", "5", "--strip")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "a.png",
        "b.png",
        "c.png",
        "purified.json",
        "strip.png",
    ]
    with Image.open(tmp_path / "out" / "a.png") as image:
        assert (image.size, image.mode) == ((8, 8), "L")
    said = capsys.readouterr().out
    assert "3 images after 5 Langevin steps" in said
    assert "note" not in said
    assert "steps 0, 1, 2, 3, 4, 5" in said
    with Image.open(tmp_path / "out" / "strip.png") as strip:
        assert strip.size == (2 + 6 * 50, 2 + 3 * 50)


def test_images_that_are_cut_and_resized_are_noted(
    run: Path, files: list[Path], tmp_path: Path, capsys: Capture
) -> None:
    for name, size in (("wide", (16, 8)), ("large", (16, 16))):
        Image.new("L", size, "gray").save(tmp_path / f"{name}.png")
    made = [*files, tmp_path / "wide.png", tmp_path / "large.png"]
    works("purify", run, *made, "--out", tmp_path / "out", "--steps", "1")
    said = capsys.readouterr().out
    assert "note: 2 of 5 images are not 8x8" in said


def test_a_strip_has_as_many_rows_as_its_help_says(
    run: Path, files: list[Path], tmp_path: Path, capsys: Capture
) -> None:
    with pytest.raises(SystemExit):
        main(["purify", "--help"])
    assert "the first 16 images" in " ".join(capsys.readouterr().out.split())
    many = [shutil.copy(files[0], tmp_path / f"{i}.png") for i in range(17)]
    works("purify", run, *many, "--out", tmp_path / "out", "--steps", "1", "--strip")
    assert "the first 16 images" in capsys.readouterr().out
    with Image.open(tmp_path / "out" / "strip.png") as strip:
        assert strip.size == (2 + 2 * 50, 2 + 16 * 50)


def test_no_steps_leave_the_images_as_they_are(run: Path, files: list[Path], tmp_path: Path) -> None:
    works("purify", run, *files, "--out", tmp_path / "out", "--steps", "0", "--strip")
    for file in files:
        with Image.open(file) as before, Image.open(tmp_path / "out" / file.name) as after:
            assert before.tobytes() == after.tobytes()


def test_a_seed_cleans_the_same_way(run: Path, files: list[Path], tmp_path: Path) -> None:
    def cleaned(name: str, *options: str) -> dict[str, bytes | None]:
        works("purify", run, *files, "--out", tmp_path / name, "--steps", "3", *options)
        return tree(tmp_path / name)

    assert cleaned("1") == cleaned("2", "--seed", "0")
    assert cleaned("3", "--seed", "1") != cleaned("4")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{in}/a.png", "--out", "{in}"], ["exists already"]),
        (["{in}/a.png", "{in}/a.png", "--out", "{in}/o"], ["two images", "a.png"]),
        (["{in}/none.png", "--out", "{in}/o"], ["none.png"]),
        (["{in}/a.png", "--out", "{in}/o", "--steps", "-1"], ["steps of at least 0"]),
        (["{in}/a.png"], ["--out"]),
        (["--out", "{in}/o"], ["FILES"]),
    ],
)
def test_mistakes_in_purifying(
    capsys: Capture, run: Path, files: list[Path], arguments: list[str], said: list[str]
) -> None:
    folder = files[0].parent
    before = tree(folder)
    line = fails(capsys, "purify", run, *(word.replace("{in}", str(folder)) for word in arguments))
    assert all(part in line for part in said), line
    assert tree(folder) == before


def test_an_attack_leaves_records_a_table_and_plots(run: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "out"
    works("attack", run, *ATTACK, "--gradient", "bpda,full,smooth,transfer,fixed", "--out", out)
    text = capsys.readouterr().out
    names = ["undefended", *(f"{mode}-k2" for mode in ("bpda", "full", "smooth", "transfer", "fixed"))]
    table = (out / "table.txt").read_text()
    assert table.strip() in text
    assert [line.split()[0] for line in table.splitlines()[1:]] == names
    assert "note" not in text  # the test part of this data was not trained on
    summary = json.loads((out / "summary.json").read_text())
    for name in names:
        record = Record.load(out / name / "record")
        assert summary[name]["accuracies"]["natural"]["value"] == record.natural.value
        assert len(record.tally.labels) == 6
    test = digits(train=False)
    assert test.labels is not None
    assert torch.equal(record.tally.labels, test.labels[SPREAD])
    for plot in ("steps.png", "images.png"):
        assert (out / plot).is_file()
    assert not (out / "sweep.png").exists()


def test_examples_are_those_of_the_record(run: Path, tmp_path: Path) -> None:
    works("attack", run, *ATTACK, "--out", tmp_path)
    shown, record = (
        Examples.load(tmp_path / "bpda-k2" / "examples.safetensors"),
        Record.load(tmp_path / "bpda-k2" / "record"),
    )
    bare = Record.load(tmp_path / "undefended" / "record")
    assert torch.equal(shown.natural, digits(train=False).take(SPREAD))
    assert torch.equal(shown.attacked, record.tally.adversaries)
    assert torch.equal(shown.natural_bare, bare.tally.natural)
    assert torch.equal(shown.attacked_defended, record.tally.final[:, 0])
    assert not torch.equal(shown.attacked_purified, shown.attacked)
    with Image.open(tmp_path / "images.png") as picture:
        assert picture.size == (2 + 6 * 50, 2 + 4 * 50)


def test_examples_that_are_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "examples.safetensors").write_bytes(b"no")
    with pytest.raises(BadInput, match="examples of an attack"):
        Examples.load(tmp_path / "examples.safetensors")


def test_a_sweep_over_langevin_steps(run: Path, tmp_path: Path) -> None:
    works("attack", run, *ATTACK, "--sweep-k", "3,0", "--gradient", "bpda", "--out", tmp_path / "out")
    undefended, none, three = (
        Record.load(tmp_path / "out" / name / "record") for name in ("undefended", "bpda-k0", "bpda-k3")
    )
    assert (tmp_path / "out" / "sweep.png").is_file()
    assert torch.equal(none.tally.attacked, undefended.tally.attacked)  # no step is no defense
    assert three.settings["langevin_steps"] == 3


def test_the_same_command_finds_its_records_and_another_is_refused(run: Path, tmp_path: Path, capsys: Capture) -> None:
    works("attack", run, *ATTACK, "--out", tmp_path / "out")
    before = tree(tmp_path / "out" / "bpda-k2")
    works("attack", run, *ATTACK, "--out", tmp_path / "out")
    assert tree(tmp_path / "out" / "bpda-k2") == before
    line = fails(capsys, "attack", run, *ATTACK, "--seed", "1", "--out", tmp_path / "out")
    assert "holds another attack (seed: 0 -> 1)" in line


def test_a_second_command_in_the_same_attack_is_refused(run: Path, tmp_path: Path, capsys: Capture) -> None:
    parts = tmp_path / "out" / "bpda-k2" / "parts"
    parts.mkdir(parents=True)
    with locked(parts):
        line = fails(capsys, "attack", run, *ATTACK, "--out", tmp_path / "out")
        assert "bpda-k2/parts is in use by another process; wait for it or stop it" in line
        assert not (tmp_path / "out" / "bpda-k2" / "settings.json").exists()
    works("attack", run, *ATTACK, "--out", tmp_path / "out")


def test_every_mode_is_compared_with_its_folder_before_the_first_begins(
    run: Path, tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "out"
    works("attack", run, *ATTACK, "--gradient", "smooth", "--beta", "5", "--out", out)
    before = tree(out)
    line = fails(capsys, "attack", run, *ATTACK, "--gradient", "bpda,smooth", "--out", out)
    assert "smooth-k2 holds another attack (mode: Smooth(beta=5.0) -> Smooth(beta=10.0))" in line
    assert tree(out) == before


def test_a_folder_with_attacks_on_another_energy_is_refused(run: Path, tmp_path: Path, capsys: Capture) -> None:
    other, out = tmp_path / "other", tmp_path / "out"
    works("train", "digits-shortrun", "--out", other, *words(updates="1", data__train="true"))
    works("attack", other, *ATTACK, "--out", out)
    before = tree(out)
    line = fails(capsys, "attack", run, *ATTACK, "--gradient", "transfer", "--out", out)
    assert f"{out / 'bpda-k2'} holds an attack that is not comparable (model: " in line
    assert "choose another --out" in line
    assert tree(out) == before


def test_a_later_command_leaves_what_masking_checks_said(run: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "out"
    works("attack", run, *ATTACK, "--gradient", "transfer,fixed", "--masking", "--out", out)
    said = (out / "masking-fixed-k2" / "checks.txt").read_text()  # of the first that knows the defense
    assert len(said.splitlines()) == 1 + 7
    assert (out / "masking-fixed-k2" / "fixed-transfer" / "record").is_dir()
    works("attack", run, *ATTACK, "--gradient", "bpda", "--out", out)
    assert said in (out / "table.txt").read_text()
    line = fails(capsys, "attack", run, *ATTACK, "--gradient", "transfer", "--masking", "--out", out)
    assert "masking checks" in line
    assert "such as bpda" in line


def test_an_attack_goes_on_with_another_batch(run: Path, tmp_path: Path) -> None:
    works("attack", run, *ATTACK, "--out", tmp_path / "out")
    before = tree(tmp_path / "out" / "bpda-k2")
    works("attack", run, *ATTACK, "--batch", "8", "--out", tmp_path / "out")
    assert tree(tmp_path / "out" / "bpda-k2") == before


def test_what_an_earlier_command_found_stays_in_the_table(run: Path, tmp_path: Path, capsys: Capture) -> None:
    for gradient in ("bpda", "transfer"):
        works("attack", run, *ATTACK, "--gradient", gradient, "--out", tmp_path / "out")
    names = [line.split()[0] for line in (tmp_path / "out" / "table.txt").read_text().splitlines()[1:]]
    assert names == ["undefended", "transfer-k2", "bpda-k2"]
    assert sorted(json.loads((tmp_path / "out" / "summary.json").read_text())) == sorted(names)


def test_a_preset_is_the_papers_unless_changed(run: Path, tmp_path: Path) -> None:
    preset = ["--preset", "paper-imagenet", "--classifier", "attacks.small:digits_net", *QUICK]
    works("attack", run, *preset, "--out", tmp_path / "out")
    settings = Record.load(tmp_path / "out" / "bpda-k2" / "record").settings
    assert (settings["threat"], settings["step_size"], settings["replicas"]) == ("linf:2/255", 1 / 255, 2)
    assert settings["langevin_step_size"] == read_recipe(run).langevin.step_size  # the energy's own


def test_a_model_that_is_sampled_without_steps_is_asked_for_their_number(tmp_path: Path, capsys: Capture) -> None:
    small = ["--updates", "1", "--batch", "4", "--net.width", "8", "--data.train", "true"]
    works("train", "digits-score", "--out", tmp_path / "score", *small)
    line = fails(capsys, "attack", tmp_path / "score", *ATTACK[:-2])
    assert all(part in line for part in ("digits-score", "without Langevin steps", "attack --k")), line


def test_a_smooth_gradient_of_a_smooth_energy_is_noted_before_it_begins(tmp_path: Path, capsys: Capture) -> None:
    small = ["--updates", "1", "--batch", "4", "--net.width", "8", "--data.train", "true"]
    works("train", "digits-score", "--out", tmp_path / "score", *small)
    capsys.readouterr()
    works("attack", tmp_path / "score", *ATTACK, "--gradient", "smooth,full", "--out", tmp_path / "out")
    said = capsys.readouterr().out
    assert said.startswith("note: smooth is full here: the energy has no ReLU")
    assert said.splitlines()[0] in (tmp_path / "out" / "table.txt").read_text()


def test_masking_checks_on_request(run: Path, tmp_path: Path, capsys: Capture) -> None:
    works("attack", run, *ATTACK, "--masking", "--out", tmp_path / "out")
    lines = capsys.readouterr().out.splitlines()
    checks = [line for line in lines if line.startswith(("pass  ", "FAIL  "))]
    assert len(checks) == 7
    assert checks[0] in (tmp_path / "out" / "table.txt").read_text()
    assert not (tmp_path / "out" / "masking-bpda-k2" / "plain").exists()  # it is bpda-k2


def test_training_images_are_attacked_on_request_only(tmp_path: Path, capsys: Capture) -> None:
    works("train", "digits-shortrun", "--out", tmp_path / "run", *words(updates="1"))
    line = fails(capsys, "attack", tmp_path / "run", *ATTACK)
    assert (
        f"6 of the 6 images are training images of {tmp_path / 'run'}; choose others with --split test of a run" in line
    )
    assert not (tmp_path / "run" / "attacks").exists()
    works("attack", tmp_path / "run", *ATTACK, "--on-training-data")
    said = capsys.readouterr().out
    assert "note: 6 of the 6 images are training images" in said
    assert "attacked: 6 of 297 images of digits, split test (trained on)" in said
    assert (tmp_path / "run" / "attacks" / "digits_net-linf-8-255" / "table.txt").is_file()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--gradient", "bpda,ful"], ["unknown gradient 'ful'", "did you mean 'full'"]),
        (["--threat", "linf:8"], ["8/255"]),
        (["--threat", "linf"], ["linf:8/255"]),
        (["--threat", ""], ["threat ''", "linf:8/255"]),
        (["--threat", "l2:1e400"], ["above 0 and finite, got inf"]),
        (["--step-size", ""], ["'' is not a number"]),
        (["--classifier", "attacks.small:colour_net"], ["the classifier does not take images of shape (1, 8, 8)"]),
        (["--classifier", "attacks.small:thousand_net"], ["1000 classes", "digits has 10"]),
        (["--classifier", "attacks.small:none"], ["attacks.small"]),
        (["--classifier", "nothing"], ["unknown classifier 'nothing'"]),
        (["--preset", "papr-cifar10"], ["did you mean 'paper-cifar10'"]),
        (["--loss", "hinge"], ["unknown loss 'hinge'"]),
        (["--beta", "5"], ["--beta", "smooth", "--gradient is bpda"]),
        (["--step-size", "2"], ["step_size 2", "2/255"]),
        (["--n", "298"], ["--n 298", "297 test images"]),
        (["--n", "0"], ["--n 0"]),
        (["--verify", "1"], ["verify", "2 replicas"]),
        (["--sweep-k", "1,x"], ["--sweep-k", "'1,x'"]),
        (["--k", "-1"], ["steps of at least 0"]),
        (["--step-size", "one"], ["'one' is not a number"]),
        (["--beta", "0", "--gradient", "smooth"], ["beta"]),
        (["--stpes", "3"], ["did you mean '--steps'"]),
        (["--sweep", "3"], ["did you mean '--sweep-k'"]),
    ],
)
def test_mistakes_in_attacking(
    capsys: Capture, run: Path, tmp_path: Path, arguments: list[str], said: list[str]
) -> None:
    line = fails(capsys, "attack", run, *ATTACK, *arguments, "--out", tmp_path / "out")
    assert all(part in line for part in said), line
    assert tree(tmp_path) == {}


def test_a_threat_or_a_preset_is_needed(capsys: Capture, run: Path) -> None:
    line = fails(capsys, "attack", run, "--classifier", "attacks.small:digits_net")
    assert "--threat" in line
    assert "--preset" in line


def test_a_model_of_points_is_refused(capsys: Capture, tmp_path: Path) -> None:
    fields = ["--batch", "8", "--net.width", "4", "--langevin.steps", "2", "--updates", "1", "--watch.pictures", "4"]
    works("train", "toy-rings", "--out", tmp_path / "run", *fields)
    assert "expected a model of images" in fails(capsys, "attack", tmp_path / "run", *ATTACK)
