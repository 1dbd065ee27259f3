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
    f"TFLOPS that a device sustains; or {', '.join(STATED)}: {SHARE:.0%} of what is stated; or, measured here, own "
    "(the recipe's walk) or matrix (a product on the processor)"
)


def register(command: Command) -> None:
    about = "count what a recipe costs: operations, memory, traffic, hours"
    guess = command("estimate", _estimate, about, fields=True)
    guess.add_argument("name")
    guess.add_argument("--devices", default="1,8,64", help="how many, with commas between (default: %(default)s)")
    guess.add_argument("--rate", default="a100", help=_RATE.replace("%", "%%"))
    guess.add_argument("--link", type=float, default=25, help="GB/s between devices (default: %(default)s)")
    guess.add_argument("--measure", action="store_true", help="run a few updates here, and say how far off it is")


def _estimate(options: argparse.Namespace, changes: dict[str, str]) -> int:
    recipe = as_ebm(build.resolve(override(build.resolve(recipes.get(options.name)), changes)))
    if not 0 < options.link < float("inf"):
        raise BadInput(f"--link takes GB/s above 0, not {options.link}")
    if options.measure and options.rate not in MEASURED:
        raise BadInput(f"--measure compares with what was measured here: add --rate {' or --rate '.join(MEASURED)}")
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


def _measure(recipe: EBMRecipe, rate: str, console: Console, trust: Trust, *, updates: int = 3) -> None:
    """Real updates and the rate, in turns and in seconds of the processor: neither a machine that slows down nor
    other programs on it count. (On a GPU the processor's seconds mean nothing: there, by the clock.)"""
    clock = time.perf_counter if build.find_device(recipe.device).type == "cuda" else time.process_time
    guess, measured = estimate(recipe, trust=trust), meter(rate, recipe, clock=clock)
    trainer = build.training(build.self_contained(recipe), trust=trust).trainer
    trainer.step()  # compiles, allocates
    ratios = []
    for _ in range(updates):
        before = measured()
        seconds = spent(trainer.step, clock)
        ratios.append(seconds / guess.seconds((before + measured()) / 2))
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    found = f"{statistics.median(ratios):.2f}, median of {updates} updates with {torch.get_num_threads()} threads"
    console.print(f"measured / estimated: {found} ({spread})", highlight=False)
