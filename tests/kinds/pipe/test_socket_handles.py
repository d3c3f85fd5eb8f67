"""Every socket of a pipe channel has positions in bytes, codecs on every role, async twins, fakes."""

import asyncio
import pickle
import threading

import pytest

import penstock
from penstock import testing
from penstock._native import core

ROLES = {"pair": "pair", "request": "reply", "reply": "request", "dealer": "router", "router": "dealer"}
FULL = {"max_messages": 2}


def framed(*messages):
    """Bytes by which messages move a position."""
    return sum((len(message) + 32 + 31) // 32 * 32 for message in messages)


def test_positions_are_bytes_that_were_written_and_read():
    with penstock.join("pipe:p", role="pair", name="a") as a, penstock.join("pipe:p", role="pair", name="b") as b:
        assert a.send(b"x" * 100) == framed(b"x" * 100) == a.send_position
        assert a.offer(b"") == framed(b"x" * 100, b"")
        assert a.offer_many([b"1", b"2"]) == 2
        end = framed(b"x" * 100, b"", b"1", b"2")
        assert (a.send_position, a.position, b.send_position, b.position) == (end, 0, 0, 0)
        assert (b.lag, a.unread_messages) == (end, 4)
        assert penstock.inspect("pipe:p").lag == end
        assert b.recv() == b"x" * 100
        assert (b.last.position, b.last.sender) == (0, "a")
        assert b.poll() == [b"", b"1", b"2"]
        assert (b.position, b.lag, b.lost, b.lost_messages) == (end, 0, 0, 0)
        assert b.last.position == end - framed(b"2")
        assert (a.readers, a.max_payload, a.statistics().lag) == (1, (1 << 18) - 32, 0)
        assert b.position == a.send_position
        with a.claim(3) as view:
            view[:] = b"abc"
        assert b.recv(timeout=5) == b"abc"
    with penstock.join("pipe:d", role="router") as router, penstock.join("pipe:d", role="dealer", name="d") as dealer:
        assert router.send(b"hello", to="d") == router.send_position == framed(b"hello")
        assert router.offer([b"a", b"b"], to="d") == router.send_position
        assert dealer.poll() == [b"hello", [b"a", b"b"]]
        assert router.offer_many([b"1", b"2"], to="d") == 2
        assert dealer.poll() == [b"1", b"2"]
        with pytest.raises(penstock.Disconnected, match="no dealer called 'e'"):
            router.offer(b"", to="e")


@pytest.mark.parametrize("role", ROLES)
def test_the_first_socket_decides_the_codec_of_every_role(role):
    def meet(first, second):
        if role == "pair":
            first.send([1, {"a": 2}])
            assert second.recv(timeout=5) == [1, {"a": 2}]
        elif "router" in (role, ROLES[role]):
            router, dealer = (first, second) if role == "router" else (second, first)
            dealer.send(["to all"])
            assert router.recv(timeout=5) == (dealer.name, ["to all"])
            router.send({"n": 1}, to=dealer.name)
            assert dealer.recv(timeout=5) == {"n": 1}
        else:
            asks, replies = (first, second) if role == "request" else (second, first)
            pending = asks.submit([1, 2], timeout=5)
            request = replies.recv(timeout=5)
            assert request.body == [1, 2]
            assert request.reply(None)
            assert pending.result(5) is None
            served = threading.Thread(target=replies.serve, args=(sum, 2))
            served.start()
            assert asks.request([1, 2], timeout=5) == 3
            assert asyncio.run(asks.request_async([3, 4], timeout=5)) == 7
            served.join(5)

    def joined(which, **options):
        return penstock.join("pipe:c", role=which, **options)

    with joined(role, codec="json") as first, joined(ROLES[role]) as second:
        assert first.codec.kind == second.codec.kind == "json"
        meet(first, second)
        with pytest.raises(penstock.Mismatch, match="codec"):
            joined(ROLES[role], codec="msgpack")
        if role != "pair":
            with pickle.loads(pickle.dumps(second)) as again:
                assert again.codec.kind == "json"
                assert again.name != second.name


def foreign(socket, data, kind=0):
    """Sends bytes as another program would, whatever the codec."""
    assert core.pipe_send(socket._pub, 0, 1, kind, data, 5) is not None


def test_an_undecodable_message_is_skipped_alone():
    with penstock.join("pipe:c", role="pair", codec="json") as a, penstock.join("pipe:c", role="pair") as b:
        foreign(a, b"{{{")
        a.send(1)
        foreign(a, b"{", 1 << 30)
        a.send(2)
        a.send(3)
        foreign(a, b"[[")
        with pytest.raises(penstock.DecodeError, match=r"position 0 .*not json") as said:
            b.poll()
        assert said.value.position == 0
        assert b.poll() == [1]
        with pytest.raises(penstock.DecodeError, match="several parts"):
            b.poll()
        assert [b.recv(timeout=5), b.try_recv()] == [2, 3]
        with pytest.raises(penstock.DecodeError):
            asyncio.run(b.recv_async(timeout=5))
        assert b.try_recv() is None
    with (
        penstock.join("pipe:r", role="reply", codec="json") as replies,
        penstock.join("pipe:r", role="request") as asks,
    ):
        pending = asks.submit(1, timeout=5)
        request = replies.recv(timeout=5)
        assert core.pipe_send(replies._pub, request.peer, request.number, 0, b"{{", 5) is not None
        with pytest.raises(penstock.DecodeError):
            pending.result(5)


def test_the_error_behind_a_message_waits_for_the_next_call():
    ways = {
        "recv": lambda b: b.recv(timeout=5),
        "try_recv": lambda b: b.try_recv(),
        "poll": lambda b: b.poll(),
        "recv_async": lambda b: asyncio.run(b.recv_async()),
        "iterate": lambda b: next(iter(b)),
    }
    with penstock.join("pipe:c", role="pair", codec="json") as a, penstock.join("pipe:c", role="pair") as b:
        for way in ways.values():
            a.send("fine")
            foreign(a, b"{{")
            assert b.poll() == ["fine"]
            with pytest.raises(penstock.DecodeError):
                way(b)
            assert b.try_recv() is None


def test_waits_have_a_timeout_in_the_event_loop_too():
    async def main():
        with (
            penstock.join("pipe:p", role="pair", **FULL) as a,
            penstock.join("pipe:p", role="pair") as b,
            penstock.join("pipe:r", role="request", **FULL) as asks,
            penstock.join("pipe:d", role="router", **FULL) as router,
        ):
            with pytest.raises(penstock.TimedOut, match="no message"):
                await b.recv_async(timeout=0.01)
            with pytest.raises(penstock.TimedOut, match="no message"):
                await b.recv_async(0)
            with pytest.raises(penstock.TimedOut, match="fewer than 3"):
                await a.wait_for_readers_async(3, timeout=0.01)
            await a.wait_for_readers_async(1)
            assert [await a.send_async(b"x") for _ in range(2)] == [64, 128]
            with pytest.raises(penstock.TimedOut, match="2 messages wait"):
                await a.send_async(b"x", timeout=0.01)
            sent = asyncio.create_task(a.send_async(b"late"))
            assert [await b.recv_async() for _ in range(2)] == [b"x", b"x"]
            assert b.try_recv() is None  # asking for more acknowledges: now there is room
            assert await asyncio.wait_for(sent, 5) == 192
            assert await b.recv_async(5) == b"late"
            with pytest.raises(penstock.TimedOut, match="no room"):
                await asks.submit_async(b"nobody", timeout=0.01)
            with penstock.join("pipe:r", role="reply", name="s") as replies:
                pending = await asks.submit_async(b"ask", timeout=5)
                with pytest.raises(penstock.TimedOut, match="no reply"):
                    await pending.result_async(timeout=0.01)
                served = asyncio.create_task(replies.serve_async(upper, 2))
                assert await pending.result_async(5) == b"ASK"
                assert await asks.request_async(b"again", 5) == b"AGAIN"
                await asyncio.wait_for(served, 5)
                assert await pending.result_async(0) == b"ASK"
                ends = asyncio.create_task(replies.serve_async(upper))
                await asyncio.sleep(0)
                replies.close()
                assert await asyncio.wait_for(ends, 5) is None
            with penstock.join("pipe:d", role="dealer", name="d"):
                assert await router.send_async(b"x", to="d") == 64
                await router.send_async(b"x", to="d")
                with pytest.raises(penstock.TimedOut):
                    await router.send_async(b"x", 0.01, to="d")
                late = asyncio.create_task(router.send_async(b"x", to="d"))
                await asyncio.sleep(0)
            with pytest.raises(penstock.Disconnected, match="gone"):
                await asyncio.wait_for(late, 5)

    async def upper(body):
        await asyncio.sleep(0)
        return body.upper()

    asyncio.run(main())


def test_a_reply_is_awaited_and_says_whether_anybody_was_there():
    async def main():
        with penstock.join("pipe:r", role="reply") as replies:
            with penstock.join("pipe:r", role="request") as asks:
                pending = asks.submit(b"a", 5)
                request = await replies.recv_async(5)
                assert await request.reply_async(b"b", 5)
                assert await pending.result_async(5) == b"b"
            assert not await request.reply_async(b"nobody")

    asyncio.run(main())


def test_sockets_of_one_process_alone():
    uri = "fake:pipe:f"
    with penstock.join(uri, role="pair", name="a") as a, penstock.join(uri, role="pair", name="b") as b:
        with pytest.raises(penstock.NotFound):
            penstock.inspect("pipe:f")
        assert a.channel == uri
        assert a.peers == ["b"]
        a.send([b"two", b"parts"])
        assert b.recv(timeout=5) == [b"two", b"parts"]
        assert a.statistics().totals.messages_sent == 1
        assert penstock.inspect(uri).position == a.send_position
    penstock.remove(uri)


def test_pipes_are_switched_by_the_environment(monkeypatch, channel_folder):
    monkeypatch.setenv("PENSTOCK_FAKE", "1")
    with penstock.subscribe("pipe:sw") as early, penstock.publish("pipe:sw", codec="json") as push:
        assert not list(channel_folder.iterdir())
        push.send([1])
        assert early.recv(timeout=5) == [1]
        with testing.hold("pipe:sw") as step:
            push.send([2])
            push.send([3])
            assert early.try_recv() is None
            step.deliver()
            assert early.try_recv() == [2]
            assert early.try_recv() is None
        assert early.try_recv() == [3]
        assert push.position == early.position == 3 * framed(b"[1]")
    penstock.remove("pipe:sw")
    monkeypatch.delenv("PENSTOCK_FAKE")
    with pytest.raises(penstock.NotFound):
        penstock.inspect("pipe:sw")


def test_a_test_steps_what_sockets_receive(monkeypatch):
    monkeypatch.setenv("PENSTOCK_FAKE", "pipe")
    found = []

    def ask(asks):
        try:
            found.append(asks.request(b"ask"))
        except penstock.TimedOut as error:
            found.append(error)

    with (
        penstock.join("pipe:step", role="request") as asks,
        penstock.join("pipe:step", role="reply") as replies,
        testing.hold("pipe:step") as step,
    ):
        asking = threading.Thread(target=ask, args=(asks,))
        asking.start()
        step.await_waiting()
        assert replies.try_recv() is None
        step.deliver()
        assert replies.recv(timeout=5).reply(b"now")
        asking.join(5)
        assert found == [b"now"]
        asking = threading.Thread(target=ask, args=(asks,))
        asking.start()
        step.await_waiting()
        step.expire()
        asking.join(5)
        assert isinstance(found[1], penstock.TimedOut)
    penstock.remove("pipe:step")
