"""Checks for gradient masking: whether an attack fails because the defense holds, or because its gradient misleads."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod, sqrt
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ebmlife.attacks import validation
from ebmlife.attacks.attack import Attack
from ebmlife.attacks.config import AttackConfig
from ebmlife.attacks.losses import cross_entropy
from ebmlife.attacks.tally import Share, Watcher
from ebmlife.attacks.threat import Threat
from ebmlife.defense.defended import DefendedClassifier
from ebmlife.defense.gradients import Fixed, Full, Smooth, Transfer, through
from ebmlife.distributed import SINGLE_PROCESS, Ranks
from ebmlife.errors import BadInput
from ebmlife.sampling.rng import derive_seed
from ebmlife.storage import regular
from ebmlife.storage.atomic import atomic_write

_FILE, _TITLE = "checks.txt", "masking of "
_STEADY = 1e4  # a gradient that grows or shrinks along the chain by a larger factor misleads


@dataclass(frozen=True)
class Check:
    """The result of one check.

    Attributes:
        name: What should hold.
        passed: Whether it does.
        reason: The measurements that decide it.
    """

    name: str
    passed: bool
    reason: str

    def __str__(self) -> str:
        return f"{'pass' if self.passed else 'FAIL'}  {self.name}: {self.reason}"


def place(folder: Path, name: str) -> Path:
    """Returns where the checks of the attack `name` are saved, in the folder of its command."""
    return folder / f"masking-{name}"


def save(folder: Path, name: str, checks: Sequence[Check]) -> None:
    """Saves the results of the checks as text."""
    with atomic_write(place(folder, name) / _FILE) as unfinished:
        unfinished.write_text("\n".join([f"{_TITLE}{name}:", *map(str, checks)]) + "\n")


def load(folder: Path) -> dict[str, str]:
    """Returns the saved results of all attacks in the folder, as text with a title, by the name of the attack.

    The first versions saved them only at the end of table.txt.
    """
    table = folder / "table.txt"
    texts = table.read_text().split(f"\n{_TITLE}")[1:] if table.is_file() else []
    texts += [regular.read(file).decode().removeprefix(_TITLE) for file in sorted(folder.glob(f"masking-*/{_FILE}"))]
    return {text.partition(":")[0]: f"{_TITLE}{text.strip()}" for text in texts}


def check_masking(
    robust: DefendedClassifier,
    x: Tensor,
    y: Tensor,
    *,
    config: AttackConfig | None = None,
    folder: Path | str | None = None,
    attacked: Path | str | None = None,
    ids: Sequence[int] | None = None,
    evaluated_on: Mapping[str, Any] | None = None,
    save_every: float = 10.0,
    watch: Watcher = lambda progress: None,
    ranks: Ranks = SINGLE_PROCESS,
    **settings: Any,
) -> list[Check]:
    """Checks whether the gradients of an attack are masked.

    The attack is repeated with other radii, more steps, more replicas, and without knowledge of the defense. Two more
    checks follow the norm of the gradient back along the chain.

    Args:
        robust: The defended classifier, with the gradient that is checked.
        x: Images (B, C, H, W) in [-1, 1].
        y: Labels (B,).
        config: The settings of the attack. None: they are given as `settings`.
        folder: Where the repeated attacks are saved, so that they can be resumed.
        attacked: The folder of the attack itself, if it has been run: it is not repeated.
        ids: As in `evaluate`, as are `evaluated_on`, `save_every`, `watch` and `ranks`.
        **settings: The fields of `AttackConfig`, such as `threat="linf:8/255"` and `steps=50`.

    Returns:
        The checks, each with its result and the reason.

    Raises:
        BadInput: The attack cannot be checked, or `evaluate` would refuse it.
    """
    if config is not None and settings:
        raise BadInput(f"check_masking takes a config or its fields, not both: {', '.join(settings)}")
    config = AttackConfig(**settings) if config is None else config
    replicas = robust.replicas if config.replicas is None else config.replicas
    config = replace(config, replicas=replicas)
    validation.masking(robust, x)

    def run(name: str, model: DefendedClassifier = robust, at: Path | str | None = None, **changes: Any) -> Share:
        place = Path(folder) / name if at is None and folder is not None else at
        attack = Attack(model, x, y, replace(config, **changes), ids=ids, folder=place, evaluated_on=evaluated_on)
        return attack.run(save_every=save_every, watch=watch, ranks=ranks).verified

    plain = run("plain", at=attacked)
    transfer = Fixed(Transfer()) if robust.gradient.known_noise else Transfer()
    # With another seed: with the same one, more steps would only continue the plain attack, and could not fail.
    longer = run("steps", steps=2 * config.steps, seed=config.seed + 1)
    more = run("replicas", replicas=2 * replicas, verify=max(config.verify, 2 * replicas))
    return [
        *_radii(plain, config.threat, tuple(x.shape[1:]), run),
        _stronger_attack("more steps", plain, f"{2 * config.steps} steps", longer),
        _stronger_attack("more replicas", plain, f"{2 * replicas} replicas", more),
        _transfer(plain, run(transfer.name, robust.with_gradient(transfer))),
        *(_norms(robust, x[:8], y[:8], mode, seed=config.seed) for mode in (Full(), Smooth())),
    ]


def _radii(plain: Share, threat: Threat, shape: tuple[int, ...], run: Callable[..., Share]) -> list[Check]:
    """Repeats the attack at half and twice the radius, and at one that reaches uniform gray from every image."""
    huge = 0.5 if threat.norm == "linf" else sqrt(prod(shape)) / 2
    radii = sorted({threat.radius / 2, min(2 * threat.radius, huge), huge} - {threat.radius})
    found = {r: run(f"radius-{r:.4g}", threat=Threat(threat.norm, r), step_size=None) for r in radii}
    found = dict(sorted((found | {threat.radius: plain}).items()))
    shares, largest = list(found.values()), max(found)
    falls = all(b.low <= a.high for a, b in pairwise(shares)) and shares[-1].value <= shares[0].value
    measured = ", ".join(f"{share.value:.3f} at {radius:.3g}" for radius, share in found.items())
    nothing = shares[-1].right <= max(1, 0.05 * shares[-1].of)
    return [
        Check("accuracy falls with the radius", falls, measured),
        Check("a huge radius leaves nothing", nothing, f"{shares[-1]} at {largest:.3g}; expected about 0"),
    ]


def _stronger_attack(what: str, plain: Share, stronger: str, share: Share) -> Check:
    return Check(f"{what} never help the defender", share.low <= plain.high, f"{plain}, with {stronger} {share}")


def _transfer(plain: Share, transfer: Share) -> Check:
    return Check(
        "transfer never beats white-box", transfer.high >= plain.low, f"white-box {plain}, transfer {transfer}"
    )


def _norms(robust: DefendedClassifier, x: Tensor, y: Tensor, mode: Full, *, seed: int) -> Check:
    norms = gradient_norms(robust, x, y, mode, seed=seed)
    name = f"the {mode.name} gradient survives the chain"
    if not norms.isfinite().all():
        return Check(name, False, "it is not finite")
    lost = int((norms[0] == 0).sum())
    if lost:
        return Check(name, False, f"the classifier's own gradient is 0 for {lost} of {len(x)} images")
    ratio = (norms[-1] / norms[0]).median().item()
    medians = " -> ".join(f"{value:.3g}" for value in norms.median(1).values[:: max(1, len(norms) // 4)].tolist())
    steady = 1 / _STEADY < ratio < _STEADY
    return Check(name, steady, f"|v| is {ratio:.3g} times that at the chain's end (medians {medians})")


def gradient_norms(robust: DefendedClassifier, x: Tensor, y: Tensor, mode: Full, *, seed: int = 0) -> Tensor:
    """Returns the norm of the cross-entropy's gradient along the chain, from its end to its beginning.

    Args:
        robust: The defended classifier.
        x: Images (B, C, H, W) in [-1, 1].
        y: Labels (B,).
        mode: The gradient through the chain: `Full()` or `Smooth()`.
        seed: Seed of the chains' noise.

    Returns:
        Norms (segments + 1, B); the first row is at the end of the chain, the last one at the attacked image.
    """
    purifier = robust.purifier
    norms = []
    for part in purifier.parts([derive_seed(seed, f"{i}/norms") for i in range(len(x))], replicas=1):
        rows = [group.image for group in part]
        walked = purifier.walk(x[rows], purifier.noise(part, x.device))
        v = _loss_gradient(robust, walked, y[rows].long())
        passage = robust.passage(x[rows], walked, part)
        v = through(passage.classifier, walked, v)
        _, info = passage.through_walk(v, mode.curved)
        norms.append(info.norms)
    return torch.cat(norms, 1)


def _loss_gradient(robust: DefendedClassifier, walked: Tensor, y: Tensor) -> Tensor:
    """Returns the gradient of the cross-entropy at the logits."""
    logits = robust.classify(walked).requires_grad_()
    return torch.autograd.grad(cross_entropy(logits, y).sum(), logits)[0]
