"""Each extension that CONTRIBUTING describes, done: one short file and one line in a table.

Each is trained for two updates through the command line, resumed, and estimated.
"""

import re
from pathlib import Path
from typing import Annotated, Any

import pytest
import torch
from conftest import small_digits
from rich.console import Console
from torch import Tensor, nn

from ebmlife.bench.estimate import estimate
from ebmlife.cli import main
from ebmlife.data import Description, InMemory, described, digits
from ebmlife.errors import BadInput
from ebmlife.recipes import schema
from ebmlife.recipes.schema import EBMRecipe, override, part
from ebmlife.recipes.sections import LATER, Generator, Optimizer, Optional
from ebmlife.runs import build, run
from ebmlife.runs.build import tables
from ebmlife.storage import checkpoint
from ebmlife.training import Fresh, UpdateCost

ROOT = Path(__file__).parent.parent
PAGE, TUTORIAL = ROOT / "CONTRIBUTING.md", ROOT / "docs" / "tutorials" / "own-chain.md"
QUIET = Console(quiet=True)
TINY = {
    **{"--batch": "8", "--net.width": "4", "--langevin.steps": "3", "--updates": "2", "--sampling_steps": "2"},
    **{"--generator.net.width": "4", "--generator.net.latent": "3", "--watch.pictures": "4"},
}


