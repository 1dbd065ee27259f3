"""ImageNet at 224x224, the whole path of the paper's defence at reduced steps: `make results-defense-imagenet`.

The paper's energy (BigGAN's discriminator, width 48), its recipe and its preset, in front of EfficientNet-lite0, on a
folder of images whose names begin with their class (000_tench.jpg): EBMLIFE_IMAGENET. That all of it runs is what it
shows; a dozen updates give no robustness. Stopped and called again, it goes on.
"""

import os
from pathlib import Path

from tables import RESULTS, replace

from ebmlife import build, checkpoint
from ebmlife.cli import main as ebmlife

IMAGES = Path(os.environ.get("EBMLIFE_IMAGENET", "~/.cache/ebmlife/imagenet")).expanduser()
RUNS = Path(__file__).parent.parent / "runs" / "results" / "imagenet"
TRAINING = {  # the recipe's, but with chains from data instead of BigGAN's, few and short, and few updates
    "start.kind": "data",
    "generator": "none",
    "batch": "4",
    "chains.size": "16",
    "langevin.steps": "5",
    "updates": "12",
    "checkpoint.every": "2",
    "watch.pictures_every": "6",
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
}


def by_class(images: Path, place: Path) -> Path:
    """The images in a folder for each of the 1,000 classes, empty or not, so that labels are ImageNet's."""
    for label in range(1000):
        (place / f"{label:03}").mkdir(parents=True, exist_ok=True)
    for image in sorted(images.resolve().glob("[0-9][0-9][0-9]_*.jpg")):
        link = place / image.name[:3] / image.name
        if not link.is_symlink():
            link.symlink_to(image)
    return place


def options(values: dict[str, str]) -> list[str]:
    return [part for name, value in values.items() for part in (f"--{name}", value)]


def run(*command: str) -> None:
    if code := ebmlife(list(command)):
        raise SystemExit(code)


def main() -> None:
    if not IMAGES.is_dir():
        raise SystemExit(f"{IMAGES}: no such folder; EBMLIFE_IMAGENET names one of images like 000_tench.jpg")
    data, made = by_class(IMAGES, RUNS / "data"), RUNS / "energy"
    training = {"data.folder": str(data), **TRAINING}
    begin = ("train", "imagenet224-midrun", "--out", str(made), *options(training))
    run(*(("resume", str(made)) if made.exists() else begin))
    if checkpoint.choose(made, None) != int(TRAINING["updates"]):
        raise SystemExit("stopped and saved; the same command goes on")
    attack = {"classifier": "efficientnet-lite0", "preset": "paper-imagenet", **ATTACK}
    run("attack", str(made), "--out", str(RUNS / "attack"), *options(attack))
    recipe, said = build.load(made).recipe, (RUNS / "attack" / "table.txt").read_text().rstrip()
    replace(
        RESULTS / "defense.md",
        "imagenet",
        f"Commands, by `make results-defense-imagenet`; seed 0, recipe `{recipe.hash}`:\n\n"
        f"    ebmlife train imagenet224-midrun {' '.join(options({'data.folder': 'DATA', **TRAINING}))}\n"
        f"    ebmlife attack RUN {' '.join(options(attack))}\n\n"
        f"```\n{said}\n```",
    )


if __name__ == "__main__":
    main()
