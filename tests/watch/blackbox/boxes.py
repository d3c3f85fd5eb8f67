"""A black box for tests: it counts what fires, and tests wait for a count."""

from __future__ import annotations

import threading
import time
from collections import Counter

from penstock.watch.blackbox import BlackBox, read

SECONDS = 60  # at most, for a count on a machine that is very busy


class Watched:
    """A black box from TOML, without `archive`. Counts firings by trigger; keeps snapshots."""

    def __init__(self, folder, text):
        self.counts, self.firings, self.snapshots = Counter(), [], []
        self._changed = threading.Condition()
        self.archive = folder
        config = read(f'archive = "{folder}"\n{text}'.encode(), "box.toml")
        self.box = BlackBox(config, on_firing=self._count, on_snapshot=self._keep)

    def _count(self, firing):
        with self._changed:
            self.counts[firing.trigger] += firing.count
            self.firings.append(firing)
            self._changed.notify_all()

    def _keep(self, done):
        with self._changed:
            self.snapshots.append(done)
            self._changed.notify_all()

    def wait(self, name, count):
        """Until a trigger has fired so often."""
        self._until(lambda: self.counts[name] >= count, f"{name} has fired {self.counts[name]} times, not {count}")

    def wait_snapshots(self, count):
        self._until(lambda: len(self.snapshots) >= count, f"{len(self.snapshots)} snapshots, not {count}")

    def _until(self, is_true, text):
        deadline = time.monotonic() + SECONDS
        with self._changed:
            while not is_true():
                assert self._changed.wait(deadline - time.monotonic()), text

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.box.close()


def until(is_true, what="it"):
    """Until something that no black box tells is true."""
    deadline = time.monotonic() + SECONDS
    while not is_true():
        assert time.monotonic() < deadline, f"{what} has not become true"
        time.sleep(0.001)
