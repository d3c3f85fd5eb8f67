"""Adapters: each gives `sender` and `receiver` over one library; `load` says which are to be had here."""

from __future__ import annotations

import importlib

from bench.elsewhere import Elsewhere, Rival, interpreter

NAMES = ("pyzmq", "mp_pipe", "mp_queue", "faster_fifo", "faster_fifo_many", "iceoryx2", "pyaeron")
BESIDE = ("pyaeron",)  # may be had in another Python: `python tools/aeron.py`


def load(names: tuple[str, ...] = NAMES) -> tuple[dict[str, Rival], dict[str, str]]:
    """(name → adapter, name → why it is missing)."""
    found: dict[str, Rival] = {}
    missing: dict[str, str] = {}
    for name in names:
        try:
            module = importlib.import_module(f"bench.rivals.{name}")
        except ImportError as error:
            if name in BESIDE and (python := interpreter(name)):
                found[name] = Elsewhere(python, name)
                continue
            missing[name] = f"not installed: {error.name or error}"
            continue
        why = getattr(module, "unavailable", lambda: None)()
        if why:
            missing[name] = why
        else:
            found[name] = module
    return found, missing
