"""Runs the paper's defense of ImageNet at 224x224 end to end, with few steps: `make results-defense-imagenet`.

The paper's energy (BigGAN's discriminator, width 48), its recipe and its preset, in front of EfficientNet-lite0, on a
folder of images whose names begin with their class (000_tench.jpg): EBMLIFE_IMAGENET. A fifth of them is held out; the
energy learns from the others, and only held-out images are attacked. So few updates give no robustness: the page shows
that everything runs. Call it again to continue.
"""

import os
import shutil
from pathlib import Path

from tables import RESULTS, replace

from ebmlife.cli import main as ebmlife
from ebmlife.runs import build
from ebmlife.storage import checkpoint

IMAGES = Path(os.environ.get("EBMLIFE_IMAGENET", "~/.cache/ebmlife/imagenet")).expanduser()
ROOT = Path(__file__).parent.parent
RUNS = Path("runs/results/imagenet")  # below ROOT; relative, because the folder of the data is part of the recipe hash
DATA = {"data.labels": "file-name", "data.held_out": "0.2"}
TRAINING = {  # the recipe's, but with few short chains from data instead of BigGAN, and few updates
    "start.kind": "data",
    "generator": "none",
    "batch": "4",
    "chains.size": "16",
    "langevin.steps": "5",
    "updates": "60",
    "checkpoint.every": "10",
    "watch.pictures_every": "20",
    "watch.pictures": "4",
    "sampling_steps": "5",
}
ATTACK = {
    "gradient": "bpda,full,smooth,transfer",
    "n": "8",
    "k": "5",
    "steps": "2",
    "replicas": "2",
    "verify": "4",
    "evaluations": "2",
    "batch": "16",
}


def copied(images: list[Path], place: Path) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    for image in images:
        if not (place / image.name).exists():
            shutil.copyfile(image, place / image.name)
    return place


def options(values: dict[str, str]) -> list[str]:
    return [part for name, value in values.items() for part in (f"--{name}", value)]


def run(*command: str) -> None:
    if code := ebmlife(list(command)):
        raise SystemExit(code)


def main() -> None:
    images = sorted(IMAGES.resolve().glob("[0-9][0-9][0-9]_*.jpg"))
    if not images:
        raise SystemExit(f"{IMAGES}: no images like 000_tench.jpg; set EBMLIFE_IMAGENET to a folder of them")
    os.chdir(ROOT)
    data, made = {"data.folder": str(copied(images, RUNS / "photographs")), **DATA}, RUNS / "energy"
    begin = ("train", "imagenet224-midrun", "--out", str(made), *options(data | TRAINING))
    run(*(("resume", str(made)) if made.exists() else begin))
    if checkpoint.choose(made, None) != int(TRAINING["updates"]):
        raise SystemExit("stopped and saved; run the same command to continue")
    attack = {"classifier": "efficientnet-lite0", "preset": "paper-imagenet", **ATTACK}
    run("attack", str(made), "--out", str(RUNS / "attack"), *options(attack))
    recipe, printed = build.load(made).recipe, (RUNS / "attack" / "table.txt").read_text().rstrip()
    held_out, shown = len(build.test_part(recipe.data)[0]), {**data, "data.folder": "PHOTOGRAPHS", **TRAINING}
    replace(
        RESULTS / "defense.md",
        "imagenet",
        f"Command: `make results-defense-imagenet`, which runs the two below; seed 0, recipe `{recipe.hash}`. Of "
        f"{len(images)} photographs, {len(images) - held_out} were trained on; {ATTACK['n']} of the {held_out} others "
        "are attacked.\n\n"
        f"    ebmlife train imagenet224-midrun {' '.join(options(shown))}\n"
        f"    ebmlife attack RUN {' '.join(options(attack))}\n\n"
        f"```\n{printed}\n```",
    )


if __name__ == "__main__":
    main()
