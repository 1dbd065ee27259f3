import shutil
from pathlib import Path

from ebmlife.attacks import Examples, Record, masking
from ebmlife.report import page, robustness
from ebmlife.report.contents import read_contents

NAME = "digits_classifier-linf-30-255"


def test_rows_are_the_records(made: Path) -> None:
    (attack,) = robustness.read(made)
    assert attack.name == NAME
    assert attack.images == 12
    names = [row.name for row in attack.rows]
    assert names == ["undefended", "bpda-k0", "transfer-k0", "bpda-k1", "transfer-k1", "bpda-k2", "transfer-k2"]
    for row in attack.rows:
        assert row.shares == Record.load(made / "attacks" / NAME / row.name / "record").accuracies


def test_curves_are_the_records(made: Path) -> None:
    (attack,) = robustness.read(made)
    steps, sweep = attack.charts
    record = Record.load(made / "attacks" / NAME / "bpda-k2" / "record")
    line = next(line for line in steps.lines if line.name == "bpda-k2")
    assert line.values == [share.value for share in record.by_step().values()]
    assert sweep.x == [1, 2]
    assert next(line for line in sweep.lines if line.name == "bpda").values[1] == record.verified.value
    assert next(line for line in sweep.lines if line.name == "natural images").values[1] == record.natural.value


def _changed(folder: Path, **settings: object) -> None:
    """A record as if it had been made under other settings, later than all others."""
    record = Record.load(folder)
    Record(record.settings | settings, record.tally).save(folder / "record")


def test_records_of_other_weights_than_the_newest_are_named_and_not_shown(run: Path) -> None:
    folder = run / "attacks" / NAME
    masking.save(folder, "bpda-k1", [masking.Check("x", True, "1")])
    masking.save(folder, "bpda-k2", [masking.Check("x", True, "2")])
    (attack,) = robustness.read(run)
    assert attack.left_out == []
    assert [line for line in attack.masking.splitlines() if line.startswith("masking")] == [
        "masking of bpda-k1:",
        "masking of bpda-k2:",
    ]
    for name in ("bpda-k2", "transfer-k2"):
        _changed(folder / name, model="another")
    (attack,) = robustness.read(run)
    assert [row.name for row in attack.rows] == ["undefended", "bpda-k0", "transfer-k0", "bpda-k2", "transfer-k2"]
    assert attack.left_out == ["bpda-k1", "transfer-k1"]
    assert attack.masking == "masking of bpda-k2:\npass  x: 2"
    assert "Not shown, because" in page.render([read_contents(run)]).html
    _changed(folder / "bpda-k1", images="others")
    (attack,) = robustness.read(run)
    assert [row.name for row in attack.rows] == ["bpda-k1"]


def test_natural_accuracy_is_not_that_of_a_known_noise(run: Path) -> None:
    folder = run / "attacks" / NAME
    _changed(folder / "transfer-k2", gradient="fixed")
    record = Record.load(folder / "transfer-k2")
    record.tally.natural = (record.tally.natural + 1) % 10
    record.save(folder / "transfer-k2" / "record")
    (attack,) = robustness.read(run)
    natural = next(line for line in attack.charts[1].lines if line.name == "natural images")
    assert natural.values[1] == Record.load(folder / "bpda-k2").natural.value != record.natural.value


def test_examples_are_shown_with_their_predictions(made: Path) -> None:
    (attack,) = robustness.read(made, [f"class {i}" for i in range(10)])
    assert attack.shown == "transfer-k2"  # the longest defense
    found = Examples.load(made / "attacks" / NAME / attack.shown / "examples.safetensors")
    example = attack.examples[3]
    assert example.label == f"class {found.labels[3]}"
    predicted = found.natural_bare[3], found.attacked_bare[3], found.attacked_defended[3]
    assert example.predicted == tuple(f"class {it}" for it in predicted)
    assert attack.sheet is not None
    assert (attack.sheet.rows, attack.sheet.columns) == (3, 10)


def test_what_is_not_there_is_not_shown(run: Path) -> None:
    folder = run / "attacks" / NAME
    for name in ("bpda-k0", "bpda-k1", "bpda-k2", "transfer-k1", "transfer-k2"):
        shutil.rmtree(folder / name)
    for file in folder.glob("*/examples.safetensors"):
        file.unlink()
    (folder / "table.txt").write_text("table\n\nmasking of bpda-k2:\npass  all\n")
    (attack,) = robustness.read(run)
    assert (attack.sheet, attack.examples, len(attack.charts)) == (None, [], 1)
    assert attack.masking == "masking of bpda-k2:\npass  all"
    shutil.rmtree(folder)
    (run / "attacks" / "begun" / "bpda-k2" / "parts").mkdir(parents=True)
    assert robustness.read(run) == []
