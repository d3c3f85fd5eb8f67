"""Holes of a live stream that are read from an archive, step by step: what the network gives, and when a loss is seen, is told here."""

import os
from types import SimpleNamespace

import pytest

from penstock.channels.interfaces.subscription import Received
from penstock.errors import EndOfStream
from penstock.kinds.udp.history.subscription import HistorySubscription
from penstock.record.format.types import Recorded

KEY, SESSION, SIZE = (5, 9), 5, 64


class Live:
    """A live subscription. comes: its next messages, each by its number; None: there is none now."""

    def __init__(self):
        self.comes, self.lost, self.closed, self.channel = [], 0, False, "udp://127.0.0.1:1/7"
        self.sessions, self._fd = [], os.eventfd(0)
        self.images = {}  # as `_reached` gives them: joined last, read up to, bytes lost before that
        self.ended = False
        self.last = Received(0, 0, SESSION)

    def joins(self, number):
        self.sessions = [
            SimpleNamespace(session=SESSION, initial_term_id=KEY[1], joined=number * SIZE, position=number * SIZE)
        ]
        self.images[KEY] = number * SIZE, number * SIZE, self.lost

    def loses(self, up_to, size):
        """Its image is read up to there, and so many bytes are lost."""
        self.lost += size
        self.images[KEY] = self.images[KEY][0], up_to, self.lost

    def _reached(self):
        return self.images

    def try_recv(self):
        number = self.comes.pop(0) if self.comes else None
        if number is None and self.ended:
            raise EndOfStream("it has ended")
        if number is not None:
            self.last = Received(number * SIZE, 0, SESSION)
        return number

    def fileno(self):
        return self._fd

    def close(self):
        os.close(self._fd)


class Past:
    """An archive of all messages. has: how many there are, where no end is named. asked: up to where."""

    def __init__(self, has=0):
        self.lost, self.asked, self.has, self.why = 0, [], has, ""

    def sessions(self):
        return [KEY] if self.has else []

    def knows(self, key):
        return key in self.sessions()

    def growing(self):
        return set()

    def fill(self, key, begin, end):
        assert key == KEY
        self.asked.append(end)
        for number in range(int(-(-(begin or 0) // SIZE)), self.has if end is None else int(end // SIZE)):
            yield Recorded(number, number * SIZE, 0, SESSION)


def test_a_loss_seen_while_its_session_is_gone_is_filled():
    """An image that was lapped ends, and the next one is not there yet: the loss is counted in between."""
    live, past = Live(), Past()
    sub = HistorySubscription(live, past, whole=True)
    live.joins(0)
    live.comes = [0, 1]
    assert sub.poll() == [0, 1]
    live.sessions = []
    live.loses(5 * SIZE, 3 * SIZE)
    assert sub.poll() == [2, 3, 4]
    live.joins(5)
    live.comes = [5, 6]
    assert sub.poll() == [5, 6]
    assert past.asked[-1] == 5 * SIZE
    sub.close()


def test_a_loss_at_the_end_of_a_session_that_is_gone_is_filled():
    """The sender fell silent or ended behind a loss, and its image is gone when that is seen: no message follows it."""
    live, past = Live(), Past()
    sub = HistorySubscription(live, past, whole=True)
    live.joins(0)
    live.comes = [0, 1]
    assert sub.poll() == [0, 1]
    live.sessions, live.ended = [], True
    live.loses(4 * SIZE, 2 * SIZE)
    assert sub.poll() == [2, 3]
    with pytest.raises(EndOfStream):
        sub.try_recv()
    sub.close()


def test_a_loss_seen_before_messages_in_front_of_it_is_filled():
    """The next image of a session is there, and the loss before it is counted, while messages of this one are still to be read."""
    live, past = Live(), Past()
    sub = HistorySubscription(live, past, whole=True)
    live.joins(0)
    live.comes = [0]
    assert sub.poll() == [0]
    live.lost = 2 * SIZE
    live.joins(4)
    live.comes = [1]
    assert sub.poll() == [1]
    live.comes = [4, 5]
    assert sub.poll() == [2, 3, 4, 5]
    sub.close()


def test_a_session_that_came_and_went_unseen_is_read():
    live, past = Live(), Past()
    sub = HistorySubscription(live, past, whole=True)
    assert sub.poll() == []
    past.has, live.ended = 3, True
    assert sub.poll() == [0, 1, 2]
    with pytest.raises(EndOfStream):
        sub.try_recv()
    sub.close()


def test_a_session_that_ended_meanwhile_is_asked_for():
    """It was joined behind what its recording had, gave nothing, and is gone when the past was read."""
    live, past = Live(), Past(has=3)
    live.joins(5)
    live.sessions, live.ended = [], True
    sub = HistorySubscription(live, past, whole=True)
    assert sub.poll() == [0, 1, 2, 3, 4]
    assert past.asked[:2] == [None, 5 * SIZE]
    with pytest.raises(EndOfStream):
        sub.try_recv()
    sub.close()


def test_a_session_never_recorded_is_not_waited_for():
    live, past = Live(), Past()
    live.joins(5)
    live.sessions, live.ended = [], True
    sub = HistorySubscription(live, past, whole=True)
    with pytest.raises(EndOfStream):
        sub.try_recv()
    assert past.asked == []
    sub.close()


def test_what_the_past_and_the_live_stream_have_is_given_once():
    """Live messages are kept aside while the past is read, which goes on beyond the place where the stream was joined."""
    live, past = Live(), Past(has=5)
    live.joins(3)
    live.comes = [3, 4, 5, 6]
    sub = HistorySubscription(live, past, whole=True)
    assert sub.poll() == [0, 1, 2, 3, 4, 5, 6]
    sub.close()


def test_a_session_joined_within_a_message_asks_for_all_of_it(monkeypatch):
    """Its image is seen before anything of it can be read: the message in which it was joined is asked for, too."""
    monkeypatch.setattr("penstock.kinds.udp.history.subscription.LOOK_SECONDS", 0.0)
    live, past = Live(), Past()
    sub = HistorySubscription(live, past, whole=True)
    live.joins(2.5)  # no recording has all of the third message
    found = []
    while len(found) < 2:
        found += sub.poll()
    assert found == [0, 1]
    live.comes = [3, 4]
    assert sub.poll() == [3, 4]
    assert past.asked[-1] == 3 * SIZE  # the rest of the third one is lost
    sub.close()


def test_sessions_are_read_that_were_never_heard_live(monkeypatch):
    """The archive had nothing at the beginning, and the network was cut as long as a sender lived."""
    monkeypatch.setattr("penstock.kinds.udp.history.subscription.LOOK_SECONDS", 0.0)
    live, past = Live(), Past()
    sub = HistorySubscription(live, past, whole=True)
    assert sub.poll() == []
    past.has = 3
    found = []
    while len(found) < 3:  # a look that took long puts off the next one
        found += sub.poll()
    assert found == [0, 1, 2]
    assert sub.poll() == []
    sub.close()
