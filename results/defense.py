"""Measures docs/results/defense.md: `make results-defense`. Call it again to continue.

Runs and attacks are kept in runs/results/defense; finished ones are not changed. `digits` takes one or two hours on two
cores, `cifar10` many, and it needs the weights of a ResNet-20 (see RESNET20). `page` only writes the page.
"""

import math
import sys
from collections.abc import Callable, Iterable, Sequence

import torch
from attacked import (
    BARE,
    CHECKS,
    CLASSIFIERS,
    DIGITS,
    K_CIFAR10,
    LENGTHS,
    MAIN,
    MASKED,
    NATURAL,
    OF_CIFAR10,
    RADII,
    RESNET20,
    RUNS,
    TITLES,
    TRAININGS,
    K,
    Piece,
    attack,
    defended,
    images,
    masking,
    model,
    natural,
    natural_file,
)
from rich.console import Console
from tables import RESULTS, replace, table
from torch import Tensor
from training import chosen, minutes, trained

from ebmlife import attacks
from ebmlife.attacks import Record
from ebmlife.plots import charts, pictures
from ebmlife.sampling.rng import derive_seed
from ebmlife.storage import checkpoint

PAGE = RESULTS / "defense.md"
EXACT, STRONG = ("bpda", "transfer", "fixed"), ("smooth", "full")  # strong ones attack fewer images


def finished(name: str) -> bool:
    recipe = chosen(*TRAININGS[name])
    return checkpoint.choose(RUNS / name, None) == recipe.updates


def trainings(names: Iterable[str]) -> str:
    rows = []
    for name in names:
        recipe, changes = model(name).recipe, TRAININGS[name][1]
        command = " ".join(["ebmlife train", recipe.name, *(f"--{field} {value}" for field, value in changes.items())])
        cells = [name, f"`{command}`", f"{recipe.updates:,}", str(recipe.seed), f"{minutes(RUNS / name):.0f}"]
        rows.append([*cells, f"`{recipe.hash}`"])
    return table(("name", "command", "updates", "seed", "minutes", "recipe hash"), rows)


def by_gradient(found: dict[Piece, Record], modes: Sequence[str], *, natural: bool = False) -> str:
    """A row for each defense: the verified accuracy under each gradient."""
    rows = []
    for defense, title in TITLES.items():
        records = {piece.gradient: found[piece] for piece in MAIN if piece.defense == defense and piece in found}
        if any(mode in records for mode in modes):
            missing = "" if defense == BARE else "not run yet"
            first = [str(next(iter(records.values())).natural)] if natural else []
            cells = (str(records[mode].verified) if mode in records else missing for mode in modes)
            rows.append([title, *first, *cells])
    return table(("energy", *(("natural",) if natural else ()), *modes), rows)


def by_attack(found: dict[Piece, Record], pieces: Iterable[Piece], *, cost: bool) -> str:
    """A row for each attack: natural and verified accuracy, or the other accuracies of its record and its cost."""
    records = {piece: found[piece] for piece in pieces if piece in found}
    if not records:
        return ""
    natural, verified, *others = next(iter(records.values())).accuracies
    names = others if cost else [natural, verified]
    rows = [
        [
            TITLES[piece.defense],
            *(("", "") if piece.defense == BARE else (piece.gradient, str(piece.k))),
            str(piece.images),
            *(str(record.accuracies[name]) for name in names),
            *([f"{record.cost['gradients']:,}", f"{record.cost['langevin_image_steps'] / 1e6:.1f} M"] if cost else []),
        ]
        for piece, record in records.items()
    ]
    costs = ["gradients", "Langevin image-steps"] if cost else []
    return table(["energy", "gradient", "K", "images", *names, *costs], rows)


def sweep(found: dict[Piece, Record], pieces: Iterable[Piece], field: str) -> str:
    rows = [
        [
            TITLES[piece.defense],
            str(getattr(piece, field)),
            str(piece.images),
            str(found[piece].natural),
            str(found[piece].verified),
        ]
        for piece in pieces
        if piece in found
    ]
    return table(("energy", {"k": "K"}.get(field, field), "images", "natural", "verified"), rows)


def unattacked() -> str:
    """Natural accuracies of CIFAR-10 over the number of Langevin steps."""
    known = [piece for piece in NATURAL if natural_file(piece).exists()]
    rows = [[str(piece.k), str(piece.images), str(piece.replicas), str(natural(piece))] for piece in known]
    return table(("K", "images", "replicas", "natural"), rows)


def by_classifier(found: dict[Piece, Record]) -> str:
    rows = []
    for piece in CLASSIFIERS:
        if piece in found:
            made = model(piece.classifier)
            weights = sum(parameter.numel() for parameter in made.net.parameters())
            rows.append([f"{piece.classifier} ({weights:,} weights, `{made.recipe.hash}`)", TITLES[piece.defense]])
            rows[-1] += [str(found[piece].natural), str(found[piece].verified)]
    return table(("classifier", "energy", "natural", "verified under bpda"), rows)


