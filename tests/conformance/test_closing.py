"""A handle that another thread closes answers a question, or raises `Closed`: at every point of the question, and of the close."""

from __future__ import annotations

import inspect
import pickle
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from conformance.sockets import Meeting
from conformance.subjects import Place

import penstock

METHODS = ("statistics", "fileno", "ready", "poll", "try_recv", "poll_arrow", "__reduce__", "__repr__")
ALLOWED = (penstock.Closed, penstock.EndOfStream, penstock.Unsupported)
LOOKS = 50  # at a thread, a millisecond apart
TRIES = 20  # points of one call at which the other thread comes


def _questions(handle: Any) -> dict[str, Callable[[], Any]]:
    """Every property of a handle, and the methods that change nothing for others."""
    found: dict[str, Callable[[], Any]] = {}
    for name in dir(type(handle)):
        kind = inspect.getattr_static(type(handle), name)
        if not name.startswith("_") and (isinstance(kind, property) or inspect.isdatadescriptor(kind)):
            found[name] = lambda name=name: getattr(handle, name)
        elif name in METHODS:
            found[name] = getattr(handle, name)
    return found


def _sleeps_since(thread: threading.Thread) -> str | None:
    """The number of times that a thread has gone to sleep. None if it runs, wants to run, or has ended."""
    try:
        status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
    except OSError:
        return None
    return status.partition("\nvoluntary_ctxt_switches:")[2].split("\n")[0] if "\nState:\tS" in status else None


def _elsewhere(work: Callable[[], Any]) -> threading.Thread:
    """Runs `work` in another thread, until it is done or waits for this one: it has slept since the last look."""
    thread = threading.Thread(target=work)
    thread.start()
    before = None
    for _ in range(LOOKS):
        thread.join(0.001)
        now = _sleeps_since(thread)
        if not thread.is_alive() or (now is not None and now == before):
            break
        before = now
    return thread


def _at_event(number: int, work: Callable[[], Any], call: Callable[[], Any]) -> bool:
    """Makes a call, and does `work` in another thread at so many calls and returns within it. Whether there were so many."""
    seen, threads = 0, []

    def look(_: FrameType, event: str, __: Any) -> None:
        nonlocal seen
        seen += 1
        if seen == number:
            threads.append(_elsewhere(work))

    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
        for thread in threads:
            thread.join(60)
    return seen >= number


def _events_of(call: Callable[[], Any]) -> int:
    """How many calls and returns there are within a call."""
    seen = 0

    def look(*_: Any) -> None:
        nonlocal seen
        seen += 1

    sys.setprofile(look)
    try:
        call()
    except ALLOWED:
        pass
    finally:
        sys.setprofile(None)
    return seen


def _asks_while_closing(opened: Callable[[], Any]) -> None:
    """Questions that a close interrupts, and a close that questions interrupt."""
    handle = opened()
    lengths = {name: _events_of(ask) for name, ask in _questions(handle).items()}
    assert lengths["statistics"] > 1
    handle.close()
    for name, length in lengths.items():
        for number in range(1, length, max(length // TRIES, 1)):
            handle = opened()
            try:
                _at_event(number, handle.close, _questions(handle)[name])
            except ALLOWED:
                pass
            except Exception as error:
                pytest.fail(f"{name}, closed at event {number}: {error!r}")
            finally:
                handle.close()
    wrong: list[str] = []
    number, more = 1, True
    while more:
        handle = opened()
        asked = _questions(handle)

        def ask(asked: dict[str, Callable[[], Any]] = asked, number: int = number) -> None:
            for name, question in asked.items():
                try:
                    question()
                except ALLOWED:
                    pass
                except Exception as error:
                    wrong.append(f"{name} at event {number} of close: {error!r}")

        more = _at_event(number, ask, handle.close)
        number += 1
    assert wrong == []


@pytest.mark.slow
def test_closing_publication(place: Place):
    """Of publications, and members of a sync queue."""
    _asks_while_closing(place.publish)


@pytest.mark.slow
def test_closing_subscription(place: Place):
    """Of subscriptions."""
    place.publish()
    _asks_while_closing(place.subscribe)


@pytest.mark.slow
def test_closing_early_subscription(place: Place):
    """Of subscriptions without a publication."""
    _asks_while_closing(place.subscribe)


@pytest.mark.slow
def test_closing_socket(meeting: Meeting):
    """Of the sockets of every role."""
    names = iter(range(10**6))
    _asks_while_closing(lambda: meeting.join(meeting.role.name, name=f"n{next(names)}"))


def test_pickle_while_closing(meeting: Meeting):
    """A closed socket does not pickle."""
    one = meeting.join(meeting.role.name)
    one.close()
    with pytest.raises(penstock.Closed):
        pickle.dumps(one)
