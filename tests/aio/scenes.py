"""Every waiting call under asyncio as a scene: a handle whose call waits, and what lets it go on.

`SCENES` is the registry: a public class with a coroutine method that no scene covers fails the suite.
"""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import penstock
from penstock._native import core

WAIT = 15.0  # seconds: longer is a hang
SMALL = {"capacity": 1 << 16, "max_pipes": 8}  # of pipes: the kernel clears 32 MiB for one of the usual size
OUTSTANDING = 8  # messages that a scene lets lie about, so that lossy kinds lose none
_numbers = itertools.count()


class Scene:
    """A handle, and its waiting call. Nothing is there for it until `let`, which is for another thread: it may block."""

    # The end of a call whose only peer is killed: it waits, ends as the stream does, fails, goes on, or lost its message.
    after_kill = "waits"

    def wait(self, number: int) -> Any:
        """A coroutine of the call. number: of this call, for calls that say something."""
        raise AssertionError

    def let(self) -> None:
        """Lets at least one call go on."""
        raise AssertionError

    def settled(self, done: list[tuple[int, Any]]) -> None:
        """Looks at the results of calls that were not cancelled: nothing lost, nothing doubled."""
        raise AssertionError

    def close(self) -> None:
        """Closes everything."""


class Receiving(Scene):
    """A call that receives. The sender is opened when it is first needed."""

    def __init__(self, spec: Receives, way: str, channel: str) -> None:
        self.spec, self.channel, self.way = spec, channel, way
        self.handle = spec.receiver(channel)
        self.sender: Any = None
        self.sent = self.received = 0
        self.after_kill = "ends" if spec.ends else "waits"

    async def wait(self, number: int) -> int:
        """The number of the message received."""
        if self.way == "__aiter__":
            async for message in self.handle:
                return self._number(message)
            raise penstock.Closed("the iteration has ended")
        if self.way == "borrow_async":
            with await self.handle.borrow_async() as view:
                self.received += 1
                return self.spec.borrowed(view)
        return self._number(await getattr(self.handle, self.spec.method)())

    def _number(self, message: Any) -> int:
        self.received += 1
        return self.spec.number(message)

    def let(self) -> None:
        if self.sender is None:
            self.sender = self.spec.sender(self.channel, self.handle)
            if hasattr(self.sender, "wait_for_readers") and self.channel.startswith("zmq"):
                self.sender.wait_for_readers(1, timeout=WAIT)
        if self.sent - self.received < OUTSTANDING:
            self.spec.put(self.sender, self.sent)
            self.sent += 1

    def settled(self, done: list[tuple[int, Any]]) -> None:
        assert sorted(result for _, result in done) == list(range(self.sent)), "a message was lost or came twice"

    def close(self) -> None:
        for end in (self.handle, self.sender):
            if end is not None:
                end.close()


class Asking(Scene):
    """A request. The server is opened when it is first needed, unless it was there before."""

    def __init__(self, channel: str, served: bool) -> None:
        self.channel = channel
        self.handle = _join("request")(channel)
        self.server: Any = None
        if served:
            self._serve()
        self.after_kill = "fails" if channel.startswith("pipe") else "lost"

    def _serve(self) -> None:
        self.server = penstock.join(self.channel, role="reply")

    async def wait(self, number: int) -> Any:
        """The reply."""
        return await self.handle.request_async(b"%d" % number)

    def let(self) -> None:
        if self.server is None:
            self._serve()
        request = self.server.try_recv()
        while request is not None:
            request.reply(b"re " + request.body)
            request = self.server.try_recv()

    def settled(self, done: list[tuple[int, Any]]) -> None:
        assert all(result == b"re %d" % number for number, result in done), "a reply went to another request"

    def close(self) -> None:
        for end in (self.handle, self.server):
            if end is not None:
                end.close()


class Appending(Scene):
    """An append to a queue that is full, because one member does not read."""

    after_kill = "goes on"
    body = bytes(8000)

    def __init__(self, channel: str, reader: bool = True) -> None:
        self.handle = penstock.join(channel, name="writer", capacity=1 << 16, spill_limit=0)
        self.reader: Any = penstock.join(channel, name="reader") if reader else None
        self.filled, self.popped = 0, []  # type: ignore[var-annotated]
        self.fill()

    def fill(self) -> None:
        """Until there is no room."""
        while self.handle.offer(self.body, type="filler") is not None:
            self.filled += 1

    async def wait(self, number: int) -> int:
        """The position after the message."""
        return await self.handle.send_async(b"%d " % number + self.body, type="mine")

    def let(self) -> None:
        self.popped += [message for message in self.reader.poll() if message.type == "mine"]

    def settled(self, done: list[tuple[int, Any]]) -> None:
        self.let()
        wrote = sorted(int(message.body.split(b" ")[0]) for message in self.popped)
        assert wrote == sorted(number for number, _ in done), "a cancelled append was written, or one was lost"

    def close(self) -> None:
        for end in (self.handle, self.reader):
            if end is not None:
                end.close()


