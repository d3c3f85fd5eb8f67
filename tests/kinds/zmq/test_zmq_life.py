"""The life of ZeroMQ handles: lingering at the end, forks, peers that are killed and come back, keys, waiting with others."""

import multiprocessing as mp
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import pytest

import penstock

zmq = pytest.importorskip("zmq", reason="pyzmq is not installed: pip install 'penstock[zmq]'")
FORK = mp.get_context("fork")
forks = pytest.mark.filterwarnings("ignore::DeprecationWarning")
WAIT = 20  # seconds: a hang, not a slow machine


@pytest.fixture(params=["tcp", "ipc"])
def uri(request, tmp_path):
    """An address that is free."""
    if request.param == "ipc":
        return f"zmq+ipc://{tmp_path}/z"
    with zmq.Context() as context, context.socket(zmq.PUB) as socket:
        return f"zmq+tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}"


def until(look, why=""):
    """The result of `look`, as soon as it is true."""
    deadline = time.monotonic() + WAIT
    while not (found := look()):
        assert time.monotonic() < deadline, why
        threading.Event().wait(0.002)
    return found


# ---- the end ----


@pytest.mark.parametrize("role", ["push", "dealer", "pair"])
def test_messages_left_after_the_linger_are_an_error(uri, role):
    push = penstock.join(uri, role=role, linger=0.05)
    for _ in range(3):
        push.send(b"x", timeout=1)
    with pytest.raises(TimeoutError, match=r"all 3 messages sent here within linger=0\.05 seconds: they are lost"):
        push.close()
    push.close()
    with pytest.raises(KeyError), penstock.join(uri, role=role, linger=0.05) as push:
        push.send(b"x", timeout=1)
        raise KeyError  # says more than what is lost


def test_a_linger_of_nothing_is_asked_for(uri):
    with penstock.join(uri, role="push", linger=0) as push:
        push.send(b"x", timeout=1)
    with penstock.join(uri, role="request") as ask, pytest.raises(TimeoutError):
        ask.request(b"nobody", timeout=0.01)  # which was reported: there is nothing more to say


def test_close_waits_until_what_was_sent_has_left(uri):
    with penstock.join(uri, role="push", linger=WAIT) as push:  # before there is anybody
        for i in range(100):
            push.send(b"%d" % i)
        pull = penstock.join(uri, role="pull")
    with pull:
        assert [pull.recv(timeout=WAIT) for _ in range(100)] == [b"%d" % i for i in range(100)]


def test_close_waits_until_a_full_peer_has_read(uri):
    with penstock.join(uri, role="pull", max_messages=1) as pull:
        push = penstock.join(uri, role="push", linger=WAIT)
        for i in range(1000):
            push.send(b"%d" % i + bytes(100))
        closing = threading.Thread(target=push.close)
        closing.start()
        closing.join(0.3)  # long enough for a close that does not wait
        got = [pull.recv(timeout=WAIT).rstrip(b"\0") for _ in range(1000)]
        assert got == [b"%d" % i for i in range(1000)]
        closing.join(WAIT)
        assert not closing.is_alive()


def test_a_publication_may_lose_and_says_so_in_the_log(uri, caplog):
    with zmq.Context() as context, context.socket(zmq.SUB) as slow:
        slow.setsockopt(zmq.RCVHWM, 1)
        slow.subscribe(b"")
        pub = penstock.publish(uri, linger=0.05, max_messages=0)
        slow.connect(pub.address)
        pub.wait_for_readers(1, timeout=WAIT)
        for _ in range(200):
            pub.send(bytes(1 << 17))
        pub.close()
        assert "the last of 200 messages" in caplog.text


PUSHES = """
import multiprocessing, penstock
def work(uri):
    push = penstock.join(uri, role="push", linger={linger})
    for i in range(500):
        push.send(b"%d" % i)
    globals()["kept"] = push  # it ends without close
if __name__ == "__main__":
    {start}
"""


@pytest.mark.parametrize(
    "start", ["work({uri!r})", "multiprocessing.get_context('fork').Process(target=work, args=({uri!r},)).start()"]
)
def test_a_process_that_ends_without_close_has_sent_everything(uri, start):
    program = PUSHES.format(linger=WAIT, start=start.format(uri=uri))
    with penstock.join(uri, role="pull", max_messages=10) as pull:
        child = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True)
        assert [pull.recv(timeout=WAIT) for _ in range(500)] == [b"%d" % i for i in range(500)]
        assert (child.communicate(timeout=WAIT)[1], child.returncode) == ("", 0)


