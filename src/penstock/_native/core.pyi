"""Made by tools/stubs.py from the compiled module; `make stubs` writes it again."""

"""
Penstock's compiled core: shared bytes, atomics, recordings. Private: use penstock.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

from typing_extensions import Buffer
from typing import Any, Final, Self, overload

import numpy
import numpy.typing


def command_of(pid: int) -> str:
    """
    A process' command line; empty if there is none of that number, or nobody may see it.
    """

def process_name(pid: int, fd: int) -> str:
    """
    A process by its number, for errors: one that has the file of `fd` open, or one of another PID namespace.
    """

def make_shared_folder(at: int, name: str) -> int:
    """
    Makes a folder of mode 2770, which has its mode before it has its name. The result is an errno; 0: it is made.
    """

def register_errors(*, corrupt: type[Exception], mismatch: type[Exception], busy: type[Exception], closed: type[Exception], disconnected: type[Exception], too_slow: type[Exception], end_of_stream: type[Exception], too_large: type[Exception], invalid: type[Exception], unsupported: type[Exception], system: type[Exception], timeout: type[Exception]) -> None:
    """
    Registers the exception class of each kind of failure. Called once, as the package is imported.
    """

def end_handles() -> None:
    """
    From now on a daemon thread whose handle was closed stays where it is. Called once, by what closes handles at the end of the process.
    """

_gate: bool = True

class Strict:
    """
    A class whose objects take no attribute that the class does not have, but private ones.
    """

def crc32c(data: bytes, before: int = 0) -> int: ...

def latency_bucket(ns: int) -> int:
    """The bucket of a latency in a subscription's histogram."""

class MemberName:
    """The name of a member."""

    def __init__(self, given: bytes, own: bool = True) -> None: ...

    def now(self) -> bytes:
        """
        The name in this process. If none was given it is drawn, and drawn again in a forked child.
        """

LIFE_BYTE: int = 8

NAME_MAX: int = 64

ROLES: tuple[str, ...] = ...

WHEN_FULL: tuple[str, ...] = ('wait', 'drop_newest', 'drop_oldest')

MISSING_LENGTH: int = 32

SYNC_HEADER: str = '<HHI'

METADATA_MAX: int = 3840

NOTES_MAX: int = 1536

DESCRIPTION_MAX: int = 1024

FRAME_NOTE: str = '<HBBIQqq'

INDEX_HEADER_LENGTH: int = 64

INDEX_ENTRY: tuple[tuple[str, str], ...] = ...

ENTRY_BLOCK: int = 0

ENTRY_GAP: int = 1

ENTRY_SEAL: int = 2

ENTRY_HOLE: int = 3

RECORDED_COLUMNS: dict[str, int] = ...

class OpenHold:
    """
    Holds the byte that orders joining, leaving and deciding an open channel.
    """

    def __init__(self, fd: int, path: str) -> None: ...

    def release(self) -> None: ...

def open_file_size(kind: str, slots: int) -> int:
    """Bytes that a channel's file takes while it is open."""

def format_open(*, fd: int, kind: str, slots: int, notes: bytes, boot_id: bytes) -> None: ...

def is_open(fd: int, path: str, kind: str) -> bool:
    """Whether the channel waits for its first publication."""

def inspect_open(fd: int, path: str, kind: str) -> dict[str, Any]: ...

def read_notes(fd: int, path: str, kind: str) -> bytes:
    """The options and the codec that were named for an open channel so far."""

def write_notes(fd: int, path: str, kind: str, hold: OpenHold, notes: bytes, slots: int | None) -> None: ...

def early_log(fd: int, path: str, kind: str, name: bytes, drop_after: float) -> ReaderEnd: ...

def early_ring(fd: int, path: str, conflate: bool) -> ReaderEnd: ...

def early_pipe(fd: int, path: str, name: MemberName, by_hand: bool) -> ReaderEnd: ...

def early_tap(fd: int, path: str, name: MemberName, when_full: int, position: int) -> StreamEnd: ...

class ManualClock:
    """
    A wall clock for tests: stands still until it is set. Nanoseconds since the epoch.
    """

    def __init__(self, now_ns: int = 0) -> None: ...

    @property
    def now_ns(self) -> int: ...

    @now_ns.setter
    def now_ns(self, now_ns: int) -> None: ...

class Claim:
    """
    A message being written in place. As a context manager it gives a writable memoryview, commits at the end
    of the block and aborts if the block raises. BufferError instead of a commit while an array or another view of it is in use: the message is not sent, and its range stays claimed until the view is gone.
    """

    def __enter__(self) -> memoryview: ...

    def __exit__(self, type: object | None, value: object | None, traceback: object | None) -> bool: ...

    def commit(self) -> int:
        """Makes the message visible; returns the stream position after it."""

    def abort(self) -> None:
        """Gives the claim up; readers skip it."""

    @property
    def ended(self) -> bool: ...

    @property
    def position(self) -> int:
        """Where the message's frame begins."""

