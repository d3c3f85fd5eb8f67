"""Subscriptions that begin in an archive and go on live: nothing is lost or doubled, whatever ends or lags. Later gaps are filled, too."""

import asyncio
import os
import re
import signal
import socket
import threading
import time

import pytest
from network.machines import machines
from ports import free_port

import penstock
from penstock.errors import EndOfStream, Invalid, NotFound, SystemFailure, TimedOut, Unsupported
from penstock.kinds.udp.history.subscription import HistorySubscription
from penstock.util.files.served_files import ServedFiles

LIMIT = 60  # seconds that a test waits for a message


def uri(port):
    return f"udp://127.0.0.1:{port}/7"


@pytest.fixture
def channel():
    return uri(free_port())


class Source:
    """A publication that keeps little, is recorded where it sends, and has a receiver that takes all. It may send all the time."""

    def __init__(self, archive, channel, **options):
        own = f"127.0.0.1:{free_port()}"
        options = {"term_length": 1 << 16, **options}
        self._other = penstock.subscribe(f"udp://{own}/7", until_end=True)
        self.pub = self._published(channel, destinations=[own], **options)
        self.recorder = archive.record(channel, sent=True, start="earliest", sync_interval=0.01, segment_length=1 << 16)
        self.sent = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._drain = threading.Thread(target=lambda: [None for _ in self._other])
        self._drain.start()

    @staticmethod
    def _published(channel, **options):
        while True:
            try:
                return penstock.publish(channel, codec="json", **options)
            except penstock.Busy:  # the last one of this number still sends what it has
                time.sleep(0.01)

    def send(self, count):
        for _ in range(count):
            self.pub.send({"n": self.sent, "pad": "x" * (self.sent * 7919 % 300)})
            self.sent += 1

    def start(self):
        self._thread.start()
        return self

    def _run(self):
        while not self._stop.is_set():
            self.send(20)
            time.sleep(0.002)

    def end(self):
        self._stop.set()
        if self._thread.ident:
            self._thread.join()
        self.pub.close()
        self.recorder.stop()
        self._drain.join()
        self._other.close()


def numbers(messages):
    return [message["n"] for message in messages]


def read(sub, count):
    return numbers(sub.recv(timeout=LIMIT) for _ in range(count))


@pytest.mark.parametrize("way", ["folder", "server", "copy"])
def test_history_joins_the_live_stream_under_load(archive, channel, tmp_path, way):
    """Also where the archive lags: a copy of it that is made anew now and then."""
    source = Source(archive, channel)
    source.send(3000)
    stop = threading.Event()
    archive.replicate(tmp_path / "copy")

    def copy():
        while not stop.wait(0.3):
            archive.replicate(tmp_path / "copy")

    copier = threading.Thread(target=copy)
    with archive.serve("127.0.0.1:0") as server:
        source.start()
        if way == "copy":
            copier.start()
        where = {"folder": archive.path, "server": server.uri, "copy": tmp_path / "copy"}[way]
        with penstock.subscribe(channel, start="earliest", archive=where, until_end=True) as sub:
            got = read(sub, source.sent + 2000)
            source.end()
            stop.set()
            if way == "copy":
                copier.join()
            archive.replicate(tmp_path / "copy")
            got += numbers(sub)
            wrong = next(((n, got[n]) for n in range(len(got)) if got[n] != n), None)
            assert (len(got), wrong, sub.lost) == (source.sent, None, 0)


def test_sessions_that_ended_come_first(archive, channel):
    for count in (50, 70):
        source = Source(archive, channel)
        source.send(count)
        source.end()
    source = Source(archive, channel)
    source.send(10)
    with penstock.subscribe(channel, start="earliest", archive=archive.path, until_end=True) as sub:
        assert read(sub, 130) == [*range(50), *range(70), *range(10)]
        assert len({sub.last.session, *(one.session for one in sub.sessions)}) == 1
        source.send(5)
        assert read(sub, 5) == list(range(10, 15))
        source.end()
        assert list(sub) == []
        with pytest.raises(EndOfStream):
            sub.recv(timeout=LIMIT)


def test_newest_begins_now(archive, channel):
    source = Source(archive, channel)
    source.send(100)
    with penstock.subscribe(channel, archive=archive.path) as sub:
        while source.pub.readers < 2:
            assert sub.try_recv() is None
            time.sleep(0.01)
        source.send(3)
        assert read(sub, 3) == [100, 101, 102]
        source.end()


