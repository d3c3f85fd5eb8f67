"""Adapters: each gives `sender` and `receiver` over one library; `load` says which are to be had here."""

from __future__ import annotations

import importlib
from types import ModuleType

NAMES = ("pyzmq", "mp_pipe", "mp_queue", "faster_fifo", "faster_fifo_many", "iceoryx2", "pyaeron", "dora")


def load(names: tuple[str, ...] = NAMES) -> tuple[dict[str, ModuleType], dict[str, str]]:
    """(name → adapter, name → why it is missing)."""
    found: dict[str, ModuleType] = {}
    missing: dict[str, str] = {}
    for name in names:
        try:
            found[name] = importlib.import_module(f"bench.rivals.{name}")
        except ImportError as error:
            missing[name] = f"not installed: {error.name or error}"
    return found, missing
