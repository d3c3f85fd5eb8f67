"""VisionIPC's server and client over frames: `from penstock.compat.visionipc import VisionIpcServer, VisionIpcClient`.

The stream `TYPE` of server `NAME` is the channel `frames:NAME/TYPE`. Differences are listed in docs/from/msgq.md.
"""

from __future__ import annotations

import contextlib
import enum
import operator
import os
import weakref
from typing import Any

import numpy as np

import penstock
from penstock.compat.msgq import scoped
from penstock.types import Frame, FramePublication, FrameSubscription
from penstock.util.clock import SystemClock

SPARE_BUFFERS = 2  # for readers that hold one while the next are filled
LOOK_AGAIN = 0.5  # seconds after which a client that waits for a server's word polls for it
LIST = 0xFFFFFFFF  # no stream has this number: in the original it asks for the list


class VisionStreamType(enum.IntEnum):
    """Cameras' streams by the names that earlier versions gave them. A stream is any number."""

    VISION_STREAM_ROAD = 0
    VISION_STREAM_DRIVER = 1
    VISION_STREAM_WIDE_ROAD = 2
    VISION_STREAM_MAP = 3


class VisionBuf:
    """A frame received: it is read-only, and stays as it is for as long as it or anything made from its `data` is held."""

    def __init__(self, frame: Frame, about: dict[str, Any]) -> None:
        self.frame, self._about = frame, about
        self._fd: int | None = None

    @property
    def data(self) -> memoryview:
        """The bytes of the frame, without a copy."""
        pixels: Any = self.frame.array
        return memoryview(pixels)

    @property
    def width(self) -> int:
        """Pixels in a line."""
        return int(self._about["width"])

    @property
    def height(self) -> int:
        """Lines."""
        return int(self._about["height"])

    @property
    def stride(self) -> int:
        """Bytes from one line to the next."""
        return int(self._about["stride"])

    @property
    def uv_offset(self) -> int:
        """The offset of the colours."""
        return int(self._about["uv_offset"])

    @property
    def idx(self) -> int:
        """The frame's number in turn, below `num_buffers`. It names no memory."""
        return int(self.frame.sequence % self._about["num_buffers"])

    @property
    def frame_id(self) -> int:
        """The number that the server gave this frame."""
        return self.frame.id

    @property
    def fd(self) -> int:
        """A descriptor of memory that holds this frame's bytes from offset 0 on: a copy, made when first asked for.

        It is closed with this object.
        """
        if self._fd is None:
            self._fd = os.memfd_create("visionbuf", os.MFD_CLOEXEC)
            weakref.finalize(self, os.close, self._fd)
            os.truncate(self._fd, len(self.data))
            written = 0
            while written < len(self.data):
                written += os.pwrite(self._fd, self.data[written:], written)
        return self._fd


def get_endpoint_name(name: str | bytes, stream: int) -> str:
    """The channel that carries a stream."""
    return f"frames:{scoped(name)}/{_number(stream)}"


def _number(stream: int) -> int:
    """A stream's number. TypeError for anything else, `Invalid` for one out of range."""
    number = operator.index(stream)
    if not 0 <= number < LIST:
        raise penstock.Invalid(f"stream is {number}: it must be from 0 to {LIST - 1}")
    return number


def _listener(name: str | bytes) -> str:
    """A channel whose publication shows that the server exists."""
    return f"ring:{scoped(name)}.visionipc"