def example(title: str, name: str) -> Any:
    """The class of that name in the example under that title."""
    match = re.search(rf"<!-- {title} -->\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert match is not None
    return _defined(match[1], name)


def _defined(code: str, name: str) -> Any:
    assert code.count("\n") < 60
    names: dict[str, Any] = {}
    exec(compile(code, name, "exec"), names)
    return names[name]


def works(folder: Path, capsys: pytest.CaptureFixture[str], **fields: str) -> str:
    """Trains two updates, resumes for two more with the same bits as four at once, and returns the estimate."""
    drop = ("--net.width",) if "net__kind" in fields else ()
    given = {name: value for name, value in TINY.items() if name not in drop}
    given |= {f"--{name.replace('__', '.')}": value for name, value in fields.items()}
    words = [word for pair in given.items() for word in pair]
    assert main(["train", "digits-shortrun", "--out", str(folder / "parts"), *words]) == 0
    assert main(["resume", str(folder / "parts"), "--updates", "4"]) == 0
    assert main(["train", "digits-shortrun", "--out", str(folder / "whole"), *words, "--updates", "4"]) == 0
    one, two = (checkpoint.load(checkpoint.path(folder / name, 4))[0]["trainer"] for name in ("parts", "whole"))
    for name, weight in one["ebm"]["net"].items():
        assert torch.equal(weight, two["ebm"]["net"][name])
    assert build.load(folder / "parts").sample(2).shape == (2, 1, 8, 8)
    capsys.readouterr()
    assert main(["estimate", "digits-shortrun", "--devices", "1", *words]) == 0
    return capsys.readouterr().out


def test_a_chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(build.CHAINS.constructors, "seasonal", example("new chain", "Seasonal"))
    works(tmp_path, capsys, chains__kind="seasonal", chains__size="20", chains__period="2")
    recipe = small_digits(chains__kind="seasonal", chains__size="20", chains__period="4")
    assert recipe.chains.options == {"size": 20, "period": 4}
    assert build.bank_sizes(recipe.chains) == {"size": 20}
    fresh, seasonal = estimate(small_digits(chains__kind="fresh")), estimate(recipe)
    assert seasonal.initialization == pytest.approx(fresh.initialization * (20 / 4) / recipe.batch, rel=1e-6)
    assert seasonal.bank == 20 * 64 * 4
    with pytest.raises(BadInput, match=r"chains.size must be at least the batch of 8, got 4"):
        build.training(small_digits(chains__kind="seasonal", chains__size="4"))


def test_the_chain_of_the_tutorial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = re.search(r"```python\n(.*?)```", TUTORIAL.read_text(), re.DOTALL)
    assert code is not None
    monkeypatch.setitem(build.CHAINS.constructors, "halved", _defined(code[1], "Halved"))
    works(tmp_path, capsys, chains__kind="halved", chains__size="20")


def test_chains_that_declare_nothing_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Undeclared:
        def __init__(self, start: Any, walk: Any, streams: Any, *, states: int = 100) -> None: ...

    class Misspelt(Fresh):
        bank_sizes = ("states",)

    class Silent(Undeclared):
        bank_sizes = ("states",)

    for kind, chains, message in (
        ("undeclared", Undeclared, "bank_sizes and cost; CONTRIBUTING"),
        ("silent", Silent, "must declare cost"),
        ("misspelt", Misspelt, "'states'"),
    ):
        monkeypatch.setitem(build.CHAINS.constructors, kind, chains)
        with pytest.raises(BadInput, match=message):
            small_digits(chains__kind=kind)


def test_banks_of_any_name_are_shared_by_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the declaration, whatever the option is called."""

    class Named(Fresh):
        bank_sizes = ("states",)

        def __init__(self, start: Any, walk: Any, streams: Any, *, states: int = 100) -> None:
            super().__init__(start, walk, streams)
            self.states = states

    class Two:
        count, rank, first = 2, 0, True

        def share(self, size: int) -> int:
            return size // 2

        def __getattr__(self, name: str) -> Any:
            from ebmlife.distributed import SINGLE_PROCESS

            return getattr(SINGLE_PROCESS, name)

    monkeypatch.setitem(build.CHAINS.constructors, "named", Named)
    training = build.training(small_digits(chains__kind="named", chains__states="50"), ranks=Two())  # type: ignore[arg-type]
    assert isinstance(training.trainer.chains, Named)
    assert training.trainer.chains.states == 25
    with pytest.raises(BadInput, match=r"chains.states must be at least the batch"):
        build.training(small_digits(chains__kind="named", chains__states="4"))


def test_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(build.STARTS.constructors, "noisy-data", example("new start", "NoisyData"))
    works(tmp_path, capsys, start__kind="noisy-data", start__noise="0.25", chains__kind="fresh")


def test_a_start_from_a_generator_is_one_by_its_parameter(monkeypatch: pytest.MonkeyPatch) -> None:
    from ebmlife.training import FromGenerator

    class Blurred(FromGenerator):
        def __init__(self, generator: nn.Module, *, blur: int = 3) -> None:
            super().__init__(generator)

    monkeypatch.setitem(build.STARTS.constructors, "blurred", Blurred)
    recipe = small_digits(start__kind="blurred")
    assert estimate(recipe).initialization == estimate(small_digits()).initialization > 0
    with pytest.raises(BadInput, match=r"'blurred' needs the section 'generator'"):
        build.resolve(override(recipe, {"generator": "none"}))


class Linear(nn.Module):
    """U(x) = strength * w . x."""

    def __init__(self, shape: tuple[int, ...], *, strength: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(shape).flatten())
        self.strength = strength

    def forward(self, x: Tensor) -> Tensor:
        return self.strength * (x.flatten(1) @ self.weight)


def test_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(build.NETS.constructors, "linear", Linear)
    works(tmp_path, capsys, net__kind="linear", net__strength="0.5")


class Extended(Optimizer):
    amsgrad: bool = False


class ExtendedGenerator(Generator):
    optimizer: Annotated[Extended | None, Optional] = Extended()


class ExtendedRecipe(EBMRecipe):
    optimizer: Extended = Extended()
    generator: Annotated[ExtendedGenerator | None, Optional] = None


def test_an_optimizer_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = small_digits().hash
    monkeypatch.setitem(schema.METHODS, "ebm", ExtendedRecipe)  # the field, in its file
    for place in ("optimizer", "generator.optimizer"):
        monkeypatch.setitem(LATER, f"{place}.amsgrad", False)
    adam = tables.OPTIMIZERS["adam"]

    def with_amsgrad(parameters: Any, options: Any) -> torch.optim.Optimizer:
        made = adam(parameters, options)
        for group in (made.defaults, *made.param_groups):
            group["amsgrad"] = options.amsgrad
        return made

    monkeypatch.setitem(tables.OPTIMIZERS, "adam", with_amsgrad)  # the table
    assert small_digits().hash == before
    assert small_digits(optimizer__amsgrad="true").hash != before
    works(tmp_path, capsys, optimizer__amsgrad="true")
    state = checkpoint.load(checkpoint.path(tmp_path / "whole", 4))[0]["trainer"]
    assert "max_exp_avg_sq" in next(iter(state["ebm"]["optimizer"].values()))
    assert "max_exp_avg_sq" not in next(iter(state["generator"]["optimizer"].values()))


@described(Description(title="stripes", shape=(1, 8, 8), classes=2, class_names=("across", "down")))
def stripes(*, n: int = 64) -> InMemory:
    line = (torch.arange(8) % 2 * 255).to(torch.uint8)
    both = torch.stack([line.expand(8, 8), line.expand(8, 8).T])[:, None]
    return InMemory(both.repeat(n // 2, 1, 1, 1), torch.arange(2).repeat(n // 2))


def test_a_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from ebmlife.report import summary

    monkeypatch.setitem(build.DATA.constructors, "stripes", stripes)
    works(tmp_path, capsys, data__kind="stripes", data__n="32")
    recipe = small_digits(data__kind="stripes")
    assert build.describe(recipe.data).classes == 2
    assert build.describe(recipe.data).features_for((1, 8, 8)) == "fid"
    assert summary.class_names(recipe) == ("across", "down")
    assert "stripes" in summary.headline(recipe, (1, 8, 8))


def test_what_data_sets_declare_is_true(official_cifar10: Path) -> None:
    for chosen in (part("digits"), part("cifar10", folder=str(official_cifar10)), part("toy", name="rings")):
        known, data = build.describe(chosen), build.DATA.make(chosen)
        assert known.shape == data.shape
        assert known.classes == (None if data.labels is None else int(data.labels.max()) + 1)
        assert not known.class_names or len(known.class_names) == known.classes
    assert build.describe(part("digits")).features == "digits"
    assert build.describe(part("folder", folder="x", size=8)) == Description()
    assert digits().shape == (1, 8, 8)


@pytest.mark.parametrize("kind", ["fresh", "persistent", "maturing"])
def test_declared_costs_and_banks_are_those_of_the_chains(kind: str) -> None:
    made, walked = 0, 0.0
    changes = {"persistent": {"chains__size": "40", "chains__rejuvenate": "0.3", "chains__rounds": "2"}}
    changes["maturing"] = {"chains__size": "40", "chains__burn_in_size": "30", "chains__mature": "4"}
    recipe = small_digits(chains__kind=kind, langevin__steps="1", **changes.get(kind, {}))
    chains = build.training(recipe).trainer.chains
    start, states = chains.start, sum(len(bank.x) for bank in vars(chains).values() if hasattr(bank, "age"))
    assert states == sum(build.bank_sizes(recipe.chains).values())

    def counted(n: int, **options: Any) -> Any:
        nonlocal made
        made += n
        return start(n, **options)

    def energy(x: Tensor) -> Tensor:
        nonlocal walked
        walked += len(x)
        return x.flatten(1).sum(1)

    chains.start = counted
    for _ in range(100):
        chains.step(energy, 20)
    made, walked = 0, 0.0
    for _ in range(300):
        chains.step(energy, 20)
    options = build.CHAINS.options(recipe.chains)
    cost = build.declared(recipe.chains).cost(options, batch=20, steps=1)
    assert isinstance(cost, UpdateCost)
    assert walked / 300 == cost.langevin_steps
    assert made / 300 == pytest.approx(cost.initialized, rel=0.1)


def test_runs_end_where_they_should(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of a chain that is no longer in the table says so."""
    monkeypatch.setitem(build.CHAINS.constructors, "seasonal", example("new chain", "Seasonal"))
    recipe = small_digits(chains__kind="seasonal", chains__size="20", updates="2")
    assert run.begin(recipe, tmp_path / "run", console=QUIET).finished
    monkeypatch.delitem(build.CHAINS.constructors, "seasonal")
    with pytest.raises(BadInput, match=r"unknown chains.kind 'seasonal'"):
        build.load(tmp_path / "run")
