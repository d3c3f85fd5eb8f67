"""A bug planted into Python."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Planted:
    """A bug: how it is planted, and the tests that must notice it (none: the simulator must)."""

    plant: Callable[[], None]
    tests: tuple[str, ...] = ()

    @property
    def suite(self) -> str:
        """The suites that look for it."""
        return " ".join(self.tests) or "simulator"
