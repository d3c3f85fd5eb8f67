"""The status of a `udp:` channel on this machine: the endpoint and its images, and the logs of the publications here.

Reads their files without locks. Opens no socket.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from penstock._native import core as _native
from penstock.channels.status import ChannelMember, ChannelStatus, Totals, latency_of
from penstock.channels.storage import files, opening
from penstock.channels.uri.channel import Channel
from penstock.codecs.names import name_in
from penstock.errors import Corrupt, NotFound
from penstock.kinds.udp import ended_logs, peers

_BESIDE = re.compile(r"(?P<file>.+)\.udp\.([0-9a-f]{8}\.(log|counts)|\d+\.image)(\.new)?")
LOG_ENDING, COUNTS_ENDING = ".log", ".counts"  # a publication's log and counters
IMAGE_ENDING = ".image"  # of a subscription
NEW_ENDING = ".new"  # of a file that is being made, where the kernel needs a name for it
LOOKS = 3  # at counters that change meanwhile
SENDER_ROLE = "subscription"  # the sender's own place in its publication's log
ABANDONED_NS = 10_000_000_000  # age of a log without members; a new log is joined at once
COUNTED = (  # of the network, in `details`
    "datagrams_sent",
    "bytes_sent",
    "datagrams_received",
    "bytes_received",
    "naks_sent",
    "naks_received",
    "retransmitted",
    "retransmitted_bytes",
    "duplicates",
    "overruns",
    "setup_requests",
    "setups",
    "heartbeats",
    "statuses",
    "losses",
    "malformed",
    "rejected",
    "held",
    "sessions",
    "sessions_closed",
    "sessions_lost",
    "sessions_refused",
    "takeovers",
    "send_refused",
    "send_failed",
    "receive_failed",
    "unauthenticated",
    "replayed",
    "sessions_displaced",
    "sessions_challenged",
    "destinations_refused",
    "destinations_displaced",
    "receivers_refused",
    "naks_refused",
)


def channel_of_file(name: str) -> str | None:
    """The name of the channel that a publication's log or an image belongs to, by its file's name."""
    found = _BESIDE.fullmatch(name)
    return found["file"].replace(files.SLASH, "/") if found else None


def in_use(channel: Channel) -> frozenset[str]:
    """The files of images that live subscriptions read, or will join."""
    endpoint = _endpoint(channel)
    if endpoint is not None and not endpoint["members"]:
        return frozenset()
    return frozenset(images(channel))  # it is not known whether an endpoint without a name is in use


def images(channel: Channel) -> list[str]:
    """The names of the images' files."""
    return [name for name in _list_files(channel) if name.removesuffix(NEW_ENDING).endswith(IMAGE_ENDING)]


def logs(channel: Channel) -> list[str]:
    """The paths of the logs that publications of this machine write, those of killed publications among them."""
    return [str(files.folder() / name) for name in _list_files(channel) if name.endswith(LOG_ENDING)]


def sweep(channel: Channel) -> None:
    """Removes the logs of killed publications: logs that have no members and are not being created. And what they left for dead recorders."""
    ended_logs.sweep(channel)
    for path in logs(channel):
        with contextlib.suppress(FileNotFoundError, Corrupt):
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            with closing(fd):
                found = _native.inspect_log(fd, path)
                joined = found["slots_taken"] or time.time_ns() - found["created_ns"] > ABANDONED_NS
                if (
                    joined and not found["members"] and os.fstat(fd).st_nlink
                ):  # the name is still this log's, and not that of a new one
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(_counts_of(path))  # first: the log's name reserves the number until both are removed
                    os.unlink(path)


