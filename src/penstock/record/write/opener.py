"""How a recording begins: a writer for each channel, in a new recording or at the end of one that ended.

Gets its subscriptions from a `Connector`; knows folders.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from penstock._native import core as _native
from penstock.channels.storage import inspection
from penstock.channels.uri.channel import parse
from penstock.codecs import pixels as encodings
from penstock.codecs.frames import FrameFormat
from penstock.errors import Busy, Invalid, NotFound, PenstockError, Unsupported
from penstock.record.format import last_values
from penstock.record.format.archive_folder import ArchiveFolder
from penstock.record.format.folder import FORMAT, Description, RecordingFolder
from penstock.record.format.last_values import LastValue, LastValues
from penstock.record.format.types import Connector, RecordingInfo
from penstock.record.keep import repair
from penstock.record.read.planning.lister import Lister
from penstock.record.write.encoding import Encode, EncodingTap, EncodingWriter
from penstock.record.write.past import Past
from penstock.record.write.writer import PendingStreams, PendingWriter, RecordingWriter
from penstock.util.clock import Clock

log = logging.getLogger("penstock")

Wanted = Callable[[Any], bool]


def any_subscription(_: Any) -> bool:
    """Of channels that are named."""
    return True


class WriterOpener:
    """Opens writers in an archive's folder."""

    def __init__(self, files: ArchiveFolder, lister: Lister, connector: Connector, clock: Clock) -> None:
        self._files, self._lister, self._connector, self._clock = files, lister, connector, clock
        self.encode: Encode = FrameFormat.encoded

    def open(
        self,
        channel: str,
        start: str | int,
        extend: bool,
        segment_length: int,
        drop_after: float | None,
        pixels: bool | str = True,
        sent: bool = False,
        when_slow: str | None = None,
        wanted: Wanted = any_subscription,
        past: Past | None = None,
    ) -> RecordingWriter | PendingWriter | None:
        """A channel's writer; a waiting one if the channel has had no publication yet. Arguments as in `Archive.record`.

        wanted: called with the opened subscription; if it returns False, nothing is recorded and the result is None. past: begin there
        instead of at `start`.
        """
        kind = parse(channel).kind
        encoding = encodings.encoding_of(pixels) if pixels and kind.by_reference else None
        pixels = bool(pixels) and kind.by_reference
        may_extend = (
            extend and kind.sent_tap is None and encoding is None
        )  # encoded frames have no positions of the channel
        if (
            past is None
        ):  # also where a recording is continued: whether `start` is refused does not depend on the archive
            _check_start(channel, start, pixels)
        found = self._extendable(channel, pixels) if may_extend else None
        writer = None if found is None else self._extension(found, segment_length, drop_after, pixels, when_slow)
        if writer is not None:
            return writer
        if past is not None:
            options = {"drop_after": drop_after} if sent else _options(channel, drop_after, pixels, when_slow)
            subscription = self._connector.subscribe_past(channel, past, sent=sent, **options)
        elif sent:
            subscription = self._connector.subscribe(channel, sent=True, start=start, drop_after=drop_after)
        else:
            options = _options(channel, drop_after, pixels, when_slow)
            subscription = self._connector.subscribe(channel, start=start, **options)
        if not wanted(subscription):
            subscription.close()
            return None
        if hasattr(subscription, "streams"):
            return PendingStreams(
                subscription, lambda stream, about: self._new(channel, stream, segment_length, about=about, past=past)
            )
        if not _native.decided(subscription):
            return PendingWriter(
                subscription, lambda: self._new(channel, subscription, segment_length, pixels, past=past)
            )
        is_named = wanted is any_subscription
        return self._new(channel, subscription, segment_length, pixels, past=past, encoding=encoding, is_named=is_named)

    def _new(
        self,
        channel: str,
        subscription: Any,
        segment_length: int,
        pixels: bool = False,
        about: dict[str, Any] | None = None,
        past: Past | None = None,
        encoding: encodings.Encoding | None = None,
        is_named: bool = True,
    ) -> RecordingWriter:
        """A recording that begins at the subscription's position. about: the channel's description; None: taken from the
        subscription, because the channel may have been removed or replaced in the meantime. An earlier `start_position` in it makes the recording begin
        with a gap. is_named: `Invalid` for frames that the encoding does not have; else they are recorded raw."""
        try:
            if past is not None and about is not None and past.skip_older(subscription, subscription.first):
                about.pop("start_position", None)
            if about is None:
                about = self._connector.describe_opened(subscription, pixels=pixels)
            if encoding is not None and _fits(channel, encoding, FrameFormat(about["codec"]), must=is_named):
                about["codec"]["encoding"] = str(encoding)
                subscription = EncodingTap(subscription, about["codec"], encoding, self.encode)
            now = self._clock.now_ns()
            about = {"start_position": subscription.position, **about}
            if past is not None:
                about["snapshot"] = past.about
            folder, description, lock = self._begin(
                Description(id=0, channel=channel, created_ns=now, format=FORMAT, **about), subscription
            )
        except BaseException:
            subscription.close()
            raise
        kind = EncodingWriter if isinstance(subscription, EncodingTap) else RecordingWriter
        return kind(folder, description, subscription, segment_length, description.start_position, 0, lock)

    def _begin(self, about: Description, subscription: Any) -> tuple[RecordingFolder, Description, int]:
        """A new recording's folder, its description and its lock. With the last values from before it, of a channel that keeps them."""
        kept = _last_values(about.channel, subscription)
        folder, description, lock = self._files.begin(about)
        try:
            if kept is not None:
                last_values.write(folder.path, kept)
        except BaseException:
            with contextlib.suppress(PenstockError, OSError):
                self._files.purge(folder, tell=lambda _: None)
            folder.unlock(lock)
            raise
        return folder, description, lock

    def follow(self, writer: RecordingWriter) -> RecordingWriter:
        """Ends a writer's recording, and continues in another one that begins where it ends. The new one exists before the first ends."""
        position, now = writer.segment.position, self._clock.now_ns()
        folder, description, lock = self._begin(
            replace(writer.description, id=0, start_position=position, created_ns=now), writer.subscription
        )
        following = type(writer)(folder, description, writer.subscription, writer.segment_length, position, 0, lock)
        try:
            writer.folder.note_following(description.id)
            writer.hand_over()
        except BaseException:
            following.release()
            raise
        return following

    def _extension(
        self, info: RecordingInfo, segment_length: int, drop_after: float | None, pixels: bool, when_slow: str | None
    ) -> RecordingWriter | None:
        """Continues a recording. It takes the lock first, as another recorder may be writing it. None if the channel
        was removed and created again in the meantime."""
        folder = self._files.folder(info.id)
        lock, described, subscription = folder.lock(), folder.describe(), None
        try:
            holds = repair.close_crashed(folder)
            subscription = self._rejoin(info.channel, holds.end_position, drop_after, pixels, when_slow)
            if self._has_channel(subscription, described, pixels):
                return RecordingWriter(
                    folder, described, subscription, segment_length, holds.end_position, holds.messages, lock
                )
        except BaseException:
            if subscription is not None:
                subscription.close()
            folder.unlock(lock)
            raise
        subscription.close()
        folder.unlock(lock)
        return None

    def _has_channel(self, subscription: Any, described: Description, pixels: bool) -> bool:
        """Whether a subscription has the channel open that a recording describes."""
        try:
            return bool(self._connector.describe_opened(subscription, pixels=pixels)["epoch"] == described.epoch)
        except NotFound:  # no publication yet
            return False

    def _rejoin(
        self, channel: str, position: int, drop_after: float | None, pixels: bool, when_slow: str | None
    ) -> Any:
        """A subscription for a recorder that continues. A channel that no longer keeps the position is joined at the oldest one that it
        has, or, if it keeps none, at its newest end: the recorder finds the gap."""
        options = _options(channel, drop_after, pixels, when_slow)
        oldest = "newest" if parse(channel).kind.lossy else "earliest"
        start: str | int = "newest" if pixels else position  # positions of frames are the recording's own
        try:
            return self._connector.subscribe(channel, start=start, **options)
        except Invalid:
            return self._connector.subscribe(channel, start=oldest, **options)

    def _extendable(self, channel: str, pixels: bool) -> RecordingInfo | None:
        try:
            found, about = self._lister.find(channel), self._connector.describe(channel, pixels=pixels)
        except NotFound:
            return None
        described = self._lister.locate(found.id).describe()
        return found if (described.epoch, found.codec) == (about["epoch"], about["codec"]) else None


