"""Peers of a pipe channel that answer each other: pairs, requests and replies, dealers and routers."""

import asyncio
import multiprocessing as mp
import os
import signal
import threading
import time

import pytest

import penstock
from penstock.kinds.pipe.socket_base import pack, unpack

MOMENT = threading.Event()
forks = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def test_a_pair_talks_both_ways_and_refuses_a_third():
    with penstock.join("pipe:p", role="pair", name="a") as a, penstock.join("pipe:p", role="pair", name="b") as b:
        a.send(b"hi")
        b.send("grüße".encode())
        assert (b.recv(timeout=1), a.recv(timeout=1)) == (b"hi", "grüße".encode())
        assert (a.peers, b.peers, a.name) == (["b"], ["a"], "a")
        assert a.try_recv() is None
        with pytest.raises(TimeoutError):
            a.recv(timeout=0.01)
        with pytest.raises(penstock.Busy, match="a pair has two peers"):
            penstock.join("pipe:p", role="pair")
        b.close()
        with penstock.join("pipe:p", role="pair", name="c") as c:
            c.send(b"I am new")
            assert a.recv(timeout=1) == b"I am new"
            a.send(b"welcome")
            assert c.recv(timeout=1) == b"welcome"


def test_messages_of_several_parts_arrive_at_once():
    with penstock.join("pipe:p", role="pair") as a, penstock.join("pipe:p", role="pair") as b:
        for parts in ([b"x", b"", b"yz"], [], [bytearray(b"text"), memoryview(b"abc")]):
            a.send(parts)
        assert [b.recv(timeout=1) for _ in range(3)] == [[b"x", b"", b"yz"], [], [b"text", b"abc"]]
    data, kind = pack("pipe:p", [b"x", b"yy"])
    for wrong in (data[:-1], data + b"z", b"", b"\xff\xff\xff\xff" + data):
        with pytest.raises(penstock.Invalid):
            unpack(wrong, kind)


@pytest.mark.parametrize("part", [5, None, [1, 2], 1.5, "text"])
def test_a_part_that_is_no_bytes_is_an_error(part):
    with penstock.join("pipe:p", role="pair") as a, penstock.join("pipe:p", role="pair") as b:
        with pytest.raises(TypeError, match="bytes-like"):
            a.send([b"x", part])
        assert b.try_recv() is None


def test_the_mark_holds_and_policies_are_chosen():
    with penstock.join("pipe:m", role="pair", max_messages=3) as a, penstock.join("pipe:m", role="pair") as b:
        assert [a.offer(b"x") for _ in range(4)] == [64, 128, 192, None]
        with pytest.raises(TimeoutError, match="3 messages wait"):
            a.send(b"x", timeout=0.01)
        assert b.recv() == b"x"
        assert a.offer(b"x")


@forks
def test_a_request_of_the_parent_ends_in_a_forked_child():
    """The reply goes to the parent: the child must not wait for it for ever, nor ask another server in its parent's name."""
    with penstock.join("pipe:rpc", role="request") as ask, penstock.join("pipe:rpc", role="reply") as serve:
        pending = ask.submit(b"q", retries=1)
        pid = os.fork()
        if pid == 0:
            signal.alarm(20)
            told = []
            for wait in (pending.result, lambda: asyncio.run(pending.result_async())):
                try:
                    wait()
                except penstock.Disconnected as error:
                    told.append("its parent" in str(error))
            os._exit(0 if told == [True, True] else 1)
        assert os.waitpid(pid, 0)[1] == 0
        serve.recv(timeout=5).reply(b"a")
        assert pending.result(timeout=5) == b"a"


def test_requests_are_answered_in_any_order():
    with penstock.join("pipe:rpc", role="request") as ask, penstock.join("pipe:rpc", role="reply", name="s") as serve:
        pending = [ask.submit(b"%d" % i) for i in range(20)]
        requests = [serve.recv(timeout=1) for _ in range(20)]
        for request in reversed(requests):
            assert request.reply(b"re " + request.body)
        assert [p.result(timeout=1) for p in pending] == [b"re %d" % i for i in range(20)]
        assert requests[0].sender == ask.name
        with pytest.raises(TimeoutError, match="no reply"):
            ask.request(b"slow", timeout=0.03)
        assert serve.recv(timeout=1).reply(b"too late")
        threading.Timer(0.02, lambda: serve.recv(timeout=5).reply([b"two", b"parts"])).start()
        assert ask.request([b"a", b"b"], timeout=5) == [b"two", b"parts"]
        assert ask.late == 1
        gone = ask.submit(b"gone")
        gone.cancel()
        assert serve.recv(timeout=1).reply(b"?")


def test_a_request_that_cannot_be_sent_leaves_nothing_behind():
    with (
        penstock.join("pipe:rpc", role="request", codec="json") as ask,
        penstock.join("pipe:rpc", role="reply") as serve,
    ):
        for send in (ask.request, ask.submit):
            with pytest.raises(penstock.Invalid):
                send({"no JSON": object()})
            with pytest.raises(penstock.TooLarge):
                send("x" * (1 << 20))
        assert not ask._requests.entries
        threading.Timer(0.02, lambda: serve.recv(timeout=5).reply("well")).start()
        assert (ask.request("is it?", timeout=5), ask.late, ask._requests.entries) == ("well", 0, {})


