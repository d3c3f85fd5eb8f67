"""Identity: a handle speaks of the channel that it has open."""

from __future__ import annotations

import copy
import os
import pickle
from pathlib import Path

import pytest
from conformance.subjects import PATIENCE, Place

import penstock


def _used(place: Place) -> tuple[object, object]:
    """A publication and a subscription between which two messages went."""
    pub, sub = place.pair()
    for number in range(2):
        pub.send(place.message(number), timeout=PATIENCE)
    assert place.take(sub, 2) == [0, 1]
    return pub, sub


def _says_its_own(place: Place, pub, sub) -> None:
    """Over the network a publication and a subscription have a file each, and both see who else is at the address."""
    apart = place.subject.kind == "udp"
    for handle in (pub, sub):
        status = handle.statistics()
        assert status.channel == handle.channel
        assert {member.pid for member in status.members} == {os.getpid()}
        if place.subject.kind == "zmq":
            assert (status.totals.messages_sent, status.totals.messages_received) == (
                (2, 0) if handle is pub else (0, 2)
            )
        elif not apart:
            assert (status.totals.messages_sent, status.totals.messages_received) == (2, 2)
        elif handle is pub:
            assert [one.messages for one in status.members if one.writes and one.session == pub.session] == [2]
        else:
            assert [one.messages for one in status.members if one.reads] == [2]
    assert pub.readers == 1


def test_statistics_after_remove(place):
    """`statistics()` of an open handle says the same after its channel's name was removed."""
    pub, sub = _used(place)
    penstock.remove(place.uri)
    _says_its_own(place, pub, sub)


def test_statistics_after_another_came(place):
    """`statistics()` of an open handle tells nothing of a channel that was made later under its name. `inspect` does."""
    pub, sub = _used(place)
    penstock.remove(place.uri)
    other = place.publish()
    other.send(place.message(7))
    _says_its_own(place, pub, sub)
    assert other.statistics().totals.messages_sent == 1
    assert penstock.inspect(place.uri).totals.messages_sent == 1
    for handle in (pub, sub):
        handle.close()
    other.send(place.message(8))
    assert penstock.inspect(place.uri).totals.messages_sent == 2, "who leaves takes no other channel's name away"


def test_statistics_elsewhere(place, tmp_path, monkeypatch):
    """Another `PENSTOCK_DIR`, or another place of the folder, does not change what an open handle says."""
    pub, sub = _used(place)
    monkeypatch.setenv("PENSTOCK_DIR", str(tmp_path / "another"))
    _says_its_own(place, pub, sub)
    folder = Path(pub.statistics().path).parent
    if place.subject.backend not in ("fake", "zmq"):
        os.rename(folder, f"{folder}.moved")
        try:
            _says_its_own(place, pub, sub)
        finally:
            os.rename(f"{folder}.moved", folder)


def test_pickle_after_remove(place):
    """A pickled or copied handle opens no other channel than its own: `NotFound` once that was removed, also where its name was given again."""
    pub, sub = _used(place)
    pickled = [pickle.dumps(handle) for handle in (pub, sub)]
    penstock.remove(place.uri)
    for data, handle in zip(pickled, (pub, sub), strict=True):
        with pytest.raises(penstock.NotFound, match=place.pattern):
            pickle.loads(data)
        with pytest.raises(penstock.NotFound, match=place.pattern):
            copy.copy(handle)
    assert not [one for one in penstock.list_channels() if one.channel == place.uri], "nothing was created"
    other = place.publish()
    for data in pickled:
        with pytest.raises(penstock.NotFound, match=place.pattern):
            pickle.loads(data)
    assert (other.readers, penstock.inspect(place.uri).totals.messages_sent) == (0, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_statistics_of_another_user(place):
    """Nor does another effective user: a process that gave up its rights still has its handles."""
    pub, sub = _used(place)
    before, effective = os.getegid(), os.geteuid()
    os.setegid(12345)
    os.seteuid(12345)
    try:
        _says_its_own(place, pub, sub)
    finally:
        os.seteuid(effective)
        os.setegid(before)


def test_pickle_early_after_remove(place):
    """The same of a subscription without a publication, which is the same channel's once that has one."""
    sub = place.subscribe()
    pickled = pickle.dumps(sub)
    pickle.loads(pickled).close()
    pub = place.publish()
    pickle.loads(pickled).close()
    for handle in (pub, sub):
        handle.close()
    penstock.remove(place.uri)
    with pytest.raises(penstock.NotFound, match=place.pattern):
        pickle.loads(pickled)
    assert not [one for one in penstock.list_channels() if one.channel == place.uri], "nothing was created"
    other = place.publish()
    with pytest.raises(penstock.NotFound, match=place.pattern):
        pickle.loads(pickled)
    assert other.readers == 0


def test_statistics_early(place):
    """A subscription without a publication tells of its channel, also after that lost its name."""
    sub = place.subscribe()
    before = sub.statistics()
    assert [member.pid for member in before.members if member.reads] == [os.getpid()]
    penstock.remove(place.uri)
    assert [member.pid for member in sub.statistics().members if member.reads] == [os.getpid()]


def test_statistics_closed(place):
    """`statistics()` of a closed handle is `Closed`."""
    pub, sub = place.pair()
    for handle in (pub, sub):
        handle.close()
        with pytest.raises(penstock.Closed, match=place.pattern):
            handle.statistics()


def test_recorded_after_remove(place, tmp_path):
    """A recorder that has joined records the channel that it joined, and nothing of a later one of that name."""
    archive = penstock.Archive(tmp_path / "archive")
    pub = place.publish()
    with archive.record(place.uri):
        penstock.remove(place.uri)
        other = place.publish()
        other.send(place.message(99))
        for number in range(10):
            pub.send(place.message(number), timeout=PATIENCE)
        place.settle(pub)
        place.settle(other)
    if place.subject.kind == "udp":  # a later publication at the address is one more session there
        assert sorted(recording.messages for recording in archive.list()) == [1, 10]
    else:
        assert [recording.messages for recording in archive.list()] == [10]
