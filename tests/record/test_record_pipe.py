"""Pipes are recorded by a tap: a copy of everything that is sent, which takes nothing away from those it is for."""

import os
import signal
import threading

import pytest

import penstock
from penstock import codecs
from penstock._native import core as _native
from penstock.channels.uri.channel import parse
from penstock.codecs import multipart
from penstock.kinds.pipe import opener as pipe

SECONDS = 60.0


def tap(name, **options):
    return pipe.open_tap(parse(name), **options)


def drain(writer):
    while writer.turn() > 0:
        pass


def test_pushed_messages_are_recorded_and_still_done(archive):
    with (
        penstock.publish("pipe:jobs", codec="json", name="boss") as push,
        penstock.subscribe("pipe:jobs") as one,
        penstock.subscribe("pipe:jobs") as two,
    ):
        with archive.record("pipe:jobs") as recorder:
            for i in range(300):
                push.send({"job": i})
            assert push.offer_many([{"job": i} for i in range(300, 500)]) == 200
            push.send({"job": 500})
            done = [message["job"] for sub in (one, two) for message in sub.poll(1000)]
        assert sorted(done) == list(range(501))
        assert push.readers == 2  # a recorder is none
        session = push.session
        assert recorder.stop()[0].messages == 501
    got = list(archive.replay("pipe:jobs"))
    assert [message.data["body"]["job"] for message in got] == list(range(501))
    assert {(message.data["sender"], message.data["type"]) for message in got} == {("boss", "push")}
    assert {message.session for message in got} == {session}
    assert archive.verify() == []
    info = archive.find("pipe:jobs")
    assert (info.state, info.messages, info.gaps) == ("closed", 501, 0)
    assert info.codec == {"kind": "pipe", "of": {"kind": "json"}}


def test_questions_and_answers_are_recorded_with_who_said_them(archive):
    with (
        archive.record("pipe:talk"),
        penstock.join("pipe:talk", role="reply", name="server") as server,
        penstock.join("pipe:talk", role="request", name="client") as client,
    ):
        answer = threading.Thread(target=lambda: [r.reply([b"two", b"parts"]) for r in [server.recv(5)]])
        answer.start()
        assert client.request(b"how many?", timeout=5) == [b"two", b"parts"]
        answer.join()
    said = [(m.data["sender"], m.data["type"], m.data["body"]) for m in archive.replay("pipe:talk")]
    assert said == [("client", "request", b"how many?"), ("server", "reply", [b"two", b"parts"])]


def test_who_sends_waits_for_room_at_the_recorder():
    with (
        penstock.publish("pipe:w", max_messages=4) as push,
        penstock.subscribe("pipe:w") as one,
        penstock.subscribe("pipe:w") as two,
        tap("pipe:w") as recorder,
    ):
        assert [push.offer(b"x") is not None for _ in range(6)] == [True] * 4 + [False] * 2
        assert push.offer_many([b"y"] * 3) == 0
        assert one.poll() == two.poll() == [b"x"] * 2
        assert push.offer(b"x") is None  # both could take more
        with pytest.raises(TimeoutError):
            push.send(b"x", timeout=0.05)
        recorder.close()
        assert push.offer(b"x") is not None
        assert push.statistics().totals.messages_lost == 0


def test_a_tap_is_no_subscription():
    with penstock.publish("pipe:t") as push, tap("pipe:t") as recorder:
        assert not isinstance(recorder, penstock.types.Subscription)
        assert not any(hasattr(recorder, verb) for verb in ("recv", "try_recv", "poll", "borrow", "fileno", "__iter__"))
        with pytest.raises(penstock.Invalid, match="nothing to wait for"):
            penstock.wait([recorder], 0)
        push.send(b"x")
        assert (recorder.channel, recorder.lag > 0, recorder.closed) == ("pipe:t", True, False)
    with pytest.raises(penstock.Closed):
        _ = recorder.position


