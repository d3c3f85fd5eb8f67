"""The patterns over ZeroMQ, against real pyzmq sockets in other processes."""

import asyncio
import multiprocessing as mp
import threading

import pytest

import penstock

zmq = pytest.importorskip("zmq")


@pytest.fixture
def path(tmp_path):
    """An address of one's own."""
    return str(tmp_path / "socket")


def _pyzmq(kind, path, bind, work):
    socket = zmq.Context().socket(getattr(zmq, kind))
    socket.setsockopt(zmq.LINGER, 2000)
    (socket.bind if bind else socket.connect)(f"ipc://{path}")
    WORK[work](socket)
    socket.close()


def _send_ten(socket):
    for i in range(10):
        socket.send_multipart([b"%d" % i, b"part"])


def _echo_three(socket):
    for _ in range(3):
        socket.send_multipart([b"re", *socket.recv_multipart()])


def _ask_three(socket):
    for i in range(3):
        socket.send(b"%d" % i)
        assert socket.recv() == b"re %d" % i


def _route_three(socket):
    for _ in range(3):
        who, *body = socket.recv_multipart()
        socket.send_multipart([who, *body, b"!"])


WORK = {"send": _send_ten, "echo": _echo_three, "ask": _ask_three, "route": _route_three}


@pytest.fixture
def peer(path):
    """Starts real pyzmq sockets in other processes, and says whether they were content."""
    started = []

    def start(kind, work, *, bind=False):
        child = mp.get_context("spawn").Process(target=_pyzmq, args=(kind, path, bind, work))
        child.start()
        started.append(child)

    yield start
    for child in started:
        child.join(20)
        assert child.exitcode == 0


def test_pulling_from_a_real_push(path, peer):
    with penstock.join(f"zmq+ipc://{path}", role="pull") as pull:
        peer("PUSH", "send")
        assert [pull.recv(timeout=20) for _ in range(10)] == [[b"%d" % i, b"part"] for i in range(10)]
        assert pull.try_recv() is None


def test_asking_a_real_rep(path, peer):
    peer("REP", "echo", bind=True)
    with penstock.join(f"zmq+ipc://{path}", role="request") as ask:
        assert ask.request(b"a", timeout=20) == [b"re", b"a"]
        two = [ask.submit(b"b"), ask.submit([b"c", b"d"])]
        assert [pending.result(20) for pending in two] == [[b"re", b"b"], [b"re", b"c", b"d"]]


def test_answering_a_real_req(path, peer):
    with penstock.join(f"zmq+ipc://{path}", role="reply") as serve:
        peer("REQ", "ask")
        serve.serve(lambda body: b"re " + body, 3)


def test_talking_to_a_real_router_pair_and_dealer(path, peer):
    peer("ROUTER", "route", bind=True)
    with penstock.join(f"zmq+ipc://{path}", role="dealer", name="me") as dealer:
        for i in range(3):
            dealer.send(b"%d" % i)
            assert dealer.recv(timeout=20) == [b"%d" % i, b"!"]


def test_a_real_pair(path, peer):
    with penstock.join(f"zmq+ipc://{path}", role="pair", bind=True) as pair:
        peer("PAIR", "echo")
        for body in (b"1", [b"2", b"3"], b"text"):
            pair.send(body, timeout=20)
        assert pair.recv(timeout=20) == [b"re", b"1"]
        assert pair.recv(timeout=20) == [b"re", b"2", b"3"]
        assert pair.recv(timeout=20) == [b"re", b"text"]


def test_both_ends_are_ours(path):
    uri = f"zmq+ipc://{path}"
    with penstock.join(uri, role="reply") as serve, penstock.join(uri, role="request") as ask:
        thread = threading.Thread(target=serve.serve, args=(lambda body: body * 2, 2))
        thread.start()
        assert [ask.request(b"ab", timeout=10), ask.request(b"c", timeout=10)] == [b"abab", b"cc"]
        thread.join(10)
        with pytest.raises(TimeoutError, match="no reply"):
            ask.request(b"x", timeout=0.05, retries=1)
        late = serve.recv(timeout=5)
        assert late.reply(b"too late")
        assert serve.recv(timeout=5).reply(b"too late, too")
        with pytest.raises(TimeoutError):
            ask.request(b"y", timeout=0.2)
        assert ask.late == 2

        async def one():
            pending = ask.submit(b"z")
            while (request := await serve.recv_async()).body != b"z":
                pass
            request.reply(b"zz")
            return pending.result(5)

        assert asyncio.run(asyncio.wait_for(one(), 20)) == b"zz"


def test_a_router_knows_its_dealers_by_name(path):
    uri = f"zmq+ipc://{path}"
    with penstock.join(uri, role="router") as router, penstock.join(uri, role="dealer", name="d") as dealer:
        dealer.send(b"hello")
        assert router.recv(timeout=5) == ("d", b"hello")
        router.send([b"for", b"you"], to="d")
        assert dealer.recv(timeout=5) == [b"for", b"you"]
        with pytest.raises(penstock.Disconnected, match="no peer called 'nobody'"):
            router.send(b"x", to="nobody")
        for wrong in (None, 1):
            with pytest.raises(penstock.Invalid, match=f"to is {wrong}: it must be the name of a dealer"):
                router.send(b"x", to=wrong)
    with pytest.raises(penstock.Closed):
        dealer.recv(timeout=1)
    with pytest.raises(penstock.Invalid, match="role"):
        penstock.join(uri)
    with pytest.raises(penstock.Invalid):
        penstock.join(uri, role="pair", max_messages=-1)
