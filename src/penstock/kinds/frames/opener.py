"""`frames:` channels: large arrays passed by reference. A frame that a reader holds is never overwritten.

A pool of buffers of one size. A publication fills a free one in place. Subscriptions lease the buffers that they read, and the lease
lasts as long as the array does. Nothing is copied on the way.
"""

from __future__ import annotations

import errno
import math
import time
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from penstock import codecs
from penstock._native import core as _native
from penstock.channels.checks import flag, manual_clock, seconds
from penstock.channels.kind import Kind, Layout
from penstock.channels.storage import files, opening
from penstock.channels.storage.reopening import ReopenArgs
from penstock.channels.uri.channel import Channel
from penstock.channels.uri.value import ChannelValue
from penstock.codecs import Codec
from penstock.codecs.frames import dtype_names, frame_options, header_name
from penstock.errors import Invalid, NotFound, Unsupported
from penstock.kinds.frames.frame import Frame
from penstock.kinds.frames.handles import FramePublication, FrameSubscription
from penstock.kinds.frames.options import FrameOptions, frame_shape

if TYPE_CHECKING:
    pass

CONNECT_NAP = 0.002
NEVER, ALWAYS, WITH_OTHERS, WHERE_OPENED = range(4)  # whether publications wait for a subscription: frame_layout.hpp


def _format(options: FrameOptions, _: Codec, fd: int) -> None:
    _native.format_frames(
        fd=fd,
        capacity=options.notes_capacity,
        slots=options.max_members,
        buffers=options.buffers,
        frame_bytes=options.frame_bytes,
        start_position=options.start_position,
        start_sequence=options.start_sequence,
        epoch=files.new_epoch(),
        metadata=codecs.metadata(codecs.from_spec(options.spec), options.attributes),
        boot_id=files.boot_id(),
    )


def _inspect(fd: int, path: str) -> dict[str, Any]:
    about = _native.inspect_frames(fd, path)
    spec = codecs.from_metadata(about["metadata"], path).spec
    about |= {
        "varies": False,
        "header": None,
        **frame_options(spec),
        "attributes": codecs.attributes(about["metadata"]),
    }
    # Frames that were overwritten may have had any size, and count as the largest. A recorder of notes has counted their bytes.
    totals, frame = about["totals"], about["frame_bytes"]
    ways, names = (
        (("lost",), ("bytes_lost",)) if about["varies"] else (("sent", "received", "lost"), ("bytes", "bytes_lost"))
    )
    totals |= {f"bytes_{way}": totals[f"messages_{way}"] * frame for way in ways}
    for member in about["members"]:
        member |= {name: member[name.replace("bytes", "messages")] * frame for name in names}
    return about


def open_publication(
    channel: Channel,
    *,
    when_slow: str | None = None,
    codec: Any = None,
    clock: _native.ManualClock | None = None,
    **options: Any,
) -> FramePublication:
    """A publication. Creates the channel if it does not exist. Several may write to it.

    when_slow: "skip": waits only for subscriptions that ask for it. "wait": waits for all that read every frame, including recorders.
    """
    stamps, waits = manual_clock(clock), _waits(channel, when_slow)
    writer, found = opening.open_end(
        channel.kind,
        channel,
        _merge_codec(channel, codec, options),
        None,
        lambda fd, path: _native.frames_writer(fd, path, stamps, waits),
    )
    return FramePublication(
        writer, ReopenArgs(channel.kind, channel, found, open_publication, {"when_slow": when_slow})
    )


def open_subscription(
    channel: Channel,
    *,
    start: str | int = "newest",
    last: int | None = None,
    conflate: bool | None = None,
    when_slow: str | None = None,
    spin: float = 20e-6,
    until_end: bool = False,
    codec: Any = None,
    connect_timeout: float | None = 0,
    pixels: bool = False,
    **options: Any,
) -> FrameSubscription:
    """A subscription. Waits up to `connect_timeout` seconds for the channel unless `shape` is given, which creates it.

    when_slow: "skip": publications do not wait, and frames that it does not lease in time are lost. "wait": they wait until it has received each frame.
    None: those wait that were opened with when_slow="wait", if it reads every frame.
    pixels: for a recorder that keeps them; positions and lags then count the bytes of a recording.
    """
    return _subscription(
        channel,
        WHERE_OPENED,
        start,
        last,
        conflate,
        when_slow,
        spin,
        until_end,
        codec,
        connect_timeout,
        pixels,
        options,
    )


def open_tap(
    channel: Channel,
    *,
    when_slow: str | None = None,
    pixels: bool = False,
    last: int | None = None,
    **options: Any,
) -> FrameSubscription:
    """A recorder's subscription. By default, a publication that waits for any subscription also waits for the recorder."""
    return _subscription(
        channel, WITH_OTHERS, options.pop("start", "newest"), last, False, when_slow, 0, False, None, 0, pixels, options
    )