def test_a_subscription_that_takes_messages_is_not_recorded(tmp_path):
    with (
        penstock.publish("pipe:t") as push,
        penstock.subscribe("pipe:t") as sub,
        penstock.subscribe("pipe:open") as early,
        open(tmp_path / "data", "w+b") as data,
        open(tmp_path / "index", "w+b") as index,
    ):
        push.send(b"x")
        segment = _native.RecordingSegment(
            data_fd=os.dup(data.fileno()),
            data_path="data",
            index_fd=os.dup(index.fileno()),
            index_path="index",
            base=0,
            term_length=0,
            initial_term_id=0,
            stream_id=1,
            recording=1,
            messages_before=0,
            entries=0,
            data_length=0,
        )
        with pytest.raises(penstock.Invalid, match="joins as a tap"):
            segment.record(sub, 1 << 20)
        with pytest.raises(penstock.Invalid, match="nothing was published"):
            segment.record(early, 1 << 20)
        assert sub.recv(0) == b"x"


def test_a_recorder_that_has_all_says_nothing(archive, caplog):
    with penstock.publish("pipe:a") as push, penstock.subscribe("pipe:a") as sub:
        with archive.record("pipe:a"):
            for number in range(50):
                push.send(b"%d" % number)
                assert sub.recv(timeout=60) == b"%d" % number
        assert archive.find(1).messages == 50
    assert caplog.text == ""


def test_late_commits_are_recorded(archive):
    with (
        penstock.publish("pipe:c", max_messages=6) as push,
        penstock.subscribe("pipe:c", acknowledge="manual") as one,
        penstock.subscribe("pipe:c", acknowledge="manual") as two,
        penstock.subscribe("pipe:c", acknowledge="manual") as three,
    ):
        writer = archive._opener.open("pipe:c", "newest", False, 1 << 16, None)
        with push.claim(3) as view:
            sent = 0
            while push.offer(b"x") is not None:  # until the recorder has room for the claimed one alone
                sent += 1
            assert sent == 5
            view[:] = b"end"
        assert sorted(one.poll() + two.poll() + three.poll()) == [b"end"] + [b"x"] * 5
        with pytest.raises(TimeoutError):
            push.claim(3, timeout=0)
        drain(writer)
        for _ in range(3):
            with pytest.raises(ZeroDivisionError), push.claim(3, timeout=0):
                raise ZeroDivisionError
        assert push.offer_many([b"y"] * 9) == 6
        drain(writer)
        writer.finish()
    got = [m.data["body"] for m in archive.replay("pipe:c")]
    assert got == [b"x"] * 5 + [b"end"] + [b"y"] * 6
    assert archive.find("pipe:c").gaps == 0


def test_a_recorder_that_stops_behind_knows_that_it_has_all(archive, caplog):
    """How far a tap of a pipe is behind is known up to a bound: a recorder neither waits for the rest of it nor calls it missing."""
    with penstock.publish("pipe:c") as push, penstock.subscribe("pipe:c") as sub:
        writer = archive._opener.open("pipe:c", "newest", False, 1 << 16, None)
        for _ in range(50):
            push.send(b"x")
            assert sub.recv(SECONDS) == b"x"
        writer.drain()
        assert (writer.unread, writer.segment.messages) == (0, 50)
        writer.finish()
    assert not caplog.records


def test_a_recorder_may_rather_miss_than_be_waited_for(archive):
    with penstock.publish("pipe:m", max_messages=4) as push, penstock.subscribe("pipe:m") as sub:
        writer = archive._opener.open("pipe:m", "newest", False, 1 << 16, 0)
        sent = 0
        for _ in range(5):
            for _ in range(3):  # the recorder has room for four of these twelve
                assert push.offer_many([b"%d" % i for i in range(sent, sent + 4)]) == 4
                assert sub.poll() == [b"%d" % i for i in range(sent, sent + 4)]
                sub.acknowledge()
                sent += 4
            drain(writer)
        push.send(b"60")
        assert sub.recv(0) == b"60"
        drain(writer)
        missed = writer.subscription.lost_messages
        writer.finish()
    got = [int(message.data["body"]) for message in archive.replay("pipe:m")]
    assert got == [i for i in range(60) if i % 12 < 4] + [60]
    info = archive.find("pipe:m")
    assert missed == 40
    assert info.messages == 21
    assert info.lost_bytes == 40 * _native.MISSING_LENGTH
    assert info.gaps == 5
    assert archive.verify() == []


def test_one_that_drops_does_not_wait_for_the_recorder_either():
    with (
        penstock.publish("pipe:d", max_messages=2, when_full="drop_oldest") as push,
        penstock.subscribe("pipe:d") as sub,
        tap("pipe:d") as recorder,
    ):
        for i in range(6):
            push.send(b"%d" % i)
        assert sub.poll() == [b"4", b"5"]
        assert sub.lost_messages == 4
        assert recorder.lag > 0