class WriterEnd:
    """The writing end of a channel, made for a Publication."""

    def prefault(self) -> bool: ...

class Publication:
    def __init__(self, writer: WriterEnd) -> None: ...

    def claim(self, length: int, timeout: float | None = None) -> Claim:
        """
        Room for one message of `length` bytes, to be written in place. Waits for room as `send` does.
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
        """Whether there is a subscription at this moment."""

    @property
    def readers(self) -> int:
        """How many subscriptions there are at this moment."""

    @property
    def lag(self) -> int:
        """Bytes by which the slowest subscription is behind; 0 without any."""

    @property
    def all_read(self) -> bool:
        """
        Whether every subscription has read all messages; also true without any. A log's subscriptions store their position when they find nothing more.
        """

    def wait_for_readers(self, count: int = 1, timeout: float | None = None) -> None:
        """
        Waits until at least `count` subscriptions are there. `TimedOut` after `timeout` seconds.
        """

    def send(self, data: Buffer, timeout: float | None = None) -> int:
        """
        Publishes one message (bytes or any contiguous buffer) and returns the stream position after it.
        Waits while there is no room: `TimedOut` after `timeout` seconds (None: waits for ever, 0: never waits). Messages above max_payload go out in fragments.
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

def why_no_readers(publication: Publication) -> str:
    """
    The end of the text of a wait for subscriptions that was in vain; empty if nothing is known.
    """

def why_full(publication: Publication) -> str:
    """The reason why there is no room now, for an error."""

class EventWatch:
    """
    Says when it is worth to try again: for room, for subscriptions, or for messages.
    """

    def __init__(self, handle: Publication | Subscription, members: bool = False) -> None:
        """
        On a publication: for room, or with `members` for subscriptions. On a subscription: for messages.
        """

    def prepare(self) -> None:
        """Before an attempt."""

    def arm(self) -> int:
        """
        After an attempt that failed: a descriptor that is readable once the next one is worth it, and at least every 50 ms.
        """

class SendAttempt:
    """One message on its way."""

    def __init__(self, publication: Publication, data: Buffer) -> None: ...

    def step(self) -> int | None:
        """The position after the message, or None if there was no room."""

    def end(self) -> None:
        """Gives up the fragments that are not sent."""

class StreamEnd:
    """An end of a channel that follows the stream, made for a Tap."""

    def prefault(self) -> bool: ...

class ReaderEnd(StreamEnd):
    """The reading end of a channel, made for a Subscription."""

    def lead_through(self, gate: Gate) -> None: ...

class StreamHandle:
    """A subscription, or a recorder's tap."""

    @property
    def closed(self) -> bool: ...

    @property
    def position(self) -> int:
        """The position where reading continues."""

    @property
    def lag(self) -> int:
        """Bytes of the stream between here and its end."""

    @property
    def lost(self) -> int:
        """
        Bytes of the stream that it missed because it was lapped (ring) or dropped (log, drop_after).
        """

    @property
    def lost_messages(self) -> int | None:
        """
        Messages that it missed; None where only the bytes are known (a log that dropped it).
        """

class Tap(StreamHandle):
    """
    A recorder's reader of a channel whose subscriptions take messages away.
    """

    def __init__(self, end: StreamEnd) -> None: ...

    def close(self) -> None:
        """
        Gives the slot back; writers no longer wait for it. Safe to call twice.
        """

class Borrow:
    """
    A message read in place: as a context manager it gives a read-only memoryview. The log keeps the bytes
    until the block has ended and every view of them (a NumPy array, say) is gone.
    """

    @property
    def received(self) -> tuple[int, int, int]:
        """(position, time_ns, session) of the message that is borrowed."""

    @property
    def envelope(self) -> tuple[bytes, bytes]:
        """
        Sender and type of the message that is borrowed; empty where messages have none.
        """

    def __enter__(self) -> memoryview: ...

    def __exit__(self, type: object | None, value: object | None, traceback: object | None) -> bool: ...

