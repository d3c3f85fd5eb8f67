"""Channels live in Foxglove: each is a topic of a WebSocket server on the loopback, in the form that `shown` chooses. It only observes: no writer waits for it.

Needs `pip install 'penstock[foxglove]'`. Knows subscriptions and Foxglove's SDK.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import logging
import time
from collections.abc import Iterable, Sequence
from typing import Any

from penstock.channels.storage.discovery import ChannelDiscovery
from penstock.channels.uri.opener import takes_messages
from penstock.channels.uri.value import AnyChannel, uris_of
from penstock.channels.uri.wildcards import is_pattern
from penstock.errors import NotFound, PenstockError, SystemFailure, TooSlow, Unsupported
from penstock.export import mcap_images as pictures
from penstock.export.latched import Latched, rows_of, subscribe
from penstock.export.shown import Shown, as_json, display_of
from penstock.export.viewers import Viewers
from penstock.front.waiting import wait
from penstock.util.extras import explain_missing
from penstock.util.loopback import LOOPBACK, Connections, listening, own_sockets

log = logging.getLogger("penstock")

CHECK_SECONDS = 0.2  # between checks for new channels
WAIT_SECONDS = 0.05  # without messages, between checks for new viewers
TURN_SECONDS = 0.01  # a turn moves messages of each topic that has some
TOPIC_TURN = 50  # messages of one topic in a turn: a viewer may have only so many unread ones, of all topics
TURN = 100  # messages of all topics in a turn
TURN_BYTES = 4 << 20  # of one topic
BEHIND_SECONDS = 1.0  # a topic that lags for this long skips old messages
DRAIN, DRAINS = 10_000, 20  # messages that are skipped at once, and how often per turn


class _Sdk:
    """The parts of Foxglove's SDK. `MissingPackage` without it."""

    def __init__(self) -> None:
        with explain_missing("the view"):
            self.root: Any = importlib.import_module("foxglove")
        self.websocket: Any = importlib.import_module("foxglove.websocket")
        self.channels: Any = importlib.import_module("foxglove.channels")
        try:
            self.messages: Any = importlib.import_module("foxglove.messages")
        except ImportError:  # its name before 0.17
            self.messages = importlib.import_module("foxglove.schemas")


