from pathlib import Path

import pytest
import torch
from conftest import small
from PIL import Image
from rich.console import Console
from torch import Tensor, nn

from ebmlife.data import Batches, InMemory, digits
from ebmlife.defense import classifiers
from ebmlife.errors import BadInput
from ebmlife.runs import build, logging, run
from ebmlife.training.classifier import ClassifierTrainer, ImpliedEnergy, accuracy
from ebmlife.training.learner import Learner

QUIET = Console(quiet=True)


class Table(nn.Module):
    """Logits of four states, a row each."""

    classes = 3

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits)

    def forward(self, x: Tensor) -> Tensor:
        return self.logits[x[:, 0].long()]


def test_an_update_goes_down_the_cross_entropy() -> None:
    """Against the known gradient of a table of logits: (softmax - one hot) of each state, over the batch."""
    logits = torch.tensor([[1.0, 0.0, -1.0], [0.0, 0.0, 0.0], [2.0, 2.0, 0.0], [0.0, 5.0, 0.0]])
    labels = torch.tensor([0, 2, 1, 0])
    data = InMemory(torch.arange(4.0)[:, None], labels)
    net = Table(logits.clone())
    learner = Learner(net, torch.optim.SGD(net.parameters()), learning_rate=1.0)
    figures = ClassifierTrainer(Batches(data, size=4, seed=0), classifier=learner).step()
    expected = (logits.softmax(1) - nn.functional.one_hot(labels, 3)) / 4
    torch.testing.assert_close(logits - net.logits.detach(), expected)
    assert figures.loss == pytest.approx(-logits.log_softmax(1)[range(4), labels].mean().item())
    assert figures.accuracy == (1 + 0 + 0 + 0) / 4  # ties go to the first class
    assert figures.test_accuracy is None


def test_accuracy_counts_all_of_a_data_set() -> None:
    data = InMemory(torch.arange(4.0)[:, None], torch.tensor([0, 2, 1, 0]))
    table = Table(torch.eye(4, 3))  # says 0, 1, 2, and 0 for nothing but zeros
    assert accuracy(table, data, batch=3) == 2 / 4


def test_the_energy_of_a_classifier_is_minus_the_log_of_its_summed_exponentials() -> None:
    table = Table(torch.tensor([[0.0, 0.0, 0.0], [1.0, 2.0, 3.0]]))
    energy = ImpliedEnergy(table)(torch.tensor([[0.0], [1.0]]))
    torch.testing.assert_close(energy, -torch.tensor([3.0, torch.e + torch.e**2 + torch.e**3]).log())


def test_tests_come_at_their_interval_and_are_of_the_averaged_weights(tmp_path: Path) -> None:
    run.begin(small("digits-classifier", test_every="2"), tmp_path / "run", console=QUIET)
    lines = logging.read_log(tmp_path / "run" / "log.jsonl")
    assert [line["test_accuracy"] is not None for line in lines] == [False, True] * 3
    model = build.load(tmp_path / "run")
    assert accuracy(model.net, digits(train=False)) == lines[-1]["test_accuracy"]


def test_data_without_labels_or_with_too_many_are_refused(tmp_path: Path) -> None:
    for i in range(10):
        Image.new("L", (8, 8), i).save(tmp_path / f"{i}.png")
    unlabelled = {"data__kind": "folder", "data__folder": str(tmp_path), "data__size": "8", "data__channels": "1"}
    with pytest.raises(BadInput, match="data has no labels, which a classifier needs"):
        build.training(small("digits-classifier", **unlabelled))
    with pytest.raises(BadInput, match=r"labels up to 9; net\.classes must be more, got 5"):
        build.training(small("digits-classifier", net__classes="5"))


def test_the_run_of_a_classifier_is_a_classifier(tmp_path: Path) -> None:
    run.begin(small("digits-classifier"), tmp_path / "run", console=QUIET)
    found = classifiers.find(str(tmp_path / "run"))
    assert found.classes == 10
    x = digits(train=False).take(torch.arange(5))
    torch.testing.assert_close(found(x), build.load(tmp_path / "run").net(x))
    assert found(torch.zeros(2, 1, 16, 16)).shape == (2, 10)  # resized
    with pytest.raises(BadInput, match="takes images"):
        found(torch.zeros(2, 3, 8, 8))
    run.begin(small("digits-gan"), tmp_path / "gan", console=QUIET)
    with pytest.raises(BadInput, match=r"a run of digits-gan, .*not a classifier"):
        classifiers.find(str(tmp_path / "gan"))


def test_the_digits_classifier_learns_what_it_promises(tmp_path: Path) -> None:
    """The recipe itself, in seconds: at least 97 % of the images that it never saw."""
    from ebmlife import recipes

    recipe = build.resolve(recipes.get("digits-classifier"))
    run.begin(recipe, tmp_path / "run", console=QUIET)
    assert accuracy(classifiers.find(str(tmp_path / "run")), digits(train=False)) >= 0.97
