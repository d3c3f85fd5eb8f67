"""Made by tools/stubs.py from the compiled module; `make stubs` writes it anew."""

"""
Penstock's compiled core: shared bytes, atomics, recordings. Private: use penstock.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Self

from typing_extensions import Buffer


def register_errors(*, corrupt: type[Exception], mismatch: type[Exception], busy: type[Exception], closed: type[Exception], dropped: type[Exception], too_large: type[Exception], invalid: type[Exception], system: type[Exception], timeout: type[Exception]) -> None:
    """
    Says which exception class stands for each kind of failure. Called once, by penstock.errors.
    """

def format_log(*, fd: int, term_length: int, window: int, slots: int, initial_term_id: int, stream_id: int, start_position: int, epoch: int, metadata: bytes, boot_id: bytes, sync: bool = False) -> None: ...

def log_file_size(slots: int, term_length: int) -> int:
    """Bytes that a log channel's file takes."""

def inspect_log(fd: int, path: str, sync: bool = False) -> dict[str, Any]:
    """Header, counters and members, read without disturbing anyone."""

def check_log_options(term_length: int, window: int, slots: int, start_position: int) -> None: ...

def crc32c(data: bytes, before: int = 0) -> int: ...

def format_ring(*, fd: int, capacity: int, slots: int, start_position: int, start_sequence: int, epoch: int, metadata: bytes, boot_id: bytes) -> None: ...

def ring_file_size(slots: int, capacity: int) -> int:
    """Bytes that a ring channel's file takes."""

def format_frames(*, fd: int, capacity: int, slots: int, buffers: int, frame_bytes: int, start_position: int, start_sequence: int, epoch: int, metadata: bytes, boot_id: bytes) -> None: ...

def inspect_frames(fd: int, path: str) -> dict[str, Any]:
    """Header, counters and members, read without disturbing anyone."""

def frames_file_size(*, capacity: int, slots: int, buffers: int, frame_bytes: int, start_position: int) -> int:
    """Checks the options; bytes that a frames channel's file takes."""

def inspect_ring(fd: int, path: str) -> dict[str, Any]:
    """Header, counters and members, read without disturbing anyone."""

def check_ring_options(capacity: int, slots: int, start_position: int) -> None: ...

class ManualClock:
    """
    A wall clock for tests: stands still until it is set. Nanoseconds since the epoch.
    """

    def __init__(self, now_ns: int = 0) -> None: ...

    @property
    def now_ns(self) -> int: ...

    @now_ns.setter
    def now_ns(self, arg: int, /) -> None: ...

class Claim:
    """
    A message being written in place. As a context manager it gives a writable memoryview, commits at the end
    of the block and aborts if the block raises. Writing after the block is undefined for readers.
    """

    def __enter__(self) -> memoryview: ...

    def __exit__(self, type: object | None, value: object | None, traceback: object | None) -> bool: ...

    def commit(self) -> int:
        """Makes the message visible; returns the stream position after it."""

    def abort(self) -> None:
        """Gives the claim up; readers skip it."""

    def describe(self, id: int | None, start_ns: int, end_ns: int, fields: str) -> None:
        """Frames: what is said of the frame beside its bytes; before commit."""

    @property
    def ended(self) -> bool: ...

    @property
    def position(self) -> int:
        """Where the message's frame begins."""

class Sender:
    """The writing end of a channel, made for a Publication."""

    def prefault(self) -> bool: ...

def log_sender(fd: int, path: str, exclusive: bool, clock: ManualClock | None) -> Sender: ...

def ring_sender(fd: int, path: str, clock: ManualClock | None) -> Sender: ...

def frames_sender(fd: int, path: str, clock: ManualClock | None) -> Sender: ...

