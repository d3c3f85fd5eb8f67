"""Messages that a reader holds."""

from __future__ import annotations

import ctypes
import pickle
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest
from conformance.mistakes import write_in_a_child
from conformance.subjects import LENGTH, PATIENCE

import penstock


def lent(sub: Any) -> AbstractContextManager[Any]:
    """The next message in place."""
    return sub.borrow(timeout=PATIENCE)  # type: ignore[no-any-return]


def view_of(place: Any, held: Any) -> memoryview:
    """The bytes of what `lent` gave."""
    return held.body if place.subject.kind == "member" else held  # type: ignore[no-any-return]


def test_held_bytes_are_read_only(place):
    """No view of a message that is lent can be written to: not a memoryview, a cast, a NumPy array or one made from it, a ctypes object, a pickle buffer, an Arrow buffer, or a DLPack capsule."""
    pa = pytest.importorskip("pyarrow")
    pub, sub = place.pair()
    pub.send(place.message(7))
    place.arrive(sub)
    with lent(sub) as held:
        view = view_of(place, held)
        array = np.frombuffer(view, "u1")
        views = [view, view.cast("B"), view[1:], memoryview(view), memoryview(array), array.data]
        views += [pickle.PickleBuffer(view).raw(), pickle.PickleBuffer(array).raw(), memoryview(pa.py_buffer(view))]
        arrays = [array, array.view("u8"), array.reshape(8, 8).T, np.asarray(view), np.asarray(array, copy=False)]
        arrays += [np.lib.stride_tricks.as_strided(array, (8,), (8,)), np.ndarray((LENGTH,), "u1", array)]
        arrays += [np.from_dlpack(array)] if np.lib.NumpyVersion(np.__version__) >= "2.1.0" else []
        for one in views:
            assert one.readonly
            with pytest.raises((TypeError, ValueError)):
                one[0:1] = b"x"
            with pytest.raises(TypeError):
                (ctypes.c_char * one.nbytes).from_buffer(one)
        for other in arrays:
            assert not other.flags.writeable
            with pytest.raises(ValueError, match="WRITEABLE"):
                other.flags.writeable = True
            with pytest.raises(TypeError):
                np.ctypeslib.as_ctypes(other)
            with pytest.raises(BufferError):
                other.__dlpack__()  # a capsule of old could not say that it is read-only
        assert not pa.py_buffer(view).is_mutable
        assert bytes(view) == bytes(place.message(7))
        del array, arrays, views, one, other


def test_a_write_by_mistake_ends_the_writer_alone(place):
    """A process that writes to a message that it holds, through a pointer, ends with SIGSEGV. The message stays as it is for all others. Over ZeroMQ each process has bytes of its own."""
    pub, sub = place.pair()
    other = place.subscribe() if place.subject.kind not in ("pipe", "zmq") else None
    if other is not None:
        pub.wait_for_readers(2, timeout=PATIENCE)
    pub.send(place.message(7))
    place.arrive(sub)
    with lent(sub) as held:
        array = np.frombuffer(view_of(place, held), "u1")
        before = array.tobytes()
        assert write_in_a_child(array.ctypes.data) == (0 if place.subject.kind == "zmq" else signal.SIGSEGV)
        assert array.tobytes() == before
        del array
    if other is not None:
        place.arrive(other)
        assert place.take(other, 1) == [7]
    pub.send(place.message(8))
    place.arrive(sub)
    assert place.take(sub, 1) == [8]


def test_a_reader_opened_early_holds_what_nobody_changes(place):
    """The same holds where the subscription came before the first publication."""
    sub = place.subscribe()
    pub = place.publish()
    pub.wait_for_readers(1, timeout=PATIENCE)
    pub.send(place.message(7))
    place.arrive(sub)
    with lent(sub) as held:
        array = np.frombuffer(view_of(place, held), "u1")
        assert write_in_a_child(array.ctypes.data) == (0 if place.subject.kind == "zmq" else signal.SIGSEGV)
        assert array[:8].tobytes() == (7).to_bytes(8, "little")
        del array


def test_received_arrays_are_private(place):
    """An array that `recv` gives is this reader's own, and may be written to. A frame's is not; `frame.copy()` is."""
    options: dict[str, Any] = {"codec": penstock.array("f4", (2, 3))}
    reader = options if place.subject.kind == "zmq" else {}
    pub = place.publish(**options)
    sub = place.subscribe(**reader)
    other = place.subscribe(**reader) if place.subject.kind != "pipe" else None
    pub.wait_for_readers(1 if other is None else 2, timeout=PATIENCE)
    pub.send(np.ones((2, 3), "f4"))
    found = sub.recv(timeout=PATIENCE)
    take: Callable[[Any], Any] = (lambda got: got.copy()) if place.subject.kind == "frames" else place.body
    mine = take(found)
    mine *= 5
    assert mine.max() == 5
    if other is not None:
        assert take(other.recv(timeout=PATIENCE)).max() == 1
