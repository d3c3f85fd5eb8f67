"""For tools, test helpers and other libraries' interfaces over channels: what programs that only send and receive do not need.

A public door, like the front door; it does no work itself.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any, Protocol

from penstock import codecs
from penstock._native import core as _native
from penstock.appearing import Appearing
from penstock.channels import files, memory, opening
from penstock.channels.files import Stranger
from penstock.errors import Invalid, Mismatch, Unsupported
from penstock.front import parse, survey
from penstock.outbox import Outbox, check_target
from penstock.wildcards import is_pattern

__all__ = [
    "Appearing",
    "Gate",
    "Outbox",
    "Stranger",
    "channel_folder",
    "channel_memory",
    "check_target",
    "codec",
    "codec_of",
    "command_of",
    "gate",
    "is_pattern",
    "make",
    "private_folder",
    "subscription_options",
    "survey",
    "takes_messages",
]


class Gate(Protocol):
    """Stands between a fake channel and its subscriptions. Closed, it lets through what it is told to, and ends waits when told to."""

    @property
    def waiting(self) -> int:
        """How many threads wait for a message of this channel now."""
        ...

    def hold(self) -> None:
        """Closes the gate."""
        ...

    def deliver(self, count: int) -> None:
        """Lets so many messages more through to every subscription."""
        ...

    def expire(self) -> None:
        """Ends every wait that is under way as if its timeout had passed."""
        ...

    def release(self) -> None:
        """Opens the gate."""
        ...


def gate(channel: str) -> Gate:
    """The gate of a fake channel. `Invalid` for a channel that other processes share, `NotFound` if there is none."""
    parsed = parse(channel)
    if not parsed.fake:
        raise Invalid(f"{channel} is shared with other processes: a test can only hold fake channels")
    return memory.gate(parsed)


def codec(given: Any) -> codecs.Codec:
    """The codec that `publish(codec=...)` would take: of a name, a dtype, or a codec's description as JSON. `Invalid` if there is none."""
    return codecs.resolve(given)


def codec_of(channel: str) -> dict[str, Any]:
    """The codec of a channel in shared memory, as JSON-ready data. `NotFound` if there is no channel, or if it is still open."""
    parsed = parse(channel)
    if parsed.kind.memory is None:
        raise Unsupported(f"{channel} is not in shared memory: nothing here says its codec")
    found: dict[str, Any] = opening.describe(parsed.kind, parsed)["codec"]
    return found


def command_of(pid: int) -> str:
    """A process' command line. Empty if there is no process of that number, or if it is another user's and hidden."""
    return _native.command_of(pid)


def subscription_options(channel: str) -> frozenset[str]:
    """The options that `subscribe` takes for a channel of this kind."""
    return parse(channel).kind.option_names("subscribe")


def takes_messages(channel: str) -> bool:
    """Whether a subscription takes the messages that it reads away from others, as a pipe's does."""
    return parse(channel).kind.one_reader


def make(channel: str, **options: Any) -> None:
    """Makes a channel in shared memory without opening it, if there is none. An existing one keeps its options."""
    parsed = parse(channel)
    if parsed.kind.memory is None:
        raise Unsupported(f"{channel} is not in shared memory: its publications and sockets make it")
    with contextlib.suppress(Mismatch):
        opening.open_end(parsed.kind, parsed, options, None, lambda fd, path: None)


def channel_folder() -> Path:
    """The folder of this user's channels. It need not be there yet."""
    return files.folder()


def channel_memory() -> Any:
    """Bytes in all, used and free where this user's channels are: a value of `shutil.disk_usage`."""
    folder = files.folder()
    return shutil.disk_usage(next(path for path in (folder, *folder.parents) if path.exists()))


def private_folder(name: str, *, create: bool = False) -> Path:
    """A folder for a tool's own files beside this user's channels, for the user alone. name: begins with a dot. create: made if it
    does not exist."""
    if not name.startswith(".") or "/" in name:
        raise Invalid(f"name is {name!r}: a folder beside the channels begins with a dot and holds no slash")
    if create:
        with files.opened_folder(create=True) as at, contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=at)
    return files.folder() / name
