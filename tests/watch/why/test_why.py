"""`penstock.why`: one wait of each kind, the text, notes of the dead, errors that say why, and stacks."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

import penstock
from penstock import cli
from penstock.channels.storage import files
from penstock.channels.uri.channel import parse
from penstock.channels.waiting.why import facts
from penstock.channels.waiting.why.graph import graph_of
from penstock.channels.waiting.why.records import Participant, Wait, WaitedFor, WaitingProcess
from penstock.front import stacks
from penstock.util import processes
from tests.watch.why.waiting import LINKS, Plan, started

LINK = {link.name: link for link in LINKS}
ENOUGH = (
    2  # seconds of a wait that ends in vain: it explains itself if it has slept before, whatever held this process up
)


def once(graph: Callable[[], penstock.types.Why], ready: Callable[[penstock.types.Why], bool]) -> penstock.types.Why:
    """The first graph that is ready."""
    while not ready(found := graph()):
        time.sleep(0.002)
    return found


@pytest.fixture
def program() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a Python program that prints a line when it is ready; ended with the test."""
    running: list[subprocess.Popen[str]] = []

    def start(text: str, **environment: str) -> subprocess.Popen[str]:
        made = subprocess.Popen(
            [sys.executable, "-c", text],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(made)
        assert made.stdout is not None
        assert made.stdout.readline() == "ready\n", made.communicate()[1]
        return made

    yield start
    for one in running:
        one.kill()
        one.communicate()


def test_no_wait_says_that_nobody_waits() -> None:
    """A graph without waits is empty, and says so in one line."""
    found = penstock.why()
    assert (found.waits, found.chains, found.deadlocks, str(found)) == ((), (), (), "nobody waits")


def test_wait_of_a_thread_is_seen_and_ends() -> None:
    """A thread in recv is a wait since its begin. When the message is there, it is none."""
    with penstock.publish("log:w") as pub, penstock.subscribe("log:w") as sub:
        got: list[bytes] = []
        thread = threading.Thread(target=lambda: got.append(sub.recv()))
        thread.start()
        found = once(lambda: penstock.why("log:w"), lambda found: bool(found.waits))
        (wait,) = found.waits
        assert (wait.channel, wait.pid, wait.what, wait.timed) == ("log:w", os.getpid(), "messages", False)
        assert wait.thread == thread.native_id
        assert [one.pid for one in wait.on] == [os.getpid()]
        assert not found.deadlocks  # its own publication may write yet
        pub.send(b"x")
        thread.join()
        assert got == [b"x"]
        assert penstock.why("log:w").waits == ()


def test_wait_lasts_since_its_begin() -> None:
    """A wait sleeps in slices of 50 ms. Its time is that of the whole wait."""
    with penstock.publish("log:w") as pub, penstock.subscribe("log:w") as sub:
        thread = threading.Thread(target=lambda: sub.recv())
        thread.start()
        first = once(lambda: penstock.why("log:w"), lambda found: bool(found.waits)).waits[0].since_ns
        for _ in range(20):
            time.sleep(0.01)
            assert {wait.since_ns for wait in penstock.why("log:w").waits} <= {first}
        pub.send(b"x")
        thread.join()


def test_wait_with_a_timeout_is_timed() -> None:
    """A wait that a deadline ends says so."""
    with penstock.publish("log:w") as pub, penstock.subscribe("log:w") as sub:
        thread = threading.Thread(target=lambda: sub.recv(timeout=600))
        thread.start()
        found = once(lambda: penstock.why("log:w"), lambda found: bool(found.waits))
        assert found.waits[0].timed
        assert str(found).splitlines()[0].endswith("until its timeout")
        pub.send(b"x")
        thread.join()


@pytest.mark.parametrize("kind", ["log", "ring", "sync", "pipe", "frames"])
def test_wait_in_an_event_loop_is_seen(kind: str) -> None:
    """A task that awaits a message is a wait, as a thread is; a cancelled one is none."""
    shaped = {"shape": (2,), "dtype": "uint8"} if kind == "frames" else {}

    async def run() -> tuple[penstock.types.Why, penstock.types.Why]:
        with penstock.join(f"sync:{kind}") if kind == "sync" else penstock.subscribe(f"{kind}:{kind}", **shaped) as sub:
            task = asyncio.ensure_future(sub.recv_async())
            for _ in range(5):
                await asyncio.sleep(0)
            during = penstock.why(f"{kind}:{kind}")
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return during, penstock.why(f"{kind}:{kind}")

    during, after = asyncio.run(run())
    assert [wait.what for wait in during.waits] == ["frames" if kind == "frames" else "messages"]
    assert after.waits == ()


@pytest.mark.parametrize("kind", ["log", "ring", "pipe"])
def test_wait_without_a_publication_names_nobody(kind: str) -> None:
    """Before the channel's first publication a reader waits for nobody who is there."""
    with penstock.subscribe(f"{kind}:early") as sub:
        thread = threading.Thread(target=lambda: sub.recv())
        thread.start()
        found = once(penstock.why, lambda found: bool(found.waits))
        assert found.waits[0].on == ()
        assert str(found).splitlines()[1] == "  nobody is there to write them"
        assert [(chain.end, chain.closes) for chain in found.chains] == [(None, False)]
        with penstock.publish(f"{kind}:early") as pub:
            pub.send(b"x")
            thread.join()


def test_wait_for_readers_is_seen() -> None:
    """A publication that waits for subscriptions waits for nobody who is there."""
    with penstock.publish("log:w") as pub:
        thread = threading.Thread(target=lambda: pub.wait_for_readers(1))
        thread.start()
        found = once(penstock.why, lambda found: bool(found.waits))
        assert (found.waits[0].what, found.waits[0].on) == ("readers", ())
        with penstock.subscribe("log:w"):
            thread.join()


def test_wait_on_several_handles_is_seen_on_each() -> None:
    """A thread that waits for the first of two channels waits on both."""
    with (
        penstock.publish("log:a") as pub,
        penstock.publish("ring:b"),
        penstock.subscribe("log:a") as one,
        penstock.subscribe("ring:b") as two,
    ):
        thread = threading.Thread(target=lambda: penstock.wait([one, two]))
        thread.start()
        found = once(penstock.why, lambda found: len(found.waits) == 2)
        assert {wait.channel for wait in found.waits} == {"log:a", "ring:b"}
        pub.send(b"x")
        thread.join()
        assert penstock.why().waits == ()


def test_note_of_the_dead_is_no_wait() -> None:
    """A reader that is killed in its sleep leaves its note; nobody is shown to wait, also once another process has its slot."""
    plan = Plan(0, (LINK["ring"],), "sleeping")
    with started(plan, "dead") as graph:
        waiter, writer = graph.pids
        once(penstock.why, lambda found: [wait.pid for wait in found.waits] == [waiter])
        os.kill(waiter, signal.SIGKILL)
        os.waitid(os.P_PID, waiter, os.WEXITED | os.WNOWAIT)
        assert penstock.why().waits == ()
        assert writer != waiter


def test_slot_of_the_dead_has_no_note() -> None:
    """The next owner of a killed reader's slot does not seem to wait since that one's time."""
    with started(Plan(0, (LINK["ring"],), "sleeping"), "dead") as graph:
        once(penstock.why, lambda found: [wait.pid for wait in found.waits] == [graph.pids[0]])
        os.kill(graph.pids[0], signal.SIGKILL)
        os.waitid(os.P_PID, graph.pids[0], os.WEXITED | os.WNOWAIT)
        with penstock.subscribe("ring:dead/0"):
            (reader,) = [one for one in penstock.inspect("ring:dead/0").members if one.reads]
            assert (reader.pid, reader.slot) == (os.getpid(), 0)  # the dead one's slot
            (fact,) = [one for one in facts.participants_of(parse("ring:dead/0")) if one.pid == os.getpid()]
            assert fact.wait is None


@pytest.mark.parametrize("name", [link.name for link in LINKS])
def test_each_kind_of_wait_says_its_part(name: str) -> None:
    """The text says what a wait is for, and the part of the one that it is for."""
    parts = {
        "log": "is to write them",
        "full-log": "to read",
        "claimed-log": "has an open claim of",
        "ring": "is to write them",
        "sync": "is to write them",
        "full-sync": "to read",
        "pipe": "is to write them",
        "full-pipe": "messages to read",
        "request": "has the request",
        "frames": "is to publish them",
        "leased-frames": "holds 1 frame",
    }
    with started(Plan(0, (LINK[name],), "stopped"), "one") as graph:
        found = once(
            lambda: penstock.why(graph.pids[0]),
            lambda found: bool(found.waits) and found.process(graph.pids[1]).state == "stopped",
        )
        first, second = str(found).splitlines()
        assert first.startswith(f"{graph.pids[0]} ")
        assert LINK[name].what in first
        assert second.startswith(f"  {graph.pids[1]} ")
        assert parts[name] in second
        assert second.endswith("and is stopped")


def test_process_without_waits_says_what_it_does() -> None:
    """A process that waits on no channel is one line; one that is not there is an error."""
    found = penstock.why(os.getpid())
    assert str(found).endswith(" is running, and waits on no channel")
    assert [one.pid for one in found.processes] == [os.getpid()]
    with pytest.raises(penstock.NotFound, match="there is no process 4194303"):
        penstock.why(4194303)
    with pytest.raises(penstock.Invalid, match="is no process"):
        penstock.why(0)


def test_channel_that_is_not_there_is_an_error() -> None:
    """A channel without a file, and one that is not in shared memory."""
    with pytest.raises(penstock.NotFound):
        penstock.why("log:nowhere")
    with pytest.raises(penstock.Unsupported):
        penstock.why("zmq+tcp://127.0.0.1:5555")


def test_process_of_another_user_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """What belongs to another user is named, and not looked at."""
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    assert str(penstock.why(os.getpid())) == f"pid {os.getpid()} of user {user}: cannot be looked at"


# ---- errors and the log ----


def test_timeout_of_a_full_log_says_who_is_stopped() -> None:
    """The error of a send that found no room names the reader and what it does."""
    with (
        started(Plan(0, (LINK["full-log"],), "stopped"), "late") as graph,
        penstock.publish("log:late/0") as pub,
        pytest.raises(penstock.TimedOut, match=rf"; process {graph.pids[1]} \S+ has .* to read, and is stopped$"),
    ):
        pub.send(bytes(4000), timeout=ENOUGH)


def test_timeout_of_recv_says_who_does_not_write() -> None:
    """The error of a recv names the publication and what it does."""
    with (
        started(Plan(0, (LINK["log"],), "stopped"), "late") as graph,
        penstock.subscribe("log:late/0") as sub,
        pytest.raises(penstock.TimedOut, match=rf"process {graph.pids[1]} \S+ is to write them, and is stopped$"),
    ):
        sub.recv(timeout=ENOUGH)


def test_timeout_of_a_request_says_who_has_it() -> None:
    """The error of a request names the server that has it."""
    with penstock.join("pipe:ask", role="reply") as reply, penstock.join("pipe:ask", role="request") as ask:
        pending = ask.submit(b"?")
        assert reply.recv(60).body == b"?"
        with pytest.raises(penstock.TimedOut, match=r"this process itself has the request$"):
            pending.result(ENOUGH)


@pytest.mark.parametrize("kind", ["log", "sync", "pipe"])
def test_timeout_in_an_event_loop_says_why(kind: str) -> None:
    """The error of an awaited message has the reason, too."""

    async def run() -> None:
        with penstock.join("sync:s") if kind == "sync" else penstock.subscribe(f"{kind}:s") as sub:
            await sub.recv_async(timeout=ENOUGH)

    with pytest.raises(penstock.TimedOut, match=r"; nobody is there to write them$"):
        asyncio.run(run())


def test_long_wait_is_logged_once(program: Callable[..., subprocess.Popen[str]]) -> None:
    """With PENSTOCK_WARN_AFTER a wait that lasts longer is logged, once, with its reason."""
    text = """
import logging, sys, penstock
logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s")
with penstock.subscribe("log:w") as sub:
    print("ready", flush=True)
    sub.recv()
    print("end", flush=True)
"""
    ran = program(text, PENSTOCK_WARN_AFTER="0.2")
    assert ran.stdout is not None
    said = re.fullmatch(r"WARNING a wait for (.+) has taken (.+) s: (.+)\n", ran.stdout.readline())
    assert said is not None
    assert (said[1], said[3]) == ("messages of log:w", "nobody is there to write them")
    assert float(said[2]) >= 0.2
    once(penstock.why, lambda found: any(wait.seconds > 2 * float(said[2]) for wait in found.waits))
    with penstock.publish("log:w") as pub:
        pub.send(b"x")
        assert ran.stdout.read() == "end\n"


def test_long_wait_on_several_is_logged_for_each(program: Callable[..., subprocess.Popen[str]]) -> None:
    """`penstock.wait` is a wait of a thread, too."""
    text = """
import logging, sys, penstock
logging.basicConfig(stream=sys.stdout, format="%(message)s")
with penstock.subscribe("log:v") as one, penstock.subscribe("ring:w") as other:
    print("ready", flush=True)
    penstock.wait([one, other])
    print("end", flush=True)
"""
    ran = program(text, PENSTOCK_WARN_AFTER="0.2")
    assert ran.stdout is not None
    for channel in ("log:v", "ring:w"):
        assert re.fullmatch(
            rf"a wait for messages of {channel} has taken .+ s: nobody is there to write them\n", ran.stdout.readline()
        )
    with penstock.publish("log:v") as pub:
        pub.send(b"x")
        assert ran.stdout.read() == "end\n"


WAITS = {
    "messages of a log": ("penstock.subscribe('log:a')", "it.recv(timeout=2)", "messages of log:a"),
    "a pipe's messages": ("penstock.subscribe('pipe:a')", "it.recv(timeout=2)", "messages of pipe:a"),
    "a reply": ("penstock.join('pipe:r', role='request')", "it.request(b'x', timeout=2)", "a reply of pipe:r"),
    "a member's messages": ("penstock.join('sync:a')", "it.recv(timeout=2)", "messages of sync:a"),
    "ZeroMQ's messages": ("penstock.subscribe('zmq+ipc://@w')", "it.recv(timeout=2)", "messages of zmq+ipc://@w"),
    "ZeroMQ's reply": (
        "penstock.join('zmq+ipc://@r', role='request')",
        "it.request(b'x', timeout=2)",
        "a reply of zmq+ipc://@r",
    ),
    "ZeroMQ's readers": (
        "penstock.publish('zmq+ipc://@p', bind=True)",
        "it.wait_for_readers(1, timeout=2)",
        "readers of zmq+ipc://@p",
    ),
}


@pytest.mark.parametrize("how", ["a thread", "an event loop"])
@pytest.mark.parametrize("what", WAITS)
def test_every_long_wait_is_logged(what: str, how: str, program: Callable[..., subprocess.Popen[str]]) -> None:
    """Also of tasks, for replies, and on ZeroMQ's sockets: once."""
    make, wait, said = WAITS[what]
    if "zmq" in make:
        pytest.importorskip("zmq")
    if how == "an event loop":
        wait = "asyncio.run(it." + re.sub(r"^it\.(\w+)", r"\1_async", wait) + ")"
    text = f"""
import asyncio, logging, sys, penstock
logging.basicConfig(stream=sys.stdout, format="%(message)s")
logging.getLogger("asyncio").setLevel(logging.CRITICAL)
with penstock.join("pipe:r", role="reply"), {make} as it:
    print("ready", flush=True)
    try:
        {wait}
    except penstock.TimedOut:
        print("end", flush=True)
"""
    ran = program(text, PENSTOCK_WARN_AFTER="0.2")
    assert ran.stdout is not None
    warned, end = ran.stdout.readline(), ran.stdout.read()
    found = re.fullmatch(rf"a wait for {re.escape(said)}\S* has taken (.+) s: .+\n", warned)
    assert found is not None, warned + end + ran.communicate()[1]
    assert 0.2 <= float(found[1]) < 2
    assert end == "end\n"


@pytest.mark.parametrize("kind", ["log", "frames"])
def test_warning_of_a_full_channel_has_its_reason(kind: str, program: Callable[..., subprocess.Popen[str]]) -> None:
    """No error is in front of it that has said who is behind: also of this process, which has another thread."""
    text = f"""
import logging, sys, threading, penstock
logging.basicConfig(stream=sys.stdout, format="%(message)s")
threading.Thread(target=threading.Event().wait, daemon=True).start()
options = dict(shape=(4,), buffers=2, when_slow="wait") if {kind!r} == "frames" else dict(capacity="64KiB")
with penstock.publish("{kind}:w", **options) as pub, penstock.subscribe("{kind}:w") as sub:
    held = []
    print("ready", flush=True)
    while True:
        pub.send(bytes(4))
        if {kind!r} == "frames":
            held.append(sub.recv())
"""
    ran = program(text, PENSTOCK_WARN_AFTER="0.2")
    assert ran.stdout is not None
    reason = "holds 2 frames" if kind == "frames" else "has .* to read"
    assert re.fullmatch(rf"a wait for .+ has taken .+ s: this process itself {reason}\n", ran.stdout.readline())


def test_wrong_time_to_warn_after_is_an_error() -> None:
    """A value that is no time is an error when the first handle is opened, not silence."""
    text = "import penstock; penstock.publish('log:w')"
    ran = subprocess.run(
        [sys.executable, "-c", text],
        env={**os.environ, "PENSTOCK_WARN_AFTER": "soon"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "PENSTOCK_WARN_AFTER is 'soon': give seconds above 0, or unset it" in ran.stderr


# ---- the command ----


def run_command(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    """What a call of the command prints; of one that fails, its error."""
    assert cli.run(["why", *arguments]) == status
    out, err = capsys.readouterr()
    return err if status else out


def test_command_prints_a_deadlock(capsys: pytest.CaptureFixture[str]) -> None:
    """Three processes that wait for each other are named, in order, also as JSON."""
    with started(Plan(0, (LINK["log"], LINK["full-pipe"], LINK["ring"]), "cycle"), "three") as graph:
        once(penstock.why, lambda found: len(found.deadlocks) == 1)
        last = run_command(capsys).splitlines()[-1]
        assert last.startswith("deadlock of 3 processes: ")
        assert all(str(pid) in last for pid in graph.pids)
        found = json.loads(run_command(capsys, "--json", "log:three/0"))
        assert sorted(found["deadlocks"][0]) == sorted(graph.pids)
        assert found["waits"][0]["on"][0]["how"] in ("writes", "full")
        assert found["target"] == "log:three/0"


def test_command_refuses_what_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    """One line, and status 1."""
    assert run_command(capsys, "log:nowhere", status=1).startswith("penstock: there is no channel log:nowhere")


@pytest.mark.parametrize("signum", ["x", None, 1.5, True, 0, -1, 65, 1 << 70, signal.SIGKILL])
def test_stack_handler_takes_a_signal_alone(signum: object) -> None:
    """The error is `Invalid` for all else, and for a signal that cannot be caught."""
    with pytest.raises(penstock.Invalid, match=r"sign(al|um)"):
        penstock.install_stack_handler(signum)  # type: ignore[arg-type]


@pytest.mark.slow
def test_stack_of_the_culprit_by_its_handler(
    program: Callable[..., subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A process that installed the handler shows where it is; it goes on."""
    monkeypatch.setattr(stacks, "PATIENCE", 60)
    text = """
import time, penstock
penstock.install_stack_handler()
pub = penstock.publish("log:w")
def busy_with_other_work():
    print("ready", flush=True)
    time.sleep(1000)
busy_with_other_work()
"""
    writer = program(text)
    with penstock.subscribe("log:w") as sub:
        thread = threading.Thread(target=lambda: sub.recv())
        thread.start()
        once(penstock.why, lambda found: bool(found.waits))
        (own,) = files.private_folder(".stacks").iterdir()
        own.with_suffix(".0").touch()  # as of a process that has the same numbers in another PID namespace
        for _ in range(2):
            shown = run_command(capsys, "--stack")
            assert f"stack of {writer.pid} " in shown
            assert "in busy_with_other_work" in shown
        assert writer.poll() is None
        with penstock.publish("log:w") as pub:
            pub.send(b"x")
        thread.join()


def test_process_without_a_handler_gets_no_signal(
    program: Callable[..., subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a handler and without py-spy it says what to do; a file that names a signal which the process does not catch sends none."""
    other = program("import time; print('ready', flush=True); time.sleep(1000)")
    folder = files.private_folder(".stacks", create=True)
    start = processes.find(other.pid)
    assert start is not None
    (folder / f"{other.pid}.{start.start}.{int(signal.SIGUSR2)}.0").touch()
    monkeypatch.setenv("PATH", "/nowhere")
    shown = run_command(capsys, "--stack", str(other.pid))
    assert "call penstock.install_stack_handler() in the program, or install py-spy" in shown
    assert other.poll() is None


# ---- the graph, without processes ----


def wait_of(pid: int, *on: int, any: bool = True, channel: str = "log:x") -> Participant:
    """A participant that waits for these processes."""
    waits = tuple(WaitedFor(other, None, "writes", 0) for other in on)
    wait = Wait(channel, pid, pid, "subscription", "messages", 0, 1.0, timed=False, any=any, on=waits)
    return Participant(channel, pid, "subscription", "", pid, 1, False, (), wait)


def known(*pids: int, **states: str) -> dict[int, WaitingProcess]:
    """Processes that wait, and others by their state: `p4="stopped"`."""
    made = {pid: WaitingProcess(pid, "", "waiting", 0, ()) for pid in pids}
    return made | {int(name[1:]): WaitingProcess(int(name[1:]), "", state, 0, ()) for name, state in states.items()}


def test_cycle_with_a_way_out_is_no_deadlock() -> None:
    """A wait for any of two writers ends if the other writes; a wait for both readers does not."""
    waits = [wait_of(1, 2, 3), wait_of(2, 1)]
    assert graph_of(waits, known(1, 2, p3="running"), None).deadlocks == ()
    waits = [wait_of(1, 2, 3, any=False), wait_of(2, 1)]
    assert graph_of(waits, known(1, 2, p3="running"), None).deadlocks == ((1, 2),)


def test_process_with_a_wait_outside_is_no_deadlock() -> None:
    """A process with two waits goes on if one of them may end."""
    waits = [wait_of(1, 2), wait_of(2, 1), wait_of(2, 3, channel="log:y")]
    assert graph_of(waits, known(1, 2, p3="running"), None).deadlocks == ()


def test_two_cycles_are_two_deadlocks() -> None:
    """Each cycle is named once; who waits for one of them is not part of it."""
    waits = [wait_of(1, 2), wait_of(2, 1), wait_of(3, 4), wait_of(4, 5), wait_of(5, 3), wait_of(6, 1)]
    found = graph_of(waits, known(1, 2, 3, 4, 5, 6), None)
    assert found.deadlocks == ((1, 2), (3, 4, 5))
    assert found.chains[0].pids == (6, 1, 2, 1)


def test_wide_graph_is_bounded() -> None:
    """Thirty layers of ten processes have 10^30 ways: as many chains as there is room for, and each wait once."""
    waits = [wait_of(10 * at + one, *range(10 * at + 10, 10 * at + 20)) for at in range(1, 30) for one in range(10)]
    last = {f"p{pid}": "running" for pid in range(300, 310)}
    found = graph_of(waits, known(*range(10, 300), **last), None)
    assert len(found.chains) == 200
    assert len(found.waits) == 290
    assert [one.pid for one in found.culprits] == list(range(300, 310))
    assert len(str(found).splitlines()) <= 401


@pytest.mark.slow
def test_channels_of_udp_name_their_peers() -> None:
    """A subscription of a network channel waits for the host and port that sends; a stopped receiver is named as one."""
    from tests.ports import free_port

    uri = f"udp://127.0.0.1:{free_port()}/7"
    with penstock.subscribe(uri) as sub, penstock.publish(uri) as pub:
        pub.wait_for_readers(1, timeout=60)
        pub.send(b"x")
        assert sub.recv(timeout=60) == b"x"
        thread = threading.Thread(target=lambda: sub.recv())
        thread.start()
        found = once(lambda: penstock.why(uri), lambda found: bool(found.waits))
        (peer,) = found.waits[0].on
        assert peer.pid is None
        assert peer.peer is not None
        assert peer.peer.startswith("127.0.0.1:")
        assert peer.how == "sends"
        assert str(found).splitlines()[1] == f"  {peer.peer} is to send them"
        pub.send(b"y")
        thread.join()