class Sending(Scene):
    """A call that waits for room: a reader keeps what was sent before."""

    body = bytes(8000)

    def __init__(self, spec: Sends, way: str, channel: str) -> None:
        self.spec, self.way = spec, way
        self.handle = penstock.publish(channel, **spec.options)
        self.reader = penstock.subscribe(channel)
        self.read: list[int] = []
        while self.handle.offer(spec.message(FILLER)) is not None:
            pass

    async def wait(self, number: int) -> None:
        """Sends that number."""
        if self.way == "send_async":
            await self.handle.send_async(self.spec.message(number))
        else:
            message = bytes(self.spec.raw(number))
            with await self.handle.claim_async(len(message)) as view:
                view[:] = message

    def let(self) -> None:
        self.read += [self.spec.number(message) for message in self.reader.poll()]

    def settled(self, done: list[tuple[int, Any]]) -> None:
        self.let()
        wrote = sorted(number for number in self.read if number != FILLER)
        assert wrote == sorted(number for number, _ in done), "a cancelled message was sent, or one was lost"

    def close(self) -> None:
        self.handle.close()
        self.reader.close()


class SendingFrames(Scene):
    """A call that waits for a buffer: a reader leases all of them."""

    def __init__(self, way: str, channel: str) -> None:
        self.way = way
        self.handle = penstock.publish(channel, shape=(4,), dtype="u4", buffers=2)
        self.reader = penstock.subscribe(channel, conflate=False)
        self.held: list[Any] = []
        for _ in range(2):
            _frame(self.handle, FILLER)
            self.held.append(self.reader.recv(WAIT))

    async def wait(self, number: int) -> None:
        """Sends that number."""
        import numpy as np

        pixels = np.full(4, number, "u4")
        if self.way == "send_async":
            await self.handle.send_async(pixels)
        elif self.way == "acquire_async":
            with await self.handle.acquire_async() as frame:
                frame.array[...] = pixels
        else:
            with await self.handle.claim_async(16) as view:
                view[:] = pixels.tobytes()

    def let(self) -> None:
        if self.held:
            self.held.pop().release()

    def settled(self, done: list[tuple[int, Any]]) -> None:
        got = [_pixel(frame) for frame in self.reader.poll()]  # messages that were not overwritten since
        assert set(got) <= {number for number, _ in done}, "a cancelled frame was sent"

    def close(self) -> None:
        for frame in self.held:
            frame.release()
        self.handle.close()
        self.reader.close()


class Awaited(Scene):
    """A publication that waits for its first subscription."""

    def __init__(self, spec: Sends, channel: str) -> None:
        self.channel, self.reader = channel, None
        self.handle = penstock.publish(channel, **spec.options)

    async def wait(self, number: int) -> None:
        """Until there is one."""
        await self.handle.wait_for_readers_async(1)

    def let(self) -> None:
        if self.reader is None:
            self.reader = penstock.subscribe(self.channel)

    def settled(self, done: list[tuple[int, Any]]) -> None:
        assert self.handle.readers == 1

    def close(self) -> None:
        self.handle.close()
        if self.reader is not None:
            self.reader.close()


FILLER = 1 << 30


@dataclass(frozen=True)
class Sends:
    """How one kind of publication sends a number. covers: the class. raw: the same as the bytes that a claim takes."""

    covers: type
    channel: str
    options: dict[str, Any]
    message: Callable[[int], Any]
    raw: Callable[[int], Any]
    number: Callable[[Any], int]

    @property
    def ways(self) -> list[str]:
        """The calls that wait."""
        return [
            way
            for way in ("send_async", "claim_async", "acquire_async", "wait_for_readers_async")
            if hasattr(self.covers, way)
        ]

    def open(self, way: str) -> Scene:
        """A scene on a channel of its own."""
        channel = name_of(self.channel)
        if way == "wait_for_readers_async":
            return Awaited(self, channel)
        return SendingFrames(way, channel) if "shape" in self.options else Sending(self, way, channel)


