import shutil
from pathlib import Path

from ebmlife.attacks import Examples, Record
from ebmlife.report import robustness

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


def test_examples_are_shown_with_their_predictions(made: Path) -> None:
    (attack,) = robustness.read(made, [f"class {i}" for i in range(10)])
    assert attack.shown == "transfer-k2"  # the longest defence
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