def _check_start(channel: str, start: str | int, pixels: bool) -> None:
    """`Unsupported` for a start that channels of this kind do not have."""
    kind = parse(channel).kind
    text = f"{channel}: start is {start!r}, and "
    if pixels and start != "newest":
        raise Unsupported(f"{text}a recording of frames begins with the next one: leave start out")
    has_none = start == "earliest" and not kind.keeps and kind.sent_tap is None
    if has_none or (kind.own_positions and start != "newest"):
        raise Unsupported(f"{text}it keeps nothing to begin with: leave start out")


def _last_values(channel: str, subscription: Any) -> LastValues | None:
    """The newest message of each key from before a subscription's position. None if its channel keeps none."""
    kind = parse(channel).kind
    if "last" not in kind.value_options or (field := inspection.about_opened(kind, subscription).get("last")) is None:
        return None
    try:
        return LastValues(field, [LastValue(*one) for one in _native.last_values(subscription)])
    except Busy as error:  # a stopped writer holds their lock: its recording is worth more than they are
        log.warning("%s is recorded without its last values: %s", channel, error)
        return LastValues(field, ())


def _fits(channel: str, encoding: encodings.Encoding, form: FrameFormat, *, must: bool) -> bool:
    """Whether frames of a channel may have an encoding. If none of them may, `Invalid` with `must`, else a line in the log."""
    shapes = [form.shape]
    if form.varies and len(form.shape) == 3:
        shapes = [(*form.shape[:2], channels) for channels in range(1, min(4, form.shape[2]) + 1)]
    if any(encodings.holds(encoding.number, shape, dtype.str) for shape in shapes for dtype in form.dtypes):
        return True
    name = encodings.NAMES[encoding.number]
    dtypes = ", ".join(map(str, form.dtypes))
    text = f"{channel}: {name} has no frames of {form.shape} of {dtypes}"
    if must:
        raise Invalid(f"{text}: give pixels='zstd', or leave it out")
    log.warning("%s: they are recorded raw", text)
    return False


def _options(channel: str, drop_after: float | None, pixels: bool, when_slow: str | None) -> dict[str, Any]:
    """The options of a recorder's subscription that this kind of channel has."""
    kind = parse(channel).kind
    if not kind.lossy:
        return {"drop_after": drop_after}
    return {"pixels": pixels, "when_slow": when_slow} if kind.by_reference else {"conflate": False}
