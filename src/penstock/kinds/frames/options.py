"""The options of a new frames channel. Knows numbers, shapes and dtypes; opens nothing."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Any

from penstock._native import core as _native
from penstock.channels.checks import check_whole, flag, plain_json, within
from penstock.codecs.frames import FrameFormat, frame_spec
from penstock.codecs.values import sizes_of
from penstock.errors import Invalid, NotFound


@dataclass(frozen=True, kw_only=True)
class FrameOptions:
    """The options of a new frames channel. The first publication decides; `Mismatch` if a later one asks for something else.

    shape, dtype: of every frame; plain numbers or structs of them, every dimension fixed. dtype is "u1" unless chosen; a tuple of
    several: each frame has one of them.
    varies: frames may be smaller than `shape` in each dimension. header: the dtype of a struct that goes with each frame.
    buffers: frames that exist at once, 2 to 1024: one is filled, one is the newest, the rest may be leased by readers. All
    of them are allocated now, so that no later write can fail.
    max_members: how many publications and subscriptions may exist at once, 2 to 1024.
    attributes: other facts about the stream, as JSON values; stored in the channel.
    start_position, start_sequence: where counting begins; for tests at the edges.
    """

    shape: tuple[int, ...] | None = None
    dtype: Any = "|u1"
    varies: bool = False
    header: Any = None
    buffers: int = 8
    max_members: int = 64
    attributes: dict[str, Any] | None = None
    start_position: int = 0
    start_sequence: int = 0

    def __post_init__(self) -> None:
        check_whole(self, "buffers", "max_members", "start_position", "start_sequence")
        within(self, 32, "max_members")
        if not 2 <= self.max_members <= 1024:
            raise Invalid(f"max_members is {self.max_members}: it must be from 2 to 1024")
        if not 2 <= self.buffers <= 1024:
            raise Invalid(f"buffers is {self.buffers}: it must be from 2 to 1024")
        within(self, 63, "start_position")
        within(self, 64, "start_sequence")
        flag(self.varies, "varies")
        plain_json(self.attributes, "attributes")
        if self.shape is not None:
            _ = self.file_size

    @property
    def frame_bytes(self) -> int:
        """Bytes of one frame, the largest."""
        if self.shape is None:
            raise NotFound(
                errno.ENOENT,
                "to publish a new one, give shape=(HEIGHT, WIDTH, ...); to wait for it, subscribe with connect_timeout=SECONDS",
            )
        size = FrameFormat(self.spec).bytes
        if size >= 1 << 63:
            raise Invalid(f"shape is {self.shape}: a frame of {size} bytes is larger than any memory")
        return size

    @property
    def spec(self) -> dict[str, Any]:
        """The description of the frames."""
        return frame_spec(self.shape or (), self.dtype, varies=self.varies, header=self.header)

    @property
    def notes_capacity(self) -> int:
        """Bytes of the ring with the frames' notes: two notes of 4 KiB per buffer."""
        return max(64 * 1024, 1 << (2 * self.buffers * 4096 - 1).bit_length())

    @property
    def file_size(self) -> int:
        """Bytes of shared memory that the channel takes."""
        return _native.frames_file_size(
            capacity=self.notes_capacity,
            slots=self.max_members,
            buffers=self.buffers,
            frame_bytes=self.frame_bytes,
            start_position=self.start_position,
            fields=FrameFormat(self.spec).fields_bytes,
        )


def frame_shape(shape: Any) -> tuple[int, ...]:
    """A shape of fixed sizes from 1 on; `Invalid` for anything else."""
    if isinstance(shape, (bytearray, memoryview)):
        raise Invalid(f"shape is {shape!r}: give the size of every dimension, whole numbers from 1 on")
    sizes = sizes_of(shape)
    if not sizes or len(sizes) > 32 or min(sizes) < 1:
        raise Invalid(f"shape is {shape!r}: give the size of every dimension, whole numbers from 1 on")
    return sizes