def _publications() -> dict[str, Sends]:
    import numpy as np

    from penstock.channels import handles
    from penstock.kinds.frames import opener as frames
    from penstock.kinds.pipe import opener as pipe

    text = lambda number: b"%12d" % number + Sending.body  # noqa: E731
    array = lambda number: np.full(2000, number, "i4")  # noqa: E731
    parsed = lambda message: int(bytes(message[:12]))  # noqa: E731
    first = lambda message: int(message[0])  # noqa: E731
    codec = penstock.array("i4", (2000,))
    log, push = {"term_length": 1 << 16}, {"capacity": 1 << 16}
    return {
        "log": Sends(handles.NativePublication, "log:a", log, text, text, parsed),
        "log of arrays": Sends(
            handles.EncodingPublication, "log:a", {**log, "codec": codec}, array, lambda n: array(n).tobytes(), first
        ),
        "pipe": Sends(pipe.BytesPush, "pipe:a", push, text, text, parsed),
        "pipe of arrays": Sends(
            pipe.EncodingPush, "pipe:a", {**push, "codec": codec}, array, lambda n: array(n).tobytes(), first
        ),
        "frames": Sends(frames.FramePublication, "frames:a", {"shape": (4,), "dtype": "u4"}, int, int, int),
    }


@dataclass(frozen=True)
class Receives:
    """How one kind of handle is received from. covers: the class."""

    covers: type
    channel: str
    receiver: Callable[[str], Any]
    sender: Callable[[str, Any], Any]
    put: Callable[[Any, int], Any]
    number: Callable[[Any], int] = lambda message: int(message)
    method: str = "recv_async"
    borrowed: Callable[[memoryview], int] = lambda view: int(bytes(view))
    lends: bool = False  # whether it is a socket that has `borrow_async`
    ends: bool = False  # whether the stream ends with its last sender

    @property
    def ways(self) -> list[str]:
        """The calls that receive."""
        compiled = issubclass(self.covers, core.Subscription)
        return [self.method, "__aiter__", *(["borrow_async"] if compiled or self.lends else [])]

    def open(self, way: str) -> Receiving:
        """A scene on a channel of its own."""
        return Receiving(self, way, name_of(self.channel))


_SOCKETS = tempfile.TemporaryDirectory(prefix="penstock-aio-")  # removed as the tests' process ends


def name_of(channel: str) -> str:
    """A channel of that kind that nobody has used."""
    number = next(_numbers)
    if channel.startswith("zmq+ipc"):
        return f"zmq+ipc://{_SOCKETS.name}/{number}"
    return f"{channel}{number}"


def _send(sender: Any, number: int) -> None:
    sender.send(b"%d" % number)


def _publish(**options: Any) -> Callable[[str, Any], Any]:
    return lambda channel, _: penstock.publish(channel, **options)


def _subscribe(conflate: bool | None = None, **options: Any) -> Callable[[str], Any]:
    """options: of the channel, which a publication makes."""

    def opened(channel: str) -> Any:
        if not channel.startswith("zmq"):
            with contextlib.suppress(penstock.Busy):  # a peer has made it
                penstock.publish(channel, **options).close()
        return penstock.subscribe(channel) if conflate is None else penstock.subscribe(channel, conflate=conflate)

    return opened


def _join(role: str, **options: Any) -> Callable[..., Any]:
    return lambda channel, _=None: penstock.join(
        channel, role=role, **(SMALL if channel.startswith("pipe") else {}), **options
    )


def _frame(sender: Any, number: int) -> None:
    import numpy as np

    sender.send(np.full(4, number, "u4"))


def _pixel(frame: Any) -> int:
    with frame:
        return int(frame.array[0])


def _ask(sender: Any, number: int) -> None:
    sender.submit(b"%d" % number, timeout=WAIT)


def _reply(request: Any) -> int:
    request.reply(b"")
    return int(request.body)


