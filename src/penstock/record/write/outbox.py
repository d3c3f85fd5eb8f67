"""Publishes batches of messages from files, each batch once, even if this process is killed during one.

The file `state.json` in the batches' folder has the piece of a batch to publish next, and the channel's position before it. After a crash
the channel's past shows how many messages of that piece were published. Knows no Spark.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from penstock._native import core as _native
from penstock.channels import handles
from penstock.channels.interfaces.publication import Publication
from penstock.channels.uri.opener import open_handle, parse
from penstock.channels.waiting import readiness
from penstock.errors import Corrupt, Invalid, NotFound, PenstockError, TimedOut, Unsupported
from penstock.util.clock import SystemClock
from penstock.util.files.durable import make_folder, open_private, own_errors, write_atomically
from penstock.util.strict import Strict

STATE, LOCK = "state.json", ".lock"
PIECE_BYTES = 1 << 20  # at most; and no more than a quarter of the room that the channel has
PATIENCE = 60.0  # seconds within which the claims of a dead publication must be repaired
POLICIES = ("fail", "resend", "skip")

Bodies = Callable[[str], Iterator[bytes]]


@dataclass(frozen=True)
class PendingBatch:
    """An unfinished batch. sent: messages that are certainly published; until: messages up to the end of the current piece.

    position, session, channel_ns: the end of the channel's stream when the piece was begun, the publication that sent it, and when
    the channel was made.
    """

    batch: int
    parts: tuple[str, ...]
    sent: int = 0
    until: int = 0
    position: int = 0
    session: int = 0
    channel_ns: int = 0


@dataclass(frozen=True)
class OutboxState:
    """done: the last batch that was sent. pending: the next one, if it was begun."""

    channel: str
    done: int = -1
    pending: PendingBatch | None = None


class Outbox(Strict):
    """Batches for one channel, in a folder. Several processes may use it; they take turns.

    codec: of the channel, if it has none yet; the messages are encoded already. timeout: seconds that a message waits for room.
    when_unknown: what to do if a process was killed while it published, and the channel no longer has the past that shows its progress: `fail`,
    `resend` the piece in question (its messages may be duplicated) or `skip` it (they may be lost).
    """

    folder: Path
    channel: str

    def __init__(
        self,
        folder: Path,
        channel: str,
        *,
        codec: Any = None,
        timeout: float | None = None,
        when_unknown: str = "fail",
    ) -> None:
        check_target(channel)
        if when_unknown not in POLICIES:
            raise Invalid(f"when_unknown is {when_unknown!r}: it must be {', '.join(POLICIES)}")
        self.folder, self.channel = folder, channel
        self._codec, self._timeout, self._when_unknown = codec, timeout, when_unknown

    @own_errors
    def put(self, batch: int, parts: Sequence[str], bodies: Bodies) -> bool:
        """Publishes a batch. Returns False if it was published before. The files of the batch are deleted.

        parts: names of its files in the folder, in order, which must be durable. bodies: the encoded messages of a file. A batch that
        was begun by a killed process continues with its original files.
        """
        with self._exclusive():
            state = self._read()
            if state.pending is not None and state.pending.batch < batch:
                state = self._publish(state, state.pending, bodies)  # a batch is never left half published
            pending = state.pending
            is_new = batch > state.done and (pending is None or pending.batch == batch)
            if is_new:
                state = self._publish(state, pending or PendingBatch(batch, tuple(parts)), bodies)
            for name in parts:
                (self.folder / name).unlink(missing_ok=True)
            return is_new

    def done(self) -> int:
        """The number of the last published batch; -1 without one."""
        return self._read().done

    # ---- the state ----

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Waits until no other process publishes from this folder. The lock is the kernel's: it ends with its process."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)  # a batch without a row has made none
        make_folder(self.folder)
        fd = open_private(self.folder / LOCK, os.O_RDWR)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            with contextlib.suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)

    def _read(self) -> OutboxState:
        path = self.folder / STATE
        try:
            row = json.loads(path.read_bytes())
            if row.pop("crc32c") != _sum(row):
                raise ValueError("its checksum is wrong")
            pending = row["pending"] and PendingBatch(**{**row["pending"], "parts": tuple(row["pending"]["parts"])})
            found = OutboxState(row["channel"], row["done"], pending)
        except FileNotFoundError:
            return OutboxState(self.channel)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Corrupt(
                f"{path} is damaged: {error}. It is no longer known which batches are on {self.channel}: begin with a new folder"
            ) from error
        if found.channel != self.channel:
            raise Invalid(
                f"{path} is about {found.channel}, not {self.channel}: give each channel its own folder or checkpoint"
            )
        return found

    def _write(self, state: OutboxState) -> OutboxState:
        row = asdict(state)
        write_atomically(self.folder / STATE, json.dumps({**row, "crc32c": _sum(row)}) + "\n", private=True)
        return state

    # ---- publishing ----

    def _publish(self, state: OutboxState, pending: PendingBatch, bodies: Bodies) -> OutboxState:
        """Publishes the rest of a batch, piece by piece. Each piece is noted before it is published."""
        options = {} if self._codec is None else {"codec": self._codec}
        with open_handle("publish", self.channel, options) as publication:
            about = publication.statistics()
            pending = self._count_sent(pending, publication)
            messages = itertools.chain.from_iterable(bodies(str(self.folder / name)) for name in pending.parts)
            rest = itertools.islice(messages, pending.sent, None)
            for piece in _pieces(rest, min(PIECE_BYTES, max(about.capacity // 4, 1))):
                pending = replace(
                    pending,
                    until=pending.sent + len(piece),
                    position=publication.position,
                    session=_session(publication),
                    channel_ns=about.created_ns,
                )
                self._write(replace(state, pending=pending))
                for body in piece:
                    send_encoded(publication, body, self._timeout)
                pending = replace(pending, sent=pending.until)
        done = self._write(OutboxState(self.channel, pending.batch))
        for name in pending.parts:
            (self.folder / name).unlink(missing_ok=True)
        return done

    def _count_sent(self, pending: PendingBatch, publication: Publication[Any]) -> PendingBatch:
        """A batch with the count of its published messages: its last piece may be published in part."""
        if pending.until == pending.sent:
            return pending
        count = self._count_published(pending, publication)
        if count is None:
            return self._resolve_unknown(pending)
        return replace(pending, sent=min(pending.sent + count, pending.until))

    def _count_published(self, pending: PendingBatch, publication: Publication[Any]) -> int | None:
        """How many messages of a piece are on the channel. None if its past does not show it."""
        kind, about = parse(self.channel).kind, publication.statistics()
        if about.created_ns != pending.channel_ns or not (kind.keeps or kind.lossy):
            return None
        end, count, clock = publication.position, 0, SystemClock()
        if end == pending.position:
            return 0
        try:
            with open_handle("subscribe", self.channel, {"start": pending.position}) as past:
                limit = clock.monotonic() + PATIENCE
                while past.position < end:
                    batch = past.poll_arrow()
                    count += batch.column("session").to_pylist().count(pending.session)
                    if (
                        not batch.num_rows
                        and past.position < end
                        and not readiness.wait([past], 1)
                        and clock.monotonic() > limit
                    ):
                        raise TimedOut(
                            f"{self.channel}: no message followed position {past.position}, which batch {pending.batch} waits for: "
                            "a publication that was stopped holds a claim"
                        )
                return count if not past.lost else None
        except TimedOut:
            raise
        except PenstockError:  # the channel does not have that position any more
            return None

    def _resolve_unknown(self, pending: PendingBatch) -> PendingBatch:
        if self._when_unknown == "resend":
            return replace(pending, until=pending.sent)
        if self._when_unknown == "skip":
            return replace(pending, sent=pending.until)
        raise NotFound(
            f"{self.channel}: a process was killed while it published messages {pending.sent} to {pending.until - 1} of batch {pending.batch}, "
            f"and the channel no longer has its past from position {pending.position} on. Choose with when_unknown: resend (some may arrive "
            "twice) or skip (some may be lost)"
        )


def check_target(channel: str) -> None:
    """`Unsupported` for a channel that cannot receive batches."""
    kind = parse(channel).kind
    if not kind.in_process or kind.by_reference:
        raise Unsupported(
            f"{channel}: batches of messages can be published only to channels in this machine's shared memory, as log:, ring:, sync: and pipe:"
        )


def send_encoded(publication: Publication[Any], body: bytes, timeout: float | None) -> None:
    """Sends a message that the channel's codec has encoded already."""
    if isinstance(publication, _native.Publication):
        handles.send_encoded(publication, body, timeout)
    else:
        publication.send(publication.codec.decode(body), timeout)


def _session(publication: Publication[Any]) -> int:
    return int(getattr(publication, "session", 0))


def _pieces(messages: Iterator[bytes], size: int) -> Iterator[list[bytes]]:
    """Messages in lists of about `size` bytes, at least one in each."""
    piece, left = list[bytes](), size
    for body in messages:
        piece.append(body)
        left -= len(body)
        if left <= 0:
            yield piece
            piece, left = [], size
    if piece:
        yield piece


def _sum(row: dict[str, Any]) -> int:
    return _native.crc32c(json.dumps(row, sort_keys=True, separators=(",", ":")).encode())
