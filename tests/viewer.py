"""A viewer: speaks Foxglove's protocol to `penstock view`, and a view that a thread steps."""

import contextlib
import json
import struct
import threading

import pytest

from penstock.export import live

websockets = pytest.importorskip("websockets.sync.client", reason="the client is websockets")


class Client:
    """Speaks the protocol foxglove.sdk.v1: https://github.com/foxglove/ws-protocol."""

    def __init__(self, port):
        opened = websockets.connect(
            f"ws://127.0.0.1:{port}", subprotocols=["foxglove.sdk.v1"], max_size=None, open_timeout=60
        )
        self.left = contextlib.ExitStack()
        self.socket = self.left.enter_context(opened)
        self.topics, self.messages = {}, []
        self.name = self.number = None  # of the topic subscribed to last

    def read(self):
        """The next thing that the server says."""
        said = self.socket.recv(timeout=60)
        if isinstance(said, bytes):
            if said[0] == 1:
                number, time_ns = struct.unpack_from("<IQ", said, 1)
                self.messages.append((number, time_ns, said[13:]))
            return
        found = json.loads(said)
        for one in found.get("channels", ()):
            self.topics[one["topic"]] = one
            if one["topic"] == self.name and one["id"] != self.number:  # the channel was made again
                self.number = one["id"]
                self.ask()

    def topic(self, name):
        while name not in self.topics:
            self.read()
        return self.topics[name]

    def subscribe(self, name):
        self.name, self.number = name, self.topic(name)["id"]
        self.ask()
        return self.number

    def ask(self):
        wanted = [{"id": self.number, "channelId": self.number}]
        self.socket.send(json.dumps({"op": "subscribe", "subscriptions": wanted}))

    def next(self):
        while not self.messages:
            self.read()
        return self.messages.pop(0)


class Serving:
    """A view that a thread steps, and clients of it."""

    def __init__(self, *patterns):
        self.viewed, self.ended = live.Viewed(patterns or ("*",)), threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.ended.is_set():
            self.viewed.step(0.05)

    def __enter__(self):
        self.viewed.__enter__()
        self.thread.start()
        self.client = Client(self.viewed.port)
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()
        self.client.left.close()
        self.viewed.__exit__()