class Subscription(StreamHandle):
    def __iter__(self) -> Self:
        """Implement iter(self)."""

    def __next__(self) -> Any:
        """Implement next(self)."""

    def __init__(self, reader: ReaderEnd, spin: float, until_end: bool = False, decodes: bool | None = False) -> None:
        """
        decodes: whether calls give what `_decoded(bytes)` returns; None: `_decide()` is called when the channel has its first publication, and calls `decide`.
        """

    def poll(self, limit: int = 1000) -> list[Any]:
        """
        The messages that are there now, at most `limit`, as a list. Never blocks. The next call raises an error behind the first message, so that no message before it is lost.
        """

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
    def conflated(self) -> int:
        """
        Messages skipped because newer ones were there (conflate=True); they do not count as lost.
        """

    @property
    def restarts(self) -> int:
        """
        How many publications of a ring followed the first one that this subscription read.
        """

    @property
    def incomplete(self) -> int:
        """
        Messages without all their fragments: their publication died or gave up.
        """

    def recv(self, timeout: float | None = None) -> bytes:
        """
        The next message: bytes, or an object on a channel with a codec. Waits for it: `TimedOut` after `timeout` seconds (None: waits for ever, 0: never waits).
        """

    def try_recv(self) -> bytes | None:
        """
        The next message, or None if there is none yet. Never blocks.
        """

def last_of(subscription: Subscription) -> tuple[int, int, int, bytes, bytes]:
    """
    (position, time_ns, session, sender, type) of the message received last; the last two empty where messages have none.
    """

def has_kept(subscription: Subscription) -> bool:
    """
    Whether last values are still to be given, from before the subscription's position.
    """

def next_bytes(subscription: Subscription, /) -> bytes | None:
    """
    The bytes of the next message, not decoded, or None if there is none yet.
    """

def poll_arrow(subscription: Subscription, limit: int, max_bytes: int) -> tuple[Any, Any]: ...

def position_of(subscription: Subscription, message: bytes) -> int:
    """The position of a message that was received a moment ago."""

def keep_back(subscription: Subscription, error: object) -> None:
    """
    The message taken last is not returned: the next call raises this error instead.
    """

def decide(subscription: Subscription, decodes: bool) -> None:
    """
    From now on a subscription to a channel that was open gives objects, or bytes.
    """

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

class GateWait:
    """A wait in an event loop. A test ends it, not the clock."""

    @property
    def over(self) -> bool:
        """Whether the test ended every wait since this one began."""

    def end(self) -> None: ...

def gate_wait(subscription: Subscription) -> GateWait | None:
    """For a wait that begins now: None unless a test holds the channel."""

@overload
def look_at_file(handle: StreamHandle, look: Callable[[int, str], Any]) -> Any: ...

@overload
def look_at_file(handle: Publication, look: Callable[[int, str], Any]) -> Any:
    """
    The result of `look(descriptor, place)`, for the file that a handle has open, whatever has its name now. The descriptor is the handle's, for the length of the call.
    """

def decided(stream: StreamHandle) -> bool:
    """
    Whether the channel has had a publication, ever: until then it is open, and has no codec and nothing to read.
    """

def metadata_of(stream: StreamHandle) -> bytes:
    """The metadata of a channel that is decided."""

def wait_any(subscriptions: Sequence[Subscription], timeout: float | None) -> list[int]:
    """The subscriptions that have something for a user."""

class Waker:
    """Ends the waits of another thread, for good."""

    def __init__(self) -> None: ...

    def wake(self) -> None: ...

    @property
    def woken(self) -> bool: ...

def wait_any_frames(streams: Sequence[StreamHandle], timeout: float | None, waker: Waker) -> None:
    """
    Until one of the streams has something for a recorder, or the waker has woken.
    """

class RecordingSegment:
    """A segment being written. One thread at a time."""

    def __init__(self, *, data_fd: int, data_path: str, index_fd: int, index_path: str, base: int, term_length: int, initial_term_id: int, stream_id: int, recording: int, messages_before: int, entries: int, data_length: int) -> None: ...

    def record(self, stream: StreamHandle, max_bytes: int) -> int: ...

    def pad_claim(self, stream: StreamHandle) -> int: ...

    def append(self, payload: bytes, time_ns: int, session: int) -> int: ...

    def sync(self) -> None: ...

    def seal(self) -> None: ...

    def gap(self, bytes: int) -> None: ...

    @property
    def position(self) -> int: ...

    @property
    def length(self) -> int: ...

    @property
    def messages(self) -> int: ...

def read_index(path: str, open: object | None = None, recording: int = 0) -> dict[str, Any]: ...

def verify_segment(data_path: str, index_path: str, open: object | None = None, recording: int = 0) -> tuple[Any, Any]: ...

class Scan:
    """
    Messages of a range of a recording as Arrow batches. One thread at a time.
    """

    def __init__(self, segments: Sequence[tuple[str, str]], *, start: int, end: int, time_min: int, time_max: int, columns: int, stream: str, batch_rows: int, batch_bytes: int, frames: bool = False, open: object | None = None, later: Callable[[], list[tuple[str, str]]] | None = None, recording: int = 0, begins: int | None = None) -> None: ...

    def next_batch(self) -> tuple[Any, Any] | None: ...

    @property
    def resume(self) -> int: ...

    @property
    def gone(self) -> str: ...

    def left_out(self, first: int) -> list[tuple[int, int, str, bool]]: ...