class Publication:
    def __init__(self, sender: Sender) -> None: ...

    def claim(self, length: int, timeout: float | None = None) -> Claim:
        """
        Room for one message of `length` bytes, to be written in place; waits for room like send.
        """

    def close(self) -> None:
        """Gives the slot back and aborts open claims. Safe to call twice."""

    @property
    def closed(self) -> bool: ...

    @property
    def session(self) -> int:
        """This publication's id in every frame it writes."""

    @property
    def position(self) -> int:
        """The stream's end: where the next message goes."""

    @property
    def max_payload(self) -> int:
        """Bytes that offer and claim take at most; send takes up to 1 GiB."""

    @property
    def connected(self) -> bool:
        """Whether anybody subscribes at this moment."""

    @property
    def readers(self) -> int:
        """How many subscriptions there are at this moment."""

    @property
    def lag(self) -> int:
        """Bytes by which the slowest subscription is behind; 0 without any."""

    @property
    def all_read(self) -> bool:
        """
        Whether every subscription has read all that was sent; also true without any. A log's subscriptions
        show how far they are when they find nothing more.
        """

    def wait_for_readers(self, count: int = 1, timeout: float | None = None) -> None:
        """
        Waits until so many subscriptions are there; TimeoutError after `timeout` seconds.
        """

    def send(self, data: Buffer, timeout: float | None = None) -> int:
        """
        Publishes one message (bytes or any contiguous buffer) and returns the stream position after it.
        Waits while the slowest subscription is a whole window behind; TimeoutError after `timeout`
        seconds (None: for ever, 0: now or never). Messages above max_payload go out in fragments.
        """

    def offer(self, data: Buffer) -> int | None:
        """
        Publishes one message of at most max_payload bytes without ever blocking: the stream position
        after it, or None if there is no room.
        """

    def offer_many(self, messages: Iterable[Buffer] | Buffer) -> int:
        """
        Publishes messages in order until there is no room, without blocking, and returns how many.
        Takes a sequence of buffers, or one C-contiguous array whose rows are the messages.
        """

class Borrow:
    """
    A message read in place: as a context manager it gives a read-only memoryview. The log keeps the bytes
    until the block has ended and every view of them (a NumPy array, say) is gone.
    """

    def __enter__(self) -> memoryview: ...

    def __exit__(self, type: object | None, value: object | None, traceback: object | None) -> bool: ...

class Receiver:
    """The reading end of a channel, made for a Subscription."""

    def prefault(self) -> bool: ...

    def lead_through(self, gate: Gate) -> None: ...

class Gate:
    """Decides for a test when messages are delivered and waits return."""

    def __init__(self) -> None: ...

    def hold(self) -> None: ...

    def deliver(self, count: int) -> None: ...

    def expire(self) -> None: ...

    def release(self) -> None: ...

    @property
    def held(self) -> bool: ...

    @property
    def waiting(self) -> int: ...

def log_receiver(fd: int, path: str, start: str, position: int, drop_after: float) -> Receiver: ...

def ring_receiver(fd: int, path: str, start: str, position: int, conflate: bool) -> Receiver: ...

class Subscription:
    def __iter__(self) -> Self:
        """Implement iter(self)."""

    def __next__(self) -> Any:
        """Implement next(self)."""

    def __init__(self, receiver: Receiver, spin: float) -> None: ...

    def poll(self, limit: int = 1000) -> list[Any]:
        """
        What is there now, at most `limit` messages, as a list of bytes. Never blocks.
        """

    def poll_arrow_capsules(self, limit: int, max_bytes: int) -> tuple[Any, Any]: ...

    def borrow(self, timeout: float | None = None) -> Borrow:
        """
        The next message without a copy, as a context manager; waits like recv. Messages that came in fragments are
        copied.
        """

    def fileno(self) -> int:
        """
        A descriptor that is readable while there is something to receive, for selectors. Starts the process's one
        bridge thread on first use.
        """

    def close(self) -> None:
        """
        Gives the slot back; writers no longer wait for it. Safe to call twice.
        """

    @property
    def closed(self) -> bool: ...

    @property
    def position(self) -> int:
        """Where reading goes on."""

    @property
    def lag(self) -> int:
        """Bytes of the stream between here and its end."""

    @property
    def lost(self) -> int:
        """
        Bytes of the stream that this subscription missed: by being lapped (ring) or let go (log, drop_after).
        """

    @property
    def lost_messages(self) -> int | None:
        """
        Messages that it missed; None where only the bytes are known (a log that let it go).
        """

    @property
    def conflated(self) -> int:
        """
        Messages passed over because newer ones were there (conflate=True); they do not count as lost.
        """

    @property
    def restarts(self) -> int:
        """How many publications of a ring followed the first one heard."""

    @property
    def incomplete(self) -> int:
        """
        Messages of which only some fragments came: their sender died or gave up.
        """

    @property
    def last(self) -> tuple[int, int, int]:
        """(position, time_ns, session) of the message received last."""

    def recv(self, timeout: float | None = None) -> bytes:
        """
        The next message as bytes. Waits for it; TimeoutError after `timeout` seconds (None: for ever,
        0: now or never).
        """

    def try_recv(self) -> bytes | None:
        """
        The next message as bytes, or None if there is none yet. Never blocks.
        """

def wait_any(subscriptions: Sequence[Subscription], timeout: float | None, raw: bool = False) -> list[int]: ...

