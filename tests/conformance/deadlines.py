"""Every call that waits, on handles in every state, in a process of its own: the test watches it, and kills it if it hangs."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

from conformance.sockets import Meeting
from conformance.subjects import PATIENCE, Place

import penstock

LONG = 0.2  # seconds: the longest wait
MOST = 0.12  # seconds of computing in all such waits at once

Call = tuple[str, Callable[[float], Any]]
State = Callable[[Any], Iterator[Any]]
forked = multiprocessing.get_context("forkserver")


def _wait(awaited: Callable[[], Any]) -> Any:
    async def work() -> Any:
        return await awaited()

    return asyncio.run(work())


def _abort(claim: Any) -> None:
    claim.__enter__()
    claim.abort()


def _borrowed(sub: Any, limit: float) -> None:
    with sub.borrow(timeout=limit):
        pass


def reading(sub: Any) -> list[Call]:
    """The calls that wait for a message, each for so many seconds at most, and the calls that never wait."""
    return [
        ("recv", lambda limit: sub.recv(timeout=limit)),
        ("borrow", lambda limit: _borrowed(sub, limit)),
        ("wait", lambda limit: penstock.wait([sub], limit)),
        ("wait_async", lambda limit: _wait(lambda: penstock.wait_async([sub], limit))),
        ("recv_async", lambda limit: _wait(lambda: sub.recv_async(timeout=limit))),
        ("borrow_async", lambda limit: _wait(lambda: sub.borrow_async(timeout=limit))),
        ("fileno", lambda limit: select.select([sub], [], [], limit)),
        ("try_recv", lambda limit: sub.try_recv()),
        ("poll", lambda limit: sub.poll()),
        ("poll_arrow", lambda limit: sub.poll_arrow()),
        ("statistics", lambda limit: sub.statistics()),
    ]


def writing(pub: Any, message: Any, to: dict[str, str] | None = None) -> list[Call]:
    """The calls that wait for room or for readers, and the calls that never wait."""
    to, length = to or {}, memoryview(message).nbytes
    return [
        ("send", lambda limit: pub.send(message, timeout=limit, **to)),
        ("send_async", lambda limit: _wait(lambda: pub.send_async(message, timeout=limit, **to))),
        ("claim", lambda limit: _abort(pub.claim(length, timeout=limit, **to))),
        ("claim_async", lambda limit: _abort(_wait(lambda: pub.claim_async(length, timeout=limit, **to)))),
        ("offer", lambda limit: pub.offer(message, **to)),
        ("offer_many", lambda limit: pub.offer_many([message] * 3, **to)),
        *joining(pub),
    ]


def asking(socket: Any) -> list[Call]:
    """The calls that wait for an answer."""
    return [
        ("request", lambda limit: socket.request(b"x", timeout=limit)),
        ("request_async", lambda limit: _wait(lambda: socket.request_async(b"x", timeout=limit))),
        ("submit", lambda limit: socket.submit(b"x", timeout=limit).result(limit)),
        *joining(socket),
    ]


def joining(handle: Any) -> list[Call]:
    """The calls that wait for readers."""
    return [
        ("wait_for_readers", lambda limit: handle.wait_for_readers(9, timeout=limit)),
        ("wait_for_readers_async", lambda limit: _wait(lambda: handle.wait_for_readers_async(9, timeout=limit))),
    ]


def killed(body: Callable[[], Any]) -> None:
    """Runs `body` in a forked child, which then dies as one that was killed."""
    child = os.fork()
    if not child:
        try:
            body()
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)


def _tried(name: str, call: Callable[[float], Any], limit: float, told: Connection) -> None:
    """One call: it returns, or raises one of the library's errors."""
    told.send(f"{name}(timeout={limit})")
    with contextlib.suppress(penstock.PenstockError):
        call(limit)


def _computed(work: Callable[[], None]) -> float:
    before = time.process_time()
    work()
    return time.process_time() - before


def _together(calls: list[Call], told: Connection) -> None:
    """All calls at once, each in a thread. They compute little; one that computes all the time is then named."""
    failed: list[BaseException] = []

    def one(call: Callable[[float], Any]) -> None:
        try:
            call(LONG)
        except penstock.PenstockError:
            pass
        except BaseException as error:
            failed.append(error)

    def work() -> None:
        threads = [(name, threading.Thread(target=one, args=(call,), daemon=True)) for name, call in calls]
        for _, thread in threads:
            thread.start()
        for name, thread in threads:
            told.send(f"{name}(timeout={LONG}), beside all others")
            thread.join()

    if _computed(work) > MOST:
        for name, call in calls:
            spent = _computed(lambda name=name, call=call: _tried(name, call, LONG, told))  # type: ignore[misc]
            assert spent < MOST, f"{name}(timeout={LONG}) computed for {spent:.2f} s"
    if failed:
        raise failed[0]


def _ends(handle: Any) -> None:
    """A loop over a handle that another thread closes."""
    closer = threading.Timer(0.03, handle.close)
    closer.start()
    for _ in handle:
        pass
    closer.join()


def _work(made: Place | Meeting, state: State, loops: bool, channels: str, told: Connection) -> None:
    os.environ["PENSTOCK_DIR"] = channels  # the server of forks began with that of another test
    try:
        for calls, handle in state(made):
            for name, call in calls:
                _tried(name, call, 0, told)
            _together(calls, told)
            if loops and handle is not None:
                told.send("a loop that close() ends")
                _ends(handle)
        told.send("closing")
        made.close()
        told.send(None)
    except BaseException as error:
        told.send(error if isinstance(error, AssertionError) else AssertionError(repr(error)))
        raise


def keeps(made: Place | Meeting, state: State, *, loops: bool = False) -> None:
    """Runs all calls on the handles of a state. A call that does not return fails, and so does an error that is not the library's."""
    here, there = forked.Pipe(duplex=False)
    child = forked.Process(target=_work, args=(made, state, loops, os.environ["PENSTOCK_DIR"], there))
    child.start()
    there.close()
    last: Any = "the start"
    try:
        while True:
            assert here.poll(PATIENCE), f"hangs in {last}"
            try:
                last = here.recv()
            except EOFError:
                raise AssertionError(f"died in {last}") from None
            if last is None:
                break
            if isinstance(last, AssertionError):
                raise last
        child.join(PATIENCE)
        assert not child.is_alive(), "hangs at its end"
    finally:
        child.kill()
        child.join()
