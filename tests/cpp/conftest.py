"""Ends in C++ as fixtures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cpp import building


@pytest.fixture(scope="session")
def ends() -> Path:
    """The program `ends`."""
    return building.built(Path(__file__).parent) / "ends"


@pytest.fixture
def end(ends: Path) -> Iterator[Callable[..., building.End]]:
    """Starts an end: `end("send", uri, count, how, "option=value")`."""
    started: list[building.End] = []

    def start(*arguments: object) -> building.End:
        started.append(building.End(ends, *arguments))
        return started[-1]

    yield start
    for one in started:
        one.kill()