class Viewed:
    """Serves the channels that match patterns, also later ones. A context manager; `step` moves the messages that there are.

    A viewer that subscribes to a topic gets the newest message first, however old it is. port: 0 takes a free one. Channels whose messages
    go to one reader each are left out: to view a message would consume it. `Unsupported` if one of them is named, `SystemFailure` if the port is taken.
    """

    def __init__(self, patterns: Sequence[AnyChannel], port: int = 0) -> None:
        self._sdk = _Sdk()
        for name in (named := uris_of(patterns)):
            if not is_pattern(name) and takes_messages(name):
                raise Unsupported(f"{name}: its messages go to one reader each, so a view would consume them")
        self._discovery = ChannelDiscovery(named)
        self._context = self._sdk.root.Context()
        self._topics: dict[str, _Topic] = {}
        self._refused: dict[str, str] = {}  # channels that could not be opened, and why
        self._viewers = Viewers(self._sdk.websocket)
        self._looked = self._turned = float("-inf")
        listening(port).close()  # the SDK's own error for a taken port has no number
        self._connections, self._silent, self._served = Connections(), set[int](), True
        self._discover()  # before there is a server: the SDK advertises a topic to viewers before it takes subscriptions to it
        self._server = self._start_server(port)

    def _start_server(self, port: int) -> Any:
        try:
            return self._sdk.root.start_server(
                name="penstock",
                host=LOOPBACK,
                port=port,
                context=self._context,
                server_listener=self._viewers.listener,
            )
        except RuntimeError as error:
            self._close_topics()
            raise SystemFailure(0, f"cannot serve on port {port}: {error}") from error

    def _bound(self) -> None:
        """Ends connections without a request: the SDK waits for them without limit, and fails when it is out of descriptors."""
        port = self.port
        listens, silent = own_sockets(port)
        for gone in self._silent - silent.keys():
            self._connections.remove(gone)
        for new in silent.keys() - self._silent:
            self._connections.add(new, silent[new])
        self._silent = set(silent)
        self._connections.end_late()
        if not listens:
            self._served = False
            raise SystemFailure(
                errno.EMFILE, f"the server on port {port} has ended: this process could open no more files"
            )

    @property
    def port(self) -> int:
        """The server's port."""
        return int(self._server.port)

    @property
    def channels(self) -> list[str]:
        """The channels that are read now."""
        return list(self._topics)

    @property
    def left_out(self) -> dict[str, int]:
        """How many messages of each channel viewers have missed, because more arrived than a topic shows. Channels without any are not in it."""
        return {name: topic.left_out for name, topic in self._topics.items() if topic.left_out}

    @property
    def lost(self) -> dict[str, int]:
        """How many bytes of each channel were overwritten before the view could read them. Channels without any are not in it."""
        return {name: lost for name, topic in self._topics.items() if (lost := topic.subscription.lost)}

    def step(self, timeout: float = CHECK_SECONDS) -> int:
        """Waits for messages for at most `timeout` seconds, and forwards those that there are, of each topic its share. Returns how many."""
        now = time.monotonic()
        if now - self._looked >= CHECK_SECONDS or not self._topics:
            self._bound()
            self._discover()
        self._hear()
        time.sleep(min(max(self._turned + TURN_SECONDS - now, 0), TURN_SECONDS))
        shown = {topic.subscription: topic for topic in self._topics.values() if topic.advertised}
        if not shown:
            time.sleep(min(timeout, WAIT_SECONDS))
            return 0
        try:
            ready = wait(list(shown), min(timeout, WAIT_SECONDS))
        except TooSlow:  # one of them missed messages, and continues
            ready = list(shown)
        self._turned = time.monotonic()
        self._hear()
        topics = [topic for one, topic in shown.items() if one in ready or topic.latched.owes]
        share = max(1, min(TOPIC_TURN, TURN // max(1, sum(topic.watched for topic in topics))))
        moved = sum(topic.move(share) for topic in topics)
        for topic in topics:
            if (topic.left_out or topic.subscription.lost) and not topic.warned:
                topic.warned = True
                self._warn(
                    f"{topic.channel}: more messages arrive than a view shows; it skips old ones, and counts them"
                )
        return moved

    def _warn(self, text: str) -> None:
        log.warning("%s", text)
        self._server.publish_status(text, self._sdk.websocket.StatusLevel.Warning)

    def _discover(self) -> None:
        self._looked = time.monotonic()
        fresh = self._discovery.new()
        for channel in [*fresh, *self._refused]:
            if takes_messages(channel):
                continue
            if (before := self._topics.pop(channel, None)) is not None:  # it was removed and created again
                before.close()
            try:
                self._topics[channel] = _Topic(self._sdk, self._context, channel)
                self._refused.pop(channel, None)
            except NotFound:
                self._refused.pop(channel, None)  # removed in the meantime
            except PenstockError as error:
                if channel not in self._refused:
                    log.warning("%s is not shown: %s", channel, error)
                self._refused[channel] = str(error)
        for topic in self._topics.values():
            if not topic.advertised:
                topic.advertise()

    def _hear(self) -> None:
        """Takes in the viewers that came and left. A topic is shown to those that were taken in, and to no other."""
        while self._viewers.early:
            number = self._viewers.early.popleft()
            for topic in self._topics.values():
                if topic.number == number:
                    topic.advertise_again()
        while self._viewers.changes:
            came, viewer, number = self._viewers.changes.popleft()
            for topic in self._topics.values():
                if topic.number == number:
                    (topic.welcome if came else topic.forget)(viewer)

    def __enter__(self) -> Viewed:
        self._viewers.watch()
        return self

    def __exit__(self, *_: object) -> None:
        self._viewers.close()
        if self._served:
            for end in own_sockets(self.port)[1].values():  # the SDK's end waits for them
                end()
            self._server.stop()
        self._close_topics()

    def _close_topics(self) -> None:
        for topic in self._topics.values():
            topic.close()


class _Topic:
    """A channel, and its topic, which exists once the channel's codec is decided.

    number: the topic's, for the SDK. left_out: messages that arrived faster than they are shown.
    """

    def __init__(self, sdk: _Sdk, context: Any, channel: str) -> None:
        self._sdk, self._context, self.channel = sdk, context, channel
        self.latched = Latched()
        self.subscription: Any = subscribe(channel)
        self.number: int | None = None
        self.left_out = 0
        self._viewers: dict[int, None] = {}
        self.warned = False
        self._topic: Any = None
        self._frames = False
        self._form: str | None = None  # of pictures
        self._moved: int | None = None  # the sequence of the newest frame that was taken
        self._shown: Shown | None = None
        self._newest: tuple[bytes, int] | None = None  # message, and when it was sent
        self._behind: float | None = None  # since when there was more than a turn's share
        self.advertise()

    @property
    def advertised(self) -> bool:
        """Whether viewers know it."""
        return self._topic is not None

    @property
    def watched(self) -> bool:
        """Whether a viewer has subscribed to it."""
        return bool(self._viewers)

    def advertise(self) -> None:
        """Makes the topic, once the channel has a codec."""
        codec = self.subscription.codec
        if codec is None:
            return
        self._frames = codec.spec["kind"] == "frame"
        self.latched = Latched(self.subscription)
        if not self._frames:
            self._poll_newest()
        self._make()

    def advertise_again(self) -> None:
        """Creates the topic again, for a viewer whose subscription the SDK refused."""
        self._topic.close()
        for viewer in list(self._viewers):
            self.forget(viewer)
        self._make()

    def _make(self) -> None:
        spec, classes = self.subscription.codec.spec, self._sdk.channels
        self._form = pictures.encoding(self.subscription.shape, self.subscription.dtype.str) if self._frames else None
        if self._form is not None:
            kind = classes.CompressedImageChannel if self._is_compressed() else classes.RawImageChannel
            self._topic = kind(self.channel, context=self._context)
        else:
            self._shown = display_of(self.channel, spec, [self._newest[0]] if self._newest is not None else [])
            name, encoding, data = self._shown.schema
            schema = self._sdk.root.Schema(name=name, encoding=encoding, data=data)
            self._topic = self._sdk.root.Channel(
                self.channel, schema=schema, message_encoding=self._shown.encoding, context=self._context
            )
        self.number = self._topic.id()

    def move(self, share: int) -> int:
        """The messages that there are, onto the topic, up to a bound; of frames the newest. Returns how many."""
        try:
            if self._frames:
                return self._move_frame()
            given = self.latched.give(self._show, share)  # a viewer takes only so many at once
            return given + (self._move(share - given) if self.watched else self._poll_newest())
        except TooSlow:  # it is counted in `lost`
            return 0

    def welcome(self, viewer: int) -> None:
        """Shows a viewer the newest message, or that of each key, and from now on all others."""
        self.forget(viewer)
        if self._frames:
            with self.subscription.latest() or contextlib.nullcontext() as frame:
                if frame is not None and frame.sequence == self._moved and self._shows(frame):  # a newer one: to all
                    self._log(self._convert_frame(frame), frame.time_ns, [viewer])
        elif self.latched:
            self.latched.owe(viewer)
        elif self._newest is not None:
            self._show(*self._newest, [viewer])
        self._viewers[viewer] = None

    def forget(self, viewer: int) -> None:
        """A viewer has left."""
        self._viewers.pop(viewer, None)
        self.latched.forget(viewer)

    def close(self) -> None:
        """Ends the subscription and the topic."""
        self.subscription.close()
        if self._topic is not None:
            self._topic.close()

    def _show(self, body: bytes, sent: int, viewers: Iterable[int] | None = None) -> None:
        convert = self._shown.convert if self._shown is not None else None
        self._log(body if convert is None else convert(body), sent, viewers)

    def _log(self, message: Any, sent: int, viewers: Iterable[int] | None = None) -> None:
        for viewer in self._viewers if viewers is None else viewers:
            self._topic.log(message, log_time=max(sent, 0), sink_id=viewer)

    def _move(self, share: int) -> int:
        batch = self.subscription.poll_arrow(share, TURN_BYTES)
        rows = rows_of(batch)
        self.latched.keep(rows)
        for body, sent in rows:
            self._show(body, sent)
        if rows:
            self._newest = rows[-1]
        if len(rows) < share and batch.nbytes < TURN_BYTES // 2:
            self._behind = None
            return len(rows)
        now = time.monotonic()
        self._behind = now if self._behind is None else self._behind
        if now - self._behind < BEHIND_SECONDS:
            return len(rows)
        self._behind = None
        left = self._poll_newest()
        if left:
            self._show(*self._newest)  # type: ignore[misc]  # there is one
            self.left_out += left - 1
        return len(rows) + left

    def _poll_newest(self) -> int:
        """Reads the available messages, and keeps the newest. Returns their number."""
        count = 0
        for _ in range(DRAINS):
            batch = self.subscription.poll_arrow(DRAIN)
            if batch.num_rows:
                sent = batch.column("time").cast("int64")[-1].as_py()
                self._newest = batch.column("payload")[-1].as_py(), sent
                if self.latched:
                    self.latched.keep(rows_of(batch))
            count += batch.num_rows
            if batch.num_rows < DRAIN:
                break
        return count

    # ---- frames ----

    def _move_frame(self) -> int:
        """The newest frame. A picture is made only if a viewer has subscribed."""
        newest = None
        count = 0
        while count < DRAIN and (frame := self.subscription.try_recv()) is not None:
            if newest is not None:
                newest.release()
            newest = frame
            count += 1
        if newest is not None:
            with newest:
                if self.watched and self._shows(newest):
                    self._log(self._convert_frame(newest), newest.time_ns)
                self._moved = newest.sequence
        return count

    def _is_compressed(self) -> bool:
        return self._form in pictures.JPEG and pictures.pillow() is not None

    def _shows(self, frame: Any) -> bool:  # to viewers of the topic as it is
        return self._form is None or pictures.is_picture(frame, compressed=self._is_compressed())

    def _convert_frame(self, frame: Any) -> Any:
        """A frame as the topic's message. A picture is shown with the channels that it has itself."""
        array = frame.array
        if self._form is None:
            return as_json(array)
        messages, sent = self._sdk.messages, max(frame.time_ns, 0)
        about = {
            "timestamp": messages.Timestamp(sent // 10**9, sent % 10**9),
            "frame_id": self.channel.partition(":")[2],
        }
        if self._is_compressed():
            return messages.CompressedImage(**about, data=pictures.jpeg(array), format="jpeg")
        height, width = array.shape[:2]
        return messages.RawImage(
            **about,
            width=width,
            height=height,
            encoding=pictures.encoding(array.shape, array.dtype.str) or self._form,
            step=array.nbytes // max(1, height),
            data=array.tobytes(),
        )