def test_servers_share_the_requests():
    with penstock.join("pipe:rpc", role="request") as ask:
        servers = [penstock.join("pipe:rpc", role="reply", name=f"s{i}", spin=0.0) for i in range(3)]
        threads = [threading.Thread(target=s.serve, args=(lambda body, s=s: s.name.encode(),)) for s in servers]
        for thread in threads:
            thread.start()
        assert sorted(ask.peers) == ["s0", "s1", "s2"]
        names = [ask.request(b"who", timeout=5) for _ in range(9)]
        assert sorted(names) == sorted([b"s0", b"s1", b"s2"] * 3)
        for server, thread in zip(servers, threads, strict=True):
            server.close()
            thread.join(5)
            assert not thread.is_alive()


def _serve_and_die(path, name, wait):
    os.environ["PENSTOCK_DIR"] = path
    server = penstock.join("pipe:rpc", role="reply", name=name)
    server.recv(timeout=20)
    MOMENT.wait(wait)
    os.kill(os.getpid(), signal.SIGKILL)


@forks
def test_a_dead_server_is_an_error_and_the_next_is_asked():
    with penstock.join("pipe:rpc", role="request") as ask:
        child = mp.get_context("fork").Process(target=_serve_and_die, args=(os.environ["PENSTOCK_DIR"], "doomed", 0.5))
        child.start()
        ask.wait_for_readers(1, timeout=20)
        begun = time.monotonic()
        with pytest.raises(penstock.Disconnected, match="server died"):
            ask.request(b"x", timeout=20)
        assert time.monotonic() - begun < 5
        child.join(20)
        with pytest.raises(penstock.Disconnected, match="left or died"):
            ask.request(b"nobody")
        with pytest.raises(TimeoutError):  # it may wait for the next server
            ask.request(b"nobody", timeout=0.05, retries=1)
        child = mp.get_context("fork").Process(target=_serve_and_die, args=(os.environ["PENSTOCK_DIR"], "doomed", 0.5))
        child.start()
        ask.wait_for_readers(1, timeout=20)
        pending = ask.submit(b"again", retries=1)
        with penstock.join("pipe:rpc", role="reply", name="alive", spin=0.0) as alive:
            thread = threading.Thread(target=alive.serve, args=(lambda body: b"done " + body, 1))
            thread.start()
            assert pending.result(timeout=20) == b"done again"
            thread.join(5)
        child.join(20)


@forks
def test_arequest_learns_that_its_server_died_and_asks_another():
    with penstock.join("pipe:rpc", role="request") as ask:

        def doomed():
            child = mp.get_context("fork").Process(
                target=_serve_and_die, args=(os.environ["PENSTOCK_DIR"], "doomed", 0.5)
            )
            child.start()
            ask.wait_for_readers(1, timeout=20)
            return child

        child = doomed()
        with pytest.raises(penstock.Disconnected, match="server died"):
            asyncio.run(ask.request_async(b"x", timeout=20))
        child.join(20)
        child = doomed()

        async def asked():
            task = asyncio.create_task(ask.request_async(b"again", timeout=20, retries=1))
            while child.is_alive():  # nobody else is there, and the loop goes on
                await asyncio.sleep(0.002)
            with penstock.join("pipe:rpc", role="reply", name="alive", spin=0.0) as alive:
                thread = threading.Thread(target=alive.serve, args=(lambda body: b"done " + body, 1))
                thread.start()
                assert await task == b"done again"
                thread.join(5)

        asyncio.run(asked())
        child.join(20)
        with pytest.raises(penstock.Disconnected, match="left or died"):
            asyncio.run(ask.request_async(b"nobody"))
        with pytest.raises(TimeoutError, match="no reply"):  # it may wait for the next server
            asyncio.run(ask.request_async(b"nobody", timeout=0.01, retries=1))


def test_tasks_and_threads_share_a_requester():
    with penstock.join("pipe:rpc", role="request") as ask, penstock.join("pipe:rpc", role="reply", name="s") as serve:
        threading.Thread(target=serve.serve, args=(lambda body: b"re " + body,)).start()

        def plain(who):
            return [ask.request(b"%d %d" % (who, i), timeout=20) for i in range(100)]

        async def tasks(who):
            every = [ask.request_async(b"%d %d" % (who, i)) for i in range(100)]
            threads = [asyncio.to_thread(plain, who + 1)]
            return await asyncio.wait_for(asyncio.gather(*every, *threads), 20)

        for who in (0, 2):  # a loop after another
            *awaited, threaded = asyncio.run(tasks(who))
            assert awaited == [b"re %d %d" % (who, i) for i in range(100)]
            assert threaded == [b"re %d %d" % (who + 1, i) for i in range(100)]
        serve.close()


