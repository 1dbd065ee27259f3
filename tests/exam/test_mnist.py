from pathlib import Path

import pytest
import torch

from ebmlife.data import mnist
from ebmlife.errors import BadInput
from ebmlife.exam import fd_mnist
from ebmlife.exam import mnist as module
from ebmlife.exam.features import default_features, find_features
from ebmlife.exam.mnist import MNISTClassifier, confidence, mnist_classifier
from ebmlife.recipes.schema import part


def test_mnist_has_its_own_distance() -> None:
    assert default_features(None, part("mnist"), (1, 28, 28)) == "mnist"
    features, traced = find_features("mnist", (1, 28, 28))
    assert features.name == "fd_mnist"
    assert traced is features
    with pytest.raises(BadInput, match=r"--features mnist needs images of shape \(1, 28, 28\)"):
        find_features("mnist", (1, 8, 8))


def test_training_is_deterministic_and_cached(
    official_mnist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(module, "FOLDER", str(official_mnist))
    trained = module._trained
    monkeypatch.setattr(module, "_trained", lambda: trained(updates=3))
    with torch.inference_mode():
        first = mnist_classifier.__wrapped__()
    assert (tmp_path / "ebmlife" / "mnist-classifier-1.safetensors").is_file()
    again = trained(updates=3)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert not any(p.requires_grad for p in first.parameters())


def test_without_images_and_cache_the_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(module, "FOLDER", str(tmp_path / "nowhere"))
    with pytest.raises(BadInput, match="nowhere: no such folder"):
        mnist_classifier.__wrapped__()


def test_features_and_logits_have_their_shapes() -> None:
    classifier, x = MNISTClassifier(), torch.zeros(2, 1, 28, 28)
    assert classifier.features(x).shape == (2, 64)
    assert classifier(x).shape == (2, 10)


def test_the_classifier_knows_test_images_and_is_confident(official_mnist: Path) -> None:
    data = mnist(official_mnist, train=False)
    rows = torch.arange(0, len(data), 5)
    assert data.labels is not None
    x = data.take(rows)
    assert (mnist_classifier()(x).argmax(1) == data.labels[rows]).double().mean() > 0.975
    assert confidence(x).median() > 0.99
    assert (confidence(x) > 0.9).double().mean() > 0.93


def test_fd_mnist_behaves_as_a_distance_of_images_should(official_mnist: Path) -> None:
    data = mnist(official_mnist, train=False)
    x = data.take(torch.arange(0, len(data), 10))
    folder = str(official_mnist)
    real, noise = fd_mnist([x], folder=folder), fd_mnist([2 * torch.rand(500, 1, 28, 28) - 1], folder=folder)
    noisy = fd_mnist([x + 0.5 * torch.randn_like(x)], folder=folder)
    assert real < noisy < noise
