"""Sockets of the patterns over ZeroMQ: the verbs, codecs and twins that sockets of every kind have."""

import asyncio
import pickle
import threading

import numpy as np
import pytest

import penstock
from penstock import Unsupported

zmq = pytest.importorskip("zmq", reason="pyzmq is not installed: pip install 'penstock[zmq]'")

WAIT = 20  # seconds: a hang, not a slow machine


@pytest.fixture
def uri(tmp_path):
    """An address of one's own."""
    return f"zmq+ipc://{tmp_path}/z"


def run(coroutine):
    """Runs it in a loop of its own, with a bound on a hang."""
    return asyncio.run(asyncio.wait_for(coroutine, 2 * WAIT))


PAIRS = [("push", "pull"), ("pair", "pair"), ("dealer", "dealer")]


@pytest.fixture(params=PAIRS, ids="-".join)
def ends(request, uri):
    """Two that talk to each other: one that sends, one that receives."""
    sends, receives = request.param
    with penstock.join(uri, role=receives, bind=True) as receiver, penstock.join(uri, role=sends) as sender:
        sender.wait_for_readers(1, WAIT)
        yield sender, receiver


def test_every_way_to_send_and_receive(ends):
    sender, receiver = ends
    assert sender.send(b"one") == 3
    assert run(sender.send_async("zwölf".encode(), WAIT)) == 9
    assert sender.offer([b"a", b"b"]) == 11
    assert sender.offer_many([b"c", memoryview(b"d")]) == 2
    with sender.claim(2) as view:
        view[:] = b"ef"
    assert sender.send_position == 15
    assert receiver.recv(WAIT) == b"one"
    assert run(receiver.recv_async(WAIT)) == "zwölf".encode()
    assert receiver.recv(timeout=WAIT) == [b"a", b"b"]
    assert receiver.last.position == 9
    with receiver.borrow(WAIT) as view:
        assert bytes(view) == b"c"
    with run(receiver.borrow_async(WAIT)) as view:
        assert bytes(view) == b"d"
    assert penstock.wait([receiver], WAIT) == [receiver]
    batch = receiver.poll_arrow()
    assert batch.schema.names == ["session", "position", "payload", "time"]
    assert batch.column("payload").to_pylist() == [b"ef"]
    assert (receiver.poll(), receiver.try_recv(), receiver.position) == ([], None, 15)
    for timeout in (0, 0.01):
        with pytest.raises(penstock.TimedOut):
            receiver.recv(timeout)
        with pytest.raises(penstock.TimedOut):
            run(receiver.recv_async(timeout))
    for name in ("lag", "lost", "lost_messages"):
        with pytest.raises(Unsupported, match="ZeroMQ does not report"):
            getattr(receiver, name)
    status = receiver.statistics()
    assert (status.totals.messages_received, status.totals.bytes_received, status.details["connected"]) == (6, 15, 1)
    assert status.totals.bytes_lost is None
    with pytest.raises(Unsupported):
        _ = status.lag


def test_a_push_only_sends_and_a_pull_only_receives(uri):
    with penstock.join(uri, role="pull") as pull, penstock.join(uri, role="push") as push:
        for receive in ("recv", "recv_async", "try_recv", "poll", "poll_arrow", "borrow", "__iter__", "last"):
            assert not hasattr(push, receive)
        for send in ("send", "send_async", "offer", "offer_many", "claim", "claim_async"):
            assert not hasattr(pull, send)


def test_a_full_queue_is_back_pressure(uri):
    with (
        penstock.join(uri, role="pull", max_messages=1) as pull,
        penstock.join(uri, role="push", max_messages=1) as push,
    ):
        body, sent = bytes(1 << 16), 0
        with pytest.raises(penstock.TimedOut, match="no peer took the message"):
            while True:
                push.send(body, timeout=0.05)
                sent += 1
        with pytest.raises(penstock.TimedOut):
            while True:  # room may come once more
                run(push.send_async(body, 0.05))
                sent += 1
        waiting = threading.Thread(target=push.send, args=(body, WAIT))
        waiting.start()
        assert all(len(pull.recv(WAIT)) == 1 << 16 for _ in range(sent + 1))
        waiting.join(WAIT)
        assert push.send(body, WAIT) == (sent + 2) << 16
        assert len(pull.recv(WAIT)) == 1 << 16