def test_a_recorder_that_dies_holds_nobody_up(archive):
    with penstock.publish("pipe:k", max_messages=8) as push, penstock.subscribe("pipe:k") as sub:
        recorder = archive.record("pipe:k", process=True)
        (pid,) = [member.pid for member in push.statistics().members if member.role == "tap"]
        push.send(b"first")
        assert sub.recv(5) == b"first"
        os.kill(pid, signal.SIGSTOP)
        sent = 0
        while push.offer(b"x") is not None:
            sent += 1
            assert sub.recv(5) == b"x"
        assert 7 <= sent <= 9
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(penstock.PenstockError):
            recorder.stop()
        push.send(b"last", timeout=5)
        assert sub.recv(5) == b"last"
        assert push.statistics().totals.messages_lost == 0


def test_a_recording_goes_on_after_a_gap(archive):
    with penstock.publish("pipe:e") as push, penstock.subscribe("pipe:e") as sub:
        with archive.record("pipe:e"):
            push.send(b"a")
        push.send(b"nobody records this")
        with archive.record("pipe:e", extend=True):
            push.send(b"b")
        assert sub.poll() == [b"a", b"nobody records this", b"b"]
    assert [message.data["body"] for message in archive.replay("pipe:e")] == [b"a", b"b"]
    assert len(archive.list()) == 1
    assert archive.find("pipe:e").gaps == 1
    assert archive.verify() == []


def test_a_recording_is_followed_and_played_again(archive):
    with penstock.publish("pipe:f", codec="json", name="p") as push, penstock.subscribe("pipe:f") as sub:
        with archive.record("pipe:f"):
            push.send([1, 2])
            follow = archive.follow("pipe:f", timeout=10)
            assert next(follow).data == {"sender": "p", "type": "push", "body": [1, 2]}
            push.send("later")
            assert next(follow).data["body"] == "later"
        assert list(follow) == []
        assert sub.poll() == [[1, 2], "later"]
    with penstock.subscribe("log:again", codec="json") as again:
        assert archive.replay_onto("pipe:f", "log:again") == 2
        assert again.poll() == [[1, 2], "later"]


def test_several_parts_are_not_played_onto_a_channel(archive):
    with (
        archive.record("pipe:parts"),
        penstock.join("pipe:parts", role="pair", name="a") as one,
        penstock.join("pipe:parts", role="pair", name="b"),
    ):
        one.send([b"a", b"b"], timeout=5)
    with pytest.raises(penstock.Invalid, match="several parts"):
        archive.replay_onto("pipe:parts", "log:parts")


def test_whoever_comes_and_goes_while_it_is_recorded(archive):
    with penstock.subscribe("pipe:many", max_pipes=128) as sub, archive.record("pipe:many"):
        for i in range(40):
            with penstock.publish("pipe:many", name=f"p{i}") as push:
                push.send(b"%d" % i)
        assert sorted(map(int, sub.poll())) == list(range(40))
    got = {(m.data["sender"], m.data["body"]) for m in archive.replay("pipe:many")}
    assert got == {(f"p{i}", b"%d" % i) for i in range(40)}
    assert len({m.session for m in archive.replay("pipe:many")}) == 40


def test_two_recorders_get_the_same(archive, tmp_path):
    other = penstock.Archive(tmp_path / "other")
    with archive.record("pipe:two"), other.record("pipe:two"), penstock.publish("pipe:two") as push:
        for i in range(50):
            push.send(b"%d" % i)
    for found in (archive, other):
        assert [int(m.data["body"]) for m in found.replay("pipe:two")] == list(range(50))


def test_bytes_that_no_recorder_wrote_are_refused():
    decode = codecs.from_spec({"kind": "pipe", "of": {"kind": "bytes"}}).decode
    with pytest.raises(ValueError, match="do not fit"):
        decode(multipart.SYNC_HEADER.pack(9, 0, 0))
    for damaged in (b"", b"\1", b"\1\0\0\0\xff\0\0\0x", b"\xff\xff\xff\xff"):
        with pytest.raises(ValueError, match="shorter"):
            decode(multipart.SYNC_HEADER.pack(0, 0, multipart.PARTS) + damaged)
    with pytest.raises(penstock.Invalid):
        tap("pipe:x", drop_after=1.5)