class RecordingSegment:
    """A segment being written. One thread at a time."""

    def __init__(self, *, data_fd: int, data_path: str, index_fd: int, index_path: str, base: int, term_length: int, initial_term_id: int, stream_id: int, recording: int, messages_before: int, entries: int, data_length: int) -> None: ...

    def record(self, subscription: Subscription, max_bytes: int) -> int: ...

    def sync(self) -> None: ...

    def seal(self) -> None: ...

    def gap(self, bytes: int) -> None: ...

    @property
    def position(self) -> int: ...

    @property
    def length(self) -> int: ...

    @property
    def messages(self) -> int: ...

def read_index(path: str) -> dict[str, Any]: ...

def verify_segment(data_path: str, index_path: str) -> tuple[Any, Any]: ...

class Scan:
    """
    Messages of a range of a recording as Arrow batches. One thread at a time.
    """

    def __init__(self, segments: Sequence[tuple[str, str]], *, start: int, end: int, time_min: int, time_max: int, columns: int, stream: str, batch_rows: int, batch_bytes: int, frames: bool = False) -> None: ...

    def next_batch(self, columns: int, stream: str) -> tuple[Any, Any] | None: ...

    def empty_batch(self, columns: int, stream: str) -> tuple[Any, Any]: ...

    @property
    def resume(self) -> int: ...

class Lease:
    """A frame's buffer, which stays as it is while this lives. Read-only."""

    def release(self) -> None: ...

    @property
    def sequence(self) -> int: ...

    @property
    def position(self) -> int: ...

    @property
    def time_ns(self) -> int: ...

    @property
    def session(self) -> int: ...

    @property
    def buffer(self) -> int: ...

    @property
    def id(self) -> int: ...

    @property
    def start_ns(self) -> int: ...

    @property
    def end_ns(self) -> int: ...

    @property
    def fields(self) -> bytes: ...

def frames_receiver(fd: int, path: str, start: str, position: int, conflate: bool, pixels: bool) -> Receiver: ...

def try_take_frame(subscription: Subscription) -> Lease: ...

def take_frame(subscription: Subscription, timeout: float | None) -> Lease: ...

def newest_frame(subscription: Subscription) -> Lease: ...

def leases(subscription: Subscription) -> int: ...

def sync_sender(fd: int, path: str, name: bytes, clock: ManualClock | None) -> Sender: ...

def sync_receiver(fd: int, path: str, name: bytes, start: str, position: int, drop_after: float) -> Receiver: ...

class SyncMember:
    """
    What a member of a sync queue does per message; penstock.join makes them.
    """

    def __init__(self, publication: object, subscription: object, message: type[tuple[Any, ...]], channel: str, name: bytes, own: bool, spill_limit: int) -> None: ...

    def pop_many(self, limit: int = 1000) -> list[Any]:
        """What is there now, at most `limit` messages. Never blocks."""

    @property
    def screened(self) -> int:
        """
        Messages passed over: its own, and those of screened senders and types.
        """

    @property
    def spilled(self) -> int:
        """
        Bytes of unread messages that were moved into this member's own memory while it waited to write.
        """

    def append(self, body: Any = b"", type: str | bytes = "", *, timeout: float | None = None) -> int:
        """
        Writes a message (text, bytes or any buffer) for everybody else; the position after it.

        Waits while somebody has not read what the room is needed for; TimeoutError after `timeout` seconds (0: now or
        never). `Busy` when the slowest member does not let writers wait, or when this member's own unread messages fill
        its memory too: then read before you write. `TooLarge` for what can never fit.
        """

    def offer(self, body: Any = b"", type: str | bytes = "") -> int | None:
        """
        The same without ever blocking: None if there is no room.
        """

    def pop(self, timeout: float | None = None) -> Any:
        """
        The next message that is not screened. TimeoutError after `timeout` seconds (None: for ever, 0: now or never).
        """

    def try_pop(self) -> Any:
        """
        The next message, or None if there is none yet. Never blocks.
        """

def sync_append_many(member: SyncMember, bodies: object, type: object, timeout: float | None) -> int:
    """How many of the bodies found room before the timeout."""

def sync_poll_arrow(member: SyncMember, limit: int, max_bytes: int) -> tuple[Any, Any]: ...

def sync_keep_last(member: SyncMember, count: int) -> None: ...

def sync_screen(member: SyncMember, senders: Sequence[bytes], types: Sequence[bytes]) -> None: ...

def sync_before_change(member: SyncMember) -> int:
    """
    What sync_wait_change takes to sleep until somebody comes after this call.
    """

def sync_wait_change(member: SyncMember, before: int, timeout: float) -> None: ...

def sync_forget(member: SyncMember) -> None: ...

def sync_first_spilled(member: SyncMember) -> int | None:
    """Where reading goes on in the member's own memory, or None."""

def lock_byte(fd: int, byte: int, exclusive: bool, wait: bool) -> bool:
    """
    A kernel lock on one byte of a file, for as long as this description is open. False if it was not to be had.
    """

