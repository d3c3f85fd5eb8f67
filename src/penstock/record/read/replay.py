"""Replay: a recording's messages, decoded, in their recorded order and at the recorded speed; or published again onto a channel."""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock import codecs
from penstock._native import core as _native
from penstock.channels import handles
from penstock.channels.uri.channel import parse
from penstock.channels.uri.value import AnyChannel
from penstock.codecs import multipart
from penstock.codecs.frames import frame_options
from penstock.errors import Busy, DecodeError, Invalid, Unsupported
from penstock.record.format.types import Connector, Recorded, RecordingInfo
from penstock.record.read.scan import Scanner, described
from penstock.util.clock import Clock

if TYPE_CHECKING:
    import pyarrow as pa


class Source(NamedTuple):
    """The fields of a recording that publishing its messages needs."""

    id: int
    channel: str
    codec: dict[str, Any]


class PassingOver(Iterator[Recorded]):
    """Yields the messages found, and raises the errors among them. The next call continues after an error.

    One thread at a time: `Busy` while another call is under way. recording: its number or its channel, for this error.
    """

    def __init__(self, recording: int | AnyChannel, found: Generator[Recorded | DecodeError, None, None]) -> None:
        self._recording, self._found = recording, found

    def __next__(self) -> Recorded:
        try:
            one = next(self._found)
        except ValueError as error:
            self._raise_busy(error)
            raise
        if isinstance(one, DecodeError):
            raise one
        return one

    def close(self) -> None:
        """Ends it, and closes the files that it held open."""
        try:
            self._found.close()
        except ValueError as error:
            self._raise_busy(error)
            raise

    def _raise_busy(self, error: ValueError) -> None:
        """`Busy` if this is the error of a generator that runs already, which none of its frames has raised."""
        if type(error) is ValueError and error.__traceback__ is not None and error.__traceback__.tb_next is None:
            name = f"recording {self._recording}" if isinstance(self._recording, int) else self._recording
            raise Busy(
                f"{name}: another thread is in a call of this iterator: give each thread one of its own, or a lock"
            ) from None


def messages(batch: pa.RecordBatch, codec: codecs.Codec, channel: str) -> Iterator[Recorded | DecodeError]:
    """A batch's rows, decoded. A row that does not decode gives its error."""
    decode = codec.parse
    names = ("payload", "position", "timestamp_ns", "session", "lost")
    columns = {name: batch.column(name).to_pylist() for name in names}
    for payload, position, time_ns, session, lost in zip(*columns.values(), strict=True):
        try:
            data = decode(payload)
        except Exception as error:
            wrong = codecs.undecodable(codec, channel, position, payload, error)
            wrong.__cause__ = error
            yield wrong
        else:
            yield Recorded(data, position, time_ns, session, lost)


def in_rhythm(
    scanner: Scanner,
    codec: codecs.Codec,
    channel: str,
    speed: float | None,
    clock: Clock,
    on_skip: Callable[[str], None] | None,
) -> Iterator[Recorded | DecodeError]:
    """A scan's messages. speed: None as fast as they are read, 1.0 as they were sent, 2.0 twice as fast. on_skip: called with a text for each
    damaged part that is left out."""
    begun, first, is_stream = clock.monotonic(), None, scanner.ahead is None
    seen = 0

    def tell_skipped() -> None:
        nonlocal seen
        fresh, seen = scanner.left_out[seen:], len(scanner.left_out)
        for one in fresh:
            if on_skip is not None and not one.in_index:
                on_skip(f"{channel}: {described(one)}")

    for batch in scanner:
        tell_skipped()
        for message in messages(batch, codec, channel):
            if speed is not None and is_stream and not isinstance(message, DecodeError):
                first = message.time_ns if first is None else first
                ahead = begun + (message.time_ns - first) / 1e9 / speed - clock.monotonic()
                if ahead > 0:
                    clock.sleep(ahead)
            yield message
        is_stream = True
    tell_skipped()


def holds_frames(channel: AnyChannel) -> bool:
    """Whether a channel carries frames."""
    return parse(channel).kind.by_reference


def check_target(channel: AnyChannel) -> None:
    """`Unsupported` for a channel onto which no recording can be published."""
    if parse(channel).kind.name.startswith("zmq+"):
        raise Unsupported(
            f"{channel}: recordings are published onto channels of this machine and udp, not onto ZeroMQ's sockets: "
            "replay() the messages and send them"
        )


def publish(
    connector: Connector, channel: AnyChannel, info: RecordingInfo, found: Iterator[Recorded], timeout: float | None
) -> int:
    """Publishes messages of a recording onto a channel, encoded as they were. Returns how many. Frames must be decoded."""
    check_target(channel)
    source, frames, count = Source(info.id, info.channel, info.codec), holds_frames(channel), 0
    with connector.publish(channel, **as_recorded(source, frames)) as publication:
        for message in found:
            send(publication, message.data, source, frames, timeout)
            count += 1
    return count


def send(publication: Any, data: Any, info: Source, frames: bool, timeout: float | None) -> None:
    """Sends one message of a recording. data: the original bytes; for frames, decoded."""
    if frames:
        publication.send(data.pop("pixels"), timeout, **data)
    else:
        body = _body(data, info) if info.codec["kind"] in ("pipe", "sync") else data
        handles.send_encoded(publication, body, timeout)


def _body(data: bytes, info: Source) -> bytes:
    """The body of a recorded pipe message."""
    try:
        _, _, begin, kind = multipart.pipe_parts(data)
    except (ValueError, struct.error) as error:
        raise DecodeError(
            f"recording {info.id} of {info.channel} holds a message that no {info.codec['kind']} channel carried: {error}"
        ) from error
    if info.codec["kind"] == "pipe" and kind & multipart.PARTS:
        raise Invalid(
            f"recording {info.id} of {info.channel} holds messages of several parts: replay() it and send them"
        )
    return data[begin:]


def _carried(codec: codecs.Codec) -> codecs.Codec:
    """The codec of a channel for these messages: bytes, where a definition of ROS 2 does not fit into a channel's header."""
    is_long = codec.kind == "ros2" and len(codecs.metadata(codec)) > _native.METADATA_MAX
    return codecs.BYTES if is_long else codec


def as_recorded(info: Source, frames: bool) -> dict[str, Any]:
    """The options of a channel that a recording can be published onto."""
    if not frames:
        return {"codec": _carried(codecs.from_spec(info.codec.get("of", info.codec)))}
    if not holds_frames(info.channel):
        raise Invalid(
            f"recording {info.id} is of {info.channel}: it holds messages of {info.codec['kind']}, and no frames"
        )
    if not info.codec.get("pixels"):
        raise Invalid(
            f"recording {info.id} of {info.channel} holds no pixels: it was made with pixels=False (--no-pixels)"
        )
    return frame_options(info.codec)
