"""Writes the table of docs/scale.md: the cost of each of the paper's experiments, by `ebmlife estimate`.

python results/scale.py [RATE]     # TFLOPS or a name, as for --rate; default: a100
"""

import sys
from pathlib import Path

from tables import replace

from ebmlife import recipes
from ebmlife.bench.estimate import Estimate, estimate
from ebmlife.bench.rates import find_rate
from ebmlife.runs import build

PAGE = Path(__file__).parent.parent / "docs" / "scale.md"
DEVICES = (1, 8, 64)
LINK = 25e9  # bytes per second
EXPERIMENTS = (
    "cifar10-shortrun",
    "celeba-shortrun",
    "imagenet128-shortrun",
    "cifar10-midrun",
    "imagenet224-midrun",
    "cifar10-prior",
    "celeba-prior",
    "imagenet64-prior",
    "cifar10-longrun",
    "celeba-longrun",
    "imagenet64-longrun",
)


def row(estimates: list[Estimate], rate: float) -> str:
    one = estimates[0]
    memory = " / ".join(f"{e.memory / 1e9:.1f}" for e in estimates)
    hours = " / ".join(f"{e.hours(rate, LINK):.3g}" for e in estimates)
    share = " / ".join(f"{e.traffic / LINK / e.seconds(rate, LINK):.0%}" for e in estimates[1:])
    weights, bank, sent = (part / 1e9 for part in (one.weights, one.bank, estimates[1].traffic))
    cells = (one.recipe.name, f"{one.update / 1e12:.3g}", f"{weights:.2f}", f"{bank:.2f}", memory, f"{sent:.2f}")
    return f"| {' | '.join((*cells, share, hours))} |"


def main() -> None:
    titles = ("experiment", "T operations", "weights", "bank", "GB per device", "sent", "time sending", "hours")
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for name in EXPERIMENTS:
        recipe = build.resolve(recipes.get(name))
        rate, _ = find_rate(sys.argv[1] if len(sys.argv) > 1 else "a100", recipe)
        lines.append(row([estimate(recipe, devices=n) for n in DEVICES], rate))
    replace(PAGE, "experiments", "\n".join(lines))


if __name__ == "__main__":
    main()
