"""Measures the densities of the plane in docs/results/density.md: `make results-density-toys`.

Call it again to continue. Runs are kept in runs/results/density; a run that is finished and scored is not changed.
"""

import json
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from PIL import Image
from rich.console import Console
from tables import RESULTS, interval, replace, table
from torch import Tensor
from training import chosen, minutes, trained

from ebmlife.data import Toy
from ebmlife.data.toys import density
from ebmlife.exam.density import CELLS, HALF, Surface, compare, exact, normalized
from ebmlife.plots import charts, pictures
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
    total_variation: float  # of exp(-E) to the exact density, by quadrature
    kl: float
    masses: tuple[float, ...]
    true_masses: tuple[float, ...]
    at_edge: float
    samples: float  # total variation of sampled counts to the exact masses, both in coarse cells
    sampling_floor: float  # the same for as many draws from the exact density
    minutes: float
    updates: int
    recipe_hash: str


def scored(toy: str, model: str, seed: int, console: Console) -> Scores:
    """Trains a run, unless it is finished already, and scores it."""
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
    """Half the sum over coarse cells of |share of samples - exact mass|; samples outside the square count too."""
    fine = CELLS // COARSE
    mass = exact(toy).mass.view(COARSE, fine, COARSE, fine).sum((1, 3))
    counts, _ = torch.histogramdd(x.cpu().double(), COARSE, range=[-HALF, HALF, -HALF, HALF])
    inside = counts / len(x)
    return 0.5 * ((inside - mass).abs().sum().item() + 1 - inside.sum().item())


def worst_mass(entry: Scores) -> float:
    """The largest error of a region's mass, relative to its true mass."""
    return max(abs(p - q) / q for p, q in zip(entry.masses, entry.true_masses, strict=True))


def tables(scores: dict[tuple[str, str], list[Scores]]) -> dict[str, str]:
    """The blocks of the page, by name: for each toy its distances, and the details of its runs."""
    updates = next(iter(scores.values()))[0].updates
    texts = {}
    for toy in TOY_NAMES:
        entries = {model: found for (name, model), found in scores.items() if name == toy}
        distances = [
            [
                model,
                interval([entry.total_variation for entry in found], digits=3),
                interval([entry.kl for entry in found], digits=3),
                f"{statistics.mean(entry.samples for entry in found):.3f}",
            ]
            for model, found in entries.items()
        ]
        details = [
            [
                model,
                f"`toy-{toy}{MODELS[model]}`",
                ", ".join(f"{entry.total_variation:.3f}" for entry in found),
                ", ".join(f"{worst_mass(entry):.0%}" for entry in found),
                f"{statistics.mean(entry.minutes for entry in found):.1f}",
                ", ".join(f"`{entry.recipe_hash}`" for entry in found),
            ]
            for model, found in entries.items()
        ]
        floor = next(iter(entries.values()))[0].sampling_floor
        caption = (
            f"{toy.capitalize()}: mean and 95 % interval over seeds {', '.join(map(str, SEEDS))} (Student's t, 2 "
            f'degrees of freedom), {updates} updates each. "Samples" is the total variation of\n{SAMPLES} samples, '
            f"counted in {COARSE} x {COARSE} cells; as many draws from the exact density score {floor:.3f}. "
            "Command: `make results-density-toys`."
        )
        head = ("model", "total variation", "KL divergence", "samples")
        head_of_details = ("model", "recipe", "total variation, each seed", "worst mass, each seed", "minutes")
        texts[toy] = f"{table(head, distances)}\n\n{caption}"
        texts[f"{toy} runs"] = table((*head_of_details, "recipe hashes"), details)
    return texts


def picture(toy: str) -> Image.Image:
    """The exact density and those of the three models, seed 0."""
    models = {length: build.load(place(toy, length, 0)) for length in LENGTHS}
    found: dict[str, Surface] = {"truth": exact(truth(models["longrun"].recipe))}
    found |= {length: normalized(model.energy) for length, model in models.items()}
    return charts.surfaces({name: surface.log_density for name, surface in found.items()}, half=HALF)


def main() -> None:
    console = Console()
    scores: dict[tuple[str, str], list[Scores]] = {(toy, model): [] for toy in TOY_NAMES for model in MODELS}
    for seed in SEEDS:
        for (toy, model), found in scores.items():
            found.append(scored(toy, model, seed, console))
    for toy in TOY_NAMES:
        pictures.save(PAGE.with_name(f"density-{toy}.png"), picture(toy))
    for name, text in tables(scores).items():
        replace(PAGE, name, text)
        console.print(text, markup=False, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
