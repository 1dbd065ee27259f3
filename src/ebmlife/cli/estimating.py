"""`ebmlife estimate`."""

import argparse
import statistics
import time

import torch
from rich.console import Console
from rich.table import Table

from ebmlife import build, recipes
from ebmlife.bench.measuring import matrix_rate
from ebmlife.cli.parsing import Command, counts
from ebmlife.errors import BadInput, nearest
from ebmlife.estimate import Estimate, estimate
from ebmlife.recipe import Recipe, override

# Dense TFLOPS that the makers state: of the arithmetic that float32 training uses by default (TF32 where there is).
RATES = {"v100": 15.7, "a100": 156.0, "h100": 495.0, "rtx4090": 82.6, "tpu-v3": 61.5}
_SHARE = 0.4  # of a stated rate that convolutions reach; unmeasured here
_FID_SAMPLES = 50_000


def register(command: Command) -> None:
    about = "count what a recipe costs: operations, memory, traffic, hours"
    guess = command("estimate", _estimate, about, fields=True)
    guess.add_argument("name")
    guess.add_argument("--devices", default="1,8,64", help="how many, with commas between (default: %(default)s)")
    guess.add_argument(
        "--rate",
        default="a100",
        help=f"TFLOPS that a device sustains; or {', '.join(RATES)}, of which {_SHARE:.0%} is taken; or cpu, measured",
    )
    guess.add_argument("--link", type=float, default=25, help="GB/s between devices (default: %(default)s)")
    guess.add_argument("--measure", action="store_true", help="run a few updates here, and say how far off it is")


def _estimate(options: argparse.Namespace, changes: dict[str, str]) -> int:
    recipe = build.resolve(override(build.resolve(recipes.get(options.name)), changes))
    rate, stated = _rate("cpu" if options.measure else options.rate)
    devices = [1] if options.measure else counts(options.devices, "--devices")
    estimates = [estimate(recipe, devices=n) for n in devices]
    console = Console()
    if not 0 < options.link < float("inf"):
        raise BadInput(f"--link takes GB/s above 0, not {options.link}")
    console.print(_table(recipe, estimates, rate, stated, options.link * 1e9))
    if options.measure:
        _measure(recipe, estimates[0], console)
    return 0


def _rate(text: str) -> tuple[float, str]:
    """Operations a second, and where the number comes from."""
    if text == "cpu":
        rate = matrix_rate()
        return rate, f"this machine's f32 matrix product, {rate / 1e9:.0f} GFLOP/s"
    if text.lower() in RATES:
        peak = RATES[text.lower()]
        return _SHARE * peak * 1e12, f"{_SHARE:.0%} of the {peak:g} TFLOPS stated for {text.lower()}"
    try:
        rate = float(text)
    except ValueError:
        rate = 0
    if not 0 < rate < float("inf"):
        raise BadInput(f"--rate takes TFLOPS above 0, cpu or a name, not {text!r}{nearest(text, (*RATES, 'cpu'))}")
    return rate * 1e12, f"{rate:g} TFLOPS sustained"


def _table(recipe: Recipe, estimates: list[Estimate], rate: float, stated: str, link: float) -> Table:
    table = Table("", *(f"{e.devices} device{'s' if e.devices > 1 else ''}" for e in estimates))
    table.title = f"{recipe.name}: {recipe.updates:,} updates of {recipe.batch} images, each device at {stated}"
    first = estimates[0]
    for name, part in (("walk", first.walk), ("learning", first.learning), ("births", first.births)):
        table.add_row(f"operations an update, {name}", *[f"{part / 1e12:,.3g} T"] * len(estimates))
    for name in ("weights", "bank", "activations", "memory"):
        title = "memory of a device" if name == "memory" else f"  {name}"
        table.add_row(title, *(_gigabytes(getattr(e, name)) for e in estimates))
    table.add_row("traffic of a device an update", *(_gigabytes(e.traffic) for e in estimates))
    table.add_row("an update, operations", *(f"{e.seconds(rate):,.3g} s" for e in estimates))
    table.add_row(f"an update, traffic at {link / 1e9:g} GB/s", *(f"{e.traffic / link:,.3g} s" for e in estimates))
    table.add_row("the training", *(f"{e.hours(rate, link):,.3g} h" for e in estimates))
    sampled = f"{_FID_SAMPLES:,} samples of {recipe.sampling_steps} steps"
    table.add_row(sampled, *(f"{_FID_SAMPLES * e.sample / e.devices / rate / 3600:,.3g} h" for e in estimates))
    return table


def _gigabytes(count: float) -> str:
    return f"{count / 1e9:,.3g} GB"


def _measure(recipe: Recipe, guess: Estimate, console: Console, *, updates: int = 3) -> None:
    """Real updates beside the machine's matrix product, in turns: a machine that slows down slows both."""
    trainer = build.training(build.self_contained(recipe)).trainer
    trainer.step()  # compiles, allocates
    ratios = []
    for _ in range(updates):
        rate = matrix_rate()
        begin = time.perf_counter()
        trainer.step()
        ratios.append((time.perf_counter() - begin) / guess.seconds(rate))
    threads, spread = torch.get_num_threads(), f"{min(ratios):.2f} to {max(ratios):.2f}"
    found = f"{statistics.median(ratios):.2f}, median of {updates} updates with {threads} threads ({spread})"
    console.print(f"measured / estimated: {found}", highlight=False)
