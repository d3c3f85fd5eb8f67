"""Waits: many channels at once, descriptors, asyncio, signals, and the end of the process."""

import asyncio
import select
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from conftest import heed_interrupts

import penstock

PATIENCE = 60  # seconds: only a hang takes so long


@pytest.fixture(params=["log", "ring"])
def pair(request):
    """A publication and a subscription on a small channel of each kind."""
    name = f"{request.param}:test"
    options = {"term_length": 1 << 16} if request.param == "log" else {"capacity": 1 << 20}
    with penstock.publish(name, **options) as pub, penstock.subscribe(name) as sub:
        yield pub, sub


def run_program(text: str, *, stop_after_line: str | None = None) -> tuple[int, str, str]:
    """A Python program's (status, output, errors). It gets SIGINT once it printed `stop_after_line`."""
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(text)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    )
    first = ""
    if stop_after_line is not None:
        first = child.stdout.readline()
        assert first.strip() == stop_after_line
        deadline = time.monotonic() + 0.2
        while time.monotonic() < deadline and child.poll() is None:
            time.monotonic()
        child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=PATIENCE)
    return child.returncode, first + out, err


# A wait's handles, and the wait.
LOG = 'pub = penstock.publish("log:x", term_length=1 << 16); sub = penstock.subscribe("log:x")'
PIPE = 'pub = penstock.publish("pipe:x", max_messages=2); sub = penstock.subscribe("pipe:x")'
FRAMES = 'pub = penstock.publish("frames:x", shape=(4,), dtype="u1"); sub = penstock.subscribe("frames:x")'
SYNC = 'one, two = [penstock.join("sync:x", name=name, capacity=1 << 16, spill_limit=1 << 30) for name in "ab"]'
OPEN = """sub = penstock.subscribe("log:o"); from penstock._native import core
from penstock.channels.uri.channel import parse; from penstock.channels.storage import files
hold = core.OpenHold(files.open_existing(parse("log:o")), "log:o")"""
LEAVING = """one = penstock.join("sync:x"); from penstock._native import core
from penstock.channels.uri.channel import parse; from penstock.channels.storage import files
assert core.lock_byte(files.open_existing(parse("sync:x")), core.LIFE_BYTE, True, False)"""
WAITS = {
    "recv": (LOG, "sub.recv()"),
    "recv-spinning": (LOG, "penstock.subscribe('log:x', spin=1e9).recv()"),
    "recv-on-a-ring": ("pub = penstock.publish('ring:x'); sub = penstock.subscribe('ring:x')", "sub.recv()"),
    "recv-on-a-pipe": (PIPE, "sub.recv()"),
    "recv-on-a-queue": (SYNC, "one.recv()"),
    "recv-before-the-first-publication": ("sub = penstock.subscribe('log:x')", "sub.recv()"),
    "iterate": (LOG, "next(sub)"),
    "iterate-a-queue": (SYNC, "next(one)"),
    "frame": (FRAMES, "sub.recv()"),
    "wait": (LOG, "penstock.wait([sub])"),
    "wait-for-several": (LOG, "penstock.wait([sub, penstock.subscribe('log:x', spin=1e9)])"),
    "borrow": (LOG, "sub.borrow()"),
    "send": (LOG, "[pub.send(b'x' * 1000) for _ in range(1000)]"),
    "send-on-a-pipe": (PIPE, "[pub.send(b'x') for _ in range(9)]"),
    "send-on-a-queue": (SYNC, "[one.send(b'x' * 1000) for _ in range(1000)]"),
    "claim": (LOG, "[pub.claim(1000).commit() for _ in range(1000)]"),
    "claim-on-a-pipe": (PIPE, "[pub.claim(1).commit() for _ in range(9)]"),
    "claim-on-a-queue": (SYNC, "[one.claim(1000).commit() for _ in range(1000)]"),
    "frames-in-use": (FRAMES, "[pub.acquire() for _ in range(99)]"),
    "large": (LOG, "pub.send(b'x' * 1000000)"),
    "large-on-a-queue": (SYNC, "[one.send(b'x' * 30000) for _ in range(1000)]"),
    "readers": (LOG, "pub.wait_for_readers(9)"),
    "members": (SYNC, "one.wait_for(['nobody'])"),
    "request": ("ask = penstock.join('pipe:x', role='request')", "ask.request(b'?')"),
    "request-under-way": (
        "ask, other = [penstock.join('pipe:x', role=role) for role in ('request', 'reply')]",
        "ask.request(b'?')",
    ),
    "serve": ("answer = penstock.join('pipe:x', role='reply')", "answer.recv()"),
    "threads": ("pipe = penstock.threads.Pipe()", "pipe.get()"),
    "mailbox": ("box = penstock.threads.Mailbox()", "box.get()"),
    "somebody-joins": (OPEN, "penstock.publish('log:o')"),
    "the-last-leaves": (LEAVING, "penstock.join('sync:x')"),
}


