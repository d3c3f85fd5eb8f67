"""A folder that the group of two users shares, and their programs."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from people import ROBOT, Person, require_users


@pytest.fixture
def parent() -> Iterator[Path]:
    """A folder of root that all may enter, in memory, for channel folders."""
    made = Path(tempfile.mkdtemp(prefix="penstock-share-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def shared(parent: Path) -> Path:
    """A folder that the group of Anna and Ben shares. It belongs to root, as the root of a mounted volume does."""
    require_users()
    folder = parent / "channels"
    folder.mkdir()
    os.chown(folder, 0, ROBOT)
    folder.chmod(0o2770)
    return folder


@pytest.fixture
def person() -> Iterator[Callable[..., Person]]:
    """Starts a program of a user."""
    require_users()
    started: list[Person] = []

    def start(*given: object, **named: object) -> Person:
        started.append(Person(*given, **named))  # type: ignore[arg-type]
        return started[-1]

    yield start
    for one in started:
        one.stop()
