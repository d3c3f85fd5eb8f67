"""A `udp:` channel is recorded where it is sent: each publication's log by itself, with any receivers."""

import contextlib
import os
import subprocess
import sys
import time

import pytest
from people import until
from ports import free_port

import penstock
from penstock._native import core
from penstock.channels.storage import files
from penstock.channels.uri.channel import parse
from penstock.kinds.udp import status
from penstock.kinds.udp import tap as udp_tap


@pytest.fixture
def uri():
    return f"udp://127.0.0.1:{free_port()}/7"


def test_messages_are_recorded_at_sender_and_receiver(archive, tmp_path, uri):
    there = penstock.Archive(tmp_path / "there")
    with penstock.subscribe(uri) as sub, there.record(uri):
        with penstock.publish(uri, codec="json") as pub, archive.record(uri, sent=True):
            pub.wait_for_readers(2, timeout=60)
            for number in range(1000):
                pub.send({"number": number})
            for number in range(1000):
                assert sub.recv(timeout=60) == {"number": number}
            end = pub.position
        sent = archive.find(uri)
        assert (sent.messages, sent.gaps, sent.codec["kind"]) == (1000, 0, "json")
        assert sent.end_position == end
    came = there.find(uri)
    assert (came.messages, came.start_position, came.end_position) == (1000, sent.start_position, sent.end_position)
    both = [[(m.position, m.data, m.time_ns) for m in one.replay(uri)] for one in (archive, there)]
    assert both[0] == both[1]
    assert [data for _, data, _ in both[0]] == [{"number": number} for number in range(1000)]


def test_later_publications_are_recorded_from_the_first_message(archive, uri):
    with penstock.subscribe(uri, until_end=True) as sub:
        with archive.record(uri, sent=True) as recorder:
            assert recorder.progress() == []
            with penstock.publish(uri, codec="json") as first, penstock.publish(uri, codec="json") as second:
                for number in range(100):
                    first.send(["first", number], timeout=60)
                    second.send(["second", number], timeout=60)
                sessions, end = {first.session, second.session}, first.position
                recorder.stop()
        got = list(sub)
    assert len(got) == 200
    found = archive.list()
    assert [(info.messages, info.start_position, info.state) for info in found] == [(100, 0, "closed")] * 2
    assert {m.session for info in found for m in archive.replay(info.id)} == sessions
    assert found[0].end_position == end or found[1].end_position == end


def test_a_recorder_at_the_sender_keeps_unreceived_messages(archive, uri):
    with penstock.publish(uri) as pub, archive.record(uri, sent=True) as recorder:
        while pub.offer(b"nobody is there") is not None:
            pass
        position = pub.position
        recorder.stop()
    assert archive.find(uri).end_position == position


def test_an_open_publication_is_recorded_from_the_call_on(archive, uri):
    with penstock.subscribe(uri) as sub, penstock.publish(uri) as pub:
        pub.wait_for_readers(1, timeout=60)
        tap = udp_tap.open_sent_tap(parse(uri))  # the recorder's first turn may come late
        pub.send(b"between")
        [(session, _)] = tap.streams()
        assert (session.position, session.lag) == (0, pub.position)
        session.close()
        tap.close()
        assert sub.recv(timeout=60) == b"between"


def test_a_recorder_in_a_process_of_its_own(archive, uri):
    with (
        penstock.subscribe(uri) as sub,
        penstock.publish(uri) as pub,
        archive.record(uri, sent=True, start="earliest", process=True),
    ):
        for number in range(100):
            pub.send(b"%d" % number, timeout=60)
        for number in range(100):
            assert sub.recv(timeout=60) == b"%d" % number
    assert archive.find(uri).messages == 100


@pytest.mark.parametrize("recorders", [1, 2])
def test_short_publications_are_recorded_whole(archive, uri, tmp_path, recorders):
    """Each has ended before a recorder looks at it. Also with the same session, whose log has the same name."""
    other = penstock.Archive(tmp_path / "other")
    archives = [archive, other][:recorders]
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(one.record(uri, sent=True)) for one in archives]
        for number in range(12):
            with penstock.publish(uri, codec="json", linger=0, session=7 if number % 2 else None) as pub:
                for i in range(50):
                    pub.send([number, i])
        for one in archives:  # sealed while the recorder goes on
            until(lambda one=one: [info.state for info in one.list()] == ["closed"] * 12, "they are not closed")
        for recorder in running:
            recorder.stop()
            assert sum(row.messages for row in recorder.progress()) == 600
    for one in archives:
        got = [m.data for info in one.list() for m in one.replay(info.id)]
        assert sorted(got) == [[number, i] for number in range(12) for i in range(50)]
        assert one.verify() == []
    left = files.private_folder(".recorders")
    assert [path.name for path in left.iterdir() if path.suffix != ".lock"] == []


