"""Bugs planted into channels over ZeroMQ."""

from __future__ import annotations

import asyncio
from typing import Any

from evidence.planting import Planted

WAITS = "tests/aio/test_waits.py"
TOPICS = "tests/kinds/zmq/test_zmq_topics.py"
LIFE = "tests/kinds/zmq/test_zmq_life.py"
PROMISES = "tests/kinds/zmq/test_zmq_promises.py"
ROLES = "tests/kinds/zmq/test_zmq_roles.py"


def _arecv_of_zeromq_polls_in_the_loop() -> None:
    from penstock.kinds.zmq.subscription import ZmqSubscription

    async def recv_async(self: Any, timeout: float | None = None) -> Any:
        while (parts := self._take()) is None:
            with self._lock:
                self._open().poll(100)
            await asyncio.sleep(0)
        return self._convert(parts)

    ZmqSubscription.recv_async = recv_async  # type: ignore[method-assign]


def _messages_are_torn_into_parts() -> None:
    from penstock.kinds.zmq.receiving import ZmqTaking

    ZmqTaking._parts = lambda self, socket: [socket.recv(self._noblock)]  # type: ignore[method-assign]


def _a_connection_is_a_reader() -> None:
    from penstock.kinds.zmq.socket.monitor import Monitor

    Monitor.ready = property(lambda self: len(self.peers))  # type: ignore[assignment]


def _topics_count_as_readers() -> None:
    from penstock.kinds.zmq.publication import ZmqPublication

    plain = ZmqPublication._readers

    def readers(self: Any, topic: Any) -> int:
        plain(self, topic)
        return sum(sum(topics.values()) for topics in self._topics.values())

    ZmqPublication._readers = readers  # type: ignore[method-assign]


def _close_drops_without_a_word() -> None:
    from penstock.kinds.zmq.peers import ZmqSocket
    from penstock.kinds.zmq.socket.handle import ZmqHandle

    ZmqHandle._has_unsent = ZmqSocket._has_unsent = lambda self: False  # type: ignore[method-assign]


def _close_leaves_what_peers_have_not_read() -> None:
    from penstock.kinds.zmq.socket.monitor import Monitor

    Monitor.hold = lambda self: None  # type: ignore[method-assign]


def _nothing_is_sent_at_the_end_of_a_process() -> None:
    from penstock.kinds.zmq.socket import process as zmq_process

    zmq_process._end = lambda: None


def _a_fork_goes_on_with_its_parents_socket() -> None:
    from penstock.kinds.zmq.socket.handle import ZmqHandle

    ZmqHandle._after_fork_in_child = lambda self: None  # type: ignore[method-assign]


def _a_fork_keeps_its_parents_connections() -> None:
    from penstock.kinds.zmq.socket.monitor import Monitor

    Monitor.close_duplicates = lambda self: None  # type: ignore[method-assign]


def _keys_are_not_used() -> None:
    from penstock.kinds.zmq.socket.options import ZmqOptions

    def apply(self: Any, module: Any, socket: Any, channel: str, *, bind: bool) -> None:
        socket.setsockopt(module.LINGER, 0)

    ZmqOptions.apply = apply  # type: ignore[method-assign]


def _a_publication_that_should_wait_drops() -> None:
    from penstock.kinds.zmq.publication import ZmqPublication
    from penstock.kinds.zmq.sending import ZmqSending

    ZmqPublication._prepare = ZmqSending._prepare  # type: ignore[method-assign]


def _what_is_unknown_is_said_to_be_nothing() -> None:
    from penstock.kinds.zmq.receiving import ZmqReceiving

    ZmqReceiving.lost = property(lambda self: 0)  # type: ignore[assignment,method-assign]


def _a_claim_is_sent_while_it_is_in_use() -> None:
    from penstock.kinds.zmq.sending import ZmqClaim

    def commit(self: Any) -> int:
        self._ended = True
        return int(self._send(bytes(self._room[:-1])))

    ZmqClaim.commit = commit  # type: ignore[method-assign]