def format_pipe(*, fd: int, capacity: int, peers: int, pipes: int, mark: int, start_position: int, epoch: int, metadata: bytes, boot_id: bytes) -> None: ...

def pipe_file_size(*, capacity: int, peers: int, pipes: int, mark: int, start_position: int) -> int:
    """Checks the options; bytes that a pipe channel's file takes."""

def inspect_pipe(fd: int, path: str) -> dict[str, Any]:
    """Header, counters and members, read without disturbing anyone."""

class PipePeer:
    """A peer of a pipe channel, for the handles of its two directions."""

    def __init__(self, fd: int, path: str, role: int, name: bytes, when_full: int, clock: ManualClock | None) -> None: ...

    def prefault(self) -> bool: ...

def pipe_sender(peer: PipePeer) -> Sender: ...

def pipe_receiver(peer: PipePeer, by_hand: bool) -> Receiver: ...

def pipe_tap(peer: PipePeer, position: int) -> Receiver:
    """For a recorder whose positions go on from there."""

def pipe_send(publication: Publication, to: int, id: int, kind: int, data: object, timeout: float | None) -> object:
    """
    The peer that it went to, or None if it found no room before the timeout. to: one peer, or 0: any in turn.
    """

def pipe_take(subscription: Subscription, timeout: float | None) -> object:
    """
    (peer, id, kind, bytes, 0) of the next message, or None when the timeout passed first.
    """

def pipe_ask(publication: Publication, subscription: Subscription, id: int, kind: int, data: Buffer, timeout: float | None, patience: float, /) -> tuple[int, int, int, bytes, int] | int | None:
    """
    Sends to any peer, then takes what comes within `patience` seconds: as pipe_take, with the peer it went
    to; that peer alone if nothing came; None if it found no room.
    """

def pipe_answer(publication: Publication, subscription: Subscription, to: int, id: int, kind: int, data: Buffer, /) -> tuple[int, int, int, bytes, int]:
    """
    Sends to one peer, unless it is gone, and then waits for the next message: as pipe_take.
    """

def pipe_acknowledge(subscription: Subscription) -> None:
    """What was received so far is done with."""

def pipe_keep(subscription: Subscription) -> None:
    """
    What was received and not acknowledged goes to others when this handle closes.
    """

def pipe_redelivered(subscription: Subscription) -> bool:
    """
    Whether the message received last had been given to a reader that died with it.
    """

def pipe_waiting(publication: Publication) -> int:
    """Messages written here that nobody has acknowledged."""

def pipe_named(publication: Publication, name: bytes) -> int:
    """The living peer of that name, or 0."""

def pipe_name_of(publication: Publication, peer: int) -> bytes: ...

def pipe_others(publication: Publication) -> list[Any]:
    """The living peers that this one sends to."""

class ThreadPipe:
    """From one thread to another, without a lock."""

    def __init__(self) -> None: ...

    def qsize(self) -> int:
        """How many objects wait to be taken."""

    def fileno(self) -> int:
        """
        Readable while there is something to take, for selectors; the reader's.
        """

    def close(self) -> None:
        """No more is put; whoever waits for more is told."""

    @property
    def closed(self) -> bool:
        """Whether close() was called."""

    def put(self, item: Any) -> None:
        """
        Hands an object over. Never blocks. Closed after close().
        """

    def put_nowait(self, item: Any) -> None:
        """
        The same as put, which never blocks.
        """

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """
        The next object. `Empty` after `timeout` seconds, or at once without `block`; `Closed` after close() and the last object.
        """

    def get_nowait(self) -> Any:
        """
        The next object, or `Empty`.
        """

    def take(self, timeout: float | None = 0) -> Any:
        """
        The next object, or NotImplemented if there was none within the timeout.
        """

class ThreadMailbox:
    """From many threads to one."""

    def __init__(self) -> None: ...

    def qsize(self) -> int:
        """How many objects wait to be taken."""

    def fileno(self) -> int:
        """
        Readable while there is something to take, for selectors; the reader's.
        """

    def close(self) -> None:
        """No more is put; whoever waits for more is told."""

    @property
    def closed(self) -> bool:
        """Whether close() was called."""

    def put(self, item: Any) -> None:
        """
        Hands an object over. Never blocks. Closed after close().
        """

    def put_nowait(self, item: Any) -> None:
        """
        The same as put, which never blocks.
        """

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """
        The next object. `Empty` after `timeout` seconds, or at once without `block`; `Closed` after close() and the last object.
        """

    def get_nowait(self) -> Any:
        """
        The next object, or `Empty`.
        """

    def take(self, timeout: float | None = 0) -> Any:
        """
        The next object, or NotImplemented if there was none within the timeout.
        """
