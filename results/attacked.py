"""The trainings and attacks behind docs/results/defense.md, with their settings; finished ones are reused."""

import json
import os
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor, nn

from ebmlife import attacks
from ebmlife.attacks import Record, Share, Threat
from ebmlife.cli.defending import make_purifier
from ebmlife.data import InMemory, cifar10, digits
from ebmlife.defense import classifiers
from ebmlife.defense.defended import DefendedClassifier, undefended
from ebmlife.runs import build
from ebmlife.runs.model import Model
from ebmlife.sampling.rng import derive_seed
from ebmlife.storage.atomic import atomic_write

RUNS = Path(__file__).parent.parent / "runs" / "results" / "defense"
RESNET20 = Path(os.environ.get("EBMLIFE_RESNET20", "~/.cache/ebmlife/cifar10-resnet20.safetensors")).expanduser()
CIFAR10 = Path(os.environ.get("EBMLIFE_CIFAR10", "~/.cache/ebmlife/cifar-10-batches-bin")).expanduser()
RADIUS, K = 0.12, 100  # of digits
MOST = 200  # CIFAR-10 images in the largest set
TRAININGS = {  # name: recipe, and the fields that are changed
    "resnet": ("digits-classifier", {}),
    "wide": ("digits-classifier", {"net.kind": "wide-resnet", "net.depth": "10", "net.widen": "1", "seed": "1"}),
    "midrun": ("digits-midrun", {}),
    "no-anneal": ("digits-midrun-no-anneal", {}),
    "shortrun": ("digits-shortrun", {"data.train": "true"}),
    "score": ("digits-score", {"data.train": "true"}),
    "cifar10-midrun": ("cifar10-midrun-small", {}),
}
BARE = "undefended"
TITLES = {
    BARE: "none",
    "midrun": "midrun",
    "no-anneal": "midrun without annealing",
    "shortrun": "shortrun",
    "score": "score model",
    "cifar10-midrun": "midrun",
}
MODES = ("bpda", "transfer", "smooth", "full", "fixed")


@dataclass(frozen=True)
class Piece:
    """One attack."""

    defense: str = "midrun"  # a key of TRAININGS, or BARE
    gradient: str = "bpda"
    radius: float = RADIUS
    k: int = K
    classifier: str = "resnet"
    images: int = 100
    steps: int = 20
    replicas: int = 8
    verify: int = 32

    @property
    def place(self) -> Path:
        defense = BARE if self.defense == BARE else f"{self.defense}-k{self.k}-{self.gradient}"
        return RUNS / "attacks" / f"{self.classifier}-{defense}-r{self.radius:.3g}"


def bare(**changes: Any) -> Piece:
    return Piece(BARE, k=0, **changes)


def strong(defense: str, gradient: str) -> Piece:
    """Gradients through every Langevin step cost about ten times as much, so they attack fewer images."""
    return (
        Piece(defense, gradient, images=50, replicas=4) if gradient in ("full", "smooth") else Piece(defense, gradient)
    )


def of_cifar10(defense: str, gradient: str, k: int) -> Piece:
    """Every step costs ten times as much as on digits, so draws are smaller. The bare classifier is cheap and gets
    all images."""
    images = MOST if defense == BARE else 100
    return Piece(defense, gradient, 8 / 255, k, "resnet20", images, replicas=4, verify=16)