def test_another_publication_with_the_same_number(archive, channel):
    """`session=` gives a publication that begins again the number that it had: its positions begin again, too."""
    with penstock.subscribe(channel, start="earliest", archive=archive.path) as sub:
        for count in (40, 30):
            source = Source(archive, channel, session=77)
            source.send(count)
            assert read(sub, count) == list(range(count))
            source.end()


def test_an_archive_that_is_away_is_waited_for(archive, channel):
    source = Source(archive, channel)
    source.send(500)
    own = f"127.0.0.1:{free_port()}"  # nobody takes it while the server is away
    with archive.serve(own) as server:
        sub = penstock.subscribe(channel, start="earliest", archive=server.uri)
        assert read(sub, 1) == [0]
    with sub:
        got, said, give_up = [], "", time.monotonic() + LIMIT
        while not re.search(r"waits for its archive: .* is not to be had", said):
            assert time.monotonic() < give_up, said
            try:
                got += numbers([sub.recv(timeout=0.5)])
            except TimedOut as error:  # a first one may come before the archive was asked
                said = str(error)
        source.send(100)
        with archive.serve(own):
            got += read(sub, 599 - len(got))
        assert got == list(range(1, 600))
        source.send(10)  # from here on the archive is not needed
        assert read(sub, 10) == list(range(600, 610))
        source.end()


def test_what_nobody_has_is_counted(archive, channel):
    """The recorder began late: what came before is not asked for. What it lost is a gap."""
    source = Source(archive, channel)
    source.send(100)
    source.recorder.stop()
    recording = archive.find(channel)
    source.send(1000)
    position = source.pub.position
    source.recorder = archive.record(channel, sent=True)
    source.send(100)
    with penstock.subscribe(channel, start="earliest", archive=archive.path) as sub:
        got = read(sub, 100)
        assert got == list(range(100))
        source.send(1)
        got = read(sub, 1)
        while got[-1] != 1200:
            got += read(sub, 1)
        assert got == list(range(got[0], 1201))
        assert got[0] >= 100
        assert 0 <= sub.lost <= position - recording.end_position
        assert (sub.lost > 0) == (got[0] > 100)
        source.end()


@pytest.mark.parametrize("way", ["folder", "server"])
def test_a_recording_purged_before_it_was_read_is_lost(archive, channel, way):
    for _ in range(3):
        source = Source(archive, channel)
        source.send(50)
        source.end()
    purged = archive.list()[1]
    with archive.serve("127.0.0.1:0") as server:
        where = archive.path if way == "folder" else server.uri
        with penstock.subscribe(channel, start="earliest", archive=where) as sub:
            assert read(sub, 10) == list(range(10))
            archive.purge(purged.id)
            assert read(sub, 90) == [*range(10, 50), *range(50)]
            assert sub.try_recv() is None
            assert sub.lost == purged.end_position - purged.start_position


class Interrupted(Exception):
    """Raised by a signal's handler."""


@pytest.fixture
def interrupts():
    def interrupt(_, frame):
        if (
            "weakref" in frame.f_code.co_filename
        ):  # a callback of the garbage collector's, out of which nothing is raised
            signal.setitimer(signal.ITIMER_REAL, 0.01)
        else:
            raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    yield
    signal.signal(signal.SIGALRM, before)


def test_deadlines_are_kept_while_the_archive_is_silent(archive, channel, monkeypatch, interrupts):
    """Its machine is cut off, after the subscription was opened: nothing refuses the connection."""
    source = Source(archive, channel)
    source.send(50)
    source.end()
    answers, plain = threading.Event(), ServedFiles._answer
    monkeypatch.setattr(ServedFiles, "_answer", lambda *given: answers.wait(LIMIT) and plain(*given))
    with archive.serve("127.0.0.1:0") as server:
        answers.set()
        with penstock.subscribe(channel, start="earliest", archive=server.uri) as sub:
            answers.clear()
            for _ in range(2):
                with pytest.raises(TimedOut, match="has not answered yet"):
                    sub.recv(timeout=0.1)
                with pytest.raises(TimedOut, match="has not answered yet"):
                    asyncio.run(sub.recv_async(timeout=0.1))
                assert sub.poll() == []
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(Interrupted):
                sub.recv()
            answers.set()
            assert read(sub, 50) == list(range(50))