def test_codecs_on_every_role(uri):
    def both(role, other, **options):
        return (
            penstock.join(f"{uri}{role}", role=other, bind=True, codec="json"),
            penstock.join(f"{uri}{role}", role=role, codec="json", **options),
        )

    for role, other in PAIRS:
        receiver, sender = both(role, other)
        with receiver, sender:
            sender.send({"a": [1]})
            sender.send([1, "two"])
            assert [receiver.recv(WAIT), receiver.recv(WAIT)] == [{"a": [1]}, [1, "two"]]
            assert receiver.codec.kind == sender.codec.kind == "json"
            with pytest.raises(penstock.Invalid, match="JSON"):
                sender.send(object())
    router, dealer = both("dealer", "router", name="d")
    with router, dealer:
        dealer.send({"q": 1})
        assert router.recv(WAIT) == ("d", {"q": 1})
        router.send([1], to="d")
        assert dealer.recv(WAIT) == [1]
    server, ask = both("request", "reply")
    with server, ask:
        serving = threading.Thread(target=server.serve, args=(lambda body: {"twice": 2 * body}, 3))
        serving.start()
        assert ask.request(4, WAIT) == {"twice": 8}
        assert ask.submit(5).result(WAIT) == {"twice": 10}
        assert run(ask.request_async("x", WAIT)) == {"twice": "xx"}
        serving.join(WAIT)
    codec = penstock.array("u2", (2,))
    with penstock.join(uri, role="pull", codec=codec) as pull, penstock.join(uri, role="push", codec=codec) as push:
        push.send(np.array([1, 2], "u2"))
        with push.claim(4) as view:
            view[:] = np.array([3, 4], "u2").tobytes()
        with pytest.raises(penstock.Invalid, match="4 bytes, not 5"):
            push.claim(5)
        assert [pull.recv(WAIT).tolist() for _ in range(2)] == [[1, 2], [3, 4]]


def test_messages_outside_the_codec_are_skipped(uri, caplog):
    with (
        penstock.join(uri, role="router", codec="json") as router,
        penstock.join(uri, role="dealer", name="d") as dealer,
    ):
        for body in (b"1", b"{", [b"2", b"3"], b"4"):
            dealer.send(body)
        assert router.recv(WAIT) == ("d", 1)
        with pytest.raises(penstock.DecodeError, match="is not json"):
            router.recv(WAIT)
        with pytest.raises(penstock.DecodeError, match="has 2 parts"):
            router.recv(WAIT)
        assert router.recv(WAIT) == ("d", 4)
    with penstock.join(uri, role="reply", codec="json") as server, penstock.join(uri, role="request") as ask:
        serving = threading.Thread(target=server.serve, args=(lambda body: body, 1))
        serving.start()
        bad = ask.submit(b"{")
        assert ask.request(b"[1]", WAIT) == b"[1]"
        serving.join(WAIT)
        with pytest.raises(penstock.ServerError, match="is not json"):
            bad.result(WAIT)
        assert "is not json" in caplog.text


def test_a_router_says_who_sent(uri):
    with penstock.join(uri, role="router") as router, penstock.join(uri, role="dealer", name="dée") as dealer:
        assert (dealer.name, router.name) == ("dée", None)
        for body in (b"0", b"1", [b"2", b"parts"], b"3"):
            dealer.send(body)
        assert run(router.recv_async(WAIT)) == ("dée", b"0")
        assert router.last.sender == "dée"
        assert penstock.wait([router], WAIT) == [router]
        rows = []
        while not rows:
            rows = router.poll_arrow().select(["sender", "payload"]).to_pylist()
        assert rows == [{"sender": "dée", "payload": b"1"}]
        got = []
        while len(got) < 2:
            got += router.poll()
        assert got == [("dée", [b"2", b"parts"]), ("dée", b"3")]
        assert run(router.send_async(b"a", WAIT, to="dée")) == 5
        assert router.offer(b"b", to="dée") == 10
        assert router.offer_many([b"c", b"d"], to="dée") == 2
        with router.claim(1, to="dée") as view:
            view[:] = b"e"
        assert [dealer.recv(WAIT) for _ in range(5)] == [b"a", b"b", b"c", b"d", b"e"]
        for send in (router.send, router.offer, lambda body, to: run(router.send_async(body, to=to))):
            with pytest.raises(penstock.Disconnected, match="no peer called 'nobody'"):
                send(b"x", to="nobody")