def take_message(stream: StreamHandle) -> tuple[int, bytes, int, int] | None:
    """
    The next message of frames with their pixels: position, payload, send time in ns, session. None: there is none yet.
    """

def pass_older(stream: StreamHandle, time_ns: int) -> int:
    """
    Passes the frames in front of the first message that was sent at `time_ns` or later; how many messages begin there. Not of rings.
    """

def empty_batch(columns: int) -> tuple[Any, Any]: ...

class Look:
    """
    A look at a channel's memory without a slot: it changes nothing, and nobody waits for it. One thread at a time.
    """

    @property
    def epoch(self) -> int: ...

    @property
    def start_position(self) -> int: ...

    @property
    def torn(self) -> bool:
        """
        Whether the last copy met fragments of a message that begins before it.
        """

    def end(self) -> int:
        """The position behind the newest message."""

    def oldest(self) -> int:
        """
        Where the oldest message that is kept begins; the end if there is none.
        """

    def copy(self, start: int, end: int, columns: int, stream: str) -> tuple[list[tuple[Any, Any]], int, int, list[tuple[int, int]]]:
        """
        Whole messages of [start, end) as Arrow batches; where it ended; where the first message begins that is not whole; and the spans that memory has no more. start: where a message begins.
        """

    def times(self, start: int, end: int) -> tuple[list[tuple[int, int]], int]:
        """
        The position and the send time, in ns, of each whole message of [start, end); and where it ended.
        """

def format_log(*, fd: int, term_length: int, capacity: int, slots: int, initial_term_id: int, stream_id: int, start_position: int, epoch: int, metadata: bytes, boot_id: bytes, sync: bool = False, hold: OpenHold | None = None, last_keys: int = 0, last_max: int = 0) -> None: ...

def log_file_size(slots: int, term_length: int, sync: bool = False, last_keys: int = 0, last_max: int = 0) -> int:
    """Bytes that the file of a log, or of a sync queue, takes."""

def inspect_log(fd: int, path: str, sync: bool = False) -> dict[str, Any]:
    """Header, counters and members, read without disturbing anyone."""

def log_look(fd: int, path: str, sync: bool = False) -> Look:
    """Looks at a log, or at a sync queue, without a slot."""

def check_log_options(term_length: int, capacity: int, slots: int, start_position: int, last_keys: int = 0, last_max: int = 0) -> None: ...

def log_writer(fd: int, path: str, exclusive: bool, clock: ManualClock | None) -> WriterEnd: ...

def log_reader(fd: int, path: str, start: str, position: int, drop_after: float) -> ReaderEnd: ...

def last_values(stream: StreamHandle) -> list[tuple[int, int, int, bytes]]:
    """
    The newest message of each key of a log from before the subscription's position, in order: position, send time, session, payload.
    """

def format_ring(*, fd: int, capacity: int, slots: int, start_position: int, start_sequence: int, epoch: int, metadata: bytes, boot_id: bytes, hold: OpenHold | None = None) -> None: ...

def ring_file_size(slots: int, capacity: int) -> int:
    """Bytes that a ring channel's file takes."""

def inspect_ring(fd: int, path: str) -> dict[str, Any]:
    """Header, counters and members, read without disturbing anyone."""

def ring_look(fd: int, path: str) -> Look:
    """Looks at a ring without a slot."""

def check_ring_options(capacity: int, slots: int, start_position: int) -> None: ...

def ring_writer(fd: int, path: str, clock: ManualClock | None) -> WriterEnd: ...

def ring_reader(fd: int, path: str, start: str, position: int, conflate: bool) -> ReaderEnd: ...

def format_frames(*, fd: int, capacity: int, slots: int, buffers: int, frame_bytes: int, start_position: int, start_sequence: int, epoch: int, metadata: bytes, boot_id: bytes) -> None: ...

def inspect_frames(fd: int, path: str) -> dict[str, Any]:
    """Header, counters and members, read without disturbing anyone."""

def frames_file_size(*, capacity: int, slots: int, buffers: int, frame_bytes: int, start_position: int, fields: int = 0) -> int:
    """Checks the options; bytes that a frames channel's file takes."""

def frames_writer(fd: int, path: str, clock: ManualClock | None, waits: bool) -> WriterEnd: ...

def frames_reader(fd: int, path: str, start: str, position: int, conflate: bool, waits: int, pixels: bool) -> ReaderEnd: ...

def try_take_frame(subscription: Subscription, factory: FrameFactory) -> Any: ...

def take_frame(subscription: Subscription, factory: FrameFactory, timeout: float | None) -> Any: ...

def newest_frame(subscription: Subscription, factory: FrameFactory) -> Any: ...

