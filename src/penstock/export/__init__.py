"""Recordings in other forms: `export` writes files; `mcap` writes and reads bags, `live` serves channels to viewers, `datasets` has training sets.

`export` and its result are loaded when they are first used: not each of these needs what the others need.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.export.files import FORMS, Exported, Outcome, export

__all__ = ["FORMS", "Exported", "Outcome", "export"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'penstock.export' has no attribute {name!r}")
    return getattr(import_module("penstock.export.files"), name)
