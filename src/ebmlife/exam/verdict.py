"""How long the samples of a model stay good, and by which figure they stop being so."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import inf
from typing import Literal

from ebmlife.exam.reference import Reference

Verdict = Literal["shortrun", "midrun", "longrun"]
Column = Sequence[float | None]

MIDRUN = 1_000  # steps: the paper's midrun is "about 1000 to 3000"; what is spoilt earlier is shortrun
LONGRUN = 50_000  # steps: the paper's longrun is "50K steps or more"
GROWTH = 1.5  # of the distance over its value at MIDRUN: samples of a steady state stay as far from data as they are
CHANCE = 3.6  # deviations of the logarithm of data's own distance: one look in some thousands at data is beyond
LATE = 0.4  # of a walk: looks from there on, four in most, are also judged by the mean of their distances
LOOKS = 3  # at the least, that such a mean is of
CALM = 0.7  # as far as single looks, such means swing by chance: half as far if looks are independent, as far if not
LOST = 0.5  # of the data's spread: half as far from the data as one and the same grey state would be
MARGIN = 1.25  # on both sides of data's range of a figure: beyond, an eye sees it too
SPILL = 0.1  # more of the pixels outside [-1, 1] than of the data's: a tenth of an image is an eyeful
MIXED = 1.1  # R-hat above this: chains can be told apart by where they were in the second half of their walk
DRIFT = 3.0  # spreads of the energy between chains: its mean has moved more than chains differ


@dataclass(frozen=True)
class Judgement:
    verdict: Verdict
    stable_until: int  # steps; 0 where samples never were good
    reasons: list[str]


def judge(
    steps: Sequence[int], figures: Mapping[str, Column], reference: Reference, *, diverged: str | None = None
) -> Judgement:
    """A life begins at the first step without a fault, and lasts to the last one before the next fault."""
    at = [{name: column[i] for name, column in figures.items()} for i in range(len(steps))]
    end = [diverged] if diverged else []
    faults: list[list[str]] = []
    born: int | None = None
    settled: int | None = None  # where the distance was that later ones are held against
    for i, (step, seen) in enumerate(zip(steps, at, strict=True)):
        faults.append(_faults(seen, reference, None if step <= MIDRUN else _distance(at, settled)))
        if born is None and not faults[-1]:
            born = i
        if born is not None and (settled is None or step <= MIDRUN):
            settled = i
    if (drift := _drift(steps, at, settled, reference)) is not None:
        for i in _last(steps):
            faults[i].append(drift)
    if born is None:
        worst = f"samples are never like the data; at {steps[-1]:,} steps: {'; '.join(faults[-1])}"
        return Judgement("shortrun", 0, [worst, *end])
    good = born + len(list(takewhile(lambda found: not found, faults[born:])))
    last, reasons = steps[good - 1], []
    if good < len(steps):
        reasons.append(f"spoilt at {steps[good]:,} steps: {'; '.join(faults[good])}")
    elif not diverged:
        reasons.append(f"like the data to the end of the exam, {last:,} steps{_growth(steps, at, settled)}")
        if last < LONGRUN:
            reasons.append(f"the exam was too short for more: longrun is {LONGRUN:,} steps and more")
    verdict: Verdict = "longrun" if last >= LONGRUN and good == len(steps) and not diverged else "midrun"
    return Judgement(verdict if last >= MIDRUN else "shortrun", last, reasons + end + _notes(steps, at))


def _faults(seen: Mapping[str, float | None], reference: Reference, settled: float | None) -> list[str]:
    """What is wrong with the samples at one step; `settled`: the distance from which it must not grow any more."""
    found = []
    for name, (least, most) in reference.ranges.items():
        value = seen.get(name)
        if value is None:
            continue
        low, high = _limits(name, least, most, reference, settled)
        if not low <= value <= high:
            beyond = "above" if value > high else "below"
            limit = high if value > high else low
            found.append(f"{name} {value:.3g} is {beyond} {limit:.3g} (data: {least:.3g} to {most:.3g})")
    return found


def _limits(name: str, least: float, most: float, reference: Reference, settled: float | None) -> tuple[float, float]:
    if name == "distance":
        lost = most + LOST * reference.spread
        return -inf, lost if settled is None else min(lost, max(GROWTH * settled, reference.by_chance(CHANCE)))
    if name == "outside":
        return -inf, most + SPILL
    return least / MARGIN, most * MARGIN


def _distance(at: Sequence[Mapping[str, float | None]], i: int | None) -> float | None:
    return None if i is None else at[i]["distance"]


def _growth(steps: Sequence[int], at: Sequence[Mapping[str, float | None]], settled: int | None) -> str:
    """How the late distance compares with the one that it must not grow from."""
    now, then = late(steps, [seen["distance"] for seen in at]), _distance(at, settled)
    if settled is None or not now or not then:
        return ""
    said = f"; distance lately {now:.3g}, {now / then:.2f} times its value at {steps[settled]:,} steps"
    few = ", which so few chains cannot tell from chance: more would"
    return said + (few if now > GROWTH * then else "")


def late(steps: Sequence[int], distances: Column) -> float | None:
    """The mean over the last looks."""
    known = [value for i in _last(steps) if (value := distances[i]) is not None]
    return sum(known) / len(known) if known else None


def _last(steps: Sequence[int]) -> list[int]:
    """Which looks are late ones: four where eight are in a decade."""
    return [i for i, step in enumerate(steps) if step >= LATE * steps[-1]]


def _drift(
    steps: Sequence[int], at: Sequence[Mapping[str, float | None]], settled: int | None, reference: Reference
) -> str | None:
    """What is wrong with the distances of the last looks together: their mean swings less by chance than each does."""
    last = _last(steps)
    now, then = late(steps, [seen["distance"] for seen in at]), _distance(at, settled)
    if settled is None or now is None or then is None or len(last) < LOOKS or steps[last[0]] <= steps[settled]:
        return None
    limit = max(GROWTH * then, reference.by_chance(CALM * CHANCE))
    if now <= limit:
        return None
    least, most = reference.ranges["distance"]
    said = f"distance {now:.3g}, the mean of the looks from here on, is above {limit:.3g}"
    return f"{said} ({then:.3g} at {steps[settled]:,} steps; data: {least:.3g} to {most:.3g})"


def _notes(steps: Sequence[int], at: Sequence[Mapping[str, float | None]]) -> list[str]:
    """What the verdict does not rest on, but a reader should know."""
    notes = []
    for name, of in (("rhat_energy", "energies"), ("rhat_features", "features")):
        rhat = at[-1].get(name)
        if rhat is not None and rhat > MIXED:
            notes.append(
                f"chains have not mixed (R-hat of {of} {rhat:.2f}): one alone does not see all regions, "
                "whose masses may still be the start's"
            )
            break
    middle = next(i for i, step in enumerate(steps) if 10 * step >= steps[-1])
    then, now, spread = at[middle].get("energy"), at[-1].get("energy"), at[-1].get("energy_spread")
    if then is not None and now is not None and spread and abs(now - then) > DRIFT * spread:
        way = "falls" if now < then else "rises"
        by = abs(now - then) / spread
        notes.append(f"the mean energy still {way}: by {by:.1f} spreads since step {steps[middle]:,}")
    return notes
