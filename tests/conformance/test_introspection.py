"""Tools that look at objects (`hasattr`, `help`, mocks, debuggers) work on every handle in every state; unknown attributes are refused."""

from __future__ import annotations

import copy
import inspect
import pydoc
from unittest.mock import Mock

import pytest
from conformance.sockets import Meeting
from conformance.subjects import Place

import penstock


def _looks(handle: object) -> None:
    for name in dir(handle):
        hasattr(handle, name)
        getattr(handle, name, None)
    members = dict(inspect.getmembers(handle))
    assert members["__class__"] is type(handle)
    mocked = Mock(spec=handle)
    assert isinstance(mocked, type(handle))
    with pytest.raises(AttributeError):
        _ = mocked.no_such_method
    assert type(handle).__name__ in pydoc.render_doc(handle)
    assert handle.channel in repr(handle)


def _refuses(handle: object) -> None:
    for name in ("conflate", "timeout", "codek"):
        with pytest.raises(AttributeError, match=f"has no attribute '{name}'"):
            setattr(handle, name, True)
        assert not hasattr(handle, name)
    with pytest.raises(AttributeError, match="it has 'channel', which can only be read"):
        handle.chanel = "log:b"
    with pytest.raises(AttributeError):
        handle.channel = "log:b"


def test_introspection(place: Place):
    """`hasattr`, `getattr`, `inspect.getmembers`, `Mock(spec=)`, `help` and `repr` work on open and on closed handles."""
    pub, sub = place.pair()
    for handle in (pub, sub):
        _looks(handle)
        handle.close()
        _looks(handle)
        assert "closed" in repr(handle)


def test_introspection_early(place: Place):
    """And on subscriptions without a publication. Looking changes nothing: the first message arrives."""
    sub = place.subscribe()
    _looks(sub)
    pub = place.publish()
    pub.wait_for_readers(1, timeout=60)
    pub.send(place.message(1))
    assert place.take(sub, 1) == [1]
    sub.close()
    _looks(sub)


def test_unknown_attributes(place: Place):
    """An attribute that a handle does not have cannot be set: an AttributeError that names the channel, and a near name if there is one."""
    pub, sub = place.pair()
    for handle in (pub, sub):
        with pytest.raises(AttributeError, match=place.pattern):
            handle.conflate = True
        _refuses(handle)
        handle.close()
        _refuses(handle)


def test_unknown_attributes_early(place: Place):
    """The same before the first publication."""
    sub = place.subscribe()
    _refuses(sub)


def test_copy(place: Place):
    """`copy.copy` and `copy.deepcopy` of a handle are handles of their own on the same channel."""
    pub, _ = place.pair()
    sub = place.subscribe()
    with copy.copy(sub) as one, copy.deepcopy(sub) as two:
        assert one is not sub is not two
        assert one.channel == two.channel == place.uri
        assert type(one) is type(sub)
    assert not sub.closed
    assert not pub.closed


def test_socket_introspection(meeting: Meeting):
    """The same of the ends of every pattern: all tools work, and unknown attributes are refused."""
    mine, other = meeting.two()
    for handle in (mine, other):
        _looks(handle)
        _refuses(handle)
        handle.close()
        _looks(handle)
        _refuses(handle)


@pytest.mark.parametrize("make", [penstock.threads.Pipe, penstock.threads.Mailbox])
def test_thread_queues(make):
    """The same of pipes and mailboxes between threads."""
    made = make()
    for _ in range(2):
        for name in dir(made):
            getattr(made, name, None)
        assert isinstance(Mock(spec=made), make)
        assert make.__name__ in pydoc.render_doc(made)
        with pytest.raises(AttributeError, match="no attribute 'maxsize'"):
            made.maxsize = 3
        with pytest.raises(AttributeError, match="it has 'closed', which can only be read"):
            made.close_d = True
        made.close()


def test_archives(tmp_path):
    """And of archives, recorders and watches."""
    archive = penstock.Archive(tmp_path / "archive")
    with penstock.publish("log:a"), archive.record("log:a") as recorder:
        for made in (archive, recorder, archive.watch()):
            inspect.getmembers(made)
            assert isinstance(Mock(spec=made), type(made))
            with pytest.raises(AttributeError, match="no attribute 'sync_interval'"):
                made.sync_interval = 1
    recorder.stop()
    inspect.getmembers(recorder)
    assert copy.copy(archive).list()[0].channel == "log:a"
