"""Channels live in Foxglove: each is a topic of a WebSocket server on the loopback, with the schema that an MCAP export gives it.

It only looks: no writer waits for it. Needs `pip install 'penstock[foxglove]'`. Knows subscriptions and Foxglove's SDK.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import penstock
from penstock import codecs, tools
from penstock.export import mcap_schemas
from penstock.export.mcap import schema_name
from penstock.loopback import LOOPBACK, listening

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Viewed"]

log = logging.getLogger("penstock")

LOOK_SECONDS = 0.2  # between looks for channels that come
BATCH = 1000  # messages of one channel before the next has its turn
QUALITY = 80  # of JPEG pictures
RAW = {("u1", 1): "mono8", ("u1", 3): "rgb8", ("u1", 4): "rgba8", ("u2", 1): "mono16", ("f4", 1): "32FC1"}
JPEG = ("mono8", "rgb8")


def _sdk() -> Any:
    try:
        import foxglove
        import foxglove.channels
        import foxglove.messages
    except ImportError as error:
        raise penstock.Unsupported(
            "the view needs the package foxglove-sdk: pip install 'penstock[foxglove]'"
        ) from error
    return foxglove


class Viewed:
    """Serves the channels that patterns stand for, also later ones. A context manager; `step` moves the messages that there are.

    port: 0 takes a free one. Channels whose messages go to one reader each are left out: to look would be to take. `Unsupported` if one of
    them is named, `SystemFailure` if the port is taken.
    """

    def __init__(self, patterns: Sequence[str], port: int = 0) -> None:
        self._sdk = _sdk()
        for name in patterns:
            if not tools.is_pattern(name) and tools.takes_messages(name):
                raise penstock.Unsupported(
                    f"{name}: its messages go to one reader each, so a view would take them away"
                )
        self._patterns = list(patterns)
        self._coming = tools.Appearing(self._patterns)
        self._context = self._sdk.Context()
        with listening(port) as free:  # the SDK's own error for a taken port has no number
            port = free.getsockname()[1]
        try:
            self._server = self._sdk.start_server(name="penstock", host=LOOPBACK, port=port, context=self._context)
        except RuntimeError as error:
            raise penstock.SystemFailure(0, f"cannot serve on port {port}: {error}") from error
        self._topics: list[_Topic] = []
        self._looked = float("-inf")

    @property
    def port(self) -> int:
        """The server's port."""
        return int(self._server.port)

    @property
    def channels(self) -> list[str]:
        """The channels that are read now."""
        return [topic.channel for topic in self._topics]

    def step(self, timeout: float = LOOK_SECONDS) -> int:
        """Waits for messages up to so many seconds, and moves those that there are. How many."""
        if time.monotonic() - self._looked >= LOOK_SECONDS or not self._topics:
            self._look()
        if not self._topics:
            time.sleep(min(timeout, LOOK_SECONDS))
            return 0
        try:
            if not penstock.wait([topic.subscription for topic in self._topics], timeout):
                return 0
        except penstock.TooSlow:  # one of them missed messages, and goes on
            pass
        return sum(topic.move() for topic in self._topics)

    def _look(self) -> None:
        self._looked = time.monotonic()
        for channel in self._coming.new():
            if tools.takes_messages(channel):
                continue
            try:
                self._topics.append(_Topic(self._sdk, self._context, channel))
            except penstock.PenstockError as error:
                log.warning("%s is not shown: %s", channel, error)

    def __enter__(self) -> Viewed:
        self._look()
        return self

    def __exit__(self, *_: object) -> None:
        for topic in self._topics:
            topic.close()
        self._server.stop()