def status(channel: Channel, handle: Any = None) -> ChannelStatus:
    """A channel as this machine sees it. `NotFound` if no handle of this machine has it.

    handle: the one that asks. Of its own file, a publication's log or a subscription's endpoint, it says what it has open, whatever
    has the name now. The others at the address are those in the folder that it was opened in.
    """
    folder = files.folder() if handle is None else handle._folder
    endpoint, logs = _find_files(channel, handle, folder)
    if endpoint is None and not logs:
        raise NotFound(errno.ENOENT, f"there is no channel {channel} in {files.folder()}")
    images = [] if endpoint is None else endpoint["images"]
    members = [_publication(log) for log in logs] + _subscriptions(endpoint, images)
    counts = Counter(endpoint["counts"] if endpoint else {})
    for log in logs:
        counts.update(log["counts"])
    counts["sessions"] = endpoint["counts"]["sessions"] if endpoint else len(logs)
    counts.update({name: endpoint[name] for name in ("sessions_closed", "sessions_lost")} if endpoint else {})
    totals = [log["totals"] for log in logs]
    received = Counter(endpoint["totals"] if endpoint else {})
    known = [log["metadata"] for log in logs] + [image["description"] for image in images if image["description"]]
    ends = [log["position"] for log in logs] + [image["high"] for image in images]
    return ChannelStatus(
        channel=str(channel),
        path=str(folder / files.file_name(channel)),
        kind=channel.kind.name,
        state="ready" if logs or images else "open",
        codec=name_in(known[0], str(channel)) if known else None,
        size=sum(part["size"] for part in [*logs, *images, *([endpoint] if endpoint else [])]),
        created_ns=min(part["created_ns"] for part in [*logs, *([endpoint] if endpoint else [])]),
        capacity=max(
            [log["capacity"] for log in logs] or [endpoint["granted"] or endpoint["window"] if endpoint else 0]
        ),
        max_members=endpoint["max_members"] if endpoint else logs[0]["max_members"],
        position=max(ends, default=0),
        totals=Totals(
            messages_sent=sum(total["messages_sent"] for total in totals),
            bytes_sent=sum(total["bytes_sent"] for total in totals),
            messages_received=received["messages_received"],
            bytes_received=received["bytes_received"],
            back_pressure=sum(total["back_pressure"] for total in totals),
            bytes_lost=received["bytes_lost"],
            messages_lost=None,
            repaired=0,
            dropped=0,
            reaped=received["reaped"],
        ),
        members=tuple(members),
        details={
            "window": endpoint["granted"] or endpoint["window"] if endpoint else 0,
            "images": len(images),
            "holder": endpoint["holder"] if endpoint else 0,
            **{name: counts[name] for name in COUNTED},
        },
        latency=None if endpoint is None else latency_of(endpoint),
        network=peers.network(images, logs),
    )


def _find_files(channel: Channel, handle: Any, folder: Path) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """The endpoint, and the logs of the publications of this machine."""
    if handle is None:
        names, endpoint = _list_files(channel), _endpoint(channel)
    else:
        names, endpoint = _list_folder(channel, folder), None
        if not isinstance(handle, _native.Publication):
            endpoint = _native.look_at_file(handle, _inspect_endpoint)
        else:
            for found in _read(str(folder / files.file_name(channel)), _inspect_endpoint):
                endpoint = found
    paths = [str(folder / name) for name in names if name.endswith(LOG_ENDING)]
    logs = [found for path in paths for found in _each_log(path)]
    if isinstance(handle, _native.Publication):
        own: dict[str, Any] = _native.look_at_file(
            handle, lambda fd, place: {**_native.inspect_log(fd, place), **_file(fd)}
        )
        counts = _native.udp_sending(handle)  # first: it shows the receivers as they are
        shown = folder / f"{files.file_name(channel)}.{handle.session & 0xFFFFFFFF:08x}{COUNTS_ENDING}"
        own |= {"session": handle.session, **_counts(str(shown)), "counts": counts}
        logs = [log for log in logs if log["inode"] != own["inode"]] + [own]
    return endpoint, logs


def _list_files(channel: Channel) -> list[str]:
    with contextlib.suppress(NotFound), files.opened_folder(create=False) as at:
        return files.files_beside(channel, at)
    return []


