"""CIFAR-10 at 32x32 by real runs, hybrid, cooperative and persistent at equal updates: `make results-shortrun-cifar10`.

An hour and more each on two cores. Stopped and called again, it goes on; `train` only trains, `score` only scores what
is finished. Runs lie in runs/results/shortrun-cifar10.
"""

import json
import sys
from pathlib import Path

import torch
from rich.console import Console
from tables import RESULTS, replace

from ebmlife import build, checkpoint, pictures, recipes, run, watch
from ebmlife.exam import diversity, score_samples
from ebmlife.files import whole

RUNS, PAGE = Path(__file__).parent.parent / "runs" / "results" / "shortrun-cifar10", RESULTS / "shortrun.md"
VARIANTS = {
    "hybrid": "cifar10-shortrun-small",
    "cooperative": "cifar10-shortrun-small-coop",
    "persistent, noise": "cifar10-shortrun-small-persistent",
}
PAPER = {"hybrid": 22.1, "cooperative": 33.6, "persistent, noise": 40.6}  # FID of 50,000 samples, from its table
SAMPLES = 5000


def train(name: str, console: Console) -> None:
    folder = RUNS / name
    if not folder.exists():
        outcome = run.begin(build.resolve(recipes.get(name)), folder, console=console)
    else:
        outcome = run.resume(folder, console=console)
    if not outcome.finished:
        raise SystemExit("stopped and saved; the same command goes on")


def score(name: str) -> dict[str, float]:
    """Each number is kept as soon as it is there: scoring takes a quarter of an hour."""
    folder = RUNS / name
    model, file = build.load(folder), folder / "scores.json"
    found: dict[str, float] = json.loads(file.read_text()) if file.exists() else {}
    data = build.DATA.make(model.recipe.data)
    has_generator = model.generator is not None
    for label, steps in (("samples", model.recipe.sampling_steps), *([("start", 0)] if has_generator else [])):
        if f"{label} fid_5k" not in found:
            values = score_samples(model, data, n=SAMPLES, steps=steps, seed=1)
            found |= {f"{label} {key}": value for key, value in values.items()}
            with whole(file) as unfinished:
                unfinished.write_text(json.dumps(found))
    return found


def row(title: str, found: dict[str, float]) -> str:
    folder = RUNS / VARIANTS[title]
    model, at = build.load(folder), checkpoint.choose(folder, None)
    data = build.DATA.make(model.recipe.data).take(torch.linspace(0, 49_999, 2000).long())
    lines = watch.read_log(folder / "log.jsonl")
    hours = sum(1 / line["updates_per_second"] for line in lines) / 3600
    start = f"{found['start fid_5k']:.1f}" if "start fid_5k" in found else "noise"
    numbers = [f"{found[f'samples {key}_5k']:.3g}" for key in ("fid", "kid", "precision", "recall")]
    spread = f"{diversity(model.sample(500, seed=1)) / diversity(data):.2f}"
    cells = [title, f"`{VARIANTS[title]}`", *numbers, start, spread, f"{at}", f"{hours:.1f}", f"`{model.recipe.hash}`"]
    return "| " + " | ".join([*cells, f"{PAPER[title]}"]) + " |"


def main(*tasks: str) -> None:
    console = Console()
    for name in VARIANTS.values() if "train" in tasks else ():
        train(name, console)
    if "score" not in tasks:
        return
    done = [title for title, name in VARIANTS.items() if checkpoint.choose(RUNS / name, None) is not None]
    rows = [row(title, score(VARIANTS[title])) for title in done]
    strips = [build.load(RUNS / VARIANTS[title]).sample(20, seed=1) for title in done]
    pictures.save(PAGE.with_name("shortrun-cifar10.png"), pictures.grid(torch.cat(strips), columns=20))
    replace(
        PAGE,
        "cifar10 table",
        f"Command: `make results-shortrun-cifar10`. Seed 0; {SAMPLES} samples against {SAMPLES} images of the data; "
        "one run each, so no interval.\n\n"
        "| chains | recipe | fid_5k | kid_5k | precision_5k | recall_5k | fid_5k of the start | diversity | updates | "
        "hours | recipe hash | paper, fid_50k |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n" + "\n".join(rows),
    )


if __name__ == "__main__":
    main(*(sys.argv[1:] or ("train", "score")))
