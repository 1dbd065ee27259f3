"""Commands with one seed draw from different streams: nothing that is measured shares draws with what was learned."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path

import pytest
import torch
from conftest import small_digits
from test_cli import words, works

from ebmlife.data import digits
from ebmlife.exam import score_samples
from ebmlife.exam.digits import digits_classifier
from ebmlife.plots import pictures
from ebmlife.runs import build, watchers
from ebmlife.runs.model import Model
from ebmlife.sampling.rng import derive_seed
from ebmlife.training.chains import Persistent

# Constants, no draws of a command: weights before those of the checkpoint are put in, and how the digits are split.
CONSTANT = {derive_seed(0, "weights"), derive_seed(0, "digits split")}


class Seeded:
    """The seeds that generators and the global generator were given."""

    def __init__(self) -> None:
        self.seeds: set[int] = set()

    @contextmanager
    def watching(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        seeds, seed_all = self.seeds, torch.manual_seed

        class Watched(torch.Generator):
            def manual_seed(self, seed: int) -> torch.Generator:
                seeds.add(seed)
                return super().manual_seed(seed)

        def watched(seed: int) -> torch.Generator:
            seeds.add(seed)
            return seed_all(seed)

        with monkeypatch.context() as patch:
            patch.setattr(torch, "Generator", Watched)
            patch.setattr(torch, "manual_seed", watched)
            yield
        seeds -= CONSTANT


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("scopes") / "run"
    works("train", "digits-shortrun", "--out", place, *words(updates="3", data__train="true"))
    digits_classifier()  # trained once, with seeds of its own
    return place


def commands(folder: Path, tmp_path: Path) -> dict[str, Callable[[], object]]:
    pictures.image(digits().take(torch.arange(1))[0]).save(tmp_path / "a.png")
    training = build.training(small_digits(updates="3", flip="true"))
    attack = ["--threat", "linf:8/255", "--n", "4", "--steps", "2", "--replicas", "2", "--verify", "3", "--k", "2"]
    attack += ["--classifier", "ebmlife.exam.digits:digits_classifier", "--gradient", "bpda,fixed,smooth"]

    def train() -> None:
        torch.manual_seed(0)  # as a run does for networks that draw from the global generator
        build.training(small_digits(updates="3", flip="true")).trainer.fit(3)

    return {
        "training": train,
        "pictures": lambda: [source() for source in watchers.sources(training).values()],
        "sample": lambda: works("sample", folder, "--seed", "0", "--n", "300", "--out", tmp_path / "s.npy"),
        "fid": lambda: score(folder),
        "exam": lambda: works("exam", folder, "--steps", "20", "--chains", "8", "--out", tmp_path / "exam"),
        "attack": lambda: works("attack", folder, *attack, "--out", tmp_path / "attack"),
        "purify": lambda: works("purify", folder, tmp_path / "a.png", "--out", tmp_path / "p", "--steps", "2"),
    }


def score(folder: Path) -> None:
    model = build.load(folder)
    score_samples(model, build.DATA.make(model.recipe.data), n=300, steps=2, seed=0)


def test_no_two_commands_draw_from_one_stream(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, set[int]] = {}
    for name, command in commands(folder, tmp_path).items():
        seeded = Seeded()
        with seeded.watching(monkeypatch):
            command()
        found[name] = seeded.seeds
    assert all(found.values())
    assert {derive_seed(0, "births"), derive_seed(0, "bank"), derive_seed(0, "langevin")} <= found["training"]
    shared = {(a, b): found[a] & found[b] for a, b in combinations(found, 2)}
    assert {pair: seeds for pair, seeds in shared.items() if seeds} == {}


def test_latents_of_training_are_not_those_of_samples() -> None:
    """With both seeds 0, all latents that were rejuvenated first were among the first samples'."""
    training = build.training(small_digits(batch="16", chains__size="64", chains__rejuvenate="1"))
    chains = training.trainer.chains
    assert isinstance(chains, Persistent)
    assert chains.bank.z is not None
    at_first = {tuple(z) for z in chains.bank.z.tolist()}
    training.trainer.fit(3)
    drawn = {tuple(z) for z in chains.bank.z.tolist()} - at_first
    assert len(drawn) > 20
    sampled = latents(training.model, lambda: training.model.sample(256, steps=0, seed=0))
    assert len(sampled) == 256
    assert not sampled & (drawn | at_first)


def latents(model: Model, sample: Callable[[], object]) -> set[tuple[float, ...]]:
    """What the generator was given meanwhile."""
    seen: set[tuple[float, ...]] = set()
    assert model.generator is not None
    hook = model.generator.register_forward_pre_hook(lambda _, given: seen.update(map(tuple, given[0].tolist())))
    sample()
    hook.remove()
    return seen
