"""Functions that users hand in, and what happens when they return what is of no use, or raise."""

from __future__ import annotations

import asyncio
import re
import threading

import pytest

import penstock


@pytest.fixture(params=["pipe:rpc", "fake:pipe:rpc"])
def uri(request):
    yield request.param
    penstock.remove(request.param)


def returns_none(body):
    return None


def returns_number(body):
    return 7


async def waits(body):
    return body


def fails(body):
    raise ZeroDivisionError("no such thing")


async def fails_later(body):
    raise ZeroDivisionError("no such thing")


async def returns_nothing_later(body):
    return None


def serve(server, answer, found, method="serve", count=None):
    def run():
        try:
            called = getattr(server, method)(answer, count)
            asyncio.run(called) if method == "serve_async" else None
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


WRONG = {
    returns_none: "returned None, and serve takes its result as the reply: bytes, another buffer, or a list of those",
    returns_number: r"returned int \(7\), and serve takes",
    waits: "is a coroutine function: serve takes a function; use serve_async",
}
WRONG_LATER = {
    returns_nothing_later: "returned None, and serve_async takes",
    returns_none: "returned NoneType: serve_async takes a coroutine function; use serve",
}


@pytest.mark.parametrize("count", [1, None])
@pytest.mark.parametrize("answer", WRONG, ids=lambda function: function.__name__)
def test_a_wrong_answer_names_the_function_on_both_sides(uri, answer, count):
    with penstock.join(uri, role="reply") as server, penstock.join(uri, role="request") as ask:
        found = []
        thread = serve(server, answer, found, count=count)
        with pytest.raises(penstock.ServerError, match=rf"^{re.escape(uri)}: .*{answer.__name__} {WRONG[answer]}"):
            ask.request(b"x", timeout=20)
        thread.join(60)
        with pytest.raises(TypeError, match=rf"^{re.escape(uri)}: .*{answer.__name__} {WRONG[answer]}"):
            raise found[0]
        thread = serve(server, lambda body: body, [], count=1)  # and it goes on
        assert ask.request(b"y", timeout=20) == b"y"
        thread.join(60)


@pytest.mark.parametrize("answer", WRONG_LATER, ids=lambda function: function.__name__)
def test_a_wrong_answer_of_a_coroutine_function(uri, answer):
    with penstock.join(uri, role="reply") as server, penstock.join(uri, role="request") as ask:
        found = []
        thread = serve(server, answer, found, "serve_async")
        with pytest.raises(penstock.ServerError, match=rf"{answer.__name__} {WRONG_LATER[answer]}"):
            asyncio.run(ask.request_async(b"x", timeout=20))
        thread.join(60)
        with pytest.raises(TypeError, match=rf"^{uri}: .*{answer.__name__}"):
            raise found[0]


@pytest.mark.parametrize(("answer", "method"), [(fails, "serve"), (fails_later, "serve_async")])
def test_a_function_that_raises_is_an_error_on_both_sides(uri, answer, method):
    with penstock.join(uri, role="reply") as server, penstock.join(uri, role="request") as ask:
        found = []
        thread = serve(server, answer, found, method)
        pending = ask.submit(b"x")
        with pytest.raises(penstock.ServerError, match=f"{answer.__name__} raised ZeroDivisionError: no such thing"):
            pending.result(timeout=20)
        thread.join(60)
        with pytest.raises(ZeroDivisionError, match="no such thing"):
            raise found[0]


@pytest.mark.parametrize("method", ["serve", "serve_async"])
def test_a_result_that_the_codec_cannot_carry_names_the_function(uri, method):
    def plain(body):
        return {1, 2, object()}

    async def later(body):
        return plain(body)

    with penstock.join(uri, role="reply", codec="json") as server, penstock.join(uri, role="request") as ask:
        found = []
        thread = serve(server, plain if method == "serve" else later, found, method)
        with pytest.raises(penstock.ServerError, match=rf"returned set .*and {method} takes its result as the reply"):
            ask.request([1], timeout=20)
        thread.join(60)
        with pytest.raises(penstock.Invalid, match=rf"^{uri}: .*returned set"):
            raise found[0]


@pytest.mark.parametrize("answer", WRONG, ids=lambda function: function.__name__)
def test_a_wrong_answer_over_zeromq_names_the_function(tmp_path, answer):
    pytest.importorskip("zmq")
    uri = f"zmq+ipc://{tmp_path}/rpc"
    with (
        penstock.join(uri, role="reply", linger=0) as server,
        penstock.join(uri, role="request", linger=0) as ask,
    ):
        found = []
        thread = serve(server, answer, found)
        ask.submit(b"x", timeout=60)
        thread.join(60)
        with pytest.raises(TypeError, match=rf"^{re.escape(uri)}: .*{answer.__name__} {WRONG[answer]}"):
            raise found[0]


def test_pipes_between_threads_can_be_subscripted():
    assert penstock.threads.Pipe[int].__origin__ is penstock.threads.Pipe
    assert penstock.threads.Mailbox[dict[str, int]].__args__ == (dict[str, int],)
    pipe = penstock.threads.Pipe[int]()
    pipe.put(1)
    assert pipe.get(timeout=1) == 1