KILLED = """
import os, sys, penstock
with penstock.publish(sys.argv[1]) as pub:
    for _ in range(50):
        pub.send(b"a message")
    os.kill(os.getpid(), 9)
"""


def test_a_killed_publication_is_recorded_as_lost(archive, uri):
    with archive.record(uri, sent=True):
        subprocess.run([sys.executable, "-c", KILLED, uri], check=False)
        until(lambda: [info.state for info in archive.list()] == ["lost"], "it is not lost")
        assert archive.find(uri).messages == 50
        assert len(list(archive.follow(1, timeout=60))) == 50


def test_a_recorder_that_is_far_behind_says_so(archive, uri, caplog):
    """64 logs wait for it. It counts what was not left."""
    tap = udp_tap.open_sent_tap(parse(uri))
    for _ in range(66):
        with penstock.publish(uri, linger=0, term_length=1 << 16) as pub:
            pub.send(b"a message")
    there = tap.streams()
    assert len(there) == 64
    assert "2 publications ended while the recorder was behind" in caplog.text
    for session, _ in there:
        session.close()
    tap.close()


@pytest.mark.parametrize("way", ["publication", "rm"])
def test_logs_left_for_a_dead_recorder_are_removed(uri, way):
    tap = udp_tap.open_sent_tap(parse(uri))
    with penstock.publish(uri, linger=0) as pub:
        pub.send(b"a message")
    if way == "rm":
        with pytest.raises(penstock.NotFound):
            penstock.remove(uri)
    assert len(tap._ended.paths()) == 1  # its recorder is there
    os.close(tap._ended._fd)  # as a death would
    tap._ended._fd = -1
    if way == "rm":
        penstock.remove(uri)
        assert tap._ended.paths() == []
    else:
        with penstock.publish(uri, linger=0):
            assert tap._ended.paths() == []


@pytest.mark.parametrize("channel", ["log:x", "ring:x", "pipe:x", "sync:x"])
def test_other_kinds_have_one_side(archive, channel):
    with pytest.raises(penstock.Unsupported, match="sent=True is for udp channels"):
        archive.record(channel, sent=True)


def test_a_publication_in_the_making_is_not_taken_for_dead(archive, uri, monkeypatch):
    """Its log has a name before it has its writer."""
    with penstock.publish(uri) as pub:
        (made,) = status.logs(parse(uri))
        about = next(iter(status._each_log(made)))
        path = made.replace(made[-12:-4], "00000001")
        with open(path, "w+b") as file:
            size = core.log_file_size(about["slots"], about["term_length"])
            os.truncate(path, size)
            core.format_log(
                fd=file.fileno(),
                term_length=about["term_length"],
                capacity=about["term_length"] // 2,
                slots=about["slots"],
                initial_term_id=7,
                stream_id=about["stream_id"],
                start_position=0,
                epoch=files.new_epoch(),
                metadata=about["metadata"],
                boot_id=files.boot_id(),
            )
        with archive.record(uri, sent=True, start="earliest") as recorder:
            pub.send(b"one")
            until(
                lambda: {one.state for one in archive.list()} == {"live"} and len(archive.list()) == 2,
                "both are recorded",
            )
            time.sleep(0.3)
            assert [one.state for one in archive.list()] == ["live", "live"]
            monkeypatch.setattr(status, "ABANDONED_NS", 0)
            time.sleep(0.2)
            assert [one.state for one in archive.list()] == ["live", "live"]  # its maker lives, and is slow
            monkeypatch.setattr(udp_tap, "_is_alive", lambda pid: False)
            until(
                lambda: sorted(one.state for one in archive.list()) == ["live", "lost"],
                "it was killed before it had a writer",
            )
            assert len(recorder.progress()) == 2
