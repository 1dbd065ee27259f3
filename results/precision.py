"""Compares float32 and bfloat16: single gradients, chains, and whole trainings. Call it again to continue.

make results-precision            # gradients and chains of the runs of `make results-shortrun`
make results-precision-training   # digits-shortrun, three seeds in each precision, and cifar10-shortrun-small, one each

On a processor without bfloat16, the compiled program computes the same bits with other instructions.
"""

import json
import math
import statistics
import sys
from pathlib import Path

import torch
from rich.console import Console
from scipy.stats import ks_2samp
from tables import RESULTS, interval, replace, table
from torch.nn.functional import cosine_similarity
from training import chosen, minutes, trained

from ebmlife import langevin, load, nets, prepare, seeded
from ebmlife.exam import score_samples
from ebmlife.runs import build
from ebmlife.runs.model import Model
from ebmlife.sampling.energy import gradient
from ebmlife.sampling.rng import generator
from ebmlife.storage.atomic import atomic_write

RUNS, PAGE = Path(__file__).parent.parent / "runs" / "results" / "precision", RESULTS / "speed.md"
CHAINS, STEPS = 512, 1000
TRAININGS = {"digits-shortrun": ((0, 1, 2), 2000), "cifar10-shortrun-small": ((0,), 5000)}  # seeds, samples


def energies(model: Model, precision: str) -> torch.Tensor:
    """Energies in float32 of the states after STEPS steps."""
    start = model.start(CHAINS, rng=generator(0)).x
    walked = prepare(model.net, temperature=model.recipe.temperature, precision=precision)  # type: ignore[arg-type]
    x, _ = langevin(walked, start, steps=STEPS, step_size=model.recipe.langevin.step_size, noise=seeded(1))
    with torch.no_grad():
        return model.energy(x)


def cosines(net: torch.nn.Module, x: torch.Tensor) -> str:
    half, full = (gradient(prepare(net, precision=p), x).flatten(1) for p in ("bf16", "f32"))  # type: ignore[arg-type]
    values = cosine_similarity(half, full)
    return f"mean {values.mean():.4f}, {values.min():.4f} to {values.max():.4f}"


def chains(runs: list[str]) -> None:
    """Prints the numbers of gradients and chains."""
    for width in (32, 64, 256):
        torch.manual_seed(0)
        x = torch.randn(8, 3, 32, 32).clamp(-1, 1)
        print(f"cosine at initialization, 32x32, width {width}: {cosines(nets.SNGANEnergy(32, width, 3), x)}")
    for run in runs:
        model = load(run)
        print(f"{run} ({model.recipe.hash}), {CHAINS} chains, {STEPS} steps")
        print(f"  cosine after training: {cosines(model.net, model.sample(64))}")
        full, half = energies(model, "f32"), energies(model, "bf16")
        error = math.sqrt((full.var() + half.var()) / CHAINS)
        print(f"  energy in float32 {full.mean():.2f}, standard deviation {full.std():.2f}")
        print(f"  energy in bf16    {half.mean():.2f}, standard deviation {half.std():.2f}")
        print(f"  difference {half.mean() - full.mean():+.2f} ± {1.96 * error:.2f} (95 %)")
        print(f"  Kolmogorov-Smirnov p = {ks_2samp(full, half).pvalue:.3f}")


def scored(name: str, precision: str, seed: int, samples: int, console: Console) -> dict[str, float | str]:
    """Trains a run, unless it is finished already, and scores its samples."""
    recipe = chosen(name, {"seed": str(seed), "langevin.precision": precision})
    folder = trained(RUNS / f"{name}-{precision}-seed{seed}", recipe, console)
    file = folder / "scores.json"
    if not file.exists():
        model = load(folder)
        data = build.DATA.make(model.recipe.data)
        found = score_samples(model, data, n=samples, steps=model.recipe.sampling_steps, seed=1)
        with atomic_write(file) as unfinished:
            unfinished.write_text(json.dumps(found | {"minutes": minutes(folder), "recipe_hash": recipe.hash}))
    read: dict[str, float | str] = json.loads(file.read_text())
    return read


def trainings(names: list[str]) -> None:
    """Writes a row for each recipe and precision: the score of every seed, and its interval where there are three."""
    console, rows = Console(), []
    for name in names:
        seeds, samples = TRAININGS[name]
        for precision in ("f32", "bf16"):
            found = [scored(name, precision, seed, samples, console) for seed in seeds]
            metric = next(key for key in found[0] if key.startswith(("fd_", "fid_")))
            values = [float(entry[metric]) for entry in found]
            mean = interval(values, digits=1) if len(values) == 3 else f"{values[0]:.1f}, one run"
            spent = f"{statistics.mean(float(entry['minutes']) for entry in found):.1f}"
            each, hashes = (
                ", ".join(f"{value:.1f}" for value in values),
                ", ".join(f"`{entry['recipe_hash']}`" for entry in found),
            )
            rows.append([f"`{name}`", precision, f"`{metric}`", mean, each, spent, hashes])
    head = ("recipe", "precision", "metric", "score", "each seed", "minutes", "recipe hashes")
    command = (
        "Mean and 95 % interval over seeds 0, 1 and 2 (Student's t, 2 degrees of freedom); lower is better. Samples "
        "are drawn in the precision of their training.\nCommand: `make results-precision-training`."
    )
    replace(PAGE, "precision trainings", f"{table(head, rows)}\n\n{command}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["train"]:
        trainings(sys.argv[2:] or list(TRAININGS))
    else:
        chains(sys.argv[1:] or sorted(map(str, Path("runs/results/shortrun").glob("digits-shortrun-seed*"))))
