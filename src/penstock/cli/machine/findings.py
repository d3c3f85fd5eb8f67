"""What a check of the command doctor finds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """The result of one check. level: good, note (it works, but know this) or bad (it will fail). advice: what to do."""

    level: str
    what: str
    advice: str = ""