@forks
def test_a_reply_to_the_dead_is_no_error():
    with penstock.join("pipe:rpc", role="reply") as serve:
        pid = os.fork()
        if pid == 0:
            penstock.join("pipe:rpc", role="request").submit(b"x")
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(pid, 0)
        request = serve.recv(timeout=5)
        assert request.body == b"x"
        deadline = time.monotonic() + 5
        while request.reply(b"?") and time.monotonic() < deadline:
            MOMENT.wait(0.002)
        assert not request.reply(b"?")


def test_a_router_addresses_dealers_by_name():
    with penstock.join("pipe:d", role="router", name="r") as router:
        dealers = [penstock.join("pipe:d", role="dealer", name=f"d{i}") for i in range(3)]
        for i, dealer in enumerate(dealers):
            dealer.send(b"%d" % i)
        assert {tuple(router.recv(timeout=1)) for _ in dealers} == {(f"d{i}", b"%d" % i) for i in range(3)}
        router.send([b"for", b"you"], to="d1")
        assert dealers[1].recv(timeout=1) == [b"for", b"you"]
        assert dealers[0].try_recv() is None
        with pytest.raises(penstock.Disconnected, match="d0, d1, d2"):
            router.send(b"", to="d9")
        for wrong in (None, 1):
            with pytest.raises(penstock.Invalid, match=rf"^pipe:d: to is {wrong}: it must be the name of a dealer"):
                router.send(b"", to=wrong)
            with pytest.raises(penstock.Invalid, match="to is "):
                router.offer_many([b""], to=wrong)
        with pytest.raises(
            penstock.Invalid, match=r"role 'pair' cannot join a channel with a member of role '.*': use another channel"
        ):
            penstock.join("pipe:d", role="pair")
        for dealer in dealers:
            dealer.close()
        assert router.peers == []


def test_asyncio_and_wait():
    with (
        penstock.join("pipe:rpc", role="request") as ask,
        penstock.join("pipe:rpc", role="reply") as serve,
        penstock.join("pipe:p", role="pair") as a,
        penstock.join("pipe:p", role="pair") as b,
    ):

        async def server():
            for _ in range(3):
                request = await serve.recv_async()
                await asyncio.sleep(0.01)
                request.reply(request.body * 2)

        async def all_of_it():
            task = asyncio.create_task(server())
            got = await asyncio.wait_for(asyncio.gather(*(ask.request_async(b"%d" % i) for i in range(3))), 10)
            await task
            a.send(b"1")
            first = await asyncio.wait_for(b.recv_async(), 5)
            a.send(b"2")
            async for message in b:
                return got, first, message
            return None

        assert asyncio.run(all_of_it()) == ([b"00", b"11", b"22"], b"1", b"2")
        assert penstock.wait([b, serve], timeout=0) == []
        ask.submit(b"x")
        assert penstock.wait([b, serve], timeout=5) == [serve]


def _child(path, results):
    os.environ["PENSTOCK_DIR"] = path
    with penstock.join("pipe:rpc", role="request") as ask:
        results.put([ask.request(b"%d" % i, timeout=20) for i in range(200)])


@forks
@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_several_processes_ask_one(how):
    context = mp.get_context(how)
    results = context.SimpleQueue()
    with penstock.join("pipe:rpc", role="reply") as serve:
        children = [context.Process(target=_child, args=(os.environ["PENSTOCK_DIR"], results)) for _ in range(3)]
        for child in children:
            child.start()
        serve.serve(lambda body: b"r" + body, 600)
        for child in children:
            assert results.get() == [b"r%d" % i for i in range(200)]
            child.join(20)


def test_nonsense_is_refused_with_a_reason():
    with pytest.raises(penstock.Invalid, match="role is None"):
        penstock.join("pipe:x")
    with pytest.raises(penstock.Invalid, match="publish"):
        penstock.join("pipe:x", role="push")
    with pytest.raises(penstock.Invalid, match="nothing to join"):
        penstock.join("log:x")
    with pytest.raises(penstock.Invalid):
        penstock.join("pipe:x", role="pair", when_full="never")
    with pytest.raises(TypeError):
        penstock.join("pipe:x", role="pair", colour="red")
    pair = penstock.join("pipe:x", role="pair")
    with pytest.raises(penstock.TooLarge):
        pair.send(bytes(1 << 20))
    pair.close()
    pair.close()
    with pytest.raises(penstock.Closed):
        pair.recv(timeout=1)
    with pytest.raises(penstock.Closed):
        pair.send(b"x")


@pytest.mark.parametrize("role", ["pair", "request", "reply", "dealer", "router"])
def test_publications_and_sockets_do_not_mix(role):
    with penstock.join("pipe:mixed", role=role):
        for verb in (penstock.publish, penstock.subscribe):
            with pytest.raises(penstock.Invalid, match=f"cannot join a channel with a member of role '{role}'"):
                verb("pipe:mixed")
    penstock.remove("pipe:mixed")
    with (
        penstock.publish("pipe:mixed"),
        pytest.raises(penstock.Invalid, match=f"role '{role}' cannot join a channel with a member of role 'push'"),
    ):
        penstock.join("pipe:mixed", role=role)
