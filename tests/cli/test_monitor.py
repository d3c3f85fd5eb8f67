"""`penstock monitor` over plain HTTP: its gate, its looks, what they cost, recordings and tables, and how it ends."""

import http.client
import json
import os
import queue
import signal
import subprocess
import sys
import threading

import pytest

import penstock
from penstock import cli
from penstock._native.core import command_of
from penstock.channels.storage import discovery
from penstock.cli.monitor import programs, snapshots, stored

pytest.importorskip("starlette", reason="the page needs penstock[web]")
pytest.importorskip("uvicorn", reason="the page needs penstock[web]")

from penstock.cli.monitor.serving import ASSETS, Server

COMMAND = (sys.executable, "-u", "-m", "penstock", "monitor", "--port", "0")


def ask(url, path="", method="GET", **headers):
    """(status, headers, body) of a request below the page's address, or of another path if it begins with a slash."""
    _, _, place, *rest = url.split("/")
    connection = http.client.HTTPConnection(place, timeout=60)
    connection.request(method, path if path.startswith("/") else f"/{rest[0]}/{path}", headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, answer.headers, body


class Events:
    """The events of the page, as a browser reads them."""

    def __init__(self, url):
        _, _, place, token, _ = url.split("/")
        self.connection = http.client.HTTPConnection(place, timeout=60)
        self.connection.request("GET", f"/{token}/events")
        self.answer = self.connection.getresponse()
        assert self.answer.headers["Content-Type"].startswith("text/event-stream")

    def next(self):
        event = self.answer.readline().decode().split()[1]
        data = self.answer.readline().decode().removeprefix("data: ")
        assert self.answer.readline() == b"\n"
        return event, json.loads(data)


@pytest.fixture
def server():
    with Server(snapshots.Snapshots(every=0.2)) as made:
        yield made


def test_nothing_is_shown_without_the_token(server):
    assert server.url.startswith("http://127.0.0.1:")
    token = server.url.split("/")[3]
    assert len(token) >= 32
    for path in (
        "/",
        "/events",
        "/look.json",
        "/app.js",
        f"/{token[:-1]}/",
        f"/{token}x/",
        f"//{token}/",
        "/%2e%2e/",
        "",
    ):
        status, _, body = ask(server.url, path or "/")
        assert status == 403, path
        assert b"token" in body
        assert token.encode() not in body
    for path in ("", "look.json", "app.js", "style.css"):
        assert ask(server.url, path)[0] == 200


def test_requests_for_another_host_are_refused(server):
    for host in (
        "evil.example",
        "127.0.0.1.evil.example:80",
        "localhost.evil.example",
        "127.0.0.1:80@evil.example",
        "",
    ):
        assert ask(server.url, "look.json", Host=host)[0] in (400, 403), host
    for host in ("localhost", "LOCALHOST:1", "127.0.0.1:9", "[::1]:9"):
        assert ask(server.url, "look.json", Host=host)[0] == 200, host


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_written(server, method):
    for path in ("", "look.json", "events", "app.js"):
        assert ask(server.url, path, method)[0] == 405
    assert ask(server.url, "/", method)[0] == 403


def test_the_page_loads_nothing_from_elsewhere(server):
    for path in ["", *(file.name for file in ASSETS.iterdir() if file.name != "index.html")]:
        status, headers, body = ask(server.url, path)
        assert status == 200
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert "Access-Control-Allow-Origin" not in headers
        links = body.decode().replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in links
        assert "https:" not in links
        for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", " style="):
            assert way not in links, f"{path}: {way}"
    assert ask(server.url, "../serving.py")[0] in (403, 404)
    assert ask(server.url, "serving.py")[0] == 404


def test_a_look_has_the_channels_as_they_are(server):
    with penstock.publish("log:a", codec="json") as pub, penstock.subscribe("log:a") as sub:
        pub.send({"n": 1})
        pub.send({"n": 2})
        sub.recv()
        events = Events(server.url)
        event, past = events.next()
        assert event == "past"
        assert {"version", "every", "times_ms", "history", "folder"} <= past.keys()
        seen = []
        while not (rows := [row for row in seen[-1]["channels"] if row["messages_sent"] == 2] if seen else []):
            event, look = events.next()
            assert event == "look"
            seen.append(look)
        assert [look["look"] for look in seen] == sorted({look["look"] for look in seen})
        (row,) = rows
        status = penstock.inspect("log:a")
        assert (row["channel"], row["kind"], row["codec"], row["lag"]) == ("log:a", "log", "json", status.lag)
        assert {one["role"]: one["pid"] for one in row["members"]} == dict.fromkeys(
            ("publication", "subscription"), os.getpid()
        )
        program = seen[-1]["processes"][str(os.getpid())]
        assert program["command"].split()[0] in command_of(os.getpid())
        assert seen[-1]["memory"]["free"] > 0
        assert {"error", "strange", "archives", "tables", "time_ms"} <= seen[-1].keys()
        assert json.loads(ask(server.url, "look.json")[2])["channels"][0]["channel"] == "log:a"
        events.connection.close()


def test_a_new_browser_gets_the_history():
    made = snapshots.Snapshots()
    with penstock.publish("log:a") as pub:
        for _ in range(4):
            made.take()
            pub.send(b"12345678")
        past = json.loads(made.join(lambda look: None))
    assert len(past["times_ms"]) == 4
    assert [len(sample) for sample in past["history"]["log:a"]] == [5, 5, 5]
    assert all(sample[0] > 0 and sample[1] > 0 for sample in past["history"]["log:a"])


def test_browsers_share_one_look_at_two_hundred_channels():
    """The work is counted: one survey and one text per look, however many browsers there are."""
    opened = [penstock.publish(f"log:robot/{number}", term_length=1 << 16) for number in range(200)]
    surveys = []

    def survey():
        surveys.append(len(opened))
        return discovery.survey()

    made = snapshots.Snapshots(survey=survey)
    got = [queue.SimpleQueue() for _ in range(5)]
    for one in got:
        made.join(one.put)
    for _ in range(3):
        made.take()
    texts = [[one.get_nowait() for _ in range(3)] for one in got]
    assert len(surveys) == 3
    for other in texts[1:]:
        assert all(one is same for one, same in zip(texts[0], other, strict=True)), "encoded once for all"
    assert len(json.loads(texts[0][2])["channels"]) == 200
    assert len(texts[0][2]) < 200 * 1000, "less than 1 kB for a channel"
    assert len(made.join(got[0].put)) < 200 * 500
    for handle in opened:
        handle.close()


def test_a_browser_that_left_is_forgotten(server):
    events = Events(server.url)
    events.next()
    assert len(server._streams) == 1
    events.answer.close()
    events.connection.close()
    gone = threading.Event()

    def watch(look):
        if not server._streams:
            gone.set()

    server._snapshots.join(watch)
    assert gone.wait(60)


def test_recordings_and_queries(tmp_path):
    archive = penstock.Archive(tmp_path / "a")
    shown = stored.ArchiveView(tmp_path / "a")
    with penstock.publish("log:a") as pub, archive.record("log:a"):
        pub.send(b"x" * 100)
    row = shown.read()
    (info,) = archive.list()
    assert (row["error"], row["total"]) == (None, 1)
    assert row["recordings"][0]["messages"] == 1
    assert row["recordings"][0]["state"] == "closed"
    assert row["recordings"][0]["from_ms"] == info.time_min // 1_000_000
    length = info.end_position - info.start_position
    done = {("log:a", info.epoch): [(info.start_position, info.start_position + length // 2)]}
    archive.note_consumer(penstock.record.Consumer("q", None, 5_000_000, done))
    assert shown.read()["queries"] == [{"name": "q", "updated_ms": 5, "recorded": length, "read": length // 2}]
    assert "no archive" in stored.ArchiveView(tmp_path / "none").read()["error"]


def test_tables_are_counted_again_after_a_commit_only(tmp_path, monkeypatch):
    pytest.importorskip("deltalake")
    from penstock.tables import folder, pipeline
    from penstock.tables.delta import table as delta

    archive = penstock.Archive(tmp_path / "a")
    with penstock.publish("log:a", codec="json") as pub, archive.record("log:a"):
        for n in range(10):
            pub.send({"n": n})
    out = tmp_path / "t"
    shown = stored.TablesView(out)
    assert shown.read() == {"path": str(out), "error": None, "writer": None, "tables": []}
    pipeline.run(archive.path, out)
    opened = []
    original = delta.Table.open
    monkeypatch.setattr(delta.Table, "open", lambda *given: (opened.append(given), original(*given))[1])
    row = shown.read()
    assert {one["name"]: one["rows"] for one in row["tables"]} == {"messages": 10, "losses": 0, "streams/log_a": 10}
    first = len(opened)
    assert shown.read() == row
    assert len(opened) == first, "nothing was committed"
    with penstock.publish("log:a") as pub, archive.record("log:a"):
        pub.send({"n": 10})
    pipeline.run(archive.path, out)
    again = {one["name"]: one for one in shown.read()["tables"]}
    assert again["messages"]["rows"] == 11
    assert again["messages"]["version"] > 0
    with folder.locked(out):
        assert shown.read()["writer"] in (os.getpid(), None)  # some file systems are listed under other numbers
    assert shown.read()["writer"] is None


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/usr/bin/python3.11 -u sensor.py --rate 5", "sensor.py"),
        ("python -m robot.drive --fast", "robot.drive"),
        ("python -X dev -W error /srv/app/run.py", "run.py"),
        ("python -c import(1)", "python -c"),
        ("/opt/bin/planner --x", "planner"),
        ("/venv/bin/python /venv/bin/penstock record out log:a", "penstock record"),
        ("python3 -m penstock top", "penstock top"),
        (
            "python3 -c from multiprocessing.spawn import spawn_main; spawn_main(3) --multiprocessing-fork",
            "python3 child",
        ),
        ("python -c from penstock.record.recorder_process import run; run() 3", "penstock recorder"),
        ("python", "python"),
        ("", ""),
    ],
)
def test_programs_are_called_as_people_call_them(command, name):
    assert programs.name_of(command) == name


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_the_command_says_its_address_and_ends_quietly(sent):
    process = subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        assert line.startswith("serving http://127.0.0.1:")
        events = Events(line.split()[1])
        assert events.next()[0] == "past"
        process.send_signal(sent)
        rest, errors = process.communicate(timeout=60)
        assert (rest, errors) == ("", "")
        assert process.returncode == (0 if sent == signal.SIGINT else 128 + sent)
        events.connection.close()
    finally:
        process.kill()
        process.wait()


def test_errors_are_one_line(capfd, tmp_path, monkeypatch, server):
    port = server.url.split(":")[2].split("/")[0]
    assert cli.run(["monitor", "--port", port]) == 1
    assert capfd.readouterr().err == f"penstock: cannot serve on port {port}: Address already in use\n"
    assert cli.run(["monitor", "--every", "0"]) == 1
    assert capfd.readouterr().err == "penstock: --every is 0.0: it must be from 0.2 to 60 seconds\n"
    assert cli.run(["monitor", "--archive", str(tmp_path / "none")]) == 1
    assert capfd.readouterr().err == f"penstock: there is no archive at {tmp_path / 'none'}\n"
    assert cli.run(["monitor", "--tables", str(tmp_path / "none")]) == 1
    assert capfd.readouterr().err == f"penstock: there is no folder of tables at {tmp_path / 'none'}\n"
    monkeypatch.delitem(sys.modules, "penstock.cli.monitor.serving")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert cli.run(["monitor", "--port", "0"]) == 1
    assert capfd.readouterr().err == ("penstock: the monitor needs uvicorn: pip install 'penstock[cli]'\n")
