"""Records as plots."""

from collections.abc import Sequence

from PIL import Image

from ebmlife.attacks.record import Record
from ebmlife.plots import charts


def plot_steps(records: dict[str, Record]) -> Image.Image:
    """Verified accuracy over the attack's steps, a line for each record."""
    lines = {name: {j: share.value for j, share in record.by_step().items()} for name, record in records.items()}
    return charts.curves(lines, title=_title(list(records.values())), x="attack step", y="verified accuracy")


def plot_langevin_steps(records: Sequence[Record]) -> Image.Image | None:
    """Natural and verified accuracy against the defence's Langevin steps (Figure lang_sweep); None for a single K."""
    lines: dict[str, dict[int, float]] = {"natural": {}}
    for record in sorted(records, key=lambda record: int(record.settings["langevin_steps"])):
        k = record.settings["langevin_steps"]
        if k not in lines["natural"] or not record.known_noise:
            lines["natural"][k] = record.natural.value
        lines.setdefault(record.settings["gradient"], {})[k] = record.verified.value
    if len(lines["natural"]) < 2:
        return None
    return charts.curves(lines, title=_title(records), x="Langevin steps", y="accuracy")


def _title(records: Sequence[Record]) -> str:
    threats = dict.fromkeys(record.settings["threat"] for record in records)
    return f"{len(records[0].tally.labels)} images under {', '.join(threats)}"
