"""Adapters: each gives `sender` and `receiver` over one library; `load` says which are to be had here."""

from __future__ import annotations

import importlib
from types import ModuleType

NAMES = ("pyzmq", "mp_pipe", "mp_queue", "faster_fifo", "iceoryx2", "pyaeron")


def load(names: tuple[str, ...] = NAMES) -> tuple[dict[str, ModuleType], dict[str, str]]:
    """(name → adapter, name → why it is missing)."""
    found, missing = {}, {}
    for name in names:
        try:
            module = importlib.import_module(f"bench.rivals.{name}")
        except ImportError as error:
            missing[name] = f"not installed: {error.name or error}"
            continue
        why = getattr(module, "unavailable", lambda: None)()
        if why:
            missing[name] = why
        else:
            found[name] = module
    return found, missing
