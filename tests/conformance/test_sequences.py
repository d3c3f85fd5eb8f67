"""`offer_many` takes a sequence: all of it is checked before a message is sent, and nothing of it is taken in vain."""

from __future__ import annotations

import collections
import ctypes
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from conformance.sockets import Meeting
from conformance.subjects import PATIENCE, Place

import penstock

NO_SEQUENCES: dict[str, Callable[[list[Any]], Any]] = {
    "generator": lambda several: (one for one in several),
    "iterator": iter,
    "endless": lambda several: itertools.repeat(several[0]),
    "map": lambda several: map(bytes, several),
    "set": lambda several: {1, 2},
    "dictionary": lambda several: dict.fromkeys(range(2)),
    "values": lambda several: dict(enumerate(several)).values(),
    "number": lambda several: 5,
    "none": lambda several: None,
}


class OneBuffer:
    """A sequence that makes each message in the same buffer."""

    def __init__(self, several: list[Any]) -> None:
        self._several = several

    def __len__(self) -> int:
        return len(self._several)

    def __getitem__(self, at: int) -> Any:
        if at == 0:
            self._buffer: Any = (
                np.array(self._several[0]) if isinstance(self._several[0], np.ndarray) else bytearray(self._several[0])
            )
        self._buffer[:] = self._several[at]
        return self._buffer


def _refuses_others(offer_many: Callable[[Any], Any], several: list[Any], uri: str) -> None:
    for name, make in NO_SEQUENCES.items():
        with pytest.raises(TypeError) as caught:
            offer_many(make(several))
        assert str(caught.value).startswith(f"{uri}: offer_many takes a list of messages, not "), name
        if name in ("generator", "iterator", "endless", "map"):
            assert "would be lost" in str(caught.value)
    left = iter(several)
    with pytest.raises(TypeError):
        offer_many(left)
    assert len(list(left)) == len(several), "it took messages"


def _sends_nothing_before(offer_many: Callable[[Any], Any], good: Any, bad: tuple[Any, ...]) -> None:
    for wrong in bad:
        with pytest.raises((TypeError, penstock.Invalid, penstock.TooLarge)):
            offer_many([good, good, wrong])


def _bad(uri: str) -> tuple[Any, ...]:
    return (
        (ctypes.py_object * 2)(1, 2),
        None,
        5,
        object(),
        "text",
        {},
        *(() if uri.startswith("zmq") else (b"x" * (1 << 21),)),
    )


def test_offer_many_takes_sequences(place: Place):
    """An iterator is refused: messages without room would be lost with it. Any sequence is sent."""
    pub, sub = place.pair()
    several = [place.message(number) for number in range(4)]
    _refuses_others(pub.offer_many, several, place.uri)
    assert pub.offer_many([]) == 0
    for sequence in (several, tuple(several), collections.deque(several), OneBuffer(several)):
        assert pub.offer_many(sequence) == 4
        assert place.take(sub, 4) == [0, 1, 2, 3]


def test_offer_many_sends_nothing_before_a_bad_one(place: Place):
    """If the last message is wrong in any way, the messages before it are not sent."""
    pub, sub = place.pair()
    _sends_nothing_before(pub.offer_many, place.message(1), _bad(place.uri))
    pub.send(place.message(7), timeout=PATIENCE)
    assert place.take(sub, 1) == [7]


def _sending(meeting: Meeting) -> tuple[Callable[[Any], Any], Callable[[], Any]]:
    one, other = meeting.two()
    if not hasattr(one, "offer_many") or meeting.role.name == "pull":
        pytest.skip("this role sends nothing by itself")
    to = meeting.to(meeting.role.name)
    return lambda messages: one.offer_many(messages, **to), lambda: meeting.body(other.recv(timeout=PATIENCE))


def test_socket_offer_many_takes_sequences(meeting: Meeting):
    """The same of the ends of every pattern."""
    offer_many, take = _sending(meeting)
    several = [b"%d" % number for number in range(4)]
    _refuses_others(offer_many, several, meeting.uri)
    for sequence in (several, tuple(several), collections.deque(several), OneBuffer(several)):
        assert offer_many(sequence) == 4
        assert [take() for _ in range(4)] == several


def test_socket_offer_many_sends_nothing_before_a_bad_one(meeting: Meeting):
    """The same; also where a part of a message of several is wrong."""
    offer_many, take = _sending(meeting)
    _sends_nothing_before(offer_many, b"1", (*_bad(meeting.uri), [b"a", None], [b"a", "b"]))
    assert offer_many([b"7"]) == 1
    assert take() == b"7"


@pytest.fixture(params=("log", "pipe", "sync", "zmq"))
def coded(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[tuple[Any, Any]]:
    """A publication and a subscription of a channel of JSON."""
    uri = f"zmq+ipc://{tmp_path}/peer" if request.param == "zmq" else f"{request.param}:a"
    with penstock.publish(uri, codec="json") as pub, penstock.subscribe(uri, codec="json") as sub:
        pub.wait_for_readers(1, timeout=PATIENCE)
        yield pub, sub


def test_encoded_offer_many_takes_sequences(coded: tuple[Any, Any]):
    """The same where messages are objects. A text is one message, and no sequence of them."""
    pub, sub = coded
    _refuses_others(pub.offer_many, [1, 2, 3], pub.channel)
    with pytest.raises(penstock.Invalid, match="not one message"):
        pub.offer_many("abc")
    with pytest.raises(penstock.Invalid):
        pub.offer_many([1, 2, object()])
    assert pub.offer_many(range(3)) == 3
    assert [sub.recv(timeout=PATIENCE) for _ in range(3)] == [0, 1, 2]