def _subscription(
    channel: Channel,
    unasked: int,
    start: str | int,
    last: int | None,
    conflate: bool | None,
    when_slow: str | None,
    spin: float,
    until_end: bool,
    codec: Any,
    connect_timeout: float | None,
    pixels: bool,
    options: dict[str, Any],
) -> FrameSubscription:
    """unasked: whether publications wait for one that reads every frame and has no `when_slow`."""
    requested = _merge_codec(channel, codec, options)
    name, position = opening.start_of(start, ("newest",), last)
    looking, ends = seconds(spin, "spin"), flag(until_end, "until_end")
    waits, recorded = _waits(channel, when_slow), flag(pixels, "pixels")
    newest = not waits and last is None if conflate is None else flag(conflate, "conflate")
    opening.refuse_last(newest, last)
    if newest and waits:
        raise Invalid(
            f"{channel}: when_slow='wait' is for every frame, conflate=True for the newest one: give one of them"
        )
    level = ALWAYS if waits else NEVER if newest or when_slow is not None else unasked
    patience = math.inf if connect_timeout is None else seconds(connect_timeout, "connect_timeout")
    if patience and requested.get("shape") is not None:
        raise Invalid(f"{channel}: connect_timeout has no effect with a shape, as this subscription makes the channel")
    deadline = time.monotonic() + patience
    while True:
        try:
            reader, found = opening.open_end(
                channel.kind,
                channel,
                requested,
                None,
                lambda fd, path: _native.frames_reader(fd, path, name, position, newest, level, recorded),
            )
            break
        except NotFound as error:
            if time.monotonic() >= deadline:
                if patience > 0:
                    raise NotFound(
                        errno.ENOENT, f"there is no channel {channel}: no publication has made it within {patience:g} s"
                    ) from error
                raise
            time.sleep(CONNECT_NAP)
    arguments = {"start": start, "conflate": newest, "when_slow": when_slow, "spin": spin, "until_end": ends}
    return FrameSubscription(
        reader, ReopenArgs(channel.kind, channel, found, open_subscription, arguments), looking, ends
    )


def _waits(channel: Channel, when_slow: str | None) -> bool:
    """Whether `when_slow` asks publications to wait."""
    if when_slow in ("drop", "fail"):
        raise Unsupported(
            f"{channel}: when_slow={when_slow!r} is for other kinds: here a slow reader skips, or writers wait"
        )
    if when_slow not in (None, "skip", "wait"):
        raise Invalid(f"{channel}: when_slow is {when_slow!r}: it must be 'skip' or 'wait'")
    return when_slow == "wait"


def _merge_codec(channel: Channel, codec: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Options as the channel stores them. A codec has shape and dtype: `penstock.array(dtype, shape)`."""
    requested = {name: value for name, value in options.items() if value is not None}
    if codec is not None:
        spec = codecs.resolve(codec).spec
        if spec["kind"] != "array" or -1 in spec["shape"]:
            raise Unsupported(
                f"{channel}: frames are arrays: give shape= and dtype=, or codec=penstock.array(dtype, shape)"
            )
        named = {"shape": frame_shape(spec["shape"]), "dtype": dtype_names(spec["dtype"])}
        for name, check in (("shape", frame_shape), ("dtype", dtype_names)):
            if name in requested and check(requested[name]) != named[name]:
                raise Invalid(
                    f"{channel}: the codec has {name}={named[name]!r}, and {name}= {requested[name]!r}: give one of them"
                )
        requested = {**requested, **named}
    if "shape" in requested:
        requested["shape"] = frame_shape(requested["shape"])
    if "dtype" in requested:
        requested["dtype"] = dtype_names(requested["dtype"])
    if "header" in requested:
        requested["header"] = header_name(requested["header"])
    return requested


@dataclass(frozen=True, repr=False)
class Frames(ChannelValue[Frame]):
    """A `frames:` channel: large arrays, passed by reference.

    shape, dtype: of every frame; dtype is "u1" unless chosen. varies: frames may be smaller than `shape`, and `dtype` may be a tuple of
    those that a frame may have. header: the dtype of a struct that goes with each frame. buffers: frames that exist at once, 2 to 1024. max_members: publications and
    subscriptions at once, 2 to 1024. attributes: other facts about the stream, as JSON values; stored in the channel. Frames have no codec.
    """

    _prefix: ClassVar[str] = "frames:"

    codec: None = None
    _: KW_ONLY
    shape: tuple[int, ...] | int | None = None
    dtype: Any = field(default=None, hash=False)  # of structs, a list
    varies: bool | None = None
    header: Any = field(default=None, hash=False)
    buffers: int | None = None
    max_members: int | None = None
    attributes: dict[str, Any] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        if self.codec is not None:
            raise Invalid(f"{self.uri}: frames have no codec: give shape= and dtype=")
        if self.shape is not None:
            object.__setattr__(self, "shape", frame_shape(self.shape))
        if self.dtype is not None:
            object.__setattr__(self, "dtype", dtype_names(self.dtype))
        if self.header is not None:
            object.__setattr__(self, "header", header_name(self.header))
        super().__post_init__()


KIND = Kind(
    name="frames",
    written="frames:NAME",
    options=FrameOptions,
    value_options=Frames.option_names(),
    publish=open_publication,
    subscribe=open_subscription,
    tap=open_tap,
    memory=Layout(format=_format, inspect=_inspect, details=("buffers", "leased"), waits=_native.frames_waits),
    lossy=True,
    by_reference=True,
)