def curves(
    found: dict[Piece, Record], pieces: Iterable[Piece], at: Callable[[Piece], float]
) -> dict[str, dict[int, float]]:
    """Natural and attacked accuracy of each energy, over `at(piece)` in thousandths."""
    lines: dict[str, dict[int, float]] = {}
    for piece in sorted((piece for piece in pieces if piece in found), key=at):
        x, title = round(at(piece) * 1000), TITLES[piece.defense]
        lines.setdefault(f"{title}, natural", {})[x] = found[piece].natural.value
        lines.setdefault(f"{title}, attacked", {})[x] = found[piece].verified.value
    return lines


def diffused(piece: Piece) -> float:
    """Standard deviation of a pixel in [-1, 1] after K steps of noise alone: step_size * sqrt(K).

    It makes energies with different step sizes comparable."""
    return 0 if piece.defense == BARE else model(piece.defense).recipe.langevin.step_size * math.sqrt(piece.k)


def show(found: dict[Piece, Record]) -> None:
    """Draws the plots, and images: natural, attacked, and both purified."""
    plots = {
        "radii": (RADII, lambda piece: piece.radius, "radius, in thousandths of the pixels' range"),
        "lengths": (LENGTHS, diffused, "step size * sqrt(K), in thousandths"),
    }
    for name, (pieces, at, x) in plots.items():
        if lines := curves(found, pieces, at):
            counts = sorted({piece.images for piece in pieces if piece in found})
            title = f"{' to '.join(map(str, dict.fromkeys((counts[0], counts[-1]))))} test digits under bpda"
            picture = charts.curves(lines, title=title, x=x, y="accuracy")
            pictures.save(PAGE.with_name(f"defense-digits-{name}.png"), picture)
    for name, pieces in (("digits", MAIN), ("cifar10", OF_CIFAR10)):
        rows = [rows_of_images(found, piece) for piece in pieces if piece in found and worth_showing(piece)]
        if rows:
            pictures.save(PAGE.with_name(f"defense-{name}.png"), pictures.grid(torch.cat(rows), columns=20))


def worth_showing(piece: Piece) -> bool:
    has_weights = piece.classifier != "resnet20" or RESNET20.is_file()
    return has_weights and piece.defense != BARE and piece.gradient == "bpda" and piece.k in (K, K_CIFAR10)


def rows_of_images(found: dict[Piece, Record], piece: Piece) -> Tensor:
    """Twenty images: natural, attacked, and both purified."""
    seeds = [derive_seed(0, f"picture {i}") for i in range(20)]
    return attacks.Examples.of(found[piece], defended(piece), images(piece)[0], seeds=seeds).rows


def write(found: dict[Piece, Record]) -> None:
    """Writes the tables and pictures of all finished attacks."""
    digits, photographs = Piece(), OF_CIFAR10[1]
    of_digits = (
        f"Digits, linf radius {digits.radius:g} of pixels in [0, 1]: accuracy on natural images and verified accuracy "
        f"under each gradient, with Wilson's 95 % interval\nover {digits.images} test images. {digits.steps} attack "
        f"steps of a quarter of the radius, {digits.replicas} replicas, breaks verified by {digits.verify}, "
        f"K = {digits.k}, seed 0. Command: `make results-defense-digits`."
    )
    of_cifar10 = (
        f"CIFAR-10, linf radius 8/255, {photographs.steps} attack steps of 2/255, {photographs.replicas} replicas, "
        f"breaks verified by {photographs.verify}, seed 0. Test images are spread over all 10,000; Wilson's\n"
        "95 % intervals over images. Command: `make results-defense-cifar10`."
    )
    texts = {
        "trainings": trainings(name for name in TRAININGS if finished(name)),
        "gradients": captioned(by_gradient(found, EXACT, natural=True), of_digits),
        "strong gradients": by_gradient(found, STRONG),
        "meanings": by_attack(found, MAIN, cost=False) + "\n\n" + by_attack(found, MAIN, cost=True),
        "radii": sweep(found, RADII, "radius"),
        "lengths": sweep(found, LENGTHS, "k"),
        "classifiers": by_classifier(found),
        "masking": f"```\n{CHECKS.read_text().rstrip()}\n```" if CHECKS.exists() else "",
        "cifar10": captioned(by_attack(found, OF_CIFAR10, cost=False), of_cifar10),
        "cifar10 meanings": by_attack(found, OF_CIFAR10, cost=True),
        "cifar10 natural": unattacked(),
    }
    for name, text in texts.items():
        if text.strip():
            replace(PAGE, name, text)
    show(found)


def captioned(table: str, caption: str) -> str:
    return f"{table}\n\n{caption}" if table else ""


def main(task: str) -> None:
    console = Console()
    pieces = {"digits": DIGITS, "cifar10": OF_CIFAR10, "page": []}[task]
    for piece in pieces:
        for name in (piece.classifier, piece.defense):
            if name in TRAININGS:
                trained(RUNS / name, chosen(*TRAININGS[name]), console)
        attack(piece, console)
    if task == "digits":
        masking(MASKED, CHECKS)
    elif task == "cifar10":
        for piece in NATURAL:
            natural(piece)
    complete = [piece for piece in (*DIGITS, *OF_CIFAR10) if (piece.place / "record").is_dir()]
    write({piece: Record.load(piece.place / "record") for piece in complete})


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "digits")
