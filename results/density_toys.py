"""The figures of the plane in docs/results/density.md, by real runs: `make results-density-toys`.

Stopped and called again, it goes on. Runs lie in runs/results/density; a run that is finished and scored is not touched
again.
"""

import json
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from PIL import Image
from rich.console import Console
from tables import RESULTS, interval, replace
from torch import Tensor
from training import chosen, minutes, trained

from ebmlife.data import Toy
from ebmlife.data.toys import density
from ebmlife.exam.density import CELLS, HALF, Surface, compare, exact, normalized
from ebmlife.plots import pictures
from ebmlife.recipes.schema import Recipe
from ebmlife.runs import build
from ebmlife.storage.atomic import atomic_write

RUNS, PAGE = Path("runs/results/density"), RESULTS / "density.md"
LENGTHS = {"shortrun": "", "midrun": "-midrun", "longrun": "-longrun"}
PRIORS = {"longrun, midrun prior": "midrun", "longrun, shortrun prior": "shortrun"}  # of the same seed
ABLATIONS = {"longrun, no annealing": "-longrun-no-anneal", "longrun, one bank": "-longrun-one-bank"}
MODELS = LENGTHS | ABLATIONS | dict.fromkeys(PRIORS, "-longrun-with-prior")  # the ending of the recipe's name
TOY_NAMES, SEEDS = ("mixture", "rings"), (0, 1, 2)
SAMPLES, COARSE = 5_000, 20  # samples, and cells along a side when they are counted


@dataclass(frozen=True)
class Scores:
    total_variation: float  # of exp(-E), by quadrature, to the truth
    kl: float
    masses: tuple[float, ...]
    true_masses: tuple[float, ...]
    at_edge: float
    samples: float  # total variation of sampled counts to the truth's masses, both in coarse cells
    sampling_floor: float  # the same for as many draws from the truth itself
    minutes: float
    updates: int
    recipe_hash: str


def scored(toy: str, model: str, seed: int, console: Console) -> Scores:
    """Trains (or goes on, or finds) one run, and scores it."""
    prior = {"prior.run": str(place(toy, PRIORS[model], seed))} if model in PRIORS else {}
    recipe = chosen(f"toy-{toy}{MODELS[model]}", {"seed": str(seed)} | prior)
    folder = trained(place(toy, model, seed), recipe, console)
    if not (folder / "scores.json").exists():
        with atomic_write(folder / "scores.json") as unfinished:
            unfinished.write_text(json.dumps(asdict(score(folder, recipe.updates))))
    return Scores(**json.loads((folder / "scores.json").read_text()))


def place(toy: str, model: str, seed: int) -> Path:
    return RUNS / f"{toy}-{model.replace(', ', '-').replace(' ', '-')}-seed{seed}"


def truth(recipe: Recipe) -> Toy:
    options = recipe.data.options
    return density(options["name"], scale=options["scale"])


def score(folder: Path, updates: int) -> Scores:
    model = build.load(folder)
    toy = truth(model.recipe)
    return Scores(
        **asdict(compare(model.energy, toy)),
        samples=counted(model.sample(SAMPLES, seed=1, batch=SAMPLES), toy),
        sampling_floor=counted(toy.sample(SAMPLES, rng=torch.Generator().manual_seed(1)), toy),
        minutes=minutes(folder),
        updates=updates,
        recipe_hash=model.recipe.hash,
    )


def counted(x: Tensor, toy: Toy) -> float:
    """Half the sum over coarse cells of |share of samples - the truth's mass|; samples outside the square count too."""
    fine = CELLS // COARSE
    mass = exact(toy).mass.view(COARSE, fine, COARSE, fine).sum((1, 3))
    counts, _ = torch.histogramdd(x.cpu().double(), COARSE, range=[-HALF, HALF, -HALF, HALF])
    inside = counts / len(x)
    return 0.5 * ((inside - mass).abs().sum().item() + 1 - inside.sum().item())


def worst_mass(entry: Scores) -> float:
    """The largest error of a region's mass, relative to its true mass."""
    return max(abs(p - q) / q for p, q in zip(entry.masses, entry.true_masses, strict=True))


def table(scores: dict[tuple[str, str], list[Scores]]) -> str:
    rows = []
    for (toy, model), entries in scores.items():
        cells = [
            f"{toy}, {model}",
            f"`toy-{toy}{MODELS[model]}`",
            interval([entry.total_variation for entry in entries], digits=3),
            ", ".join(f"{entry.total_variation:.3f}" for entry in entries),
            interval([entry.kl for entry in entries], digits=3),
            ", ".join(f"{worst_mass(entry):.0%}" for entry in entries),
            f"{statistics.mean(entry.samples for entry in entries):.3f}",
            f"{statistics.mean(entry.minutes for entry in entries):.1f}",
            ", ".join(f"`{entry.recipe_hash}`" for entry in entries),
        ]
        rows.append("| " + " | ".join(cells) + " |")
    entry = next(iter(scores.values()))[0]
    floors = {toy: entries[0].sampling_floor for (toy, _), entries in scores.items()}
    return (
        f"Command: `make results-density-toys`. Seeds {', '.join(map(str, SEEDS))}; {entry.updates} updates each; mean "
        "and 95 % interval over the seeds (Student's t,\n2 degrees of freedom).\n\n"
        "| toy, model | recipe | total variation | each seed | KL | worst mass | samples | minutes | recipe hashes |\n"
        "|---|---|---|---|---|---|---|---|---|\n" + "\n".join(rows) + "\n\n"
        f'"Samples" is the total variation of {SAMPLES} samples, counted in {COARSE} x {COARSE} cells; as many draws '
        f"from the truth score {', '.join(f'{floor:.3f} ({toy})' for toy, floor in floors.items())}.\n"
    )


def picture(toy: str) -> Image.Image:
    """The truth and the three models' densities, seed 0."""
    models = {length: build.load(place(toy, length, 0)) for length in LENGTHS}
    found: dict[str, Surface] = {"truth": exact(truth(models["longrun"].recipe))}
    found |= {length: normalized(model.energy) for length, model in models.items()}
    return pictures.surfaces({name: surface.log_density for name, surface in found.items()}, half=HALF)


def main() -> None:
    console = Console()
    scores: dict[tuple[str, str], list[Scores]] = {(toy, model): [] for toy in TOY_NAMES for model in MODELS}
    for seed in SEEDS:
        for (toy, model), found in scores.items():
            found.append(scored(toy, model, seed, console))
    for toy in TOY_NAMES:
        pictures.save(PAGE.with_name(f"density-{toy}.png"), picture(toy))
    replace(PAGE, "toys table", table(scores))
    console.print(table(scores), markup=False, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
