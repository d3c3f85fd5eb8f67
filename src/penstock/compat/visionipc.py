"""VisionIPC's server and client over frames: `from penstock.compat.visionipc import VisionIpcServer, VisionIpcClient`.

The stream `TYPE` of server `NAME` is the channel `frames:NAME/TYPE`. What differs is listed in docs/porting-from-msgq.md.
"""

from __future__ import annotations

import enum
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

import penstock
from penstock.shm.frames import Frame, FramePublication, FrameSubscription

SPARE_BUFFERS = 2  # for readers that hold one while the next are filled
NAP = 0.002


class VisionStreamType(enum.IntEnum):
    """Which camera."""

    VISION_STREAM_ROAD = 0
    VISION_STREAM_DRIVER = 1
    VISION_STREAM_WIDE_ROAD = 2
    VISION_STREAM_MAP = 3


@dataclass(frozen=True)
class VisionBuf:
    """A frame received: `data` is read-only and stays as it is for as long as it is held."""

    frame: Frame
    width: int
    height: int
    stride: int
    uv_offset: int

    @property
    def data(self) -> np.ndarray[Any, Any]:
        """The bytes of the frame, flat."""
        return self.frame.array


def get_endpoint_name(name: str, stream: int) -> str:
    """The channel that carries a stream."""
    return f"frames:{name}/{int(stream)}"


def _listener(name: str) -> str:
    """A channel whose publication says that the server is there."""
    return f"ring:{name}.visionipc"


class VisionIpcServer:
    """Publishes streams of frames under one name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._streams: dict[int, FramePublication] = {}
        self._present: penstock.Publication | None = None

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
            if not penstock.inspect(channel).publishing:
                penstock.remove(channel)  # of a server that is gone: its sizes need not be ours
        except penstock.NotFound:
            pass
        made: Any = penstock.publish(channel, shape=(size,), buffers=num_buffers + SPARE_BUFFERS, attributes=about)
        self._streams[int(tp)] = made

    def send(self, tp: int, data: Any, frame_id: int = 0, timestamp_sof: int = 0, timestamp_eof: int = 0) -> None:
        """Copies one frame into a free buffer and publishes it."""
        self._streams[int(tp)].send(
            np.asarray(data, np.uint8).reshape(-1), id=frame_id, start_ns=timestamp_sof, end_ns=timestamp_eof
        )

    def start_listener(self) -> None:
        """From now on clients find this server."""
        self._present = penstock.publish(_listener(self.name), capacity=1 << 16)

    def stream(self, tp: int) -> FramePublication:
        """What publishes a stream: `acquire` fills a buffer in place."""
        return self._streams[int(tp)]


class VisionIpcClient:
    """Reads one stream of a server."""

    def __init__(self, name: str, stream: int, conflate: bool) -> None:
        self.name, self.stream, self.conflate = name, int(stream), conflate
        self._subscription: FrameSubscription | None = None
        self._frame: Frame | None = None

    def connect(self, blocking: bool) -> bool:
        """Finds the server's stream; with `blocking` waits for it. Whether it is connected now."""
        channel = get_endpoint_name(self.name, self.stream)
        while True:
            if self.stream in _streams(self.name) and _listens(self.name):
                made: Any = penstock.subscribe(channel, conflate=self.conflate)
                self._subscription = made
                return True
            if not blocking:
                return False
            time.sleep(NAP)

    def is_connected(self) -> bool:
        """Whether `connect` found the stream, and its server is still there."""
        return self._subscription is not None and self.stream in _streams(self.name)

    def recv(self, timeout_ms: int = 100) -> VisionBuf | None:
        """The next frame (the newest with `conflate`), or None after so many milliseconds."""
        if self._subscription is None:
            return None
        try:
            self._frame = self._subscription.recv(timeout_ms / 1000)
        except TimeoutError:
            return None
        about = self._subscription.attributes
        return VisionBuf(self._frame, about["width"], about["height"], about["stride"], about["uv_offset"])

    @staticmethod
    def available_streams(name: str, block: bool) -> set[VisionStreamType]:
        """The streams of a server that is there; with `block` waits for the server."""
        while block and not _listens(name):
            time.sleep(NAP)
        return {VisionStreamType(stream) for stream in _streams(name)} if _listens(name) else set()

    def _about(self, key: str) -> int | None:
        return None if self._subscription is None else int(self._subscription.attributes[key])

    @property
    def width(self) -> int | None:
        """Of the frames; None before `connect`, as all of these."""
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
        """Where the colours begin."""
        return self._about("uv_offset")

    @property
    def num_buffers(self) -> int | None:
        """As many as the server was asked for."""
        return self._about("num_buffers")

    @property
    def buffer_len(self) -> int | None:
        """Bytes of a frame."""
        return None if self._subscription is None else self._subscription.shape[0]

    @property
    def frame_id(self) -> int:
        """Of the frame received last."""
        return 0 if self._frame is None else self._frame.id

    @property
    def timestamp_sof(self) -> int:
        """When its exposure began."""
        return 0 if self._frame is None else self._frame.start_ns

    @property
    def timestamp_eof(self) -> int:
        """When it ended."""
        return 0 if self._frame is None else self._frame.end_ns

    @property
    def valid(self) -> bool:
        """Whether there is a frame. One that was received is never overwritten."""
        return self._frame is not None

    @property
    def lost(self) -> int | None:
        """Frames missed so far; None before `connect`."""
        return None if self._subscription is None else self._subscription.lost_messages


def _listens(name: str) -> bool:
    try:
        return bool(penstock.inspect(_listener(name)).publishing)
    except penstock.NotFound:
        return False


def _streams(name: str) -> set[int]:
    prefix = f"frames:{name}/"
    found = (c.channel.removeprefix(prefix) for c in penstock.channels(prefix) if c.publishing)
    return {int(stream) for stream in found if stream.isdigit() and int(stream) in set(VisionStreamType)}


__all__ = ["VisionBuf", "VisionIpcClient", "VisionIpcServer", "VisionStreamType", "get_endpoint_name"]
