"""Scenes of the network log under asyncio: its calls wait on a socket, or on another process that has it."""

from __future__ import annotations

import os
import tempfile
import time
from typing import Any

from aio import scenes
from ports import free_port

import penstock

SMALL = {"term_length": 1 << 16, "linger": 1.0, "mtu": 16384}
NAME = "udp"


def uri() -> str:
    """A channel that nobody has used."""
    return f"udp://127.0.0.1:{free_port()}/7"


def _with_a_past(channel: str) -> Any:
    """A subscription that begins in an archive, which is empty."""
    folder = tempfile.mkdtemp(dir=os.environ["PENSTOCK_DIR"])
    return penstock.subscribe(channel, start="earliest", archive=penstock.Archive(folder).path)


class Sending(scenes.Sending):
    """A call that waits for room: the first receiver comes when it is let go on, and messages wait for it."""

    def __init__(self, way: str) -> None:
        self.spec, self.way = scenes._publications()["log"], way
        self.channel = uri()
        self.handle = penstock.publish(self.channel, **SMALL)
        self.reader: Any = None
        self.read: list[int] = []
        while self.handle.offer(self.spec.message(scenes.FILLER)) is not None:
            pass

    def let(self) -> None:
        if self.reader is None:
            self.reader = penstock.subscribe(self.channel)
        self.read += [self.spec.number(message) for message in self.reader.poll()]

    def settled(self, done: list[tuple[int, Any]]) -> None:
        end = time.monotonic() + scenes.WAIT
        while time.monotonic() < end and sum(number != scenes.FILLER for number in self.read) < len(done):
            self.let()
        super().settled(done)

    def close(self) -> None:
        self.handle.close()
        if self.reader is not None:
            self.reader.close()


def made() -> dict[str, Any]:
    """The scenes by their names, each with what it covers."""
    from penstock.kinds.udp import handle as udp_handle
    from penstock.kinds.udp.history.subscription import HistorySubscription

    value = lambda sender, number: sender.send(number)  # noqa: E731
    plain = lambda channel: penstock.subscribe(channel, codec="bytes")  # noqa: E731
    receives = {
        "udp": scenes.Receives(
            udp_handle.UdpSubscription,
            NAME,
            plain,
            scenes._publish(**SMALL),
            lambda s, number: s.send(b"%d" % number),
        ),
        "early udp": scenes.Receives(
            udp_handle.UdpSubscription, NAME, penstock.subscribe, scenes._publish(codec="json", **SMALL), value
        ),
        "past udp": scenes.Receives(
            HistorySubscription, NAME, _with_a_past, scenes._publish(codec="json", **SMALL), value
        ),
    }
    found: dict[str, Any] = {}
    for name, spec in receives.items():
        for way in ("recv_async", "__aiter__", "borrow_async") if name == "udp" else ("recv_async", "__aiter__"):
            found[f"{name} {way}"] = (
                {(spec.covers, way)},
                lambda spec=spec, way=way: scenes.Receiving(spec, way, uri()),
            )
    covers = udp_handle.UdpBytesPublication
    for way in ("send_async", "claim_async"):
        found[f"publication udp {way}"] = {(covers, way)}, lambda way=way: Sending(way)
    found["publication udp wait_for_readers_async"] = (
        {(covers, "wait_for_readers_async")},
        lambda: scenes.Awaited(scenes.Sends(covers, NAME, SMALL, int, int, int), uri()),
    )
    return found
