"""Measures CIFAR-10 in docs/results/shortrun.md, with equal numbers of updates: `make results-shortrun-cifar10`.

Each run takes more than an hour on one core. Call it again to continue; `train` only trains, `score` only scores
finished runs. Runs are kept in runs/results/shortrun-cifar10.
"""

import json
import sys
from pathlib import Path

import torch
from rich.console import Console
from tables import RESULTS, replace, table
from training import chosen, minutes, trained

from ebmlife.exam import diversity, score_samples
from ebmlife.exam.inception import inception, scores
from ebmlife.exam.scores import reference_features
from ebmlife.plots import pictures
from ebmlife.runs import build
from ebmlife.storage import checkpoint
from ebmlife.storage.atomic import atomic_write

RUNS, PAGE = Path(__file__).parent.parent / "runs" / "results" / "shortrun-cifar10", RESULTS / "shortrun.md"
VARIANTS = {
    "hybrid": "cifar10-shortrun-small",
    "cooperative": "cifar10-shortrun-small-coop",
    "persistent, noise": "cifar10-shortrun-small-persistent",
}
CALMER = {  # at the others' learning rate, chains from noise diverge at update 2,548; lowered at 2,250, at 3,177
    "cifar10-shortrun-small-persistent": {"optimizer.learning_rate": "1e-4, 3e-5 @ 3000"},
}
SAMPLES = 5000
SCORED = [  # persistent chains are scored by their bank too: 40 steps from noise are few
    ("hybrid", "samples"),
    ("hybrid", "start"),
    ("cooperative", "samples"),
    ("cooperative", "start"),
    ("persistent, noise", "samples"),
    ("persistent, noise", "bank"),
]


def score(title: str, what: str) -> dict[str, float]:
    """The scores of one set of images, which are saved because they take minutes."""
    folder = RUNS / VARIANTS[title]
    file = folder / f"scores-{what}.json"
    if not file.exists():
        model = build.load(folder)
        data = build.DATA.make(model.recipe.data)
        if what == "bank":
            bank = checkpoint.load(checkpoint.path(folder, model.recipe.updates))[0]["trainer"]["chains"]["x"]
            found = scores(inception()(bank[:SAMPLES]), reference_features(data, SAMPLES))
        else:
            steps = model.recipe.sampling_steps if what == "samples" else 0
            found = score_samples(model, data, n=SAMPLES, steps=steps, seed=1)
        with atomic_write(file) as unfinished:
            unfinished.write_text(json.dumps(found))
    return dict(json.loads(file.read_text()))


def rows(title: str, found: dict[str, dict[str, float]]) -> tuple[list[str], list[str], list[str]]:
    """The variant's row in each of the three tables."""
    folder = RUNS / VARIANTS[title]
    model = build.load(folder)
    data = build.DATA.make(model.recipe.data).take(torch.linspace(0, 49_999, 2000).long())
    fid, *others = (f"{found['samples'][f'{key}_5k']:.3g}" for key in ("fid", "kid", "precision", "recall"))
    apart = [f"{found[what]['fid_5k']:.1f}" if what in found else "" for what in ("start", "bank")]
    spread = f"{diversity(model.sample(500, seed=1)) / diversity(data):.2f}"
    made = [
        f"`{VARIANTS[title]}`",
        f"{model.recipe.updates:,}",
        f"{minutes(folder) / 60:.1f}",
        f"`{model.recipe.hash}`",
    ]
    return [title, fid, *apart], [title, *others, spread], [title, *made]


def write(found: dict[str, dict[str, dict[str, float]]]) -> None:
    distances, others, made = zip(*(rows(title, scores) for title, scores in found.items()), strict=True)
    command = (
        f"CIFAR-10, `fid_5k`: {SAMPLES:,} samples against {SAMPLES:,} images of the training set (lower is better). "
        "Seed 0, one run each, so there is no interval.\nCommand: `make results-shortrun-cifar10`."
    )
    replace(PAGE, "cifar10 table", f"{table(('chains', 'samples', 'generator', 'bank'), distances)}\n\n{command}")
    replace(
        PAGE,
        "cifar10 runs",
        table(("chains", "kid_5k", "precision_5k", "recall_5k", "diversity"), others)
        + "\n\n"
        + table(("chains", "recipe", "updates", "hours of one core", "recipe hash"), made),
    )


def main(*tasks: str) -> None:
    console = Console()
    for name in VARIANTS.values() if "train" in tasks else ():
        trained(RUNS / name, chosen(name, CALMER.get(name)), console)
    if "score" not in tasks:
        return
    found: dict[str, dict[str, dict[str, float]]] = {}
    done = [title for title, name in VARIANTS.items() if checkpoint.choose(RUNS / name, None) == chosen(name).updates]
    for title, what in SCORED:
        if title not in done:
            continue
        found.setdefault(title, {})[what] = score(title, what)
        write(found)
    strips = [build.load(RUNS / VARIANTS[title]).sample(20, seed=1) for title in done]
    pictures.save(PAGE.with_name("shortrun-cifar10.png"), pictures.grid(torch.cat(strips), columns=20))


if __name__ == "__main__":
    main(*(sys.argv[1:] or ("train", "score")))