def _list_folder(channel: Channel, folder: Path) -> list[str]:
    """The same in the folder of a handle, which may be removed by now, or belong to another user."""
    with contextlib.suppress(OSError):
        return sorted(name for name in os.listdir(folder) if channel_of_file(name) == channel.name)
    return []


def _file(fd: int) -> dict[str, int]:
    found = os.fstat(fd)
    return {"size": found.st_size, "inode": found.st_ino}


def _endpoint(channel: Channel) -> dict[str, Any] | None:
    try:
        fd = files.open_existing(channel)
    except NotFound:
        return None
    with closing(fd):
        return _inspect_endpoint(fd, opening.place_of(channel))


def received(channel: Channel) -> bool:
    """Whether a channel has live subscriptions on this machine."""
    found = _endpoint(channel)
    return found is not None and bool(found["members"])


def _inspect_endpoint(fd: int, place: str) -> dict[str, Any]:
    found = {**_native.inspect_endpoint(fd, place), **_file(fd)}
    for image in found["images"]:
        image.update(size=0, members=[])
        for about in _read(image["path"], _native.inspect_log):
            image.update(size=about["size"], members=about["members"])
    return found


def _each_log(path: str) -> Iterator[dict[str, Any]]:
    """The log of a live publication, with its session and its counters. Skips logs of killed publications."""
    for found in _read(path, _native.inspect_log):
        if any(member["role"] != SENDER_ROLE for member in found["members"]):
            yield {**found, "session": session_of(path), **_counts(_counts_of(path))}


def session_of(log: str) -> int:
    """The session of the publication whose log has this path."""
    return int.from_bytes(bytes.fromhex(log[-len("00000000.log") :][:8]), signed=True)


def _counts_of(log: str) -> str:
    """The path of a publication's counters, by that of its log."""
    return log.removesuffix(LOG_ENDING) + COUNTS_ENDING


def _counts(path: str) -> dict[str, Any]:
    """A publication's counters and its receivers. Empty if it is closing."""
    counts: dict[str, int] = {}
    receivers = None
    with contextlib.suppress(FileNotFoundError, PermissionError):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        with closing(fd):
            for _ in range(LOOKS):
                content = os.pread(fd, _native.udp_counts_bytes, 0)
                counts = _native.udp_counts(content)
                receivers = _native.udp_receivers(content)
                if receivers is not None and content == os.pread(fd, _native.udp_counts_bytes, 0):
                    break
    return {"counts": counts, "receivers": receivers or []}


def _read(path: str, inspect: Callable[[int, str], dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The content of one file; None if it is being removed, or not accessible since this process changed its user."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except (FileNotFoundError, PermissionError):
        return
    with closing(fd), contextlib.suppress(Corrupt):
        yield {**inspect(fd, path), **_file(fd)}


@contextlib.contextmanager
def closing(fd: int) -> Iterator[None]:
    """Closes a descriptor at the end of the block."""
    try:
        yield
    finally:
        os.close(fd)


def _publication(log: dict[str, Any]) -> ChannelMember:
    """The one that writes a log. The sender beside it is not a member."""
    return next(ChannelMember.of(member) for member in log["members"] if member["role"] != SENDER_ROLE)


def _subscriptions(endpoint: dict[str, Any] | None, images: list[dict[str, Any]]) -> list[ChannelMember]:
    """Subscriptions with the positions that their process shows in the images. Of several in one process it is the slowest's."""
    made = []
    for member in endpoint["members"] if endpoint else []:
        lags = [
            (max(image["high"] - reader["position"], 0), reader["position"])
            for image in images
            for reader in image["members"]
            if reader["position"] is not None and reader["pid"] == member["pid"]
        ]
        behind = max(lags, default=None)
        made.append(
            ChannelMember.of(
                {**member, "position": behind[1] if behind else None, "lag": behind[0] if behind else None}
            )
        )
    return made