class Lease:
    """
    A lease of a frame's buffer, which does not change while this exists. Read-only.
    """

class FrameFactory:
    """What the frames of a channel are in Python."""

    def __init__(self, kind: object, received: object, open: object, ndarray: object) -> None: ...

class ReceivedFrame:
    """A frame's lease, its note and its array."""

    @property
    def array(self) -> numpy.typing.NDArray[Any]:
        """
        The pixels: a read-only NumPy array of this frame's shape and dtype, without a copy. `Corrupt` for a damaged note.
        """

    @property
    def shape(self) -> tuple[int, ...]:
        """
        The array's shape: the channel's, or a smaller one where the channel was made with `varies=True`.
        """

    @property
    def dtype(self) -> numpy.dtype[Any]:
        """The array's dtype: one of the channel's."""

    @property
    def id(self) -> int:
        """The publisher's number for this frame; by default its sequence."""

    @property
    def sequence(self) -> int:
        """The number of frames published on this channel before this one."""

    @property
    def position(self) -> int:
        """Position of the frame's note in the channel's stream, in bytes."""

    @property
    def time_ns(self) -> int:
        """When it was published, nanoseconds since the epoch."""

    @property
    def start_ns(self) -> int:
        """
        When the exposure began, nanoseconds in the publisher's clock; 0 if it was not given.
        """

    @property
    def end_ns(self) -> int:
        """When the exposure ended, as `start_ns`."""

    def release(self) -> None:
        """
        Gives the lease back now. BufferError while an array made from this frame is still in use.
        """

    def __enter__(self) -> Self: ...

    def __exit__(self, type: object | None, value: object | None, traceback: object | None) -> None: ...

    @property
    def _kind(self) -> Any: ...

    @property
    def _lease(self) -> Any: ...

    @property
    def _session(self) -> int: ...

    @property
    def _length(self) -> int: ...

    @property
    def _sizes(self) -> tuple[int, ...] | None:
        """None: the channel's."""

    @property
    def _number(self) -> int:
        """Which of the dtypes."""

    @property
    def _fields(self) -> bytes: ...

    @property
    def _meta(self) -> Any: ...

    @_meta.setter
    def _meta(self, arg: object | None, /) -> None: ...

class OpenedFrame:
    """A claimed buffer, what is said of it, and its array."""

    @property
    def array(self) -> numpy.typing.NDArray[Any]:
        """The buffer, writable until the frame is published."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The array's shape."""

    @property
    def id(self) -> Any:
        """A number of the publisher's; None: the frame's sequence."""

    @id.setter
    def id(self, id: object | None) -> None: ...

    @property
    def start_ns(self) -> Any:
        """When the exposure began, nanoseconds; 0: not given."""

    @start_ns.setter
    def start_ns(self, start_ns: object | None) -> None: ...

    @property
    def end_ns(self) -> Any:
        """When the exposure ended, nanoseconds; 0: not given."""

    @end_ns.setter
    def end_ns(self, end_ns: object | None) -> None: ...

    @property
    def meta(self) -> Any:
        """The publisher's own fields: plain JSON values."""

    @meta.setter
    def meta(self, meta: object | None) -> None: ...

    @property
    def header(self) -> Any:
        """The record that goes with it, where the channel has one."""

    @header.setter
    def header(self, header: object | None) -> None: ...

    def commit(self) -> int:
        """
        Publishes the frame. Returns the stream position after its note. `Invalid` if `meta` is not plain JSON, or if `header` does not fit: then the frame is released.
        """

    def abort(self) -> None:
        """Gives the buffer back unpublished."""

    def __enter__(self) -> Self: ...

    def __exit__(self, type: object | None, value: object | None, traceback: object | None) -> None: ...

    @property
    def _kind(self) -> Any: ...

    @property
    def _claim(self) -> Any: ...

    @property
    def _number(self) -> int:
        """Which of the dtypes."""

def open_frame(publication: Publication, factory: FrameFactory, timeout: float | None, shape: Any = None, dtype: Any = None) -> Any:
    """
    A free buffer of a frames channel, to be filled. shape, dtype: of this frame; None: the channel's.
    """

def describe_frame(frame: OpenedFrame, id: int | None, start_ns: int, end_ns: int, fields: bytes, shape: Sequence[int] = [], length: int = 0) -> None:
    """
    Says what an open frame is, beside its bytes; before commit. shape, length: where they are not the channel's.
    """

def leases(subscription: Subscription) -> int: ...

def sync_writer(fd: int, path: str, name: MemberName, clock: ManualClock | None) -> WriterEnd: ...

def sync_reader(fd: int, path: str, name: MemberName, start: str, position: int, drop_after: float) -> ReaderEnd: ...

