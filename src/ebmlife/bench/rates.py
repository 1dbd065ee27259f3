"""Operations per second: as vendors state them for their devices, and as measured on this machine."""

import time
from collections.abc import Callable

import torch

from ebmlife.bench.estimate import estimate, shape_of
from ebmlife.errors import BadInput, nearest
from ebmlife.recipes.schema import EBMRecipe, part
from ebmlife.runs import build
from ebmlife.sampling.loop import langevin

# Dense TFLOPS of the arithmetic that PyTorch's convolutions use by default for float32: TF32 where there is any.
STATED = {"v100": 15.7, "a100": 156.0, "h100": 495.0, "rtx4090": 82.6}
SHARE = 0.4  # of a stated rate that convolutions are assumed to reach; unmeasured
MEASURED = ("matrix", "own")
_SIDE, _PRODUCTS = 1536, 6
_IMAGES, _SECONDS = 16, 2.0  # of the walk that is timed
Clock = Callable[[], float]
Meter = Callable[[], float]  # measures the present rate


def find_rate(text: str, recipe: EBMRecipe) -> tuple[float, str]:
    """Operations per second of one device, and a phrase that says where the number comes from."""
    name = text.lower()
    if name in MEASURED:
        rate = meter(name, recipe)()
        return rate, f"{rate / 1e12:.3g} TFLOPS measured here ({name})"
    if name in STATED:
        return SHARE * STATED[name] * 1e12, f"{SHARE:.0%} of the {STATED[name]:g} TFLOPS stated for {name}"
    try:
        rate = float(text)
    except ValueError:
        rate = 0
    if not 0 < rate < float("inf"):
        known = (*STATED, *MEASURED)
        raise BadInput(f"--rate takes TFLOPS above 0 or one of {', '.join(known)}, not {text!r}{nearest(text, known)}")
    return rate * 1e12, f"{rate:g} TFLOPS sustained"


def meter(name: str, recipe: EBMRecipe, *, clock: Clock = time.perf_counter) -> Meter:
    """A meter of 'matrix', a large float32 product on the CPU, or of 'own', a walk on the recipe's own energy."""
    return _matrix(clock) if name == "matrix" else _own(recipe, clock)


def _matrix(clock: Clock) -> Meter:
    a, b = torch.randn(2, _SIDE, _SIDE)

    def rate() -> float:
        return _PRODUCTS * 2 * _SIDE**3 / spent(lambda: [a @ b for _ in range(_PRODUCTS)], clock)

    return rate


def _own(recipe: EBMRecipe, clock: Clock) -> Meter:
    shape, device = shape_of(recipe.data), build.find_device(recipe.device)
    net, _ = build.networks(recipe.model_copy(update={"generator": None}), shape, device)
    states = min(recipe.batch, _IMAGES) if len(shape) == 3 else recipe.batch  # a few points cost as much as many
    energy, x = build.energy_of(net, recipe), torch.rand(states, *shape, device=device)
    plain = {"generator": None, "prior": None, "chains": part("fresh"), "batch": 1}
    one = estimate(recipe.model_copy(update=plain)).walk / recipe.langevin.steps(0)

    def walk(steps: int) -> float:
        _, info = langevin(energy, x, steps=steps, step_size=recipe.langevin.step_size)
        return info.gradient.item()  # waits for the device

    walk(1)  # compiles
    steps = max(3, round(_SECONDS / spent(lambda: walk(1), time.perf_counter)))

    def rate() -> float:
        """The rate of all steps but the first: what a walk costs before that is small in training."""
        first, all_of_them = (spent(lambda n=n: walk(n), clock) for n in (1, 1 + steps))  # type: ignore[misc]
        return len(x) * steps * one / max(all_of_them - first, 1e-9)

    return rate


def spent(work: Callable[[], object], clock: Clock) -> float:
    begin = clock()
    work()
    return clock() - begin
