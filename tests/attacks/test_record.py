import json
from pathlib import Path

import pytest
import torch

from ebmlife.attacks import Record, Share, Tally, plot_langevin_steps, table
from ebmlife.attacks.tally import NONE
from ebmlife.errors import BadInput


def example() -> Record:
    """Five images: wrong from the start, broken at 0, broken at 2, doubted but unbroken, unbroken."""
    tally = Tally.blank(torch.arange(5), torch.tensor([0, 1, 2, 3, 4]), torch.zeros(5, 1, 2, 2), steps=2, evaluations=3)
    tally.natural = torch.tensor([9, 1, 2, 3, 4])
    tally.broken_at = torch.tensor([NONE, 0, 2, NONE, NONE])
    tally.final = torch.tensor([[9, 9, 9], [9, 1, 1], [2, 9, 2], [3, 9, 3], [4, 4, 4]])
    tally.logits = torch.nn.functional.one_hot(torch.tensor([9, 1, 2, 3, 4])).float()
    return Record({"gradient": "bpda", "steps": 2, "threat": "linf:0.1", "radius": 0.1, "langevin_steps": 3}, tally)


def test_the_accuracies_are_five_different_things() -> None:
    record = example()
    assert record.natural == Share(4, 5)
    assert record.verified == Share(2, 5)
    assert record.final == Share(3, 5)
    assert record.averaged == Share(4, 5)
    assert record.worst == Share(1, 5)
    assert [share.right for share in record.by_step().values()] == [3, 3, 2]


def test_an_image_that_is_wrong_by_nature_is_robust_by_no_later_draw() -> None:
    record = example()
    record.tally.final[0] = 0
    record.tally.logits[0] = torch.nn.functional.one_hot(torch.tensor(0), 10).float()
    assert (record.final, record.averaged, record.worst) == (Share(3, 5), Share(4, 5), Share(1, 5))


@pytest.mark.parametrize(
    ("right", "of", "low", "high"),
    [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1.0), (54, 100, 0.4426, 0.6345)],
)
def test_wilsons_interval_as_in_the_tables(right: int, of: int, low: float, high: float) -> None:
    assert Share(right, of).interval == pytest.approx((low, high), abs=2e-4)


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    """Exact coverage at n = 30, averaged over p: the sum of binomial weights of the intervals that hold p."""
    n, coverage = 30, []
    for p in torch.linspace(0.05, 0.95, 50).tolist():
        weights = torch.distributions.Binomial(n, torch.tensor(p)).log_prob(torch.arange(n + 1.0)).exp()
        holds = torch.tensor([Share(k, n).low <= p <= Share(k, n).high for k in range(n + 1)])
        coverage.append(weights[holds].sum().item())
    assert sum(coverage) / len(coverage) == pytest.approx(0.95, abs=0.01)


def test_a_record_loads_as_it_was_saved(tmp_path: Path) -> None:
    record = example()
    record.save(tmp_path / "record")
    again = Record.load(tmp_path / "record")
    assert again.settings == record.settings
    for name, value in record.tally.state_dict().items():
        other = again.tally.state_dict()[name]
        assert torch.equal(value, other) if isinstance(value, torch.Tensor) else value == other
    assert Record.load(tmp_path).settings == record.settings  # from the folder that `record` lies in
    summary = json.loads((tmp_path / "record" / "manifest.json").read_text())["summary"]
    assert summary["accuracies"]["verified, any step"]["value"] == 0.4
    assert summary["images"] == 5
    file = tmp_path / "record" / "tensors.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(BadInput, match="damaged"):
        Record.load(tmp_path / "record")


def test_the_table_has_a_line_for_each_record() -> None:
    lines = table({"bpda": example(), "full": example()}).splitlines()
    assert len(lines) == 3
    for name in ("natural", "verified, any step", "one final", "3 averaged", "worst of 3", "Langevin image-steps"):
        assert name in lines[0]
    assert "0.400 [0.118, 0.769]" in lines[1]
    assert str(example()).splitlines()[1].startswith("bpda")


def test_natural_accuracy_against_langevin_steps_is_not_that_of_a_known_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose draw is the attack's, smaller than that of the others."""
    drawn: dict[str, dict[int, float]] = {}
    monkeypatch.setattr("ebmlife.plots.charts.curves", lambda lines, **_: drawn.update(lines))
    records = []
    for gradient, k, right in (("fixed", 1, 1), ("bpda", 1, 4), ("fixed", 2, 2), ("bpda", 3, 3), ("fixed", 3, 0)):
        tally = example().tally
        tally.natural = torch.where(torch.arange(5) < right, tally.labels, 9)
        records.append(Record({"gradient": gradient, "langevin_steps": k, "threat": "linf:0.1"}, tally))
    plot_langevin_steps(records)
    assert drawn["natural"] == {1: 0.8, 2: 0.4, 3: 0.6}


def test_parts_are_joined() -> None:
    tally = example().tally
    tally.gradients = 4
    both = Tally.joined([tally, tally])
    assert len(both.labels) == 10
    assert both.gradients == 8