class SyncMember:
    """A sync queue member's work per message. penstock.join makes members."""

    def __iter__(self) -> Self:
        """Implement iter(self)."""

    def __next__(self) -> Any:
        """Implement next(self)."""

    def __init__(self, publication: object, subscription: object, message: type[tuple[Any, ...]], own: bool, spill_limit: int) -> None: ...

    def offer_many(self, messages: object, *, type: str | bytes = "") -> int:
        """
        Writes messages of one type in order until there is no room, without blocking, and returns how many. Takes a
        sequence of buffers, or one array whose rows are the messages.
        """

    def claim(self, length: int, timeout: float | None = None, *, type: str | bytes = "") -> Claim:
        """
        Room for one body of `length` bytes, to be written in place. Waits for room as `send` does.
        """

    def poll(self, limit: int = 1000) -> list[Any]:
        """
        The messages that are there now, at most `limit`. Never blocks. The next call raises an error behind the first message, so that no message before it is lost.
        """

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

    def send(self, body: Any, timeout: float | None = None, *, type: str | bytes = "") -> int:
        """
        Writes a message (bytes or any buffer) for everybody else; the stream position after it.

        Waits while somebody has not read what the room is needed for; TimeoutError after `timeout` seconds (None: for
        ever, 0: now or never). `Busy` when the slowest member does not let writers wait, or when this member's own unread
        messages fill its memory too: then read before you write. `TooLarge` for what can never fit.
        """

    def offer(self, body: Any, *, type: str | bytes = "") -> int | None:
        """
        The same without ever blocking, for at most max_payload bytes: None if there is no room.
        """

    def recv(self, timeout: float | None = None) -> Any:
        """
        The next message that is not screened. `TimedOut` after `timeout` seconds (None: waits for ever, 0: never waits).
        """

    def try_recv(self) -> Any:
        """
        The next message, or None if there is none yet. Never blocks.
        """

def sync_next_of_batch(member: SyncMember, first: bool) -> Any:
    """
    One message of a batch, or None. The next call raises an error behind the first message.
    """

def sync_try_send(member: SyncMember, body: Any, type: str | bytes) -> int | None:
    """`send` with a timeout of 0, which returns None if there is no room."""

def sync_here(member: SyncMember) -> None:
    """
    Before its subscription is read directly: in a forked child the member takes slots of its own.
    """

def sync_screen(member: SyncMember, senders: Sequence[bytes], types: Sequence[bytes]) -> None: ...

def sync_wait_for_members(member: SyncMember, attempt: Callable[[], bool], timeout: float | None) -> bool:
    """
    Waits until `attempt` returns true. Calls it again when a member has joined. False when the timeout has passed.
    """

def sync_changes(member: SyncMember, since: int) -> tuple[int, int, list[tuple[bool, int, int, int, str]]]:
    """
    The members that read and came (True) or went since event number `since`: the number of the next event, how many are no longer kept, and the slot, the time of joining, the process and the name of each. A number beyond the end is the end.
    """

def sync_forget(member: SyncMember) -> None: ...

def lock_byte(fd: int, byte: int, exclusive: bool, wait: bool) -> bool:
    """
    Takes a kernel lock on one byte of a file, for as long as this description is open. False if another process has it.
    """

def format_pipe(*, fd: int, capacity: int, max_members: int, max_pipes: int, max_messages: int, start_position: int, epoch: int, metadata: bytes, boot_id: bytes, hold: OpenHold | None = None) -> None: ...

def pipe_file_size(*, capacity: int, max_members: int, max_pipes: int, max_messages: int, start_position: int) -> int:
    """Checks the options; bytes that a pipe channel's file takes."""

def inspect_pipe(fd: int, path: str) -> dict[str, Any]:
    """Header, counters and members, read without disturbing anyone."""

class PipePeer:
    """A peer of a pipe channel, for the handles of its two directions."""

    def __init__(self, fd: int, path: str, role: int, name: MemberName, when_full: int, clock: ManualClock | None) -> None: ...

    def prefault(self) -> bool: ...

def pipe_writer(peer: PipePeer) -> WriterEnd: ...

def pipe_reader(peer: PipePeer, by_hand: bool) -> ReaderEnd: ...

def socket_reader(peer: PipePeer, named: bool) -> ReaderEnd:
    """named: whether Arrow batches have a column `sender`."""

def pipe_tap(peer: PipePeer, position: int) -> StreamEnd:
    """A recorder's end, whose positions continue from `position`."""

def pipe_send(publication: Publication, to: int, id: int, kind: int, data: object, timeout: float | None) -> int | None:
    """
    The publication's position after the message, or None if it found no room before the timeout. to: one peer, or 0:
    any in turn.
    """

def pipe_submit(publication: Publication, id: int, kind: int, data: object, timeout: float | None) -> int | None:
    """
    Sends to any peer in turn, and returns that peer, or None if it found no room before the timeout.
    """

