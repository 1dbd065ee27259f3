"""Training on two ranks beside training in one process."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import small_digits
from ranks import on_ranks
from rich.console import Console
from test_run import assert_same, extended, shortened
from torch import Tensor, nn
from torch.nn import functional as F

from ebmlife.data import Batches, digits
from ebmlife.distributed import SINGLE_PROCESS, Ranks
from ebmlife.errors import BadInput
from ebmlife.nets import SNGANEnergy, SNGANGenerator
from ebmlife.nets.batch_norm import SharedBatchNorm, share_batch_norm
from ebmlife.runs import build, logging, run, shards
from ebmlife.sampling.energy import Energy
from ebmlife.sampling.loop import langevin
from ebmlife.sampling.rng import generator
from ebmlife.storage import checkpoint
from ebmlife.training.chains import Negatives
from ebmlife.training.ebm import EBMMetrics, Trainer
from ebmlife.training.learner import Learner

QUIET = Console(quiet=True)
BATCH, LATENT = 8, 3


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class Rows:
    """Chains whose every draw is of one row of the batch: a rank draws what one process draws for the same rows."""

    bank = None

    def __init__(self, part: slice) -> None:
        self.part = part

    def step(self, energy: Energy, n: int, *, update: int = 0) -> Negatives:
        noise = iter(normal(3, BATCH, 1, 8, 8, seed=update)[:, self.part])
        start = 0.5 * normal(BATCH, 1, 8, 8, seed=1000 + update)[self.part]
        x, info = langevin(energy, start, steps=3, step_size=0.1, noise=lambda _: next(noise))
        return Negatives(x, normal(BATCH, LATENT, seed=2000 + update)[self.part], info)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def _train(ranks: Ranks) -> tuple[dict[str, Tensor], list[EBMMetrics]]:
    """Five updates of an energy and a generator with batch norm, every rank with its part of the batches."""
    torch.manual_seed(0)
    net, maker = SNGANEnergy(size=8, width=4, channels=1), SNGANGenerator(size=8, width=4, channels=1, latent=LATENT)
    if ranks.count > 1:
        share_batch_norm(maker, ranks)
    ebm, generator = (
        Learner(
            module, torch.optim.SGD(module.parameters()), learning_rate=0.02, clip=1.0, ema=0.5, average=ranks.average
        )
        for module in (net, maker.train())
    )
    part = ranks.part(BATCH)
    batches = Batches(digits(), size=BATCH, seed=0, flip=True, part=part)
    options = {"learned": net, "energy": net, "ebm": ebm, "generator": generator, "average": ranks.average}
    trainer, seen = Trainer(batches, Rows(part), **options), []
    trainer.fit(5, after=[seen.append])
    states = {"net": net, "ema": ebm.ema, "maker": maker, "maker ema": generator.ema}
    return {f"{of}.{name}": value for of, module in states.items() for name, value in module.state_dict().items()}, seen


def test_two_ranks_learn_what_one_process_learns_from_the_same_rows() -> None:
    (alone, seen), ((first, seen_first), (second, seen_second)) = _train(SINGLE_PROCESS), on_ranks(_train)
    assert [name for name in first if not torch.equal(first[name], second[name])] == []
    assert seen_first == seen_second
    assert alone.keys() == first.keys()
    torch.manual_seed(0)
    begun = {f"net.{name}": value for name, value in SNGANEnergy(size=8, width=4, channels=1).state_dict().items()}
    assert all((alone[name] - value).abs().max() > 1e-3 for name, value in begun.items() if "bias" not in name)
    for name, value in alone.items():
        if "num_batches" not in name:
            torch.testing.assert_close(first[name], value, rtol=1e-4, atol=1e-6)
    for ours, theirs in zip(seen, seen_first, strict=True):
        for name in ("energy_difference", "energy_data", "energy_samples", "gradient", "generator_loss"):
            assert getattr(theirs, name) == pytest.approx(getattr(ours, name), rel=1e-4, abs=1e-6)


def _normalise(ranks: Ranks) -> dict[str, Tensor]:
    """A layer's outputs, gradients and running statistics on a rank's half of a batch; first a batch without gradient
    on rank 0 alone, which must not wait for the other."""
    layer = nn.BatchNorm2d(3, eps=1e-3)
    layer.load_state_dict(layer.state_dict() | {"weight": normal(3, seed=1), "bias": normal(3, seed=2)})
    shared = SharedBatchNorm(layer, ranks)
    births = torch.zeros(3)
    if ranks.first:
        with torch.no_grad():
            shared(normal(4, 3, 2, 2, seed=5))
        births = shared.running_mean.clone()
    x = (2 + normal(6, 3, 2, 2, seed=3))[ranks.part(6)].requires_grad_()
    y = shared(x)
    (y * normal(6, 3, 2, 2, seed=4)[ranks.part(6)]).mean().backward()
    gradients = [shared.weight.grad, shared.bias.grad]
    ranks.average(gradients)
    found = {"y": y.detach(), "x": x.grad, "weight": gradients[0], "bias": gradients[1], "births": births}
    return found | {"mean": shared.running_mean, "variance": shared.running_var, "eval": shared.eval()(x).detach()}


def test_shared_batch_norm_is_that_of_the_whole_batch() -> None:
    layer = nn.BatchNorm2d(3, eps=1e-3)
    layer.load_state_dict(layer.state_dict() | {"weight": normal(3, seed=1), "bias": normal(3, seed=2)})
    x = (2 + normal(6, 3, 2, 2, seed=3)).requires_grad_()
    y = layer(x)
    (y * normal(6, 3, 2, 2, seed=4)).mean().backward()
    first, second = on_ranks(_normalise)
    both = {name: torch.cat([first[name], second[name]]) for name in ("y", "x", "eval")}
    torch.testing.assert_close(both["y"], y.detach())
    torch.testing.assert_close(both["x"] / 2, x.grad)  # each rank's loss is a mean of its own
    torch.testing.assert_close(first["weight"], layer.weight.grad)
    torch.testing.assert_close(first["bias"], layer.bias.grad)
    assert torch.equal(first["mean"], second["mean"])
    assert torch.equal(first["variance"], second["variance"])
    births = (first["births"] + second["births"]) / 2  # 0.9 of their average stays
    torch.testing.assert_close(first["mean"], 0.9 * births + layer.running_mean)
    by_hand = F.batch_norm(x.detach(), first["mean"], first["variance"], layer.weight, layer.bias, eps=1e-3)
    torch.testing.assert_close(both["eval"], by_hand.detach())


def _begin(ranks: Ranks, folder: Path, changes: dict[str, str], updates: int = 6) -> dict[str, Any]:
    """A run, and what its ranks hold at the end."""
    kept: list[build.Training] = []
    original = build.training
    build.training = lambda *args, **options: kept.append(original(*args, **options)) or kept[-1]  # type: ignore
    run.begin(shortened(small_digits(**changes), updates), folder, console=QUIET, ranks=ranks)
    return kept[0].state_dict()


def _resume(ranks: Ranks, folder: Path, updates: int) -> str:
    console = Console(record=True, quiet=False, width=300)
    run.resume(folder, change=extended(updates), console=console, ranks=ranks)
    return console.export_text()


LONGRUN = {
    "generator__optimizer": "none",
    "chains__kind": "maturing",
    "chains__size": "21",
    "chains__burn_in_size": "20",
    "chains__mature": "2",
}


@pytest.fixture(params=["hybrid", "longrun"])
def changes(request: pytest.FixtureRequest) -> dict[str, str]:
    return {"hybrid": {"chains__size": "21", "flip": "true"}, "longrun": LONGRUN}[request.param]


def test_a_run_on_two_ranks_resumes_bit_for_bit(changes: dict[str, str], tmp_path: Path) -> None:
    whole = on_ranks(_begin, tmp_path / "whole", changes)
    on_ranks(_begin, tmp_path / "parts", changes, 3)
    assert "are split" not in "".join(on_ranks(_resume, tmp_path / "parts", 6))
    assert_same(tmp_path / "whole", tmp_path / "parts")
    of_rank_1 = [checkpoint.load(checkpoint.path(tmp_path / name, 6) / "rank-1")[0] for name in ("whole", "parts")]
    assert _equal(*of_rank_1)
    first, second = whole
    assert _equal(first["trainer"]["ebm"], second["trainer"]["ebm"])
    assert _equal(first["trainer"]["generator"], second["trainer"]["generator"], but="num_batches_tracked")
    assert not _equal(first["trainer"]["chains"], second["trainer"]["chains"])
    assert _equal(first["trainer"]["batches"], second["trainer"]["batches"])
    names = ("bank", "burn_in") if "bank" in first["trainer"]["chains"] else ()
    sizes = {name: [len(state["trainer"]["chains"][name]["x"]) for state in whole] for name in names}
    if names:
        assert sizes == {"bank": [10, 11], "burn_in": [10, 10]}  # 21 and 20 in all
    else:
        assert [len(state["trainer"]["chains"]["x"]) for state in whole] == [10, 11]


def _equal(a: object, b: object, but: str = "nothing") -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(but in str(key) or _equal(a[key], b[key], but) for key in a)
    return a == b


def test_a_run_goes_on_with_another_number_of_ranks(changes: dict[str, str], tmp_path: Path) -> None:
    """2 -> 1 -> 2: no state of a bank is lost, nothing is drawn twice, the data go on, and it can be repeated."""
    folder = tmp_path / "run"
    on_ranks(_begin, folder, changes, 2)
    place = checkpoint.path(folder, 2)
    state, manifest = checkpoint.load(place)
    assert shards.saved_by(manifest, place) == 2
    other, _ = checkpoint.load(checkpoint.shard(place, 1))
    alone = shards.localize(state, place, saved=2, ranks=SINGLE_PROCESS, device="cpu")
    assert _equal(alone["trainer"]["chains"], _joined(state["trainer"]["chains"], other["chains"]))
    for name, stream in alone["streams"].items():
        fresh = generator(0, name).get_state()
        assert not any(torch.equal(stream, one) for one in (state["streams"][name], other["streams"][name], fresh))

    said = _resume(SINGLE_PROCESS, folder, 4)
    assert "saved by 2 ranks, resumed by 1: the banks are split" in said
    state, manifest = checkpoint.load(checkpoint.path(folder, 4))
    assert shards.saved_by(manifest, checkpoint.path(folder, 4)) == 1
    assert state["trainer"]["batches"] == {"position": 4}
    shutil.copytree(folder, tmp_path / "again")
    for name in ("run", "again"):
        said = on_ranks(_resume, tmp_path / name, 6)
        assert "saved by 1 rank, resumed by 2: the banks are split" in said[0]
    assert_same(folder, tmp_path / "again")
    assert [line["update"] for line in logging.read_log(folder / "log.jsonl")] == [1, 2, 3, 4, 5, 6]


def _joined(one: Any, other: Any) -> Any:
    if isinstance(one, dict):
        return {key: _joined(one[key], other[key]) for key in one}
    if isinstance(one, Tensor):
        return torch.cat([one, other])
    return None if one is None else one + other


def test_a_batch_must_be_divisible() -> None:
    with pytest.raises(BadInput, match="a batch of 8 cannot be split evenly over 3 ranks"):
        build.training(small_digits(), ranks=Ranks(0, 3))


def test_a_missing_shard_stops_the_checkpoint(tmp_path: Path) -> None:
    """Ranks on machines that do not see the same folder."""
    with pytest.raises(BadInput, match="a folder that all machines share"):
        checkpoint.save(tmp_path / "checkpoints" / "000000001", {}, about={}, ranks=2)
    assert checkpoint.updates(tmp_path) == []
