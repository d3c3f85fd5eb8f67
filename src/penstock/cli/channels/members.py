"""The commands of channels' members, as far as they are seen here.

A member has the number of its own PID namespace: another process may have that number here. Knows processes and files; knows no view.
"""

from __future__ import annotations

import contextlib
import functools
import os

from penstock._native.core import command_of
from penstock.channels.storage import files
from penstock.util import processes


@functools.lru_cache(maxsize=10_000)
def member_command(pid: int, joined_ns: int) -> str:
    """A member's command line. Empty if no process of its number here has a channel open, or if that is not to be seen: it is in another
    PID namespace, or of another user. joined_ns: when it joined, by which a number that is used again is another member."""
    opened = processes.open_files(pid)
    if not opened or opened.keys().isdisjoint(channel_files()):
        return ""
    return command_of(pid)


def channel_files() -> set[tuple[int, int]]:
    """Device and inode of each file in the channel folder."""
    found = set()
    with contextlib.suppress(OSError), os.scandir(files.folder()) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # it was removed in the meantime
                about = entry.stat(follow_symlinks=False)
                found.add((about.st_dev, about.st_ino))
    return found