@pytest.fixture
def silent():
    """The URI of a machine that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"grpc://127.0.0.1:{server.getsockname()[1]}"


def test_a_silent_archive_does_not_keep_a_subscription(channel, silent):
    """It is waited for where a deadline is given, and the live stream is there without it."""
    with (
        penstock.subscribe(channel, start="earliest", archive=silent) as past,
        penstock.subscribe(channel, archive=silent) as sub,
        penstock.publish(channel, codec="json") as pub,
    ):
        with pytest.raises(TimedOut, match=r"it waits for its archive: .* has not answered yet"):
            past.recv(timeout=0.1)
        pub.wait_for_readers(2, timeout=LIMIT)
        pub.send("live")
        assert sub.recv(timeout=LIMIT) == "live"


def test_a_signal_ends_the_wait_for_a_silent_archive(channel, silent, interrupts):
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    with pytest.raises(Interrupted):
        penstock.subscribe(channel, start="earliest", archive=silent)


def test_follow_keeps_its_deadline_while_the_archive_is_silent(archive, channel, monkeypatch):
    answers, plain = threading.Event(), ServedFiles._answer
    monkeypatch.setattr(ServedFiles, "_answer", lambda *given: answers.wait(LIMIT) and plain(*given))
    answers.set()
    with (
        penstock.publish("log:a") as pub,
        archive.record("log:a", sync_interval=0.01),
        archive.serve("127.0.0.1:0") as server,
    ):
        there = penstock.Archive(server.uri)
        pub.send(b"one")
        while not there.list() or there.find(1).messages < 1:
            time.sleep(0.01)
        following = there.follow(1, timeout=1)
        assert next(following).data == b"one"
        answers.clear()
        with pytest.raises(TimedOut):
            next(following)
        with pytest.raises(TimedOut, match="has not answered yet"):
            there.follow(1, timeout=0.1)
        answers.set()


def test_another_codec_is_a_mismatch_in_the_past_as_it_is_live(archive, channel):
    source = Source(archive, channel)
    source.send(3)
    while not archive.list() or archive.find(channel).messages < 3:
        time.sleep(0.01)
    with penstock.subscribe(channel, start="earliest", archive=archive.path, codec="bytes") as sub:
        for _ in range(3):
            with pytest.raises(penstock.Mismatch, match=r"json.* and .* bytes|codec"):
                sub.recv(timeout=LIMIT)
    with penstock.subscribe(channel, start="earliest", archive=archive.path) as sub:
        assert read(sub, 3) == [0, 1, 2]
        assert sub.codec.kind == "json"
    source.end()


def test_awaited_polled_and_by_descriptor(archive, channel):
    source = Source(archive, channel)
    source.send(200)

    async def some(sub, count):
        return numbers([await sub.recv_async(timeout=LIMIT) for _ in range(count)])

    with penstock.subscribe(channel, start="earliest", archive=archive.path) as sub:
        assert asyncio.run(some(sub, 100)) == list(range(100))
        (ready,) = penstock.wait([sub], timeout=LIMIT)
        assert ready is sub
        got = []
        while len(got) < 100:
            got += numbers(sub.poll(30))
        assert got == list(range(100, 200))
        source.send(5)
        assert asyncio.run(some(sub, 5)) == list(range(200, 205))
        for call in (sub.borrow, sub.poll_arrow):
            with pytest.raises(Unsupported, match="with archive="):
                call()
    with pytest.raises(penstock.Closed):
        sub.recv()
    source.end()


def test_close_beside_a_call_writes_into_no_other_file(archive, channel, tmp_path):
    """A call that another thread closes under it may be about to write to the descriptor, whose number is another file's by then."""
    sub = penstock.subscribe(channel, start="earliest", archive=archive.path)
    sub.close()
    files = [open(tmp_path / f"file{number}", "w+b") for number in range(40)]  # noqa: SIM115
    sub._tell()
    assert b"".join(os.pread(file.fileno(), 8, 0) for file in files) == b""
    for file in files:
        file.close()


def test_recordings_of_another_place_are_left_alone(archive, channel):
    """The same stream number at another port is another stream; the same port by another address is this one."""
    other = Source(archive, uri(free_port()))
    other.send(30)
    source = Source(archive, channel.replace("127.0.0.1", "localhost"))
    source.send(20)
    while sorted(info.messages for info in archive.list()) != [20, 30]:
        time.sleep(0.01)
    with penstock.subscribe(channel, start="earliest", archive=archive.path) as sub:
        assert read(sub, 20) == list(range(20))
        source.send(1)
        assert read(sub, 1) == [20]
        with pytest.raises(TimedOut):
            sub.recv(timeout=0.7)
    for one in (other, source):
        one.end()