def _made() -> dict[str, Receives]:
    from penstock.channels import handles
    from penstock.kinds.frames import opener as frames
    from penstock.kinds.pipe import opener as pipe
    from penstock.kinds.pipe import sockets
    from penstock.kinds.sync import opener as sync
    from penstock.kinds.zmq.peers import ZmqPuller, ZmqRouter
    from penstock.kinds.zmq.requests import ZmqReplier
    from penstock.kinds.zmq.subscription import ZmqSubscription

    frame = {"shape": (4,), "dtype": "u4", "buffers": 16}
    body = lambda message: int(message.body)  # noqa: E731
    same = lambda channel, handle: handle  # noqa: E731
    put = lambda sender, number: sender.put(number)  # noqa: E731
    small = {"term_length": 1 << 16}
    value = lambda sender, number: sender.send(number)  # noqa: E731
    return {
        "log": Receives(handles.NativeSubscription, "log:a", _subscribe(**small), _publish(), _send),
        "fake": Receives(handles.NativeSubscription, "fake:log:a", _subscribe(**small), _publish(), _send),
        "json": Receives(handles.NativeSubscription, "log:a", _subscribe(codec="json", **small), _publish(), value),
        "early log": Receives(
            handles.NativeSubscription, "log:a", penstock.subscribe, _publish(codec="json", **small), value
        ),
        "early pipe": Receives(pipe.PipePuller, "pipe:a", penstock.subscribe, _publish(codec="json", **SMALL), value),
        "ring": Receives(handles.NativeSubscription, "ring:a", _subscribe(capacity=1 << 16), _publish(), _send),
        "frames": Receives(
            frames.FrameSubscription,
            "frames:a",
            _subscribe(conflate=False, **frame),
            _publish(),
            _frame,
            _pixel,
            borrowed=lambda view: int.from_bytes(view[:4], "little"),
        ),
        "sync": Receives(
            sync.SyncMember,
            "sync:a",
            lambda channel: penstock.join(channel, name="r", capacity=1 << 16),
            lambda channel, _: penstock.join(channel, name="w", capacity=1 << 16),
            lambda sender, number: sender.send(b"%d" % number),
            body,
        ),
        "pipe": Receives(pipe.PipePuller, "pipe:a", _subscribe(**SMALL), _publish(), _send),
        "pipe-json": Receives(pipe.PipePuller, "pipe:a", _subscribe(codec="json", **SMALL), _publish(), value),
        "pair": Receives(sockets.PipePair, "pipe:a", _join("pair"), _join("pair"), _send, lends=True, ends=True),
        "dealer": Receives(
            sockets.PipeDealer,
            "pipe:a",
            _join("dealer", name="d"),
            _join("router"),
            lambda sender, number: sender.send(b"%d" % number, to="d"),
            lends=True,
            ends=True,
        ),
        "router": Receives(sockets.PipeRouter, "pipe:a", _join("router"), _join("dealer"), _send, body, lends=True),
        "reply": Receives(sockets.PipeReplier, "pipe:a", _join("reply"), _join("request"), _ask, _reply),
        "thread pipe": Receives(
            penstock.threads.Pipe,
            "thread:a",
            lambda _: penstock.threads.Pipe(),
            same,
            put,
            lambda item: item,
            "get_async",
        ),
        "mailbox": Receives(
            penstock.threads.Mailbox,
            "thread:a",
            lambda _: penstock.threads.Mailbox(),
            same,
            put,
            lambda item: item,
            "get_async",
        ),
        "zmq": Receives(ZmqSubscription, "zmq+ipc", _subscribe(), _publish(), _send),
        "zmq pull": Receives(ZmqPuller, "zmq+ipc", _join("pull"), _join("push"), _send),
        "zmq router": Receives(ZmqRouter, "zmq+ipc", _join("router"), _join("dealer"), _send, body),
        "zmq reply": Receives(ZmqReplier, "zmq+ipc", _join("reply"), _join("request"), _ask, _reply),
    }


RECEIVES = _made()


def _covered() -> dict[str, tuple[set[tuple[type, str]], Callable[[], Scene]]]:
    from penstock.kinds.pipe.requests import PipeRequester
    from penstock.kinds.sync.opener import SyncMember
    from penstock.kinds.zmq.requests import ZmqRequester

    found: dict[str, tuple[set[tuple[type, str]], Callable[[], Scene]]] = {}
    for name, spec in RECEIVES.items():
        for way in spec.ways:
            found[f"{name} {way}"] = {(spec.covers, way)}, lambda spec=spec, way=way: spec.open(way)
    for name, sends in _publications().items():
        for way in sends.ways:
            found[f"publication {name} {way}"] = {(sends.covers, way)}, lambda sends=sends, way=way: sends.open(way)
    for kind, cls, channel in (("pipe", PipeRequester, "pipe:a"), ("zmq", ZmqRequester, "zmq+ipc")):
        for served in (False, True):
            name = f"{kind} request_async, {'no reply' if served else 'no server'}"
            found[name] = (
                {(cls, "request_async")},
                lambda channel=channel, served=served: Asking(name_of(channel), served),
            )
    from aio import socket_scenes, sync_scenes, udp_scenes, zmq_scenes

    found |= udp_scenes.made()
    found |= zmq_scenes.made(RECEIVES["zmq"])
    found |= socket_scenes.made(name_of)
    found |= sync_scenes.made(name_of)
    found["sync send_async"] = {(SyncMember, "send_async")}, lambda: Appending(name_of("sync:a"))
    return found


SCENES = _covered()
