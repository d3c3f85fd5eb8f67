"""Answers of a hostile server, of one that is slow, and how many calls a check makes."""

import contextlib
import itertools
import json
import threading
import time

import pytest

import penstock
from penstock.cli import run
from penstock.errors import SystemFailure
from penstock.util.files import served_files
from penstock.util.files.served_files import ServedFiles
from penstock.util.patient_calls import Attempt, PatientCalls, Unfinished, within

flight = pytest.importorskip("pyarrow.flight")
PATIENCE = 60


@pytest.fixture
def hostile(monkeypatch):
    """A server that gives what a test says in place of an action's results."""
    answers = {}

    class Hostile(flight.FlightServerBase):
        def do_action(self, context, action):
            return (flight.Result(piece) for piece in answers[action.type])

    with Hostile("grpc://127.0.0.1:0") as server:
        yield f"grpc://127.0.0.1:{server.port}", answers
        server.shutdown()


FOLDER = json.dumps([["", "folder", 0, 0]]).encode()
ABOUT = {"live": False, "tags": ["", ""], "bytes": [], "older": [], "newer": []}


def look_of(head):
    raw = json.dumps(head).encode()
    return [b"{}", str(len(raw)).encode(), raw]


@pytest.mark.parametrize(
    "answer",
    [
        [],
        [b"\xff{"],
        [b"[" * 100_000],
        [b"{}", b"5"],
        [b"{}", b"-5"],
        look_of({"../../../x": ABOUT}),
        look_of({"00000001": {**ABOUT, "older": [["a", -1, 0]]}}),
        look_of({"00000001": {**ABOUT, "older": [["../a", 1, 0]]}}),
        look_of({"00000001": {**ABOUT, "newer": [["a", 1, 10**400]]}}),
        look_of({"00000001": {**ABOUT, "bytes": [["a", 5]]}}),
        look_of({"00000001": {"live": False, "tags": ["", ""], "bytes": []}}),
    ],
)
def test_an_answer_of_another_form_is_refused(hostile, answer, capsys):
    uri, answers = hostile
    answers |= {"stat": [b"{}", FOLDER.replace(b'""', b'"/recordings"')], "look": answer}
    assert run(["recordings", uri]) == 1
    said = capsys.readouterr().err
    assert "answers what is no answer of penstock serve" in said
    assert "fault of" not in said


def test_more_bytes_than_asked_for_are_refused(hostile):
    uri, answers = hostile
    files = served_files.files_at(uri)
    answers["read"] = [b"{}", bytes(101)]
    with pytest.raises(SystemFailure, match="more than the 100 bytes"):
        files.call("read", path="/archive", offset=0, length=100)
    answers["look"] = itertools.chain([b"{}"], itertools.repeat(bytes(1 << 20)))
    with pytest.raises(SystemFailure, match=r"more than the .* bytes"):
        files.look({}, None)


def test_a_deadline_leaves_a_call_that_goes_on():
    """The same call, with a deadline again, gets its result."""
    calls, answer = PatientCalls("far"), threading.Event()
    begun = []

    def call():
        begun.append(1)
        answer.wait(PATIENCE)
        return 5

    for _ in range(3):
        with within(0.01), pytest.raises(Unfinished, match="far has not answered yet"):
            calls.run("a", call)
    answer.set()
    with within(PATIENCE):
        assert calls.run("a", call) == 5
    assert len(begun) == 1
    assert calls.run("a", call) == 5
    assert len(begun) == 2, "without a deadline a call is always a new one"


def test_what_needs_many_calls_gets_on_between_short_deadlines():
    """Each call takes longer than a deadline leaves, and each try begins with the first one."""
    calls, attempt, made = PatientCalls("far"), Attempt(), []

    def call(number):
        made.append(number)
        time.sleep(0.03)
        return number

    def chain():
        return [calls.run(number, lambda number=number: call(number)) for number in range(8)]

    for _ in range(50):
        with contextlib.suppress(Unfinished), within(0.02, attempt):
            found = chain()
            break
        time.sleep(0.02)
    assert found == made == list(range(8))
    with within(PATIENCE, attempt):
        assert chain() == list(range(8))
    assert made == [*range(8), *range(8)], "what was done is asked again"


def test_verify_asks_once_for_many_blocks(archive, monkeypatch):
    with penstock.publish("log:a") as pub, archive.record("log:a"):
        for number in range(50):
            pub.send(b"a message")
            while archive.find(1).messages <= number:  # a block each
                time.sleep(0.001)
    asked, plain = [], ServedFiles.call
    monkeypatch.setattr(ServedFiles, "call", lambda self, action, **a: asked.append(action) or plain(self, action, **a))
    with archive.serve("127.0.0.1:0") as server:
        assert penstock.Archive(server.uri).verify() == []
    assert asked.count("read") < 15
