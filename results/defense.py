"""The figures of docs/results/defense.md, by real runs: `make results-defense`. Stopped and called again, it goes on.

Runs and attacks lie in runs/results/defense; what is finished there is not touched again. `digits` takes an hour or two
on two cores, `cifar10` (which needs the weights of a ResNet-20, see RESNET20) many; `page` writes down what is there.
"""

import math
import sys
from collections.abc import Callable, Iterable

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
    MODES,
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
from tables import RESULTS, replace
from torch import Tensor
from training import chosen, minutes, trained

from ebmlife import attacks
from ebmlife.attacks import Record
from ebmlife.plots import charts, pictures
from ebmlife.sampling.rng import derive_seed
from ebmlife.storage import checkpoint

PAGE = RESULTS / "defense.md"


def rows_of(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table, or nothing where there are no rows."""
    lines = [list(head), *map(list, rows)]
    if len(lines) == 1:
        return ""
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def finished(name: str) -> bool:
    recipe = chosen(*TRAININGS[name])
    return checkpoint.choose(RUNS / name, None) == recipe.updates


def trainings(names: Iterable[str]) -> str:
    rows = []
    for name in names:
        made, changes = model(name).recipe, TRAININGS[name][1]
        said = " ".join(f"--{field} {value}" for field, value in changes.items())
        cells = [name, f"`ebmlife train {made.name} {said}`".replace(" `", "`"), f"{made.updates:,}", str(made.seed)]
        rows.append([*cells, f"{minutes(RUNS / name):.0f}", f"`{made.hash}`"])
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


def by_meaning(found: dict[Piece, Record], pieces: Iterable[Piece]) -> str:
    """All that a record says of each attack, and what it cost."""
    records = {piece: found[piece] for piece in pieces if piece in found}
    rows = [
        [
            TITLES[piece.defence],
            *(("", "") if piece.defence == BARE else (piece.gradient, str(piece.k))),
            str(piece.images),
            *map(str, record.accuracies.values()),
            f"{record.cost['gradients']:,}",
            f"{record.cost['langevin_image_steps'] / 1e6:.1f} M",
        ]
        for piece, record in records.items()
    ]
    if not records:
        return ""
    names = next(iter(records.values())).accuracies
    return rows_of(("energy", "gradient", "K", "images", *names, "gradients", "Langevin image-steps"), rows)


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


def unattacked() -> str:
    """Natural accuracies of CIFAR-10 over the length of the walk."""
    known = [piece for piece in NATURAL if natural_file(piece).exists()]
    rows = [[str(piece.k), str(piece.images), str(piece.replicas), str(natural(piece))] for piece in known]
    return rows_of(("K", "images", "replicas", "natural"), rows)


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
    found: dict[Piece, Record], pieces: Iterable[Piece], at: Callable[[Piece], float]
) -> dict[str, dict[int, float]]:
    """Natural and attacked accuracy of each energy, over thousandths of what `at` says of an attack."""
    lines: dict[str, dict[int, float]] = {}
    for piece in sorted((piece for piece in pieces if piece in found), key=at):
        x, title = round(at(piece) * 1000), TITLES[piece.defence]
        lines.setdefault(f"{title}, natural", {})[x] = found[piece].natural.value
        lines.setdefault(f"{title}, attacked", {})[x] = found[piece].verified.value
    return lines


def diffused(piece: Piece) -> float:
    """How far its noise alone takes a pixel in [-1, 1]: step_size * sqrt(K), by which walks of other steps compare."""
    return 0 if piece.defence == BARE else model(piece.defence).recipe.langevin.step_size * math.sqrt(piece.k)


def show(found: dict[Piece, Record]) -> None:
    """Plots, and images on their way: natural, attacked, and both purified."""
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
    there = piece.classifier != "resnet20" or RESNET20.is_file()
    return there and piece.defence != BARE and piece.gradient == "bpda" and piece.k in (K, K_CIFAR10)


def rows_of_images(found: dict[Piece, Record], piece: Piece) -> Tensor:
    """Twenty images: natural, attacked, and both purified."""
    seeds = [derive_seed(0, f"picture {i}") for i in range(20)]
    return attacks.Examples.of(found[piece], defended(piece), images(piece)[0], seeds=seeds).rows


def write(found: dict[Piece, Record]) -> None:
    one = Piece()
    how = (
        f"Command: `make results-defense-digits`. {one.images} test digits spread over all 297 (50 for `full` and "
        f"`smooth`), linf radius {one.radius:g}\nof pixels in [0, 1], {one.steps} attack steps of a quarter of it, "
        f"{one.replicas} replicas (4 for `full` and `smooth`), breaks verified by\n{one.verify}, K = {one.k}, seed 0. "
        "Verified accuracies with Wilson's 95 % intervals over images."
    )
    masked = f"The midrun energy, `bpda`, {MASKED.images} of the digits, else as above; by the same command."
    of_cifar10 = "\n\n".join(table for table in (by_meaning(found, OF_CIFAR10), unattacked()) if table)
    two = OF_CIFAR10[1]
    photographs = (
        f"Command: `make results-defense-cifar10`. Test images spread over all 10,000, linf radius 8/255, {two.steps} "
        f"attack steps of 2/255,\n{two.replicas} replicas, breaks verified by {two.verify}, seed 0. Wilson's 95 % "
        "intervals over images. Below, natural accuracies of more images by walks of several lengths."
    )
    texts = {
        "trainings": trainings(name for name in TRAININGS if finished(name)),
        "gradients": f"{how}\n\n{by_gradient(found)}" if by_gradient(found) else "",
        "meanings": by_meaning(found, MAIN),
        "radii": sweep(found, RADII, "radius"),
        "lengths": sweep(found, LENGTHS, "k"),
        "classifiers": by_classifier(found),
        "masking": f"{masked}\n\n```\n{CHECKS.read_text().rstrip()}\n```" if CHECKS.exists() else "",
        "cifar10": f"{photographs}\n\n{of_cifar10}" if of_cifar10 else "",
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
                trained(RUNS / name, chosen(*TRAININGS[name]), console)
        attack(piece, console)
    if task == "digits":
        masking(MASKED, CHECKS)
    elif task == "cifar10":
        for piece in NATURAL:
            natural(piece)
    there = [piece for piece in (*DIGITS, *OF_CIFAR10) if (piece.place / "record").is_dir()]
    write({piece: Record.load(piece.place / "record") for piece in there})


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "digits")
