"""What all tests share: a channel folder of their own, the drive's data, seeds that are printed when a test fails."""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

import penstock

LONG = bool(os.environ.get("PENSTOCK_LONG"))


def heed_interrupts() -> None:
    """For a child before it runs: Ctrl-C works even where this process was started in the background, which ignores it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def channel_folder(monkeypatch: pytest.MonkeyPatch):
    """Every test has its own folder of channels, removed afterwards."""
    parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = tempfile.mkdtemp(prefix="penstock-test-", dir=parent)
    monkeypatch.setenv("PENSTOCK_DIR", folder)
    yield Path(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Random numbers; the seed is PENSTOCK_SEED or new, and shown when the test fails."""
    seed = int(os.environ.get("PENSTOCK_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"PENSTOCK_SEED={seed}")
    return random.Random(seed)


@pytest.fixture
def pair():
    """A publication and a subscription on a small log."""
    with penstock.publish("log:test", term_length=1 << 16) as pub, penstock.subscribe("log:test") as sub:
        yield pub, sub


@pytest.fixture(scope="session")
def drive() -> Path:
    """The folder of one minute of real sensor streams."""
    chosen = os.environ.get("PENSTOCK_DRIVE")
    folder = Path(chosen) if chosen else Path(__file__).parents[2] / "shared" / "data" / "drive"
    if not (folder / "can.npz").is_file():
        pytest.skip(f"no drive data at {folder}: set PENSTOCK_DRIVE to its folder")
    return folder


@pytest.fixture
def archive(tmp_path: Path) -> penstock.Archive:
    """An empty archive."""
    return penstock.Archive(tmp_path / "archive")
