"""One change that repair made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Repair:
    """One change that repair made: to which file, and which change."""

    path: Path
    what: str