def pipe_take(subscription: Subscription, timeout: float | None) -> tuple[int, int, int, bytes, bytes] | None:
    """
    (peer, id, kind, bytes, the sender's name) of the next message, or None when the timeout passed first.
    """

def pipe_answer(publication: Publication, subscription: Subscription, to: int, id: int, kind: int, data: Buffer, /) -> tuple[int, int, int, bytes, bytes]:
    """
    Sends to one peer, unless it is gone, and then waits for the next message: as pipe_take, but without a name.
    """

def pipe_ask(publication: Publication, subscription: Subscription, id: int, kind: int, data: Buffer, timeout: float | None, /) -> bytes | tuple[int, tuple[int, int, int, bytes, bytes] | None] | None:
    """
    Sends to any peer in turn, and waits a little for the message with the same id: its bytes, if its kind is 0.
    Else the peer, and the message that came, as pipe_take but without a name, or None if none came. None in
    place of all that if it found no room before the timeout.
    """

def pipe_acknowledge(subscription: Subscription) -> None:
    """Acknowledges the messages received so far."""

def pipe_pause(subscription: Subscription) -> None:
    """
    Acknowledges, and lets others take the messages that wait for this handle until it reads again.
    """

def pipe_requeue_on_close(subscription: Subscription) -> None:
    """
    Messages received and not acknowledged are redelivered to others when this handle closes.
    """

def pipe_redelivered(subscription: Subscription) -> bool:
    """
    Whether the message received last had been given to a reader that died with it.
    """

def pipe_unread(publication: Publication) -> int:
    """Messages written here that no reader has acknowledged."""

def pipe_named(publication: Publication, name: bytes) -> int:
    """The living peer of that name, or 0."""

def pipe_name_of(publication: Publication, peer: int) -> bytes: ...

def pipe_others(publication: Publication) -> list[Any]:
    """The living peers that this one sends to."""

class ThreadPipe:
    """A queue from one thread to another, without a lock."""

    def __init__(self) -> None: ...

    def qsize(self) -> int:
        """How many objects wait to be taken."""

    def fileno(self) -> int:
        """
        A descriptor that is readable while there is something to take, for the reader's selectors.
        """

    def close(self) -> None:
        """Ends the queue: `put` raises `Closed`, and a waiting `get` ends."""

    @property
    def closed(self) -> bool:
        """Whether close() was called."""

    def put(self, item: Any) -> None:
        """
        Puts an object. Never blocks. `Closed` after close().
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
    """A queue from many threads to one."""

    def __init__(self) -> None: ...

    def qsize(self) -> int:
        """How many objects wait to be taken."""

    def fileno(self) -> int:
        """
        A descriptor that is readable while there is something to take, for the reader's selectors.
        """

    def close(self) -> None:
        """Ends the queue: `put` raises `Closed`, and a waiting `get` ends."""

    @property
    def closed(self) -> bool:
        """Whether close() was called."""

    def put(self, item: Any) -> None:
        """
        Puts an object. Never blocks. `Closed` after close().
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

class Counter:
    """
    A counter of this user's programs, by its name: any process adds to it, and the count outlives them. Any thread may call.
    """

    def __init__(self, fd: int, name: str) -> None: ...

    def add(self, amount: int = 1) -> None:
        """
        Adds a whole number from 0 to 2**64 - 1. The count is kept modulo 2**64: behind 2**64 - 1 it goes on at 0. `TypeError` for anything else, a truth value included; `Invalid` for a number below 0 or above.
        """

    @property
    def value(self) -> int:
        """The count now, over all processes."""

    @property
    def name(self) -> str: ...

    def __repr__(self) -> str: ...

    BYTES: Final[int] = ...
    """(arg: object, /) -> int"""

def inspect_endpoint(fd: int, path: str) -> dict[str, Any]:
    """
    Options, counters, subscriptions and images, read without disturbing anyone.
    """

def forget_endpoint(fd: int, path: str, made: bool) -> bool:
    """
    Removes an endpoint's file if no subscription is there, and the caller has made it or nobody has ever received. True if it has no name.
    """

def endpoint_file_size(slots: int) -> int:
    """Bytes that an endpoint's file takes."""

def format_endpoint(*, fd: int, at: tuple[bytes, int, int], stream: int, window: int, reliable: bool, group_tag: int | None, receive_buffer: int, slots: int, interface: tuple[bytes, int, int], control: tuple[bytes, int, int] | None, sealed: bool, metadata: bytes, boot_id: bytes) -> None: ...