ENERGIES = ("midrun", "no-anneal", "shortrun", "score")
MAIN = [bare(), *(strong(defense, mode) for mode in MODES for defense in ENERGIES)]
RADII = [piece for r in (0.04, 0.08, RADIUS, 0.16, 0.2, 0.5) for piece in (bare(radius=r), Piece(radius=r))]
LENGTHS = [
    bare(),
    *(Piece(k=k) for k in (25, 50, K, 200, 400)),
    *(
        Piece(defense, k=k, images=100 if k == K else 50)
        for defense in ("no-anneal", "shortrun")
        for k in (50, K, 200, 400)
    ),
    # the score model's step size is a fifth: it needs 25 times as many steps to diffuse as far, which takes hours
    Piece("score"),
    Piece("score", k=500, images=50),
]
CLASSIFIERS = [piece for name in ("resnet", "wide") for piece in (bare(classifier=name), Piece(classifier=name))]
K_CIFAR10 = 100  # chosen among 25, 50 and 100 on training images
OF_CIFAR10 = [
    of_cifar10(BARE, "bpda", 0),
    *(of_cifar10("cifar10-midrun", mode, K_CIFAR10) for mode in MODES),
    *(of_cifar10("cifar10-midrun", "bpda", k) for k in (50, 200)),
]
NATURAL = [replace(OF_CIFAR10[1], k=k, images=MOST, replicas=8) for k in (25, 50, 100, 200)]  # not attacked
MASKED, CHECKS = Piece(images=50), RUNS / "masking.txt"
DIGITS = list(dict.fromkeys([*RADII, *CLASSIFIERS, *MAIN, *LENGTHS]))


@cache
def model(name: str) -> Model:
    return build.load(RUNS / name)


@cache
def classifier(name: str) -> nn.Module:
    return classifiers.find(f"cifar-resnet20:{RESNET20}" if name == "resnet20" else str(RUNS / name))


@cache
def test_data(name: str) -> InMemory:
    return cifar10(CIFAR10, train=False) if name == "resnet20" else digits(train=False)


def images(piece: Piece) -> tuple[Tensor, Tensor]:
    """Images evenly spread over the test set, because digits are ordered by writer."""
    data = test_data(piece.classifier)
    if piece.classifier == "resnet20":  # smaller sets are subsets of larger ones
        rows = torch.linspace(0, len(data) - 1, MOST).long()[:: MOST // piece.images]
    else:
        rows = torch.linspace(0, len(data) - 1, piece.images).long()
    assert data.labels is not None
    return data.take(rows), data.labels[rows]


def defended(piece: Piece) -> DefendedClassifier:
    if piece.defense == BARE:
        return undefended(classifier(piece.classifier))
    purifier = make_purifier(model(piece.defense), piece.k)
    return DefendedClassifier(classifier(piece.classifier), purifier, gradient=piece.gradient)


def attack(piece: Piece, console: Console) -> Record:
    if not (piece.place / "record").exists():
        console.print(piece.place.name, highlight=False)
    return attacks.evaluate(defended(piece), *images(piece), folder=piece.place, **settings(piece))


def settings(piece: Piece) -> dict[str, Any]:
    strength = {"steps": piece.steps, "replicas": piece.replicas, "verify": piece.verify}
    return {"threat": Threat("linf", piece.radius), "evaluations": 3, **strength}


def natural_file(piece: Piece) -> Path:
    return RUNS / f"natural-{piece.defense}-k{piece.k}.json"


def natural(piece: Piece) -> Share:
    """The accuracy of the defended classifier on images that are not attacked."""
    file = natural_file(piece)
    if not file.exists():
        x, y = images(piece)
        seeds = [derive_seed(0, f"natural {i}") for i in range(len(x))]
        with torch.no_grad():
            right = defended(piece)(x, replicas=piece.replicas, seeds=seeds).argmax(1) == y
        with atomic_write(file) as unfinished:
            unfinished.write_text(json.dumps({"right": int(right.sum()), "of": len(right)}))
    return Share(**json.loads(file.read_text()))


def masking(piece: Piece, file: Path) -> None:
    """Checks for masked gradients, which take eight attacks with other radii, steps and replicas."""
    if not file.exists():
        checks = attacks.check_masking(
            defended(piece), *images(piece), folder=file.parent / "masking", **settings(piece)
        )
        with atomic_write(file) as unfinished:
            unfinished.write_text("\n".join(map(str, checks)) + "\n")
