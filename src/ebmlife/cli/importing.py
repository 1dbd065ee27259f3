"""`ebmlife import`."""

import argparse
from pathlib import Path

from torch import nn

from ebmlife import recipes
from ebmlife.cli.parsing import Command
from ebmlife.defense.classifiers import write_authors_wrn
from ebmlife.errors import BadInput, shown
from ebmlife.nets import AuthorsWideResNet
from ebmlife.recipes.options import Registry
from ebmlife.recipes.schema import EBMRecipe, Part, as_ebm, override, part
from ebmlife.recipes.sections import Prior
from ebmlife.runs import build
from ebmlife.runs.export import write_weights
from ebmlife.runs.prior import FixedPrior
from ebmlife.sharing.importers import load
from ebmlife.sharing.importers.formats import Imported

_RECIPES = {  # recipes with networks of these sizes
    "ebm-sngan32": "cifar10-shortrun",
    "ebm-sngan64": "celeba-shortrun",
    "ebm-sngan128": "imagenet128-shortrun",
    "ebm-biggan224": "imagenet224-midrun",
    "gen-sngan32": "cifar10-shortrun",
    "gen-sngan64": "celeba-shortrun",
    "gen-sngan128": "imagenet128-shortrun",
    "gen-biggan128": "imagenet128-shortrun",
    "gen-biggan256": "imagenet224-midrun",
}


def register(command: Command) -> None:
    about = "import weights that were trained elsewhere: an energy, a generator or both, or a classifier"
    parser = command("import", _import, about, fields=True)
    parser.add_argument(
        "files",
        nargs="+",
        help="TensorFlow checkpoints, .safetensors or .pth files.",
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="Folder of the new run, or a .safetensors file for a classifier."
    )
    parser.add_argument("--recipe", help="Recipe with the temperature, step size and data of these weights.")
    parser.add_argument("--prior", help="File with the fixed prior energy of a longrun model.")
    parser.add_argument("--net", help="Kind of network, such as ebm-sngan32 (default: detected from its tensors).")


def _import(options: argparse.Namespace, changes: dict[str, str]) -> int:
    found = [load(file, net=options.net) for file in options.files]
    if isinstance(found[0].net, AuthorsWideResNet):
        return _classifier(found[0].net, found, options.out)
    energy, generator = _one(found, "ebm-"), _one(found, "gen-")
    chosen = energy or generator
    assert chosen is not None  # there is at least one file, and each is one of the two
    name = options.recipe or _RECIPES.get(chosen.kind)
    if name is None:
        raise BadInput(f"no recipe of the paper has a network {chosen.kind}; name a recipe for it with --recipe")
    recipe, prior = _with_prior(_fitted(as_ebm(recipes.get(name)), energy, generator), options.prior)
    recipe = as_ebm(build.resolve(override(build.resolve(recipe), changes)))
    shape = _shape(recipe, energy, generator)
    net, generator_net = build.networks(recipe, shape, build.find_device("cpu"), trust=options.trust)
    for target, source in ((net, energy), (generator_net, generator)):
        if isinstance(target, nn.Module) and source is not None:
            build.fit_weights(target, source.net.state_dict(), source.kind)
    origin = ", ".join(map(str, (*options.files, *([options.prior] if prior else []))))
    write_weights(options.out, recipe, net, generator_net, prior, shape=shape, origin=origin)
    print(f"{', '.join(one.kind for one in found)} -> {shown(options.out)}, with the settings of {name}")
    return 0


def _classifier(net: AuthorsWideResNet, found: list[Imported], out: Path) -> int:
    if len(found) > 1:
        raise BadInput("a classifier cannot be imported with other networks; run the command with its file only")
    if out.suffix != ".safetensors":
        raise BadInput(f"a classifier is written to a file; use --out {out.name}.safetensors")
    write_authors_wrn(out, net, found[0].options)
    print(f"wrn -> {shown(out)}; use it as --classifier wrn:{shown(out)}")
    return 0


def _one(found: list[Imported], sort: str) -> Imported | None:
    of_sort = [one for one in found if one.kind.startswith(sort)]
    if len(of_sort) > 1:
        raise BadInput(f"a run has one energy and one generator at most, not {' and '.join(o.kind for o in of_sort)}")
    return of_sort[0] if of_sort else None


def _fitted(recipe: EBMRecipe, energy: Imported | None, generator: Imported | None) -> EBMRecipe:
    """Returns the recipe with these networks.

    Without a generator, chains start from data. Without an energy, they do not move.
    """
    changes: dict[str, object] = {"net": part("flat"), "sampling_steps": 0}
    if energy is not None:
        changes = {"net": _part(energy, build.NETS)}
    if generator is not None:
        frozen = {"net": _part(generator, build.GENERATORS), "optimizer": None}
        changes |= {"generator": frozen, "start": part("generator")}
    else:
        changes |= {"generator": None, "start": part("data")}
    return EBMRecipe.model_validate({**recipe.model_dump(mode="json"), **changes})


def _with_prior(recipe: EBMRecipe, file: str | None) -> tuple[EBMRecipe, FixedPrior | None]:
    if recipe.net.kind == "flat":
        return recipe.model_copy(update={"prior": None}), None
    if (file is None) != (recipe.prior is None):
        advice = "run it without --prior" if recipe.prior is None else "give its file with --prior"
        raise BadInput(f"{recipe.name} has {'no' if recipe.prior is None else 'a'} prior energy; {advice}")
    if file is None:
        return recipe, None
    found = load(file)
    if not found.kind.startswith("ebm-"):
        raise BadInput(f"--prior {file} is {found.kind}; expected the file of an energy")
    prior = FixedPrior(found.net, build.NETS.resolve(_part(found, build.NETS)), recipe.temperature)
    return recipe.model_copy(update={"prior": Prior(run=file, temperature=recipe.temperature)}), prior


def _part(imported: Imported, table: Registry) -> Part:
    kind = next(name for name, constructor in table.constructors.items() if constructor is imported.network)
    return part(kind, **{name: value for name, value in imported.options.items() if name not in table.provided})


def _shape(recipe: EBMRecipe, energy: Imported | None, generator: Imported | None) -> tuple[int, ...]:
    """Returns the shape of the energy's images, or that of the recipe's data if there is no energy."""
    expected = recipe.data.options.get("size")
    one = energy or generator
    assert one is not None
    size, channels = one.options["size"], one.options.get("channels", 3)
    if energy is not None and expected not in (None, size):
        raise BadInput(
            f"{energy.kind} is for images of {size}x{size}, and the data of {recipe.name} have {expected}x{expected}; "
            f"add --data.size {size}"
        )
    side = size if expected is None else expected
    return (channels, side, side)
