"""Whether an attack's failure is the defence's merit or a gradient that leads nowhere (gradient masking)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod, sqrt
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ebmlife.attacks import validation
from ebmlife.attacks.losses import cross_entropy
from ebmlife.attacks.pgd import evaluate
from ebmlife.attacks.record import Record
from ebmlife.attacks.shares import Share
from ebmlife.attacks.threat import Threat
from ebmlife.defense.defended import DefendedClassifier
from ebmlife.defense.gradients import Fixed, Full, Smooth, Transfer, through
from ebmlife.sampling.rng import derive_seed
from ebmlife.storage import regular
from ebmlife.storage.atomic import atomic_write

_FILE, _TITLE = "checks.txt", "masking of "
_STEADY = 1e4  # a gradient that grows or shrinks along the chain by more than this is no guide


@dataclass(frozen=True)
class Check:
    name: str
    passed: bool
    reason: str

    def __str__(self) -> str:
        return f"{'pass' if self.passed else 'FAIL'}  {self.name}: {self.reason}"


def keep(folder: Path, name: str, found: Sequence[Check]) -> None:
    """What the checks of an attack said, beside their own attacks: in masking-NAME of the attack's folder."""
    with atomic_write(place(folder, name) / _FILE) as unfinished:
        unfinished.write_text("\n".join([f"{_TITLE}{name}:", *map(str, found)]) + "\n")


def place(folder: Path, name: str) -> Path:
    return folder / f"masking-{name}"


def kept(folder: Path) -> dict[str, str]:
    """What was said of each attack, by name, with a title; of some it is told only at the end of the table."""
    table = folder / "table.txt"
    said = table.read_text().split(f"\n{_TITLE}")[1:] if table.is_file() else []
    said += [regular.read(file).decode().removeprefix(_TITLE) for file in sorted(folder.glob(f"masking-*/{_FILE}"))]
    return {text.partition(":")[0]: f"{_TITLE}{text.strip()}" for text in said}


def check_masking(
    robust: DefendedClassifier,
    x: Tensor,
    y: Tensor,
    *,
    threat: Threat | str,
    steps: int = 50,
    replicas: int | None = None,
    verify: int = 128,
    folder: Path | str | None = None,
    attacked: Path | str | None = None,  # where this very attack is kept, so that it is not made again
    **options: Any,  # of `evaluate`
) -> list[Check]:
    """Attacks again with other radii, more steps, more replicas and no knowledge of the defence, and looks at the
    gradient's way back along the chain; each check says pass or fail and why."""
    validation.masking(robust, x)
    threat = Threat.of(threat)
    replicas = robust.replicas if replicas is None else replicas
    base = {"threat": threat, "steps": steps, "replicas": replicas, "verify": verify}

    def run(name: str, model: DefendedClassifier = robust, **changes: Any) -> Share:
        place = None if folder is None else Path(folder) / name
        record: Record = evaluate(model, x, y, **({"folder": place} | options | base | changes))
        return record.verified

    plain = run("plain") if attacked is None else run("plain", folder=attacked)
    seed = options.get("seed", 0)
    unaware = Fixed(Transfer()) if robust.gradient.known_noise else Transfer()
    return [
        *_radii(plain, threat, tuple(x.shape[1:]), run),
        # Other draws: with the same ones it would only go on from where the plain attack ended, and could not fail.
        _no_help("more steps", plain, f"{2 * steps} steps", run("steps", steps=2 * steps, seed=seed + 1)),
        _more_replicas(plain, base, run),
        _transfer(plain, run(unaware.name, robust.with_gradient(unaware))),
        *(_norms(robust, x[:8], y[:8], mode, seed=seed) for mode in (Full(), Smooth())),
    ]


def _radii(plain: Share, threat: Threat, shape: tuple[int, ...], run: Callable[..., Share]) -> list[Check]:
    """Half and twice the radius, and one at which every image can be turned grey."""
    huge = 0.5 if threat.norm == "linf" else sqrt(prod(shape)) / 2
    radii = sorted({threat.radius / 2, min(2 * threat.radius, huge), huge} - {threat.radius})
    found = {r: run(f"radius-{r:.4g}", threat=Threat(threat.norm, r), step_size=None) for r in radii}
    found = dict(sorted((found | {threat.radius: plain}).items()))
    shares, largest = list(found.values()), max(found)
    falls = all(b.low <= a.high for a, b in pairwise(shares)) and shares[-1].value <= shares[0].value
    said = ", ".join(f"{share.value:.3f} at {radius:.3g}" for radius, share in found.items())
    gone = shares[-1].right <= max(1, 0.05 * shares[-1].of)
    return [
        Check("accuracy falls with the radius", falls, said),
        Check("a huge radius leaves nothing", gone, f"{shares[-1]} at {largest:.3g}; expected about 0"),
    ]


def _more_replicas(plain: Share, base: dict[str, Any], run: Callable[..., Share]) -> Check:
    more = 2 * base["replicas"]
    share = run("replicas", replicas=more, verify=max(base["verify"], more))
    return _no_help("more replicas", plain, f"{more} replicas", share)


def _no_help(what: str, plain: Share, stronger: str, share: Share) -> Check:
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
    way = " -> ".join(f"{value:.3g}" for value in norms.median(1).values[:: max(1, len(norms) // 4)].tolist())
    steady = 1 / _STEADY < ratio < _STEADY
    return Check(name, steady, f"|v| is {ratio:.3g} times that at the chain's end (medians {way})")


def gradient_norms(robust: DefendedClassifier, x: Tensor, y: Tensor, mode: Full, *, seed: int = 0) -> Tensor:
    """|v| (segments + 1, B) of the cross-entropy's gradient on its way from the chain's end to its beginning."""
    purifier = robust.purifier
    found = []
    for part in purifier.parts([derive_seed(seed, f"{i}/norms") for i in range(len(x))], replicas=1):
        rows = [lane.image for lane in part]
        walked = purifier.walk(x[rows], purifier.noise(part, x.device))
        v = _loss_gradient(robust, walked, y[rows].long())
        passage = robust.passage(x[rows], walked, part)
        v = through(passage.classifier, walked, v)
        _, info = passage.through_walk(v, mode.curved)
        found.append(info.norms)
    return torch.cat(found, 1)


def _loss_gradient(robust: DefendedClassifier, walked: Tensor, y: Tensor) -> Tensor:
    """The cross-entropy's gradient at the logits."""
    logits = robust.classify(walked).requires_grad_()
    return torch.autograd.grad(cross_entropy(logits, y).sum(), logits)[0]