def _a_cancelled_send_was_sent() -> None:
    from penstock.kinds.zmq.sending import ZmqSending

    async def patiently(self: Any, frames: list[Any], timeout: float | None) -> int:
        while (position := self._try(frames)) is None:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0)
        return int(position)

    ZmqSending._send_blocking_async = patiently  # type: ignore[method-assign]


def _replies_are_not_decoded() -> None:
    from penstock.kinds.zmq.requests import ZmqRequester

    ZmqRequester._reply_of = lambda self, pending: pending._reply[0]  # type: ignore[method-assign]


def _a_bad_request_ends_its_server() -> None:
    from penstock.kinds.zmq.requests import ZmqReplier

    def serve(self: Any, answer: Any, count: int | None = None) -> None:
        for _ in range(count or 0):
            request = self.recv()
            request.reply(answer(request.body))

    ZmqReplier.serve = serve  # type: ignore[method-assign]


BUGS: dict[str, Planted] = {
    "recv_async of ZeroMQ polls in the event loop": Planted(
        _arecv_of_zeromq_polls_in_the_loop, (f"{WAITS}::test_the_loop_goes_on_while_a_call_waits[zmq recv_async]",)
    ),
    "a subscription tears messages into parts": Planted(
        _messages_are_torn_into_parts, (f"{TOPICS}::test_a_message_keeps_its_parts",)
    ),
    "topics count as readers": Planted(_topics_count_as_readers, (f"{TOPICS}::test_readers_are_peers_and_not_topics",)),
    "close drops what was pushed without a word": Planted(
        _close_drops_without_a_word, (f"{LIFE}::test_messages_left_after_the_linger_are_an_error",)
    ),
    "close leaves what peers have not read": Planted(
        _close_leaves_what_peers_have_not_read, (f"{LIFE}::test_close_waits_until_a_full_peer_has_read[ipc]",)
    ),
    "nothing is sent at the end of a process": Planted(
        _nothing_is_sent_at_the_end_of_a_process, (f"{LIFE}::test_a_process_that_ends_says_what_it_could_not_send",)
    ),
    "a fork goes on with its parent's socket": Planted(
        _a_fork_goes_on_with_its_parents_socket,
        (f"{LIFE}::test_an_inherited_binding_end_names_the_addresss_owner",),
    ),
    "a fork keeps its parent's connections": Planted(
        _a_fork_keeps_its_parents_connections,
        (f"{LIFE}::test_a_forked_child_keeps_no_address_or_connection[tcp]",),
    ),
    "keys are not used": Planted(
        _keys_are_not_used, (f"{LIFE}::test_curve_encrypts_and_refuses_missing_or_wrong_keys[tcp]",)
    ),
    "a publication that should wait drops": Planted(
        _a_publication_that_should_wait_drops, (f"{PROMISES}::test_when_full_wait_loses_nothing[ipc]",)
    ),
    "what ZeroMQ does not say is said to be nothing": Planted(
        _what_is_unknown_is_said_to_be_nothing, (f"{PROMISES}::test_unknown_values_are_not_shown[ipc]",)
    ),
    "a claim over ZeroMQ is sent while it is in use": Planted(
        _a_claim_is_sent_while_it_is_in_use, (f"{PROMISES}::test_a_claim_is_sent_once_or_not_at_all[ipc]",)
    ),
    "a cancelled send over ZeroMQ was sent": Planted(
        _a_cancelled_send_was_sent,
        (f"{WAITS}::test_a_call_that_is_cancelled_loses_and_doubles_nothing[zmq push send_async]",),
    ),
    "replies over ZeroMQ are not decoded": Planted(_replies_are_not_decoded, (f"{ROLES}::test_codecs_on_every_role",)),
    "a connection over ZeroMQ is a reader": Planted(
        _a_connection_is_a_reader, ("tests/kinds/zmq/test_zmq_readers.py::test_a_foreign_connection_is_no_reader",)
    ),
    "a bad request ends its server": Planted(
        _a_bad_request_ends_its_server, (f"{ROLES}::test_messages_outside_the_codec_are_skipped",)
    ),
}