def test_requests_in_an_event_loop(uri):
    async def main():
        with penstock.join(uri, role="reply") as server, penstock.join(uri, role="request") as ask:

            async def answer(body):
                return body.upper()

            serving = asyncio.create_task(server.serve_async(answer, 2))
            pending = await ask.submit_async(b"one", WAIT)
            assert await pending.result_async(WAIT) == b"ONE"
            assert await ask.request_async(b"two", WAIT) == b"TWO"
            await serving
            pending = await ask.submit_async(b"late")
            with pytest.raises(penstock.TimedOut, match="no reply"):
                await pending.result_async(0.01)
            with pytest.raises(penstock.TimedOut, match="no reply"):
                await ask.request_async(b"later", 0.01, retries=1)
            request = await server.recv_async(WAIT)
            assert (request.body, await request.reply_async(b"too late")) == (b"late", True)
            for refused in (server.poll_arrow, server.borrow):
                with pytest.raises(Unsupported, match="a request must be answered"):
                    refused()
            assert len(server.poll()) == 2

    run(main())


def test_a_request_whose_peer_is_gone(uri):
    with penstock.join(uri, role="reply") as server:
        with penstock.join(uri, role="request", linger=0) as ask:
            ask.submit(b"?")
            request = server.recv(WAIT)
        while request.reply(b"!"):
            pass  # until the network has said that it is gone
        assert run(request.reply_async(b"!")) is False


def test_peers_are_counted(uri):
    async def main():
        with penstock.join(uri, role="pull") as pull:
            with pytest.raises(penstock.TimedOut, match="fewer than 1 peers"):
                await pull.wait_for_readers_async(1, 0.01)
            with penstock.join(uri, role="push") as push:
                await pull.wait_for_readers_async(1, WAIT)
                push.wait_for_readers(1, WAIT)
                assert (pull.readers, push.readers) == (1, 1)
                with pytest.raises(penstock.TimedOut, match="fewer than 2 peers"):
                    pull.wait_for_readers(2, 0.01)

    run(main())


@pytest.mark.parametrize("role", ["push", "pull", "pair", "request", "reply", "dealer", "router"])
def test_every_role_pickles_with_its_options(uri, role):
    options = {"name": "n", "codec": "json", "max_messages": 9, "linger": 3}
    spin = {} if role == "push" else {"spin": 0.25}
    with penstock.join(uri, role=role, **options, **spin) as end:
        data, kept = pickle.dumps(end), (end._options, end._bind, type(end))
    with pickle.loads(data) as other:
        assert (other._options, other._bind, type(other)) == kept
        assert (other.name, other.codec.kind, other._spin, other._role) == ("n", "json", spin.get("spin", 0), role)


def test_options_are_checked(uri):
    for wrong in (
        {"role": "boss"},
        {"role": "pair", "name": ""},
        {"role": "pair", "bind": 1},
        {"role": "pair", "spin": -1},
        {"role": "push", "spin": 0.5},
        {"role": "pair", "max_messages": 7, "options": {"rcvhwm": 4}},
    ):
        with pytest.raises(penstock.Invalid, match=list(wrong)[-1]):
            penstock.join(uri, **wrong)
    with pytest.raises(TypeError, match="'topics'"):
        penstock.join(uri, role="pair", topics="a")
    with pytest.raises(TypeError, match="no option 'capacity'"):
        penstock.join(uri, role="pair", capacity=1 << 16)
