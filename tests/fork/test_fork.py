"""Forks at any moment, while threads of the parent wait: the child's copies work and close, and nobody else feels it."""

import asyncio
import contextlib
import os
import signal
import threading
import warnings

import pytest
from conftest import sized
from ports import free_port

import penstock

SMALL = 1 << 16
FORKS = sized(3, 8, 200)


def fork(work):
    """A child that does `work(report, go)`: it may report bytes, and wait until it may go on. (pid, what it reports, its leave)"""
    said_r, said_w = os.pipe()
    go_r, go_w = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of threads; these tests are about them
        pid = os.fork()
    if pid:
        os.close(said_w)
        os.close(go_r)
        return pid, said_r, go_w
    status = 1
    try:
        signal.alarm(120)
        os.close(said_r)
        os.close(go_w)
        work(lambda text: os.write(said_w, text + b"\n"), lambda: os.read(go_r, 1))
        status = 0
    except BaseException as error:
        os.write(said_w, f"failed: {type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(status)


def line(descriptor):
    """One line from a child."""
    found = b""
    while not found.endswith(b"\n"):
        byte = os.read(descriptor, 1)
        if not byte:
            break
        found += byte
    return found.decode().strip()


class Play:
    """Handles of one kind, and what can be done with them. `waits`: by name, a call that blocks in the parent's thread."""

    def __init__(self, kind, folder):
        self.kind = kind
        self.channel = f"{'pipe' if kind in ROLES else kind}:f"
        if kind.startswith("zmq"):
            self.channel = f"zmq+ipc://{folder}/f"
        elif kind == "udp":
            self.channel = f"udp://127.0.0.1:{free_port()}/7"
        self.extra = []
        if kind == "sync":
            self.writer, self.reader = (penstock.join("sync:f", name=name, capacity=SMALL) for name in "wr")
        elif kind in ROLES:
            role = {"capacity": SMALL, "max_pipes": 16, "max_members": 16}
            self.reader = penstock.join("pipe:f", role=ROLES[kind], **role)
            self.writer = penstock.join("pipe:f", role=kind, **role)
        elif kind == "zmq":
            self.writer, self.reader = penstock.publish(self.channel), penstock.subscribe(self.channel)
            self.writer.wait_for_readers(1, timeout=60)
        elif kind in ZMQ_ROLES:  # the writer binds, and has room for a few messages
            sending, receiving = ZMQ_ROLES[kind]
            options = {"max_messages": 4} if kind == "zmq push" else {}
            self.writer = penstock.join(self.channel, role=sending, bind=True, linger=1, **options)
            self.reader = penstock.join(self.channel, role=receiving, bind=False, linger=1, **options)
        elif kind == "udp":
            self.writer = penstock.publish(self.channel, term_length=SMALL, mtu=16384, linger=1)
            self.reader = penstock.subscribe(self.channel)
            self.writer.wait_for_readers(1, timeout=60)
        else:
            sizes = {"ring": "capacity", "pipe": "capacity"}
            options = {"shape": (100,)} if kind == "frames" else {sizes.get(kind, "term_length"): SMALL}
            self.writer = penstock.publish(self.channel, **options)
            self.reader = penstock.subscribe(self.channel)

    @property
    def handles(self):
        return [self.writer, self.reader]

    def waits(self):
        reader, writer = self.reader, self.writer
        found = {"wait": lambda: penstock.wait([reader]), "receive": reader.recv}
        if self.kind in ("log", "ring", "fake:log", "pipe", "sync", "zmq", "udp"):
            found["borrow"] = self.borrow
        if self.kind in ("log", "ring", "pipe", "fake:log", "zmq", "sync", "udp"):
            found["iterate"] = lambda: next(reader)
        if self.kind in ("log", "pipe", "fake:log", "sync", "udp", "zmq push"):
            found["send"] = lambda: writer.send(bytes(9000))
            found["send_async"] = lambda: asyncio.run(writer.send_async(bytes(9000)))
        if self.kind in ("log", "pipe", "fake:log", "sync", "udp"):
            found["claim"] = lambda: writer.claim(9000).abort()
        if self.kind in ("log", "ring", "pipe", "frames", "udp", "zmq", "zmq push"):
            found["recv_async"] = lambda: asyncio.run(reader.recv_async())
        if self.kind in ("log", "sync"):
            found["fragments"] = lambda: writer.send(bytes(200_000 if self.kind == "log" else SMALL // 3))
        if self.kind in ("log", "ring", "frames", "pipe", "sync", "udp", "zmq"):
            found["readers"] = lambda: writer.wait_for_readers(3)
        if self.kind == "sync":
            found["barrier"] = lambda: writer.wait_for(["nobody"])
        if self.kind == "frames":
            found["acquire"] = lambda: self.extra.append(writer.acquire())
        if self.kind in ("request", "zmq request"):
            found["request"] = lambda: writer.request(b"?")
            found["request_async"] = lambda: asyncio.run(writer.request_async(b"?"))
        return found

    def borrow(self):
        with self.reader.borrow():
            pass

    def fill(self, wait):
        """The condition under which this wait blocks."""
        if wait in ("send", "send_async", "claim", "fragments"):
            with contextlib.suppress(penstock.Busy):
                while self.writer.offer(bytes(9000)) is not None:
                    pass
        elif wait == "acquire":
            while (frame := self.writer.try_acquire()) is not None:
                self.extra.append(frame)

    def use(self):
        """A child uses its copies, as far as it may."""
        with contextlib.suppress(
            penstock.PenstockError
        ):  # a ring has one publication, a fake channel is its process's, a zmq address its binder's
            getattr(self.reader, "try_recv", lambda: None)()
        with contextlib.suppress(penstock.PenstockError):
            offer = getattr(self.writer, "offer", None)
            if offer is not None and self.kind != "frames":
                offer(b"from a child")

    def members_of(self, pid):
        if self.kind == "fake:log" or self.kind.startswith("zmq"):
            return []
        return [member for member in penstock.inspect(self.channel).members if member.pid == pid]

    def empty(self):
        take = getattr(self.reader, "try_recv", lambda: None)
        while take() is not None:
            pass
        self.extra.clear()

    def lives(self):
        """The parent's own traffic goes on, more than the channel holds at once."""
        if self.kind in ("request", "dealer", "zmq request"):
            return
        while self.kind == "zmq push" and self.writer.readers > 1:  # a child's connection, which takes messages still
            threading.Event().wait(0.01)
        send, take = self.writer.send, self.reader.recv
        for i in range(3 * SMALL // 9000):
            send(bytes(100) if self.kind == "frames" else bytes([i]) * 9000, timeout=60)
            while (got := take(timeout=60)) is not None and self.kind != "frames":
                body = getattr(got, "body", got)
                if (body if isinstance(body, bytes) else body[-1]) == bytes([i]) * 9000:
                    break


ROLES = {"pair": "pair", "dealer": "router", "request": "reply"}
ZMQ_ROLES = {"zmq push": ("push", "pull"), "zmq request": ("request", "reply")}
KINDS = ["log", "ring", "frames", "sync", "pipe", "fake:log", "udp", "zmq", *ROLES, *ZMQ_ROLES]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_child_forked_during_a_wait_leaves_nothing_behind(kind, rng, tally, channel_folder):
    if kind.startswith("zmq"):
        pytest.importorskip("zmq")
    play = Play(kind, channel_folder)
    forks = 0
    for wait, call in play.waits().items():
        play.fill(wait)
        begun, stop = threading.Event(), threading.Event()

        def block(call=call, begun=begun, stop=stop):
            begun.set()
            while not stop.is_set():
                with contextlib.suppress(penstock.Closed, penstock.TimedOut):
                    call()

        thread = threading.Thread(target=block, daemon=True)
        thread.start()
        begun.wait()
        for _ in range(FORKS):
            threading.Event().wait(rng.random() * 0.003)  # any moment of the wait
            child(play, rng)
            forks += 1
        stop.set()
        end_wait(play, wait, thread)
        play.empty()
        play.lives()
    tally("forks in the middle of a wait", forks)
    for handle in play.handles:
        handle.close()
    assert [path.name for path in channel_folder.iterdir() if kind == "sync"] == []


def child(play, rng):
    """One fork: the child uses and closes its copies, or does not, and its process goes on; then it ends."""
    uses, closes = rng.random() < 0.7, rng.random() < 0.7

    def work(report, go):
        if uses:
            play.use()
        if closes:
            for handle in play.handles:
                handle.close()
                assert handle.closed
        report(b"done")
        go()

    pid, said, go = fork(work)
    try:
        assert line(said) == "done"
        if closes:
            assert play.members_of(pid) == [], f"{play.kind}: a closed copy keeps its slot (used: {uses})"
        os.write(go, b"x")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        pid = None
        assert line(said) == ""
    finally:
        os.close(said)
        os.close(go)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def end_wait(play, wait, thread):
    """Makes the wait that is under way come to its end."""
    if wait == "barrier":
        with penstock.join("sync:f", name="nobody", capacity=SMALL):
            thread.join(60)
    elif wait == "readers":
        with penstock.subscribe(play.channel), penstock.subscribe(play.channel):
            thread.join(60)
    elif wait in ("request", "request_async"):
        play.reader.recv(60).reply(b"!")
        thread.join(60)
    else:
        while thread.is_alive():
            if wait in ("send", "send_async", "claim", "fragments", "acquire"):
                play.empty()
            elif play.kind == "frames":
                play.writer.send(bytes(100))
            elif play.kind in ("request", "zmq request"):
                with contextlib.suppress(penstock.PenstockError):
                    play.writer.submit(b"?", timeout=0)
            else:
                (getattr(play.writer, "offer", None) or play.writer.send)(b"wake")
            thread.join(0.01)
    assert not thread.is_alive(), f"{play.kind}: {wait} does not end"


def test_a_signal_handler_may_fork_in_the_middle_of_a_wait():
    """The child's own thread is in the wait then: its copy goes on waiting, receives, and closes."""
    with penstock.publish("log:s", term_length=SMALL) as pub, penstock.subscribe("log:s") as sub:
        children = []

        def handler(*_):
            pid = os.fork()
            if pid == 0:
                in_child.append(True)
                signal.alarm(60)
            else:
                children.append(pid)
                threading.Timer(0.01, pub.send, [b"wake"]).start()

        in_child = []
        before = signal.signal(signal.SIGUSR1, handler)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                threading.Timer(0.02, os.kill, [os.getpid(), signal.SIGUSR1]).start()
                got = sub.recv()
                if in_child:
                    sub.close()
                    members = [m for m in penstock.inspect("log:s").members if m.pid == os.getpid()]
                    os._exit(0 if got == b"wake" and not members else 1)
            assert got == b"wake"
            assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0
        finally:
            signal.signal(signal.SIGUSR1, before)


def test_the_last_member_removes_the_queue_even_in_a_fork(channel_folder):
    """Without a name of its own the child is another member. A name belongs to one living member: with it the child is `Busy`."""
    named = penstock.join("sync:last", name="a", capacity=SMALL)
    queue = penstock.join("sync:last", capacity=SMALL)

    def work(report, go):
        with pytest.raises(penstock.Busy, match=f"process {os.getppid()} has the name 'a'"):
            named.send(b"from the child")
        queue.send(b"from the child")
        report(b"joined")
        go()
        queue.close()

    pid, said, go = fork(work)
    assert line(said) == "joined"
    assert named.recv(timeout=60).body == b"from the child"
    queue.close()
    named.close()
    assert [path.name for path in channel_folder.iterdir()] == ["last.sync"]
    os.write(go, b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert list(channel_folder.iterdir()) == []
    os.close(said)
    os.close(go)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("is_used", [True, False])
def test_a_child_of_another_user_uses_its_handles_before(is_used):
    """It opens each file again with the first use, and the kernel then asks for its user."""
    with penstock.publish("log:u", term_length=SMALL) as pub, penstock.subscribe("log:u") as sub:

        def work(report, go):
            if is_used:
                pub.send(b"before")
            os.setgid(12345)
            os.setuid(12345)
            try:
                pub.send(b"after")
                report(b"sent")
            except penstock.SystemFailure as error:
                report(str(error).encode())

        pid, said, go = fork(work)
        text = line(said)
        os.waitpid(pid, 0)
        os.close(said)
        os.close(go)
        if is_used:
            assert (text, sub.poll(10)) == ("sent", [b"before", b"after"])
        else:
            assert "a forked child that changes its user must use each handle once before that" in text


def test_a_relative_folder_stays_where_it_was(monkeypatch, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_DIR", f"relative-{os.getpid()}-{tmp_path.name}")
    with penstock.publish("log:r", term_length=SMALL) as pub, penstock.subscribe("log:r") as sub:
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert [status.channel for status in penstock.list_channels()] == ["log:r"]
        pid, said, go = fork(lambda report, go: report(str(pub.send(b"from the child")).encode()))
        assert line(said).isdigit()
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert sub.recv(timeout=60) == b"from the child"
        os.close(said)
        os.close(go)


def test_a_recorder_stays_its_parents(tmp_path):
    with penstock.publish("log:w") as pub, penstock.Archive(tmp_path / "a").record("log:w") as recorder:
        pub.send(b"before")

        def work(report, go):
            recorder.stop()
            with pytest.raises(penstock.Unsupported):
                recorder.join()

        child, said, leave = fork(work)
        assert os.waitpid(child, 0)[1] == 0, line(said)
        os.close(said)
        os.close(leave)
        pub.send(b"after")
    assert [one.data for one in penstock.Archive(tmp_path / "a").replay("log:w")] == [b"before", b"after"]
