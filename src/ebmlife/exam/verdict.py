"""The verdict of an exam: how long samples stay like the data, and which metric shows that they degrade.

`JUDGED` lists the metrics that the verdict is based on. A metric that is not listed is recorded and changes no verdict.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import inf
from typing import Literal, Protocol

from ebmlife.exam.reference import Reference

Verdict = Literal["shortrun", "midrun", "longrun"]
Column = Sequence[float | None]
Row = Mapping[str, float | None]  # the metrics at one step

MIDRUN = 1_000  # steps: the paper's midrun is "about 1000 to 3000"; samples that degrade earlier are shortrun
LONGRUN = 50_000  # steps: the paper's longrun is "50K steps or more"
GROWTH = 1.5  # of the distance relative to MIDRUN: in a steady state it stays level
CHANCE = 3.6  # standard deviations of the log distance of data: one set of data in some thousands exceeds it
LATE = 0.4  # of the chain: evaluations after this fraction, usually four, are also judged by their mean distance
FEWEST_LATE = 3  # evaluations in such a mean
LATE_CHANCE = 0.7  # of CHANCE for such means: independent evaluations would give 0.5, dependent ones 1
LOST = 0.5  # of the data's spread: half as far from the data as copies of their mean
MARGIN = 1.25  # on both sides of the data's range of a metric: beyond it the difference is visible
SPILL = 0.1  # of the pixels outside [-1, 1], beyond the data's own: a tenth of an image is visible
LARGEST_RHAT = 1.1  # R-hat above this: chains differ in the second half of their steps
DRIFT = 3.0  # standard deviations of the energy between chains: its mean has moved more than chains differ


class Rule(Protocol):
    """Returns the lowest and the highest value of a metric that good samples have.

    `least` and `most` are the range of the metric over random sets of data; `baseline` is the distance to the data that
    later ones must not outgrow, None up to MIDRUN.
    """

    def __call__(
        self, least: float, most: float, *, reference: Reference, baseline: float | None
    ) -> tuple[float, float]: ...


def within_margin(least: float, most: float, *, reference: Reference, baseline: float | None) -> tuple[float, float]:
    """Returns the range of the data, widened by MARGIN on both sides."""
    return least / MARGIN, most * MARGIN


def below_spill(least: float, most: float, *, reference: Reference, baseline: float | None) -> tuple[float, float]:
    """Returns a range that ends SPILL above that of the data."""
    return -inf, most + SPILL


def near_data(least: float, most: float, *, reference: Reference, baseline: float | None) -> tuple[float, float]:
    """Returns the range of distances that are below LOST and, after MIDRUN, have not grown by GROWTH beyond chance."""
    lost = most + LOST * reference.spread
    return -inf, lost if baseline is None else min(lost, max(GROWTH * baseline, reference.by_chance(CHANCE)))


JUDGED: dict[str, Rule] = {
    "outside": below_spill,
    "contrast": within_margin,
    "variation": within_margin,
    "diversity": within_margin,
    "distance": near_data,
}


@dataclass(frozen=True)
class Judgment:
    """A verdict and what it is based on."""

    verdict: Verdict
    stable_until: int  # steps; 0 if samples are never like the data
    reasons: list[str]


def judge(
    steps: Sequence[int], metrics: Mapping[str, Column], reference: Reference, *, diverged: str | None = None
) -> Judgment:
    """Finds the steps without a fault: from the first good evaluation to the last one before a fault.

    Args:
        steps: Steps at which chains were evaluated.
        metrics: A value of each metric at each of the steps.
        reference: What samples are compared with.
        diverged: Why chains ended before the last step, if they did.

    Returns:
        The verdict, the last good step, and the reasons in sentences.
    """
    rows = [{name: column[i] for name, column in metrics.items()} for i in range(len(steps))]
    end = [diverged] if diverged else []
    faults: list[list[str]] = []
    first: int | None = None  # good evaluation
    baseline_at: int | None = None  # index of the evaluation whose distance is the baseline
    for i, (step, row) in enumerate(zip(steps, rows, strict=True)):
        faults.append(_faults(row, reference, None if step <= MIDRUN else _distance(rows, baseline_at)))
        if first is None and not faults[-1]:
            first = i
        if first is not None and (baseline_at is None or step <= MIDRUN):
            baseline_at = i
    if (growth := _late_growth(steps, rows, baseline_at, reference)) is not None:
        for i in _late(steps):
            faults[i].append(growth)
    if first is None:
        worst = f"samples are never like the data; at {steps[-1]:,} steps: {'; '.join(faults[-1])}"
        return Judgment("shortrun", 0, [worst, *end])
    good = first + len(list(takewhile(lambda found: not found, faults[first:])))
    last, reasons = steps[good - 1], []
    if good < len(steps):
        reasons.append(f"degraded at {steps[good]:,} steps: {'; '.join(faults[good])}")
    elif not diverged:
        reasons.append(
            f"like the data to the end of the exam, {last:,} steps{_describe_growth(steps, rows, baseline_at)}"
        )
        if last < LONGRUN:
            reasons.append(f"the exam was too short for longrun, which takes at least {LONGRUN:,} steps")
    verdict: Verdict = "longrun" if last >= LONGRUN and good == len(steps) and not diverged else "midrun"
    return Judgment(verdict if last >= MIDRUN else "shortrun", last, reasons + end + _notes(steps, rows))


def _faults(row: Row, reference: Reference, baseline: float | None) -> list[str]:
    """Returns the faults of the samples at one step, according to the judged metrics."""
    found = []
    for name, rule in JUDGED.items():
        value = row.get(name)
        if value is None:
            continue
        if name not in reference.ranges:
            raise ValueError(f"the verdict judges {name!r}, which has no range of data: declare it with on_data=True")
        least, most = reference.ranges[name]
        low, high = rule(least, most, reference=reference, baseline=baseline)
        if not low <= value <= high:
            beyond, limit = ("above", high) if value > high else ("below", low)
            found.append(f"{name} {value:.3g} is {beyond} {limit:.3g} (data: {least:.3g} to {most:.3g})")
    return found


def _distance(rows: Sequence[Row], i: int | None) -> float | None:
    return None if i is None else rows[i]["distance"]


def _describe_growth(steps: Sequence[int], rows: Sequence[Row], baseline_at: int | None) -> str:
    """Compares the late average of the distance with the one that it must not outgrow."""
    now, before = late_average(steps, [row["distance"] for row in rows]), _distance(rows, baseline_at)
    if baseline_at is None or not now or not before:
        return ""
    growth = f"; late average distance {now:.3g}, {now / before:.2f} times its value at {steps[baseline_at]:,} steps"
    chance = ", which may be chance with this number of chains; use more"
    return growth + (chance if now > GROWTH * before else "")


def late_average(steps: Sequence[int], values: Column) -> float | None:
    """Returns the mean over the late evaluations; None if there are no values."""
    known = [value for i in _late(steps) if (value := values[i]) is not None]
    return sum(known) / len(known) if known else None


def _late(steps: Sequence[int]) -> list[int]:
    """Returns the indices of the late evaluations: four of eight in a decade."""
    return [i for i, step in enumerate(steps) if step >= LATE * steps[-1]]


def _late_growth(
    steps: Sequence[int], rows: Sequence[Row], baseline_at: int | None, reference: Reference
) -> str | None:
    """Returns the fault of the late average of the distance, if any. It varies less by chance than single values."""
    late = _late(steps)
    now, before = late_average(steps, [row["distance"] for row in rows]), _distance(rows, baseline_at)
    if baseline_at is None or now is None or before is None or len(late) < FEWEST_LATE:
        return None
    limit = max(GROWTH * before, reference.by_chance(LATE_CHANCE * CHANCE))
    if steps[late[0]] <= steps[baseline_at] or now <= limit:
        return None
    least, most = reference.ranges["distance"]
    average = f"distance {now:.3g}, the average of the evaluations from here on, is above {limit:.3g}"
    return f"{average} ({before:.3g} at {steps[baseline_at]:,} steps; data: {least:.3g} to {most:.3g})"


def _notes(steps: Sequence[int], rows: Sequence[Row]) -> list[str]:
    """Returns notes that do not affect the verdict: chains that have not mixed, and drift of the energy."""
    notes = []
    for name, what in (("rhat_energy", "energies"), ("rhat_features", "features")):
        rhat = rows[-1].get(name)
        if rhat is not None and rhat > LARGEST_RHAT:
            notes.append(
                f"chains have not mixed (R-hat of {what} {rhat:.2f}): a single chain does not visit all regions, "
                "and the mass of each region may still be that of the start"
            )
            break
    middle = next(i for i, step in enumerate(steps) if 10 * step >= steps[-1])
    before, now, spread = rows[middle].get("energy"), rows[-1].get("energy"), rows[-1].get("energy_spread")
    if before is not None and now is not None and spread and abs(now - before) > DRIFT * spread:
        direction = "falls" if now < before else "rises"
        by = abs(now - before) / spread
        notes.append(f"the mean energy still {direction}: by {by:.1f} standard deviations since step {steps[middle]:,}")
    return notes