class VisionIpcServer:
    """Publishes streams of frames under one name."""

    def __init__(self, name: str | bytes) -> None:
        self.name = name
        self._streams: dict[int, FramePublication] = {}
        self._present: penstock.types.Publication | None = None

    def create_buffers(self, tp: int, num_buffers: int, width: int, height: int) -> None:
        """Buffers for NV12 frames without padding."""
        self.create_buffers_with_sizes(tp, num_buffers, width, height, width * height * 3 // 2, width, width * height)

    def create_buffers_with_sizes(
        self, tp: int, num_buffers: int, width: int, height: int, size: int, stride: int, uv_offset: int
    ) -> None:
        """Buffers of `size` bytes."""
        about = {
            "num_buffers": num_buffers,
            "width": width,
            "height": height,
            "stride": stride,
            "uv_offset": uv_offset,
        }
        channel = get_endpoint_name(self.name, tp)
        try:
            if penstock.inspect(channel).writers == 0:
                penstock.remove(channel)  # of a dead server, which may have other sizes
        except penstock.NotFound:
            pass
        made: Any = penstock.publish(channel, shape=(size,), buffers=num_buffers + SPARE_BUFFERS, attributes=about)
        self._streams[_number(tp)] = made

    def send(self, tp: int, data: Any, frame_id: int = 0, timestamp_sof: int = 0, timestamp_eof: int = 0) -> None:
        """Copies one frame's bytes into a free buffer and publishes it. Waits while clients hold every buffer."""
        pixels = data.reshape(-1).view(np.uint8) if isinstance(data, np.ndarray) else memoryview(data).cast("B")
        self.stream(tp).send(pixels, id=frame_id, start_ns=timestamp_sof, end_ns=timestamp_eof)

    def start_listener(self) -> None:
        """From now on clients find this server."""
        self._present = penstock.publish(_listener(self.name), capacity=1 << 16)
        self._present.send(b"here")  # wakes those that wait in connect

    def stream(self, tp: int) -> FramePublication:
        """The publication of a stream: `acquire` fills a buffer in place. `Invalid` for a stream without buffers."""
        found = self._streams.get(_number(tp))
        if found is None:
            raise penstock.Invalid(f"{get_endpoint_name(self.name, tp)}: no buffers yet: call create_buffers first")
        return found


class VisionIpcClient:
    """Reads one stream of a server."""

    def __init__(self, name: str | bytes, stream: int, conflate: bool) -> None:
        self.name, self.stream, self.conflate = name, _number(stream), conflate
        self._subscription: FrameSubscription | None = None
        self._made_ns = 0  # identifies the channel that this client reads: a restarted server creates it again
        self._extra = (0, 0, 0, False)  # frame id, start and end of the exposure, validity of the frame received last

    def connect(self, blocking: bool) -> bool:
        """Finds the server's stream; with `blocking` waits for the server. Whether it is connected now.

        False at once if the server exists and has no such stream.
        """
        self._subscription = None
        channel = get_endpoint_name(self.name, self.stream)
        while True:
            if blocking:
                _wait_for_server(self.name)
            if not _listens(self.name) or self.stream not in _streams(self.name):
                if blocking and not _listens(self.name):
                    continue  # the server has just ended
                return False
            try:
                self._made_ns = penstock.inspect(channel).created_ns
                made: Any = penstock.subscribe(channel, conflate=self.conflate)
                if penstock.inspect(channel).created_ns != self._made_ns:
                    continue  # another server has just replaced it
            except penstock.NotFound:
                continue
            self._subscription = made
            return True

    def is_connected(self) -> bool:
        """Whether `connect` found the stream, and that server is still there. False after a restart: connect again."""
        if self._subscription is None:
            return False
        try:
            status = penstock.inspect(get_endpoint_name(self.name, self.stream))
        except penstock.NotFound:
            return False
        return status.writers > 0 and status.created_ns == self._made_ns

    def recv(self, timeout_ms: int = 100) -> VisionBuf | None:
        """The next frame (the newest with `conflate`), or None after `timeout_ms` milliseconds (below 0: never)."""
        timeout = None if timeout_ms < 0 else timeout_ms / 1000
        if self._subscription is None:
            SystemClock().sleep(timeout or 0)
            return None
        try:
            frame = self._subscription.recv(timeout)
        except TimeoutError:
            return None
        self._extra = frame.id, frame.start_ns, frame.end_ns, True
        return VisionBuf(frame, self._subscription.attributes)

    @staticmethod
    def available_streams(name: str | bytes, block: bool) -> set[int]:
        """The numbers of the streams of a running server; with `block` waits for the server."""
        if block:
            _wait_for_server(name)
        return _streams(name) if _listens(name) else set()

    def _about(self, key: str) -> int | None:
        return None if self._subscription is None else int(self._subscription.attributes[key])

    @property
    def width(self) -> int | None:
        """Of the frames; None before `connect`, as all but `num_buffers`."""
        return self._about("width")

    @property
    def height(self) -> int | None:
        """Of the frames."""
        return self._about("height")

    @property
    def stride(self) -> int | None:
        """Bytes from one line to the next."""
        return self._about("stride")

    @property
    def uv_offset(self) -> int | None:
        """The offset of the colours."""
        return self._about("uv_offset")

    @property
    def num_buffers(self) -> int:
        """The number requested from the server; 0 before `connect`."""
        return self._about("num_buffers") or 0

    @property
    def buffer_len(self) -> int | None:
        """Bytes of a frame."""
        return None if self._subscription is None else self._subscription.shape[0]

    @property
    def frame_id(self) -> int:
        """Of the frame received last."""
        return self._extra[0]

    @property
    def timestamp_sof(self) -> int:
        """When its exposure began."""
        return self._extra[1]

    @property
    def timestamp_eof(self) -> int:
        """When it ended."""
        return self._extra[2]

    @property
    def valid(self) -> bool:
        """Whether there is a frame. One that was received is never overwritten."""
        return self._extra[3]

    @property
    def lost(self) -> int | None:
        """Frames missed so far; None before `connect`."""
        return None if self._subscription is None else self._subscription.lost_messages


def _listens(name: str | bytes) -> bool:
    try:
        return penstock.inspect(_listener(name)).writers > 0
    except penstock.NotFound:
        return False


def _wait_for_server(name: str | bytes) -> None:
    """Sleeps until the server listens; it publishes that on its listener's channel."""
    with penstock.subscribe(_listener(name), capacity=1 << 16) as word:
        while not _listens(name):
            with contextlib.suppress(TimeoutError):
                word.recv(LOOK_AGAIN)


def _streams(name: str | bytes) -> set[int]:
    prefix = f"frames:{scoped(name)}/"
    found = (status.channel.removeprefix(prefix) for status in penstock.list_channels(f"{prefix}*") if status.writers)
    return {int(stream) for stream in found if stream.isdecimal()}


__all__ = ["VisionBuf", "VisionIpcClient", "VisionIpcServer", "VisionStreamType", "get_endpoint_name"]
