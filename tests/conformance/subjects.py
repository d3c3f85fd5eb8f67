"""The subjects of the conformance suite: every kind of channel on every backend, behind the same few calls."""

from __future__ import annotations

import contextlib
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from ports import free_port

import penstock

LENGTH = 64  # bytes of a message
PATIENCE = 60  # seconds: longer than a loaded machine needs, so that a hang is told from slowness


@dataclass(frozen=True)
class Subject:
    """One kind on one backend. small: the options of its smallest channel; reader: those of an orderly subscription.

    The kind `member` is a sync queue whose writers and readers are members: `penstock.join` instead of `publish` and `subscribe`.
    """

    kind: str
    backend: str
    small: dict[str, Any] = field(default_factory=dict)
    reader: dict[str, Any] = field(default_factory=dict)

    @property
    def waiting(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The options of a publication that waits for its readers, and of such a reader. Most kinds wait unless told otherwise."""
        if self.kind == "zmq":
            return {"when_full": "wait", "max_messages": 100}, {"max_messages": 100}
        return {}, {"when_slow": "wait"} if self.kind == "frames" else {}

    @property
    def codec(self) -> tuple[Any, Any, Any]:
        """A codec, a value that it carries, and another codec. Frames are arrays, so theirs are arrays', too."""
        if self.kind == "frames":
            return penstock.array("f4", (2, 3)), np.ones((2, 3), "f4"), penstock.array("f4", (5,))
        return "json", {"a": [1, 2.5, None]}, "msgpack"

    @property
    def name(self) -> str:
        """Unique: `log`, `fake:log`, `zmq`."""
        return self.kind if self.backend != "fake" else f"fake:{self.kind}"

    def address(self, folder: Path) -> str:
        """The URI of this subject's channel in a test that owns `folder`."""
        if self.kind == "zmq":
            return f"zmq+ipc://{folder}/peer"
        if self.kind == "member":
            return "sync:a"
        return f"udp://127.0.0.1:{free_port()}/7" if self.kind == "udp" else f"{self.name}:a"

    def message(self, number: int) -> Any:
        """The message that carries `number`."""
        body = number.to_bytes(8, "little") * (LENGTH // 8)
        return np.frombuffer(body, "u1").copy() if self.kind == "frames" else body

    def body(self, message: Any) -> Any:
        """The message as it was sent. A member receives it with a sender and a type."""
        return message.body if self.kind == "member" else message

    def number(self, message: Any) -> int:
        """The number that a message carries. A torn message is an `AssertionError`."""
        body = message.array.tobytes() if self.kind == "frames" else bytes(self.body(message))
        assert len(body) == LENGTH
        assert body == body[:8] * (LENGTH // 8), "a torn message"
        return int.from_bytes(body[:8], "little")


@dataclass
class Place:
    """A subject's channel in one test, and the handles opened on it."""

    subject: Subject
    uri: str
    handles: list[Any] = field(default_factory=list)

    @property
    def pattern(self) -> str:
        """A pattern that finds the URI in an error."""
        return re.escape(self.uri)

    def message(self, number: int) -> Any:
        """The message that carries `number`."""
        return self.subject.message(number)

    def number(self, message: Any) -> int:
        """The number that a message carries."""
        return self.subject.number(message)

    def publish(self, **options: Any) -> Any:
        """A publication. `options` are added to the subject's own. A codec of frames takes the place of shape and dtype."""
        shaped = ("shape", "dtype") if "codec" in options else ()
        small = {name: value for name, value in self.subject.small.items() if name not in shaped}
        opened = penstock.join if self.subject.kind == "member" else penstock.publish
        self.handles.append(opened(self.uri, **{**small, **options}))
        return self.handles[-1]

    def subscribe(self, **options: Any) -> Any:
        """A subscription. `options` are added to the subject's own."""
        opened = penstock.join if self.subject.kind == "member" else penstock.subscribe
        self.handles.append(opened(self.uri, **{**self.subject.reader, **options}))
        return self.handles[-1]

    def pair(self, **options: Any) -> tuple[Any, Any]:
        """A publication and a subscription that know each other."""
        pub = self.publish(**options)
        sub = self.subscribe()
        pub.wait_for_readers(1, timeout=PATIENCE)
        return pub, sub

    def waiting_pair(self) -> tuple[Any, Any]:
        """The same, where the publication waits for the subscription."""
        of_pub, of_sub = self.subject.waiting
        pub = self.publish(**of_pub)
        sub = self.subscribe(**of_sub)
        pub.wait_for_readers(1, timeout=PATIENCE)
        return pub, sub

    def fill(self, pub: Any) -> int:
        """How many messages were sent until there was no room. ZeroMQ makes some by itself, as long as the kernel takes messages."""
        sent = 0
        while True:
            try:
                if pub.offer(self.message(sent)) is None:
                    pub.send(self.message(sent), timeout=0.1 if self.subject.kind == "zmq" else 0)
            except penstock.TimedOut:
                return sent
            sent += 1
            assert sent < 100_000, "this channel is never full"

    def meet(self, pub: Any, *subs: Any) -> None:
        """Until the publication knows the subscriptions. They are looked at meanwhile: ZeroMQ connects again only then."""
        deadline = time.monotonic() + PATIENCE
        while pub.readers != len(subs):
            assert time.monotonic() < deadline, "the readers do not come"
            assert [sub.try_recv() for sub in subs] == [None] * len(subs)
            with contextlib.suppress(penstock.TimedOut):
                pub.wait_for_readers(len(subs), timeout=0.01)

    def settle(self, pub: Any) -> None:
        """Until the messages are where a reader of this machine finds them. Without a network they are there at once."""
        if self.subject.kind == "udp":
            pub.wait_for_readers(1, timeout=PATIENCE)
            deadline = time.monotonic() + PATIENCE
            while pub.lag:
                assert time.monotonic() < deadline, "it is not sent"

    def arrive(self, sub: Any) -> None:
        """Until something is there to read. Without a network it is there at once."""
        if self.subject.kind == "udp":
            assert penstock.wait([sub], PATIENCE) == [sub]

    def body(self, message: Any) -> Any:
        """The message as it was sent."""
        return self.subject.body(message)

    def take(self, sub: Any, count: int) -> list[int]:
        """The numbers of the next `count` messages."""
        return [self.number(sub.recv(timeout=PATIENCE)) for _ in range(count)]

    def close(self) -> None:
        """Closes every handle."""
        for handle in self.handles:
            handle.close()


_SMALL: dict[str, dict[str, Any]] = {
    "log": {"capacity": 1 << 16},
    "ring": {"capacity": 1 << 16},
    "sync": {"capacity": 1 << 16},
    "pipe": {"capacity": 1 << 16, "max_pipes": 8, "max_members": 8},
    "frames": {"shape": (LENGTH,), "dtype": "u1", "buffers": 16},
}
_READER: dict[str, dict[str, Any]] = {"frames": {"conflate": False}}
KINDS = (*_SMALL, "member", "udp", "zmq")
SUBJECTS = (
    *(
        Subject(kind, backend, small, _READER.get(kind, {}))
        for backend in ("shm", "fake")
        for kind, small in _SMALL.items()
    ),
    Subject(
        "member", "shm", {"capacity": 1 << 16}, {"capacity": 1 << 16}
    ),  # a member decides the channel as a publication does
    Subject("udp", "udp", {"term_length": 1 << 16, "linger": 1.0}),
    Subject("zmq", "zmq"),
)