@pytest.mark.parametrize("name", WAITS)
def test_ctrl_c_ends_every_wait(name):
    setup, wait = WAITS[name]
    program = "\n".join(
        [
            "import penstock",
            setup,
            "try:",  # before it is said: the interrupt may come sooner than the wait
            "    print('waiting', flush=True)",
            f"    {wait}",
            "except KeyboardInterrupt:",
            "    print('interrupted')",
        ]
    )
    status, out, err = run_program(program, stop_after_line="waiting")
    assert (status, out.split()) == (0, ["waiting", "interrupted"]), err


def test_an_interrupt_while_a_wait_is_explained_is_the_programs():
    """Also as a module loads for that and makes its classes from text: CPython would end the process by SIGINT at last."""
    program = """
        import sys, types, penstock
        reasons = types.ModuleType("penstock.channels.waiting.reasons")
        reasons.explain = lambda *_: exec("raise KeyboardInterrupt")
        sys.modules[reasons.__name__] = reasons
        ask, other = [penstock.join("pipe:x", role=role) for role in ("request", "reply")]
        try:
            ask.request(b"?", timeout=60)
        except KeyboardInterrupt:
            print("interrupted")
    """
    assert run_program(program) == (0, "interrupted\n", "")


def test_the_process_ends_while_threads_wait():
    program = """
        import threading, penstock
        pub = penstock.publish("log:x", term_length=1 << 16)
        subs = [penstock.subscribe("log:x") for _ in range(4)]
        subs[3].fileno()
        waits = [subs[0].recv, lambda: penstock.wait([subs[1]]), lambda: next(subs[2]),
                 lambda: [pub.send(b"x" * 20000) for _ in range(1000)]]
        for wait in waits:
            threading.Thread(target=wait, daemon=True).start()
        for _ in range(100):
            threading.Event().wait(0.001)
        print("ends")
    """
    for _ in range(3):
        status, out, err = run_program(program)
        assert (status, out.strip(), err) == (0, "ends", "")


def test_lack_of_memory_is_an_error_of_this_library():
    program = """
        import resource, penstock
        penstock.publish("log:m", term_length=1 << 16).close()  # loads what the library loads when it is first used
        penstock.subscribe("log:m").close()
        found = set()
        for spare in range(0, 30):
            used = int(open("/proc/self/statm").read().split()[0]) * 4096
            resource.setrlimit(resource.RLIMIT_AS, (used + spare * 400_000, -1))
            try:
                with penstock.publish("log:m", term_length=1 << 16), penstock.subscribe("log:m") as sub:
                    sub.fileno()
                found.add("ok")
            except penstock.PenstockError:
                found.add("refused")
            except MemoryError:
                found.add("refused")
            finally:
                resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
        print(sorted(found), penstock.inspect("log:m").members)
    """
    status, out, err = run_program(program)
    assert (status, out.strip(), err) == (0, "['ok', 'refused'] ()", "")


def test_wait_says_which_have_something():
    pubs = [penstock.publish(f"log:w{i}", term_length=1 << 16, max_members=4) for i in range(5)]
    subs = [penstock.subscribe(f"log:w{i}") for i in range(5)]
    assert penstock.wait(subs, timeout=0) == []
    begun = time.monotonic_ns()
    assert penstock.wait(subs, timeout=0.02) == []
    assert time.monotonic_ns() - begun >= 20_000_000
    pubs[3].send(b"x")
    assert penstock.wait(subs, timeout=PATIENCE) == [subs[3]]
    pubs[1].send(b"y")
    assert penstock.wait(subs) == [subs[1], subs[3]]
    threading.Timer(0.05, pubs[0].send, [b"z"]).start()
    assert penstock.wait(subs[:1], timeout=PATIENCE) == [subs[0]]
    with pytest.raises(TimeoutError):
        subs[2].recv(timeout=0.01)
    for wrong in (-1, float("nan"), "soon"):
        with pytest.raises(penstock.Invalid, match="timeout is"):
            subs[2].recv(timeout=wrong)


def test_wait_looks_for_a_moment_before_it_sleeps():
    """As recv does: with a long spin a message is found without an event, as when nobody has announced a sleep."""
    with penstock.publish("ring:spin") as pub, penstock.subscribe("ring:spin", spin=1e9) as sub:
        threading.Timer(0.05, pub.send, [b"x"]).start()
        assert penstock.wait([sub], timeout=PATIENCE) == [sub]
        assert sub.recv(0) == b"x"
        assert penstock.wait([sub], timeout=0.01) == []


def test_more_channels_than_one_system_call_takes():
    pubs = [penstock.publish(f"log:m{i}", term_length=1 << 16, max_members=4) for i in range(140)]
    subs = [penstock.subscribe(f"log:m{i}") for i in range(140)]
    threading.Timer(0.05, pubs[139].send, [b"x"]).start()
    assert penstock.wait(subs, timeout=PATIENCE) == [subs[139]]


def readable(sub, timeout=0.0):
    return bool(select.select([sub], [], [], timeout)[0])