def test_a_process_that_ends_says_what_it_could_not_send(uri):
    program = PUSHES.format(linger=0.05, start=f"work({uri!r})")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "all 500 messages sent here within linger=0.05" in done.stderr


ENDS = """
import asyncio, threading, penstock
sub = penstock.subscribe("zmq+tcp://127.0.0.1:9")
pull = penstock.join({uri!r}, role="pull")
push = penstock.join({uri!r}, role="push", max_messages=1, linger=0.05)
def send():
    while True:
        push.send(b"x")
def read():
    for message in pull:
        pass
for work in (sub.recv, read, send):
    threading.Thread(target=work, daemon=True).start()
async def main():
    task = asyncio.create_task(sub.recv_async())
    await asyncio.sleep(0.01)
asyncio.run(main())
print("ends")
"""


def test_the_process_ends_while_threads_and_tasks_wait(uri):
    done = subprocess.run([sys.executable, "-c", ENDS.format(uri=uri)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, "ends")
    assert "Traceback" not in done.stderr


def test_a_handle_that_is_forgotten_says_so_and_ends(uri):
    push = penstock.join(uri, role="push", linger=0.01)
    push.send(b"x", timeout=1)
    with pytest.warns(ResourceWarning, match="not closed"):
        del push
    sub = penstock.subscribe(uri)
    del sub


# ---- forks ----


def in_child(work):
    """The result or the error of `work` in a forked child, as text; a child that hangs fails the test."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(WAIT)
        try:
            said = repr(work())
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        said = pipe.read()
    assert os.waitpid(pid, 0)[1] == 0, "the child hung"
    return said


@forks
def test_an_inherited_subscription_is_a_new_one(uri):
    with penstock.publish(uri) as pub, penstock.subscribe(uri, topics="a") as sub:
        pub.wait_for_readers(1, timeout=WAIT)
        assert "TimedOut" in in_child(lambda: sub.recv(timeout=0.05))
        assert in_child(lambda: (sub.close(), sub.closed)) == "(None, True)"
        stop = threading.Event()

        def publish():
            while not stop.wait(0.005):
                pub.send(b"x", topic="abc")
                pub.send(b"y", topic="b")

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            assert in_child(lambda: [sub.recv(timeout=WAIT) for _ in range(3)]) == "[b'x', b'x', b'x']"
            assert [sub.recv(timeout=WAIT) for _ in range(3)] == [b"x"] * 3
        finally:
            stop.set()
            thread.join()


@forks
def test_an_inherited_binding_end_names_the_addresss_owner(uri):
    with penstock.publish(uri) as pub, penstock.subscribe(uri) as sub:
        pub.wait_for_readers(1, timeout=WAIT)
        said = in_child(lambda: pub.send(b"lost?"))
        assert said.startswith("Busy")
        assert f"made by process {os.getpid()}" in said
        assert "open a handle of its own" in said
        assert in_child(lambda: (pub.close(), pub.closed)) == "(None, True)"
        pub.send(b"x")
        assert sub.recv(timeout=WAIT) == b"x"
    for role in ("pull", "reply", "router"):
        with penstock.join(uri, role=role) as end:
            assert in_child(lambda end=end: end.recv(timeout=1)).startswith("Busy")


@forks
def test_an_inherited_publication_keeps_no_chosen_port():
    with penstock.publish("zmq+tcp://127.0.0.1:*") as pub:
        assert in_child(lambda: pub.send(b"x")).startswith("Busy")


@forks
def test_inherited_peers_that_connect_work_or_say_why_not(uri):
    with penstock.join(uri, role="reply") as serve, penstock.join(uri, role="request") as ask:
        thread = threading.Thread(target=serve.serve, args=(bytes.upper,))
        thread.start()
        before = ask.submit(b"mine")
        assert in_child(lambda: [ask.request(b"c%d" % i, timeout=WAIT) for i in range(3)]) == "[b'C0', b'C1', b'C2']"
        assert before.result(WAIT) == b"MINE"
        serve.close()
        thread.join()
    with penstock.join(uri, role="pull") as pull, penstock.join(uri, role="push") as push:
        assert in_child(lambda: (push.send(b"child", timeout=WAIT), push.close())) == "(5, None)"
        push.send(b"parent")
        assert sorted(pull.recv(timeout=WAIT) for _ in range(2)) == [b"child", b"parent"]
    with penstock.join(uri, role="router"), penstock.join(uri, role="dealer", name="d") as dealer:
        assert "another name" in in_child(lambda: dealer.send(b"x", timeout=1))
    with penstock.join(uri, role="pair", bind=True), penstock.join(uri, role="pair") as pair:
        assert "a pair has one peer" in in_child(lambda: pair.send(b"x", timeout=1))


@pytest.mark.slow
@forks
def test_forks_while_threads_send_and_receive(uri, tally):
    with penstock.publish(uri) as pub, penstock.subscribe(uri) as sub:
        pub.wait_for_readers(1, timeout=WAIT)
        stop = threading.Event()

        def publish():
            while not stop.is_set():
                pub.send(b"x")

        threads = [threading.Thread(target=publish), threading.Thread(target=lambda: list(sub))]
        for thread in threads:
            thread.start()
        for _ in range(20):
            assert in_child(lambda: sub.recv(timeout=WAIT)) == "b'x'"
            assert in_child(lambda: pub.send(b"x")).startswith("Busy")
        tally("forks of ZeroMQ handles", 40)
        stop.set()
        sub.close()
        for thread in threads:
            thread.join(WAIT)
            assert not thread.is_alive()


def _publish_and_leave_a_child(uri, said):
    pub = penstock.publish(uri)
    pub.wait_for_readers(1, timeout=WAIT)
    child = os.fork()
    if child == 0:
        signal.alarm(2 * WAIT)
        signal.pause()
        os._exit(0)
    pub.send(b"1")
    said.send(child)
    signal.pause()


@forks
def test_a_forked_child_keeps_no_address_or_connection(uri):
    receiving, sending = FORK.Pipe()
    child = FORK.Process(target=_publish_and_leave_a_child, args=(uri, sending))
    with penstock.subscribe(uri) as sub:
        child.start()
        assert sub.recv(timeout=WAIT) == b"1"
        grandchild = receiving.recv()
        child.kill()
        child.join()
        try:
            until(lambda: sub.statistics().details["disconnections"] == 1, "the connection's end was not seen")
            with penstock.publish(uri) as pub:
                until(lambda: sub.statistics().details["connected"] and pub.readers)  # any call on it subscribes again
                pub.send(b"2")
                assert sub.recv(timeout=WAIT) == b"2"
        finally:
            os.kill(grandchild, signal.SIGKILL)


# ---- killed, and back ----


def _end(uri, kind, bind, number):
    """The child's end of a conversation: it tells its number to each peer."""
    said = b"%d" % number
    if kind == "publish":
        with penstock.publish(uri) as pub:
            while True:
                pub.send(said, topic="t")
                threading.Event().wait(0.002)
    if kind == "subscribe":
        with penstock.subscribe(uri, topics="t") as sub:
            threading.Event().wait()
            sub.close()
    with penstock.join(uri, role=kind, bind=bind, linger=0) as end:
        if kind == "reply":
            end.serve(lambda body: said)
        if kind == "router":
            for sender, _ in end:
                end.send(said, to=sender)
        if kind == "pair":
            for _ in end:
                end.send(said)
        if kind == "pull":
            list(end)
        while True:
            end.request(said, timeout=WAIT) if kind == "request" else end.send(said, timeout=WAIT)
            threading.Event().wait(0.002)


def _hears(end, number):
    """Whether the other end has said that it is that one."""
    said = b"%d" % number

    def look():
        try:
            if isinstance(end, penstock.kinds.zmq.requests.ZmqRequester):
                return end.request(b"who?", timeout=0.2) == said
            if getattr(end, "_role", "") in ("pair", "dealer") or end._kind == "PAIR":
                end.send(b"who?", timeout=0.2)
            got = end.recv(timeout=0.2)
        except TimeoutError:
            return False
        if hasattr(got, "reply"):
            got.reply(b"")
        return said in (got, getattr(got, "body", None))

    return look


PAIRS = [
    ("subscribe", "publish"),
    ("pull", "push"),
    ("request", "reply"),
    ("reply", "request"),
    ("dealer", "router"),
    ("router", "dealer"),
    ("pair", "pair"),
]


@forks
@pytest.mark.parametrize(
    ("stays", "dies", "bind"), [(*p, b) for p in PAIRS for b in (False, True) if b <= (p[0] != "subscribe")]
)
def test_a_peer_is_killed_and_comes_back(uri, stays, dies, bind, tally):
    end = (
        penstock.subscribe(uri, topics="t")
        if stays == "subscribe"
        else penstock.join(uri, role=stays, bind=bind, linger=0)
    )
    with end:
        for number in range(3):
            child = FORK.Process(target=_end, args=(uri, dies, not bind, number), daemon=True)
            child.start()
            until(_hears(end, number), f"number {number} was not heard")
            assert end.statistics().details["connections"] == number + 1
            child.kill()
            child.join()
            until(lambda number=number: end.statistics().details["disconnections"] == number + 1)
        assert end.statistics().details["connected"] == 0
    tally("peers killed and back", 3)


@forks
def test_a_subscription_is_killed_and_comes_back(uri):
    with penstock.publish(uri) as pub:
        for number in range(3):
            child = FORK.Process(target=_end, args=(uri, "subscribe", False, number), daemon=True)
            child.start()
            pub.wait_for_readers(1, timeout=WAIT, topic="t")
            pub.send(b"x", topic="t")
            child.kill()
            child.join()
            until(lambda: pub.readers == 0)
            seen = pub.statistics().details
            assert (seen["connected"], seen["connections"], seen["disconnections"]) == (0, number + 1, number + 1)


@forks
@pytest.mark.parametrize("bind", [False, True])
def test_a_puller_is_killed_and_its_successor_gets_what_comes(uri, bind):
    with penstock.join(uri, role="push", bind=bind, linger=0) as push:
        for number in range(2):
            child = FORK.Process(target=_end, args=(uri, "pull", not bind, number), daemon=True)
            child.start()
            until(lambda: push.statistics().details["connected"] == 1)
            push.send(b"x", timeout=WAIT)
            child.kill()
            child.join()
            until(lambda: push.statistics().details["connected"] == 0)
        assert push.statistics().details["connections"] == 2


# ---- keys ----


@pytest.fixture
def keys():
    if not zmq.has("curve"):
        pytest.skip("this libzmq has no CURVE")
    return zmq.curve_keypair()


def test_curve_encrypts_and_refuses_missing_or_wrong_keys(uri, keys):
    public, secret = keys
    with penstock.publish(uri, secret_key=secret) as pub:
        with penstock.subscribe(uri, server_key=public.decode()) as sub:
            pub.wait_for_readers(1, timeout=WAIT)
            pub.send(b"secret")
            assert sub.recv(timeout=WAIT) == b"secret"
            assert sub._socket.getsockopt(zmq.MECHANISM) == zmq.CURVE
            with pickle.loads(pickle.dumps(sub)) as other:
                pub.wait_for_readers(2, timeout=WAIT)
                assert other._options == sub._options
        until(lambda: pub.readers == 0)
        stranger = zmq.curve_keypair()[0]
        for options in ({}, {"server_key": stranger}):
            with penstock.subscribe(uri, **options) as sub:
                until(lambda sub=sub: pub.statistics().details["refused"] or sub.statistics().details["refused"])
                pub.send(b"secret")
                with pytest.raises(TimeoutError, match=r"no message within the timeout( \(\d+ handshakes failed|$)"):
                    sub.recv(timeout=0.1)
        assert pub.readers == 0
        with pytest.raises(TimeoutError, match="handshakes failed"):
            pub.wait_for_readers(1, timeout=0.01)
        assert secret.decode() not in repr(pub)


def test_curve_never_falls_back_to_plain_text(uri, keys):
    with penstock.publish(uri) as pub, penstock.subscribe(uri, server_key=keys[0]) as sub:
        until(lambda: pub.statistics().details["refused"] or sub.statistics().details["refused"])
        pub.send(b"plain")
        with pytest.raises(TimeoutError):
            sub.recv(timeout=0.1)


def test_curve_for_the_patterns(uri, keys):
    public, secret = keys
    with (
        penstock.join(uri, role="reply", secret_key=secret) as serve,
        penstock.join(uri, role="request", server_key=public, secret_key=zmq.curve_keypair()[1]) as ask,
    ):
        thread = threading.Thread(target=serve.serve, args=(bytes.upper, 1))
        thread.start()
        assert ask.request(b"abc", timeout=WAIT) == b"ABC"
        thread.join()


def test_keys_that_make_no_sense_are_said(keys, monkeypatch):
    public, secret = keys
    free = "zmq+tcp://127.0.0.1:*"
    for wrong, what in (
        (lambda: penstock.publish(free, secret_key=b"short"), "40 characters"),
        (lambda: penstock.publish(free, secret_key=5), "40 characters"),
        (lambda: penstock.publish(free, secret_key="~" * 40), "Z85"),
        (lambda: penstock.publish(free, secret_key="é" * 40), "Z85"),
        (lambda: penstock.publish(free, server_key=public), "takes secret_key"),
        (lambda: penstock.subscribe(free, secret_key=secret), "server_key"),
        (lambda: penstock.subscribe("zmq+tcp://127.0.0.1:5", server_key="~" * 40), "Z85"),
    ):
        with pytest.raises(penstock.Invalid, match=what):
            wrong()
    monkeypatch.setattr(zmq, "has", lambda capability: False)
    with pytest.raises(penstock.Invalid, match="has no CURVE"):
        penstock.publish(free, secret_key=secret)


# ---- options, and waiting with others ----


def test_options_that_make_no_sense_are_said(uri):
    for wrong in (
        {"max_messages": 1 << 31},
        {"max_messages": True},
        {"linger": -1},
        {"linger": "x"},
        {"linger": 1e9},
        {"linger": float("nan")},
    ):
        with pytest.raises(penstock.Invalid, match=next(iter(wrong))):
            penstock.publish(uri, **wrong)
    for name in ("", "x" * 256, 5):
        with pytest.raises(penstock.Invalid, match="name is"):
            penstock.join(uri, role="dealer", name=name)
    with penstock.publish(uri, linger=None), pytest.raises(TypeError, match="'colour'"):
        penstock.publish(uri, colour="red")


def test_wait_takes_sockets_and_refuses_pushers(uri):
    with (
        penstock.join(uri, role="pull") as pull,
        penstock.join(uri, role="push") as push,
        penstock.join("pipe:w", role="pair") as a,
        penstock.join("pipe:w", role="pair") as b,
        penstock.subscribe("ring:w") as ring,
    ):
        every = [pull, b, ring]
        assert penstock.wait(every, timeout=0) == []
        assert penstock.wait(every, timeout=0.02) == []
        push.send(b"x")
        assert penstock.wait(every, timeout=WAIT) == [pull]
        assert pull.recv(timeout=WAIT) == b"x"
        threading.Timer(0.02, a.send, [b"y"]).start()
        assert penstock.wait(every, timeout=WAIT) == [b]
        for wrong in (push, a._pub, "log:x", 5, None, penstock.threads.Mailbox()):
            with pytest.raises(penstock.Invalid, match="nothing to wait for on"):
                penstock.wait([ring, wrong], timeout=0)
        threading.Timer(0.02, pull.close).start()
        with pytest.raises(penstock.Closed):
            penstock.wait([pull], timeout=WAIT)


def test_the_descriptor_is_level_triggered(uri):
    with penstock.join(uri, role="pull") as pull, penstock.join(uri, role="push") as push:
        fd = pull.fileno()
        for i in range(3):
            push.send(b"%d" % i)
        for i in range(3):
            zmq_process = penstock.kinds.zmq.socket.process
            zmq_process.sleep_on(fd, WAIT)
            assert penstock.wait([pull], timeout=WAIT) == [pull]
            assert pull.recv(timeout=WAIT) == b"%d" % i
        assert pull.try_recv() is None


def test_several_threads_wait_on_one_handle(uri):
    with penstock.join(uri, role="pull") as pull, penstock.join(uri, role="push") as push:
        got, lock = [], threading.Lock()

        def read():
            for message in pull:
                with lock:
                    got.append(int(message))

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for i in range(500):
            push.send(b"%d" % i)
        until(lambda: len(got) == 500)
        assert sorted(got) == list(range(500))
        pull.close()
        for thread in threads:
            thread.join(WAIT)
            assert not thread.is_alive()
