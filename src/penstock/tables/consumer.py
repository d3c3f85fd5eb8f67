"""The pipeline's own ledger in the archive: how far its tables are, so that a purge keeps what they lack. Knows archives only."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import time

from penstock.errors import PenstockError, SystemFailure, Unsupported
from penstock.record import Consumer
from penstock.record.archive import Archive
from penstock.tables.folder import Have as Positions

log = logging.getLogger("penstock")


class Consuming:
    """A consumer of all streams. place: where the tables are; it gives the consumer its name.

    A new one has read nothing, so that nothing is purged before the first commit. An archive that may only be read has no ledgers, nor has one
    on an object storage.
    """

    def __init__(self, archive: Archive, place: str) -> None:
        self._archive, self.name = archive, name_of(place)
        self._noted: Positions | None = None
        try:
            known = {one.name: one.done for one in archive.consumers()}
        except (PenstockError, OSError):  # damaged, or on an object storage: `note` says so
            known = {}
        if self.name not in known:
            self.note({})

    def note(self, done: Positions) -> None:
        """Every table has these positions, durably."""
        if done == self._noted:
            return
        try:
            self._archive.note_consumer(Consumer(self.name, None, time.time_ns(), done))
        except Unsupported:
            pass  # on an object storage, where nothing is purged
        except SystemFailure as error:
            if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
                raise
            if self._noted is None:
                why = os.strerror(error.errno)
                log.warning("%s: %s. Nothing keeps the archive's messages for the pipeline", self._archive.path, why)
        self._noted = done


def name_of(place: str) -> str:
    """A consumer's name for a folder of tables: its last part, and what tells it from others of that name.

    A folder has one name, whichever links lead to it: a second one would keep messages from a purge for ever.
    """
    if place.startswith("/"):
        place = os.path.realpath(place)
    last = re.sub(r"[^A-Za-z0-9._-]+", "-", place.rstrip("/").rpartition("/")[2]).strip("-.") or "tables"
    return f"pipeline-{last[:60]}-{hashlib.sha256(place.encode()).hexdigest()[:8]}"
