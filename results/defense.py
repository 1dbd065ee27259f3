"""The figures of docs/results/defense.md, by real runs: `make results-defense`. Stopped and called again, it goes on.

Runs and attacks lie in runs/results/defense; what is finished there is not touched again. `digits` takes an hour or two
on two cores, `cifar10` (which needs the weights of a ResNet-20, see RESNET20) many; `page` writes down what is there.
"""

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from tables import RESULTS, replace
from torch import Tensor, nn

from ebmlife import attacks, build, checkpoint, classifiers, pictures, recipes, run, watch
from ebmlife.attacks import Record, Threat
from ebmlife.cli.defending import make_purifier
from ebmlife.data import InMemory, cifar10, digits
from ebmlife.defense import DefendedClassifier, undefended
from ebmlife.model import Model
from ebmlife.randomness import mixed
from ebmlife.recipe import Recipe, override

RUNS, PAGE = Path(__file__).parent.parent / "runs" / "results" / "defense", RESULTS / "defense.md"
RESNET20 = Path(os.environ.get("EBMLIFE_RESNET20", "~/.cache/ebmlife/cifar10-resnet20.safetensors")).expanduser()
CIFAR10 = Path(os.environ.get("EBMLIFE_CIFAR10", "~/.cache/ebmlife/cifar-10-batches-bin")).expanduser()
RADIUS, K = 0.12, 100
TRAININGS = {  # name: recipe, and what is changed of it
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

    defence: str = "midrun"  # of TRAININGS, or BARE
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
        defence = BARE if self.defence == BARE else f"{self.defence}-k{self.k}-{self.gradient}"
        return RUNS / "attacks" / f"{self.classifier}-{defence}-r{self.radius:.3g}"


def bare(**changes: Any) -> Piece:
    return Piece(BARE, k=0, **changes)


def strong(defence: str, gradient: str) -> Piece:
    """Gradients through every Langevin step cost some ten times as much: fewer images."""
    return (
        Piece(defence, gradient, images=50, replicas=4) if gradient in ("full", "smooth") else Piece(defence, gradient)
    )


ENERGIES = ("midrun", "no-anneal", "shortrun", "score")
MAIN = [bare(), *(strong(defence, mode) for mode in MODES for defence in ENERGIES)]
RADII = [piece for r in (0.04, 0.08, RADIUS, 0.16, 0.2, 0.5) for piece in (bare(radius=r), Piece(radius=r))]
LENGTHS = [
    bare(),
    *(Piece(k=k) for k in (25, 50, K, 200, 400)),
    *(Piece(defence, k=k, images=100 if k == K else 50) for defence in ENERGIES[1:] for k in (50, K, 200)),
]
CLASSIFIERS = [piece for name in ("resnet", "wide") for piece in (bare(classifier=name), Piece(classifier=name))]
OF_CIFAR10 = [
    Piece(defence, mode, radius=8 / 255, k=k, classifier="resnet20")
    for defence, mode, k in ((BARE, "bpda", 0), *(("cifar10-midrun", mode, 500) for mode in MODES))
]
DIGITS = list(dict.fromkeys([*RADII, *CLASSIFIERS, *MAIN, *LENGTHS]))


def recipe(name: str) -> Recipe:
    chosen, changes = TRAININGS[name]
    return build.resolve(override(build.resolve(recipes.get(chosen)), changes))


def train(name: str, console: Console) -> None:
    """A run that is made, or gone on with, or there."""
    folder, wanted = RUNS / name, recipe(name)
    if folder.exists() and run.read_recipe(folder).hash != wanted.hash:
        raise SystemExit(f"{folder} is a run of an older recipe; move it away")
    if checkpoint.choose(folder, None) == wanted.updates:
        return
    outcome = run.resume(folder, console=console) if folder.exists() else run.begin(wanted, folder, console=console)
    if not outcome.finished:
        raise SystemExit("stopped and saved; the same command goes on")


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
    """Evenly spread over the test images: digits come writer by writer."""
    data = test_data(piece.classifier)
    rows = torch.linspace(0, len(data) - 1, piece.images).long()
    assert data.labels is not None
    return data.take(rows), data.labels[rows]


def defended(piece: Piece) -> DefendedClassifier:
    if piece.defence == BARE:
        return undefended(classifier(piece.classifier))
    purifier = make_purifier(model(piece.defence), piece.k)
    return DefendedClassifier(classifier(piece.classifier), purifier, gradient=piece.gradient)


def attack(piece: Piece, console: Console) -> Record:
    if not (piece.place / "record").exists():
        console.print(piece.place.name, highlight=False)
    x, y = images(piece)
    return attacks.evaluate(
        defended(piece),
        x,
        y,
        threat=Threat("linf", piece.radius),
        steps=piece.steps,
        replicas=piece.replicas,
        verify=piece.verify,
        evaluations=3,
        folder=piece.place,
    )


def rows_of(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table, or nothing where there are no rows."""
    lines = [list(head), *map(list, rows)]
    if len(lines) == 1:
        return ""
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def trainings(names: Iterable[str]) -> str:
    rows = []
    for name in names:
        made, changes = model(name).recipe, TRAININGS[name][1]
        minutes = sum(1 / line["updates_per_second"] for line in watch.read_log(RUNS / name / "log.jsonl")) / 60
        said = " ".join(f"--{field} {value}" for field, value in changes.items())
        cells = [name, f"`ebmlife train {made.name} {said}`".replace(" `", "`"), f"{made.updates:,}", str(made.seed)]
        rows.append([*cells, f"{minutes:.0f}", f"`{made.hash}`"])
    return rows_of(("name", "command", "updates", "seed", "minutes", "recipe hash"), rows)


def by_gradient(found: dict[Piece, Record]) -> str:
    """A line for each defence: natural accuracy, and the verified one under each gradient."""
    rows = []
    for defence, title in TITLES.items():
        of_it = {piece.gradient: found[piece] for piece in MAIN if piece.defence == defence and piece in found}
        if of_it:
            missing = "" if defence == BARE else "not run yet"
            natural = str(next(iter(of_it.values())).natural)
            rows.append([title, natural, *(str(of_it[mode].verified) if mode in of_it else missing for mode in MODES)])
    return rows_of(("energy in front", "natural", *MODES), rows)


def by_meaning(found: dict[Piece, Record]) -> str:
    """All that a record says of each attack, and what it cost."""
    records = {piece: found[piece] for piece in MAIN if piece in found}
    rows = [
        [
            TITLES[piece.defence],
            piece.gradient if piece.defence != BARE else "",
            *map(str, record.accuracies.values()),
            f"{record.cost['gradients']:,}",
            f"{record.cost['langevin_image_steps'] / 1e6:.1f} M",
        ]
        for piece, record in records.items()
    ]
    names = next(iter(records.values())).accuracies
    return rows_of(("energy", "gradient", *names, "gradients", "Langevin image-steps"), rows)


def sweep(found: dict[Piece, Record], pieces: Iterable[Piece], field: str) -> str:
    rows = [
        [
            TITLES[piece.defence],
            str(getattr(piece, field)),
            str(piece.images),
            str(found[piece].natural),
            str(found[piece].verified),
        ]
        for piece in pieces
        if piece in found
    ]
    return rows_of(("energy in front", field, "images", "natural", "verified"), rows)


def by_classifier(found: dict[Piece, Record]) -> str:
    rows = []
    for piece in CLASSIFIERS:
        if piece in found:
            made = model(piece.classifier)
            weights = sum(parameter.numel() for parameter in made.net.parameters())
            rows.append([f"{piece.classifier} ({weights:,} weights, `{made.recipe.hash}`)", TITLES[piece.defence]])
            rows[-1] += [str(found[piece].natural), str(found[piece].verified)]
    return rows_of(("classifier", "energy in front", "natural", "verified under bpda"), rows)


def curves(
    found: dict[Piece, Record], pieces: Iterable[Piece], field: str, scale: float = 1
) -> dict[str, dict[int, float]]:
    lines: dict[str, dict[int, float]] = {}
    for piece in sorted((p for p in pieces if p in found), key=lambda p: float(getattr(p, field))):
        at = round(getattr(piece, field) * scale)
        lines.setdefault(f"{TITLES[piece.defence]}, natural", {})[at] = found[piece].natural.value
        lines.setdefault(f"{TITLES[piece.defence]}, attacked", {})[at] = found[piece].verified.value
    return lines


def show(found: dict[Piece, Record]) -> None:
    """Plots, and images on their way: natural, attacked, and both purified."""
    at = {"title": f"{Piece().images} test digits under bpda", "y": "accuracy"}
    radii, lengths = curves(found, RADII, "radius", 1000), curves(found, LENGTHS, "k")
    if radii:
        picture = pictures.curves(radii, x="radius, in thousandths of the pixels' range", **at)
        pictures.save(PAGE.with_name("defense-digits-radii.png"), picture)
    if lengths:
        pictures.save(
            PAGE.with_name("defense-digits-lengths.png"), pictures.curves(lengths, x="Langevin steps K", **at)
        )
    rows = []
    for defence in TITLES:
        piece = next((p for p in MAIN if p.defence == defence and p.gradient == "bpda" and p in found), None)
        if piece is not None and defence != BARE:
            seeds = [mixed(0, f"picture {i}") for i in range(20)]
            rows.append(attacks.Examples.of(found[piece], defended(piece), images(piece)[0], seeds=seeds).rows)
    if rows:
        pictures.save(PAGE.with_name("defense-digits.png"), pictures.grid(torch.cat(rows), columns=20))


def write(found: dict[Piece, Record]) -> None:
    one = Piece()
    how = (
        f"Command: `make results-defense`. {one.images} test digits spread over all 297 (50 for `full` and `smooth`), "
        f"linf radius {one.radius:g}\nof pixels in [0, 1], {one.steps} attack steps of a quarter of it, "
        f"{one.replicas} replicas (4 for `full` and `smooth`), breaks verified by\n{one.verify}, K = {one.k}, seed 0. "
        "Verified accuracies with Wilson's 95 % intervals over images."
    )
    texts = {
        "trainings": trainings(name for name in TRAININGS if (RUNS / name / "log.jsonl").exists()),
        "gradients": f"{how}\n\n{by_gradient(found)}",
        "meanings": by_meaning(found),
        "radii": sweep(found, RADII, "radius"),
        "lengths": sweep(found, LENGTHS, "k"),
        "classifiers": by_classifier(found),
        "cifar10": sweep(found, OF_CIFAR10, "gradient"),
    }
    for name, text in texts.items():
        if text:
            replace(PAGE, name, text)
    show(found)


def main(task: str) -> None:
    console = Console()
    pieces = {"digits": DIGITS, "cifar10": OF_CIFAR10, "page": []}[task]
    for piece in pieces:
        for name in (piece.classifier, piece.defence):
            if name in TRAININGS:
                train(name, console)
        attack(piece, console)
    there = [piece for piece in (*DIGITS, *OF_CIFAR10) if (piece.place / "record").is_dir()]
    write({piece: Record.load(piece.place / "record") for piece in there})


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "digits")
