"""ZeroMQ handles at odd moments: no socket left, a fork while others are made, a signal in the middle of a message."""

import os
import subprocess
import sys
import threading
import weakref

import pytest
from conftest import sized

import penstock
from penstock.kinds.zmq import receiving as zmq_receiving

zmq = pytest.importorskip("zmq", reason="pyzmq is not installed: pip install 'penstock[zmq]'")

WAIT = 30
FORKS = sized(6, 20, 60)


@pytest.fixture(params=["tcp", "ipc"])
def uri(request, tmp_path):
    """An address that is free."""
    if request.param == "ipc":
        return f"zmq+ipc://{tmp_path}/z"
    with zmq.Context() as context, context.socket(zmq.PUB) as socket:
        return f"zmq+tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}"


@pytest.mark.slow
def test_forks_while_threads_make_handles(uri, tally):
    kept = [
        penstock.subscribe(uri) for _ in range(30)
    ]  # so many that another thread gets in while they are gone through
    stop, interval = threading.Event(), sys.getswitchinterval()

    def make():
        while not stop.is_set():
            penstock.subscribe(uri).close()
            stop.wait(0.0001)

    threads = [threading.Thread(target=make) for _ in range(4)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for _ in range(FORKS):
            child = os.fork()
            if child == 0:  # no handle has its parent's socket
                os._exit(any(handle._socket is not None for handle in kept))
            assert os.waitpid(child, 0)[1] == 0
        tally("forks while ZeroMQ handles are made", FORKS)
    finally:
        stop.set()
        sys.setswitchinterval(interval)
        for end in [*threads, *kept]:
            end.join(WAIT) if isinstance(end, threading.Thread) else end.close()


FULL = """
import threading, penstock
from penstock.kinds.zmq.socket import process as zmq_process
zmq_process.context().set(zmq_process.pyzmq().MAX_SOCKETS, {limit})
ends = []
try:
    while True:
        ends.append(penstock.subscribe("{uri}"))
except penstock.SystemFailure as error:
    print(len(ends), error)
while {closes} and ends:
    ends.pop().close()
done = threading.Event()
while {closes} and not done.is_set():  # what was closed is given back a moment later
    try:
        penstock.subscribe("{uri}").close()
        done.set()
    except penstock.SystemFailure:
        done.wait(0.01)
"""


@pytest.mark.parametrize("closes", [True, False])
@pytest.mark.parametrize("limit", range(4, 9))
def test_handles_work_again_after_there_were_too_many(uri, limit, closes):
    program = FULL.format(uri=uri, limit=limit, closes=closes)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{uri}: cannot open a socket at " in done.stdout
    assert "Too many open files" in done.stdout


class Interrupted:
    """A socket in whose third call a signal's handler raises, as soon as the part was read."""

    def __init__(self, socket):
        self.socket, self.calls = socket, 0
        self.getsockopt = socket.getsockopt

    def recv(self, *arguments):
        self.calls += 1
        part = self.socket.recv(*arguments)
        if self.calls == 3:
            raise KeyboardInterrupt
        return part


@pytest.mark.parametrize("parts", [3, 5])
def test_an_interrupted_message_is_not_torn(uri, parts):
    with penstock.publish(uri) as pub, penstock.subscribe(uri) as sub:
        pub.wait_for_readers(1, timeout=WAIT)
        pub.send([b"first"] * parts)
        pub.send([b"second"] * parts)
        assert penstock.wait([sub], WAIT)
        with pytest.raises(KeyboardInterrupt):
            sub._parts(Interrupted(sub._socket))
        assert sub.recv(timeout=WAIT) == [b"second"] * parts


def test_a_released_view_keeps_its_memory():
    """Some libraries keep a view's address and the view, but not its buffer: they must not read freed memory."""

    class Body(bytearray):
        pass

    body = Body(b"x")
    alive = weakref.ref(body)
    with zmq_receiving._view_body(body) as view:
        kept = view
    del body, view
    assert alive() is not None
    with pytest.raises(ValueError, match="released"):
        bytes(kept)
    del kept
    assert alive() is None
