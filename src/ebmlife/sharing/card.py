"""The model card of a run: the model, its training, its results, and how to use it."""

from pathlib import Path
from typing import Any

from ebmlife.recipes.schema import as_ebm
from ebmlife.runs import scores
from ebmlife.runs.logging import read_log
from ebmlife.runs.model import Model

_SHOWN = (  # fields of the recipe and their descriptions
    ("updates", "updates of the recipe"),
    ("batch", "batch size"),
    ("data_noise", "data noise"),
    ("temperature", "temperature"),
    ("tau", "tau of the Gaussian term"),
)
_USE = """```python
import ebmlife

model = ebmlife.load("{name}")
images = model.sample(16)  # (16, {shape}) in [-1, 1], {steps} Langevin steps
energies = model.energy(images)
```

    ebmlife sample {name} --n 64 --out samples.png"""


def model_card(model: Model, run: Path, name: str, *, update: int, license: str | None) -> str:
    """Returns the text of README.md for the hub, with numbers from the recipe, the log and the results of the run."""
    recipe = model.recipe
    parts = [
        _header(license),
        f"# {name.removeprefix('hf:')}",
        f"An energy-based model of images, trained with ebmlife: {recipe.summary}",
        f"Recipe `{recipe.name}` (hash `{recipe.hash}`), {update:,} updates. `recipe.json` has every field.",
        _numbers(model),
        "## Use",
        _USE.format(name=name, shape=", ".join(map(str, model.shape)), steps=recipe.sampling_steps),
        "## Results",
        _results(run),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _header(license: str | None) -> str:
    lines = ["library_name: ebmlife", "tags: [energy-based-model, langevin, image-generation]"]
    return "\n".join(["---", *lines, *([f"license: {license}"] if license else []), "---"])


def _numbers(model: Model) -> str:
    recipe = as_ebm(model.recipe)
    rows = [(meaning, getattr(recipe, field)) for field, meaning in _SHOWN if getattr(recipe, field) is not None]
    rows += [
        ("network", _part(recipe.net.model_dump())),
        ("Langevin steps per update", "/".join(f"{value:g}" for value in recipe.langevin.steps.values)),
        ("Langevin step size", recipe.langevin.step_size),
        ("chains", _part(recipe.chains.model_dump())),
        ("start", _part(recipe.start.model_dump())),
        ("data", recipe.data.kind),
        ("parameters of the energy", f"{sum(p.numel() for p in model.net.parameters()):,}"),
    ]
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])


def _part(values: dict[str, Any]) -> str:
    options = ", ".join(f"{name} {value}" for name, value in values.items() if name != "kind" and value is not None)
    return f"{values['kind']} ({options})" if options else str(values["kind"])


def _results(run: Path) -> str:
    """Lists the measured results by command, and the last line of the log."""
    lines, data = [], scores.evaluated_on(run)
    for command, found in scores.read(run).items():
        metrics = ", ".join(f"{name} {value:.4g}" for name, value in found.items())
        on = data.get(command)
        against = "" if on is None else f", against {on['images']:,} images of {on['kind']}, split {on['split']}"
        lines.append(f"- `{command}`: {metrics}{against}")
    log = read_log(run / "log.jsonl")
    if log:
        last = log[-1]
        lines.append(f"- last update {last['update']}: energy difference {last['energy_difference']:+.3g}")
    return "\n".join(lines) if lines else "None recorded."
