"""How a command ended, and what no end may look like."""

import re
import signal
from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Ended:
    code: int | None  # negative: the signal that it died of; None: it did not end, and was killed
    out: str
    err: str
    seconds: float

    def wrong(self, *, allowed: Collection[int] = (0, 1, 2)) -> str | None:
        """What no command may do, in a few words."""
        lines = self.err.splitlines()
        if self.code is None:
            return f"hangs: not ended after {self.seconds:.0f} s"
        if "Traceback (most recent" in self.err or "Exception ignored" in self.err:
            return f"traceback: {_cause(lines)}"
        if self.code < 0 and self.code not in allowed:
            return f"died of {signal.Signals(-self.code).name}: {lines[-1] if lines else ''}"
        if self.code not in allowed:
            return f"exit code {self.code}: {self.err[-200:]}"
        if self.code in (1, 2) and len(lines) != 1:
            return f"{len(lines)} lines of error in place of one: {' / '.join(lines)[:200]}"
        if any(not character.isprintable() for character in self.err.replace("\n", "")):
            return f"control characters in the error: {self.err[:200]!r}"
        return None


def _cause(lines: Sequence[str]) -> str:
    """The exception's own line, and the line of ebmlife that it came through last."""
    raised = [
        line for line in lines if re.match(r"[\w.]+(Error|Exception|Interrupt|Exit|Warning|Diverged|BadInput)\b", line)
    ]
    ours = [line.partition("ebmlife/")[2].replace('", line ', ":") for line in lines if "src/ebmlife/" in line]
    return f"{raised[-1][:160] if raised else lines[-1]} ({ours[-1] if ours else 'not in ebmlife'})"
