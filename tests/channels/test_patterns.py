"""Peers of the patterns are read in the same ways, whatever carries their messages."""

import asyncio
import threading
import time

import pytest

import penstock


@pytest.fixture(params=["pipe", "zmq+ipc"])
def uri(request, tmp_path):
    if request.param == "pipe":
        return "pipe:patterns"
    pytest.importorskip("zmq")
    return f"zmq+ipc://{tmp_path / 'socket'}"


def test_a_router_is_read_in_every_way(uri):
    with penstock.join(uri, role="router") as router, penstock.join(uri, role="dealer", name="dée") as dealer:
        assert router.try_recv() is None
        for i in range(5):
            dealer.send([b"%d" % i, b"parts"])
        expected = [("dée", [b"%d" % i, b"parts"]) for i in range(5)]
        messages = iter(router)
        got = [router.recv(timeout=5), asyncio.run(asyncio.wait_for(router.recv_async(), 5)), next(messages)]
        while len(got) < 4:
            found = router.try_recv()
            got += [] if found is None else [found]

        async def last():
            return await anext(aiter(router))

        got.append(asyncio.run(asyncio.wait_for(last(), 5)))
        assert got == expected
        assert (got[0].sender, got[0].body) == expected[0]
        with pytest.raises(TimeoutError, match="no message"):
            router.recv(timeout=0.01)
        ends = threading.Timer(0.05, router.close)
        ends.start()
        assert list(messages) == [], "iterating ends with the handle"


def test_a_server_is_read_in_every_way(uri):
    with penstock.join(uri, role="reply") as server, penstock.join(uri, role="request") as ask:
        assert server.try_recv() is None
        pending = [ask.submit(b"%d" % i, timeout=5) for i in range(2)]
        assert next(iter(server)).reply(b"zero")
        while (request := server.try_recv()) is None:
            pass
        assert (request.body, request.reply(b"one")) == (b"1", True)
        assert [p.result(5) for p in pending] == [b"zero", b"one"]
        served = threading.Thread(target=server.serve, args=(bytes.upper, 3))
        served.start()
        assert [ask.request(b"ab", timeout=5) for _ in range(3)] == [b"AB"] * 3
        served.join(5)
        server.serve(bytes.upper, 0)
        ends = threading.Timer(0.05, server.close)
        ends.start()
        server.serve(bytes.upper)


def test_server_checks_its_arguments_before_it_waits(uri):
    """With a request waiting, which is not lost."""
    with penstock.join(uri, role="reply") as server, penstock.join(uri, role="request") as ask:
        pending = ask.submit(b"a", timeout=5)
        calls = server.serve, lambda *given: asyncio.run(server.serve_async(*given))
        for call in calls:
            for answer in (None, 5, "x"):
                with pytest.raises(
                    penstock.Invalid, match=r": serve(_async)?\(\): answer is .*: it must be a function"
                ):
                    call(answer)
            with pytest.raises(TypeError, match=r": serve(_async)?\(\): count is a whole number, not str"):
                call(bytes.upper, "1")
            with pytest.raises(penstock.Invalid, match=r": serve(_async)?\(\): count is -1: it must be from 0"):
                call(bytes.upper, -1)
        server.serve(bytes.upper, 1)
        assert pending.result(5) == b"A"


def test_threads_share_an_iterator_of_a_handle(uri):
    """Each message goes to one of them."""
    with penstock.join(uri, role="router") as router, penstock.join(uri, role="dealer") as dealer:
        messages, got = iter(router), []

        def take():
            for message in messages:
                got.append(message.body)  # noqa: PERF401  (at once)

        threads = [threading.Thread(target=take) for _ in range(3)]
        for thread in threads:
            thread.start()
        for number in range(30):
            dealer.send([b"%d" % number, b"part"])
        while len(got) < 30 and any(thread.is_alive() for thread in threads):
            time.sleep(0.001)
        assert sorted(int(body[0]) for body in got) == list(range(30))
        router.close()
        for thread in threads:
            thread.join()


def test_tasks_share_an_iterator_of_a_handle(uri):
    async def two(router):
        messages = aiter(router)
        return await asyncio.gather(anext(messages), anext(messages))

    with penstock.join(uri, role="router") as router, penstock.join(uri, role="dealer") as dealer:
        for number in range(2):
            dealer.send([b"%d" % number, b"part"])
        assert sorted(one.body for one in asyncio.run(asyncio.wait_for(two(router), 60))) == [
            [b"0", b"part"],
            [b"1", b"part"],
        ]


def test_requester_checks_its_retries(uri):
    with penstock.join(uri, role="reply"), penstock.join(uri, role="request") as ask:
        calls = [ask.request, lambda *given, **named: asyncio.run(ask.request_async(*given, **named))]
        for call in calls + ([ask.submit] if uri.startswith("pipe") else []):
            for retries in ("1", None, 1.5):
                with pytest.raises(TypeError, match=r"\(\): retries is a whole number, not"):
                    call(b"a", 0, retries=retries)
            with pytest.raises(penstock.Invalid, match=r"\(\): retries is -1: it must be from 0"):
                call(b"a", 0, retries=-1)