def test_wrong_archives_are_refused_at_once(archive, channel, tmp_path):
    for where, kind, what in (
        (tmp_path / "none", NotFound, "there is no archive at"),
        ("grpc://127.0.0.1:1", SystemFailure, "is not to be had"),
        ("ftp://x/y", Invalid, "is a URI of ftp"),
    ):
        with pytest.raises(kind, match=what):
            penstock.subscribe(channel, start="earliest", archive=where)
    with pytest.raises(Invalid, match="archive is 5: it must be the path or the URI of an archive"):
        penstock.subscribe(channel, archive=5)
    with pytest.raises(Invalid, match="with archive=, start is 'earliest'"):
        penstock.subscribe(channel, start=64, archive=archive.path)
    with pytest.raises(TypeError, match="has no option 'archive'"):
        penstock.subscribe("log:a", archive=archive.path)


SENDER = """
import sys, threading, time, penstock
folder, to = sys.argv[1:]
archive = penstock.Archive(folder)
own = "127.0.0.1:4862"  # another receiver, for which the publication goes on
pub = penstock.publish(to, codec="json", term_length=1 << 16, destinations=[own], flow_control="max")
threading.Thread(target=lambda: [None for _ in penstock.subscribe(f"udp://{own}/1")], daemon=True).start()
recorder = archive.record(to, sent=True, start="earliest", sync_interval=0.01)
server = archive.serve("0.0.0.0:4860", insecure=True)
print("ready", flush=True)
number = 0
import select
while not select.select([sys.stdin], [], [], 0)[0]:
    try:
        pub.send({"n": number, "pad": "x" * 300}, timeout=0.2)
        number += 1
    except penstock.TimedOut:
        pass
    time.sleep(0.0005)
pub.close()
recorder.stop()
print(number, flush=True)
sys.stdin.readline()
sys.stdin.readline()
"""
RECEIVER = """
import sys, penstock
channel, archive, count = sys.argv[1:]
with penstock.subscribe(channel, start="earliest", archive=archive) as sub:
    expected = 0
    while True:
        number = sub.recv(timeout=180)["n"]
        assert number == expected, (number, expected)
        expected += 1
        if expected % int(count) == 0:
            print(expected, sub.lost, flush=True)
"""


@pytest.mark.slow
def test_an_outage_beyond_the_window_is_filled(tmp_path):
    """A wire that is cut for longer than the sender keeps its messages: the same handle has each once, in order."""
    with (
        machines(tmp_path, "10.231.7.1", "10.231.7.2") as (here, there),
        here.run(SENDER, str(tmp_path / "archive"), "udp://10.231.7.2:4861/1") as sender,
    ):
        assert sender.stdout.readline() == "ready\n"
        with there.run(RECEIVER, "udp://0.0.0.0:4861/1", "grpc://10.231.7.1:4860", "500") as receiver:
            before = int(receiver.stdout.readline().split()[0])
            there.ip("link", "set", "wire", "down")
            time.sleep(16)
            there.ip("link", "set", "wire", "up")
            sender_at = 0
            for line in receiver.stdout:
                reached, lost = map(int, line.split())
                assert lost == 0
                if reached >= before + 3000:
                    sender.stdin.write("end\n")
                    sender.stdin.flush()
                    sender_at = int(sender.stdout.readline())
                    break
            assert sender_at >= before + 3000


class Quiet:
    """A live stream that brings nothing more, and has lost bytes since it was joined."""

    channel, closed, sessions, last = "udp://127.0.0.1:1/7", False, (), None

    def __init__(self):
        self.lost, self.asked = 0, 0
        self._at, self._hand = os.pipe()

    def _reached(self):
        return {}

    def try_recv(self):
        self.asked += 1
        assert self.asked < 1000, "it asks on and on"

    def fileno(self):
        return self._at

    def close(self):
        os.close(self._at)
        os.close(self._hand)


class Growing:
    """An archive in which another session's recording grows."""

    lost, why, codec = 0, "", None

    def sessions(self):
        return []

    def growing(self):
        return {(1, 2)}

    def fill(self, key, begin, end):
        yield from ()


def test_a_loss_beside_a_growing_session_ends_a_call():
    """A session that is not joined may get more at any time: looking for that does not keep a call, also after a loss."""
    live = Quiet()
    with HistorySubscription(live, Growing(), whole=True) as sub:
        assert sub.try_recv() is None
        live.lost = 64
        assert sub.try_recv() is None
        assert sub.try_recv() is None