def udp_writer(*, uri: str, prefix: str, to: tuple[bytes, int, int], stream: int, session: int | None, mtu: int, term_length: int, capacity: int, initial_term_id: int, start_position: int, flow_control: str, group_tag: int, linger: float, slots: int, metadata: bytes, interface: tuple[bytes, int, int], ttl: int, send_buffer: int, receive_buffer: int, control: tuple[bytes, int, int] | None, destinations: list[tuple[bytes, int, int]] | None, names: list[str], keys: list[bytes], clock: ManualClock | None) -> WriterEnd: ...

def udp_reader(fd: int, path: str, start: str, position: int, drop_after: float, keys: Sequence[bytes], control_host: str, metadata: bytes) -> ReaderEnd: ...

def udp_tap(fd: int, path: str, start: str, position: int, drop_after: float, keys: Sequence[bytes]) -> StreamEnd: ...

def udp_streams(tap: StreamHandle) -> list[Any]:
    """The sessions that a recorder's tap reads."""

def udp_stream(tap: StreamHandle, number: int) -> StreamEnd:
    """The end of one session of a recorder's tap."""

def udp_stream_end(stream: StreamHandle) -> str:
    """
    How its session has ended, once all of it was read: closed, or lost if it fell silent before it closed; else open.
    """

def udp_sessions(subscription: Subscription) -> list[Any]:
    """The sessions that a subscription reads."""

def udp_reached(subscription: Subscription) -> list[tuple[int, int, int, int, int]]:
    """
    The images that a subscription reads or has read, oldest first: session, initial term id, where it was joined, how far it was read, bytes that were lost before that.
    """

def udp_receiving(subscription: Subscription) -> dict[str, Any]:
    """The endpoint's counters."""

def udp_sending(publication: Publication) -> dict[str, Any]:
    """The publication's counters."""

def udp_progress(publication: Publication) -> tuple[int, bool]:
    """
    Up to which position receivers have read, and whether another receiver has taken the place of one: it lacks what that one had not read.
    """

def udp_counts(file: bytes) -> dict[str, Any]:
    """A publication's counters, from the file that it shows them in."""

def udp_receivers(file: bytes) -> list[Any] | None:
    """
    The receivers that a publication hears of, from the file that it shows them in. None: they change now.
    """

def udp_path_text(mtu: int, arrives: int, where: str) -> str:
    """That datagrams of the MTU do not arrive somewhere, and what to do."""

udp_counts_bytes: int = 32768

def udp_destination(publication: Publication, to: tuple[bytes, int, int], name: str, add: bool) -> bool:
    """
    Adds a destination, or removes it. False: it is there already; it is not there.
    """

def udp_told(handle: Publication | Subscription) -> tuple[str, str]:
    """
    A warning about the socket's buffers, and a receiver's last error; empty if there is none.
    """

def udp_finish(seconds: float) -> bool:
    """
    Waits until all closed publications are done, at most so long. Whether they are.
    """

def udp_unsent() -> list[tuple[str, int]]:
    """
    The closed publications that gave up since the last call: the channel of each, and how many bytes were never sent.
    """

class AwaitNote:
    """Notes in shared memory that a coroutine waits on a handle."""

    def __init__(self, handle: Publication | Subscription, members: bool, timed: bool, blocks: bool = False) -> None:
        """
        On a publication: for room, or with `members` for subscriptions. On a subscription: for messages. blocks: the thread sleeps, not a coroutine.
        """

    def begin(self) -> None:
        """Before each sleep."""

    def end(self) -> None:
        """The wait is over. Safe to call twice."""

@overload
def take_reason(publication: Publication) -> str:
    """
    The end of the text of a wait that was in vain; empty if nothing is known.
    """

@overload
def take_reason(subscription: Subscription) -> str:
    """The same."""

def set_warn_after(ns: int) -> None:
    """A wait that lasts longer is logged once. 0: never."""

def log_waits(fd: int, path: str, sync: bool = False) -> list[dict[str, Any]]:
    """
    The participants, their waits, and for whom they wait; the dead whose slots nobody has taken among them.
    """

def ring_waits(fd: int, path: str) -> list[dict[str, Any]]:
    """
    The participants, their waits, and for whom they wait; the dead whose slots nobody has taken among them.
    """

def frames_waits(fd: int, path: str) -> list[dict[str, Any]]:
    """
    The participants, their waits, and for whom they wait; the dead whose slots nobody has taken among them.
    """

def pipe_waits(fd: int, path: str) -> list[dict[str, Any]]:
    """
    The participants, their waits, and for whom they wait; the dead whose slots nobody has taken among them.
    """

def endpoint_waits(fd: int, path: str) -> list[dict[str, Any]]:
    """
    The participants, their waits, and for whom they wait; the dead whose slots nobody has taken among them.
    """

def open_waits(fd: int, path: str, kind: str) -> list[dict[str, Any]]:
    """The same of a channel without a first publication."""