class _Topic:
    """A channel, and its topic. The topic is there once its schema is known: that of JSON follows from the first messages."""

    def __init__(self, sdk: Any, context: Any, channel: str) -> None:
        self._sdk, self._context, self.channel = sdk, context, channel
        options: dict[str, Any] = {"drop_after": 0.0} if "drop_after" in tools.subscription_options(channel) else {}
        self.subscription: penstock.Subscription = penstock.subscribe(channel, start="newest", **options)
        self._send: Callable[[], int] = self._first
        self._topic: Any = None

    def move(self) -> int:
        """The messages that there are, onto the topic."""
        try:
            return self._send()
        except penstock.TooSlow:  # it is counted in `lost`
            return 0

    def close(self) -> None:
        """Ends the subscription and the topic."""
        self.subscription.close()
        if self._topic is not None:
            self._topic.close()

    def _first(self) -> int:
        """The first messages say the channel's codec, and what they hold."""
        codec = tools.codec_of(self.channel)
        if codec["kind"] == "frame":
            self._send = self._frames
            return self._send()
        batch = self.subscription.poll_arrow(BATCH)
        if not batch.num_rows:
            return 0
        samples = batch.column("payload").slice(0, 200).to_pylist()
        form = mcap_schemas.form_of(codecs.body_spec(codec) or codec, samples)
        assert form is not None
        schema = None
        if form.schema is not None:
            encoding, text = form.schema
            schema = self._sdk.Schema(name=form.name or schema_name(self.channel), encoding=encoding, data=text)
        self._topic = self._sdk.Channel(
            self.channel, schema=schema, message_encoding=form.message_encoding, context=self._context
        )
        self._send = lambda: self._bodies(self.subscription.poll_arrow(BATCH))
        return self._bodies(batch)

    def _bodies(self, batch: Any) -> int:
        times = batch.column("time").cast("int64").to_pylist()
        for body, sent in zip(batch.column("payload").to_pylist(), times, strict=True):
            self._topic.log(body, log_time=max(sent, 0))
        return int(batch.num_rows)

    def _frames(self) -> int:
        """The newest frame, as a picture. It is made only if a viewer has subscribed."""
        newest = None
        count = 0
        while count < BATCH and (frame := self.subscription.try_recv()) is not None:
            if newest is not None:
                newest.release()
            newest = frame
            count += 1
        if newest is None:
            return 0
        with newest:
            form = _picture_form(newest.array)
            if form is None:
                log.warning(
                    "%s is not shown: Foxglove has no pictures of shape %s and dtype %s",
                    self.channel,
                    newest.array.shape,
                    newest.array.dtype,
                )
                self._send = lambda: len(self.subscription.poll(BATCH))
                return count
            self._picture(newest, form)
        return count

    def _picture(self, frame: Any, form: str) -> None:
        compressed = form in JPEG and _pillow() is not None
        if self._topic is None:
            classes = self._sdk.channels
            kind = classes.CompressedImageChannel if compressed else classes.RawImageChannel
            self._topic = kind(self.channel, context=self._context)
        if not self._topic.has_sinks():
            return
        messages, sent = self._sdk.messages, max(frame.time_ns, 0)
        about = {
            "timestamp": messages.Timestamp(sent // 10**9, sent % 10**9),
            "frame_id": self.channel.partition(":")[2],
        }
        array = frame.array
        if compressed:
            made = messages.CompressedImage(**about, data=_jpeg(array), format="jpeg")
        else:
            height, width = array.shape[:2]
            made = messages.RawImage(
                **about,
                width=width,
                height=height,
                encoding=form,
                step=array.nbytes // max(1, height),
                data=array.tobytes(),
            )
        self._topic.log(made, log_time=sent)


def _picture_form(array: np.ndarray[Any, Any]) -> str | None:
    """Foxglove's name for pixels of this shape and dtype. Three of them are red, green and blue."""
    if array.ndim not in (2, 3) or array.dtype.byteorder == ">":
        return None
    return RAW.get((array.dtype.str[1:], 1 if array.ndim == 2 else array.shape[2]))


def _pillow() -> Any:
    try:
        import PIL.Image
    except ImportError:
        return None
    return PIL.Image


def _jpeg(array: np.ndarray[Any, Any]) -> bytes:
    import io

    made = io.BytesIO()
    pixels = array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array
    _pillow().fromarray(pixels).save(made, "JPEG", quality=QUALITY)
    return made.getvalue()
