"""CIFAR-10 at 32x32 by real runs, hybrid, cooperative and persistent at equal updates: `make results-shortrun-cifar10`.

An hour and more each on one core. Stopped and called again, it goes on; `train` only trains, `score` only scores what
is finished. Runs lie in runs/results/shortrun-cifar10.
"""

import json
import sys
from pathlib import Path

import torch
from rich.console import Console
from tables import RESULTS, replace
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
PAPER = {"hybrid": 22.1, "cooperative": 33.6, "persistent, noise": 40.6}  # FID of 50,000 samples, from its table
SAMPLES = 5000
SCORED = [  # the bank of persistent chains is what they have: 40 steps from noise are a short life
    ("hybrid", "samples"),
    ("hybrid", "start"),
    ("cooperative", "samples"),
    ("cooperative", "start"),
    ("persistent, noise", "samples"),
    ("persistent, noise", "bank"),
]


def score(title: str, what: str) -> dict[str, float]:
    """Kept as soon as it is there: it takes minutes."""
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


def row(title: str, found: dict[str, dict[str, float]]) -> str:
    folder = RUNS / VARIANTS[title]
    model = build.load(folder)
    data = build.DATA.make(model.recipe.data).take(torch.linspace(0, 49_999, 2000).long())
    numbers = [f"{found['samples'][f'{key}_5k']:.3g}" for key in ("fid", "kid", "precision", "recall")]
    numbers += [f"{found[what]['fid_5k']:.1f}" if what in found else "" for what in ("start", "bank")]
    spread = f"{diversity(model.sample(500, seed=1)) / diversity(data):.2f}"
    cells = [
        title,
        f"`{VARIANTS[title]}`",
        *numbers,
        spread,
        f"{model.recipe.updates:,}",
        f"{minutes(folder) / 60:.1f}",
    ]
    return "| " + " | ".join([*cells, f"`{model.recipe.hash}`", f"{PAPER[title]}"]) + " |"


def write(found: dict[str, dict[str, dict[str, float]]]) -> None:
    rows = [row(title, of_it) for title, of_it in found.items()]
    columns = ["chains", "recipe", *(f"{key}_5k" for key in ("fid", "kid", "precision", "recall"))]
    columns += ["fid_5k of the generator alone", "fid_5k of the bank", "diversity", "updates", "hours", "recipe hash"]
    columns += ["paper, fid_50k"]
    replace(
        PAGE,
        "cifar10 table",
        f"Command: `make results-shortrun-cifar10`. Seed 0; {SAMPLES:,} samples against {SAMPLES:,} images of the "
        "training set; one run each,\nso no interval. Hours are of one core.\n\n"
        f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|\n" + "\n".join(rows),
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
