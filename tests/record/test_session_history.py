"""What an archive has of a `udp:` session: each message once, and of what it does not have, how many bytes."""

import contextlib

import pytest
from people import until
from ports import free_port

import penstock
from penstock.channels.uri.channel import parse
from penstock.record.session_history import SessionHistory

COUNT = 300


@pytest.fixture
def recorded(tmp_path, request):
    """An archive of a session, recorded once or several times, and the position behind each of its messages."""
    times = getattr(request, "param", 1)
    uri, archive, ends = f"udp://127.0.0.1:{free_port()}/7", penstock.Archive(tmp_path / "archive"), []
    with penstock.subscribe(uri) as sub, penstock.publish(uri) as pub, contextlib.ExitStack() as recorders:
        for _ in range(times):
            recorders.enter_context(archive.record(uri))
        for number in range(COUNT):
            ends.append(pub.send(b"%06d" % number * (number % 20 + 1)))
            sub.recv(timeout=20)
            if number % 20 == 0:  # blocks of so many, or fewer
                until(lambda n=number: [one.messages for one in archive.list()] == [n + 1] * times, "it is recorded")
        until(lambda: [one.messages for one in archive.list()] == [COUNT] * times, "all is recorded")
    return archive, uri, ends


def zero(archive, since, until):
    """Zeroes a part of the first recording's data, in parts of all."""
    (path,) = (archive.path / "recordings").glob("*1/*.seg")
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(int(size * since))
        file.write(bytes(int(size * until) - int(size * since)))


@pytest.mark.parametrize(
    ("since", "until"), [(0.5, 1), (0.9, 1), (0.4, 0.6), (0.0, 0.3)], ids=["half", "end", "middle", "front"]
)
@pytest.mark.parametrize("goal", [False, True], ids=["now", "up to a position"])
def test_damage_is_lost_wherever_it_is(recorded, since, until, goal):
    archive, uri, ends = recorded
    zero(archive, since, until)
    history = SessionHistory(archive.path, parse(uri), None)
    (key,) = history.sessions()
    found = [int(one.data[:6]) for one in history.fill(key, None, ends[-1] if goal else None)]
    missing = sorted(set(range(COUNT)) - set(found))
    assert missing
    assert found == sorted(found)
    assert history.lost == sum(ends[n] - (ends[n - 1] if n else 0) for n in missing)
    history._looked = float("-inf")
    assert [one for one in history.fill(key, ends[found[-1]], ends[-1]) if one] == []
    assert history.lost == sum(ends[n] - (ends[n - 1] if n else 0) for n in missing)


@pytest.mark.parametrize("recorded", [2], indirect=True, ids=["twice"])
@pytest.mark.parametrize(("since", "until"), [(0.7, 1), (0.4, 0.6), (0.0, 0.3)], ids=["end", "middle", "front"])
def test_what_another_recording_has_is_not_lost(recorded, since, until):
    archive, uri, _ends = recorded
    zero(archive, since, until)
    history = SessionHistory(archive.path, parse(uri), None)
    (key,) = history.sessions()
    assert [int(one.data[:6]) for one in history.fill(key, None, None)] == list(range(COUNT))
    assert history.lost == 0
