"""`ebmlife estimate`."""

import argparse
import statistics
import time

import torch
from rich.console import Console
from rich.table import Table

from ebmlife import recipes
from ebmlife.bench.estimate import Estimate, estimate
from ebmlife.bench.rates import MEASURED, SHARE, STATED, find_rate, meter, spent
from ebmlife.cli.parsing import Command, counts
from ebmlife.errors import BadInput
from ebmlife.recipes.schema import EBMRecipe, as_ebm, override
from ebmlife.runs import build
from ebmlife.runs.user_code import Trust

_FID_SAMPLES = 50_000
_RATE = (
    f"TFLOPS that one device sustains; or {', '.join(STATED)} for {SHARE:.0%} of the vendor's number; or a rate that "
    "is measured on this machine: own (the recipe's walk) or matrix (a matrix product on the CPU)."
)


def register(command: Command) -> None:
    about = "estimate what a recipe costs: operations, memory, traffic, hours"
    parser = command("estimate", _estimate, about, fields=True)
    parser.add_argument("name", help="Name of the recipe.")
    parser.add_argument(
        "--devices", default="1,8,64", help="Numbers of devices, separated by commas (default: %(default)s)."
    )
    parser.add_argument("--rate", default="a100", help=_RATE.replace("%", "%%"))
    parser.add_argument(
        "--link", type=float, default=25, help="Bandwidth between devices in GB/s (default: %(default)s)."
    )
    parser.add_argument(
        "--measure", action="store_true", help="Run a few updates on this machine and compare them with the estimate."
    )


def _estimate(options: argparse.Namespace, changes: dict[str, str]) -> int:
    recipe = as_ebm(build.resolve(override(build.resolve(recipes.get(options.name)), changes)))
    if not 0 < options.link < float("inf"):
        raise BadInput(f"--link takes GB/s above 0, not {options.link}")
    if options.measure and options.rate not in MEASURED:
        raise BadInput(f"--measure needs a measured rate: add --rate {' or --rate '.join(MEASURED)}")
    estimates = [estimate(recipe, devices=n, trust=options.trust) for n in counts(options.devices, "--devices")]
    rate, stated = find_rate(options.rate, recipe)
    console = Console()
    console.print(_table(recipe, estimates, rate, stated, options.link * 1e9))
    if options.measure:
        _measure(recipe, options.rate, console, options.trust)
    return 0


def _table(recipe: EBMRecipe, estimates: list[Estimate], rate: float, stated: str, link: float) -> Table:
    table = Table("", *(f"{e.devices} device{'s' if e.devices > 1 else ''}" for e in estimates))
    table.title = f"{recipe.name}: {recipe.updates:,} updates of {recipe.batch} images, each device at {stated}"
    first = estimates[0]
    for name, part in (
        ("walk", first.walk),
        ("learning", first.learning),
        ("initialization", first.initialization),
    ):
        table.add_row(f"operations per update, {name}", *[f"{part / 1e12:,.3g} T"] * len(estimates))
    for name in ("weights", "bank", "activations", "memory"):
        title = "memory per device" if name == "memory" else f"  {name}"
        table.add_row(title, *(_gigabytes(getattr(e, name)) for e in estimates))
    table.add_row("traffic per device and update", *(_gigabytes(e.traffic) for e in estimates))
    table.add_row("time per update, operations", *(f"{e.seconds(rate):,.3g} s" for e in estimates))
    table.add_row(
        f"time per update, traffic at {link / 1e9:g} GB/s", *(f"{e.traffic / link:,.3g} s" for e in estimates)
    )
    table.add_row("time of the training", *(f"{e.hours(rate, link):,.3g} h" for e in estimates))
    sampled = f"{_FID_SAMPLES:,} samples of {recipe.sampling_steps} steps"
    table.add_row(sampled, *(f"{_FID_SAMPLES * e.sample / e.devices / rate / 3600:,.3g} h" for e in estimates))
    return table


def _gigabytes(count: float) -> str:
    return f"{count / 1e9:,.3g} GB"


def _measure(recipe: EBMRecipe, rate: str, console: Console, trust: Trust, *, updates: int = 3) -> None:
    """Times real updates and the rate in turns, in CPU seconds: a machine that slows down, or that runs other
    programs, does not distort the ratio. (On a GPU, CPU seconds mean nothing; wall-clock time is used.)"""
    clock = time.perf_counter if build.find_device(recipe.device).type == "cuda" else time.process_time
    expected, measure = estimate(recipe, trust=trust), meter(rate, recipe, clock=clock)
    trainer = build.training(build.self_contained(recipe), trust=trust).trainer
    trainer.step()  # compiles, allocates
    ratios = []
    for _ in range(updates):
        before = measure()
        seconds = spent(trainer.step, clock)
        ratios.append(seconds / expected.seconds((before + measure()) / 2))
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    found = f"{statistics.median(ratios):.2f}, median of {updates} updates with {torch.get_num_threads()} threads"
    console.print(f"measured / estimated: {found} ({spread})", highlight=False)