def test_fileno_is_level_triggered(pair):
    pub, sub = pair
    assert not readable(sub)
    pub.send(b"a")
    pub.send(b"b")
    assert readable(sub, PATIENCE)
    assert readable(sub)
    assert sub.recv(timeout=PATIENCE) == b"a"
    assert readable(sub)
    assert sub.recv(timeout=PATIENCE) == b"b"
    assert sub.try_recv() is None
    assert not readable(sub)
    for i in range(200):
        pub.send(b"%d" % i)
        assert readable(sub, PATIENCE)
        assert sub.recv(timeout=PATIENCE) == b"%d" % i
        assert sub.try_recv() is None


def test_asyncio_receives_and_cancelling_loses_nothing(pair):
    pub, sub = pair

    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(sub.recv_async(), 0.02)
        pub.send(b"kept")
        assert await asyncio.wait_for(sub.recv_async(), PATIENCE) == b"kept"

        async def publish():
            for i in range(100):
                pub.send(b"%d" % i)
                await asyncio.sleep(0)

        task = asyncio.create_task(publish())
        got = []
        async for message in sub:
            got.append(message)
            if len(got) == 100:
                break
        await task
        assert got == [b"%d" % i for i in range(100)]

    asyncio.run(main())


def test_several_tasks_share_a_subscription(pair):
    pub, sub = pair

    async def main():
        tasks = [asyncio.create_task(sub.recv_async()) for _ in range(5)]
        await asyncio.sleep(0.01)
        tasks[0].cancel()
        for i in range(4):
            pub.send(b"%d" % i)
        got = await asyncio.wait_for(asyncio.gather(*tasks[1:]), PATIENCE)
        assert sorted(got) == [b"0", b"1", b"2", b"3"]

    asyncio.run(main())


def test_async_iteration_ends_when_the_handle_closes(pair):
    pub, sub = pair

    async def main():
        pub.send(b"only")
        asyncio.get_running_loop().call_later(0.05, sub.close)
        return [message async for message in sub]

    assert asyncio.run(main()) == [b"only"]


def test_threads_share_a_subscription(pair):
    pub, sub = pair
    got, lock = [], threading.Lock()

    def read():
        for message in sub:
            with lock:
                got.append(message)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for i in range(2000):
        pub.send(b"%d" % i)
    while len(got) < 2000:
        threads[0].join(0.001)
    sub.close()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert sorted(got, key=int) == [b"%d" % i for i in range(2000)]


IDLE = """
import asyncio, os, threading, time
import penstock

def sleeps():
    found = 0
    for task in set(os.listdir("/proc/self/task")) - {str(os.getpid())}:
        lines = open(f"/proc/self/task/{task}/status").read().splitlines()
        found += next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))
    return found

def read():
    print(sub.recv(timeout=60) if "HOW" == "recv" else asyncio.run(sub.recv_async(timeout=60)))

with penstock.publish("KIND:HOW", codec="bytes") as pub, penstock.subscribe("KIND:HOW", codec="bytes") as sub:
    reader = threading.Thread(target=read)
    reader.start()
    found = 0
    for _ in range(10):  # the first slices are short, and on a busy machine the reader comes late
        before = sleeps()
        time.sleep(3.0)
        found = sleeps() - before
        if 1 <= found <= 10:
            break
    print(found)
    pub.send(b"last")
    reader.join()
"""


@pytest.mark.slow
def test_an_idle_reader_hardly_wakes():
    """Nothing is open and nobody waits for the end: so only a message wakes it, and the clock once a second. It was 20 times. The programs
    run at once, since all of them only wait. Each counts until a span is as it should be: of one that wakes too often, none ever is."""
    programs = [
        IDLE.replace("KIND", kind).replace("HOW", how)
        for kind in ("log", "ring", "sync", "pipe")
        for how in ("recv", "recv_async")
    ]
    assert all(1 <= sleeps <= 10 for sleeps in sleeps_of(programs))


def test_a_reader_of_a_pipe_beside_another_looks_after_it():
    """It takes over what a dead one leaves, and a death wakes nobody."""
    text = IDLE.replace("1 <= found <= 10", "found > 10").replace("KIND", "pipe").replace("HOW", "recv")
    text = text.replace(" as sub:", ' as sub, penstock.subscribe("pipe:recv", codec="bytes") as other:')
    (sleeps,) = sleeps_of([text.replace('pub.send(b"last")', 'pub.send(b"last"), pub.send(b"last")')])
    assert sleeps > 10


def sleeps_of(programs):
    """How often the readers of these programs, which run at once, slept in a span of 3 s. Each then gets its message."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    children = [subprocess.Popen([sys.executable, "-c", text], **pipes) for text in programs]
    found = []
    for child in children:
        printed, errors = child.communicate(timeout=PATIENCE)
        assert (child.returncode, printed.split("\n")[1:]) == (0, ["b'last'", ""]), errors
        found.append(int(printed.split("\n")[0]))
    return found
