"""Each kind of trigger fires 100 times under load: none is missed, none comes twice."""

import contextlib
import os
import random
import signal
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
from crash.victims import kill, start
from watch.blackbox.boxes import Watched, until

import penstock
from penstock import blackbox
from penstock.channels.status import latency_of
from penstock.watch.blackbox import calls

TIMES = 100
ALL = 'channels = ["*"]\nbefore = "1s"\nafter = "0s"\ncool_down = "1h"\n'


def write_for_ever(name, seed):
    rng = random.Random(seed)
    with penstock.publish(name, codec="json", term_length=1 << 16) as pub:
        while True:
            pub.send({"n": -1})
            if rng.random() < 0.02:
                time.sleep(0.001)


@pytest.fixture(autouse=True)
def load():
    """A program that writes, and joins and leaves all the time."""
    children = [start(write_for_ever, f"log:load/{number}", number) for number in range(2)]
    yield
    for child in children:
        kill(child)


@pytest.fixture
def watched(tmp_path):
    with contextlib.ExitStack() as stack:
        yield lambda text: stack.enter_context(Watched(tmp_path / "box", ALL + text))


def test_message_trigger_fires_each_time(watched, tally):
    box = watched('[[trigger]]\nname = "it"\nmessage = "log:a"\nwhen = "n >= 0 and n % 10 == 3"\nblock = true')
    with penstock.publish("log:a", codec="json") as pub:
        for number in range(TIMES * 10):
            pub.send({"n": number})
        box.wait("it", TIMES)
        pub.send({"n": 3})
        box.wait("it", TIMES + 1)
    assert box.counts["it"] == TIMES + 1
    tally("triggers fired", TIMES)


def test_call_trigger_fires_each_time(watched, monkeypatch, tally):
    monkeypatch.setattr(calls, "SEND_SECONDS", 60)
    box = watched('[[trigger]]\ncall = "it"\n[[trigger]]\nname = "other"\ncall = "that"')
    for number in range(TIMES):
        assert penstock.trigger("it", f"number {number}") == 1
        penstock.trigger("unknown")
    box.wait("call it", TIMES)
    penstock.trigger("that")
    box.wait("other", 1)
    assert box.counts == {"call it": TIMES, "other": 1}
    tally("triggers fired", TIMES)


def join_and_stay(name, told):
    pub = penstock.publish(name, codec="json")
    os.write(told, b"!")
    pub.wait_for_readers(1000)


@pytest.mark.slow
def test_death_trigger_fires_each_time(watched, tally):
    """Writers that are killed, some of them at once, some as soon as they have joined; beside readers that clear their places."""
    box = watched('[[trigger]]\nname = "any"\ndeath = "any"\n')
    came, told = os.pipe()
    rng, killed = random.Random(1), 0
    with penstock.subscribe("log:victims"):
        while killed < TIMES:
            count = min(rng.choice((1, 1, 2, 7)), TIMES - killed)
            writers = [start(join_and_stay, rng.choice(("log:victims", "log:alone")), told) for _ in range(count)]
            for _ in writers:
                os.read(came, 1)
            for writer in writers:
                os.kill(writer, signal.SIGKILL)
            for writer in writers:
                os.waitpid(writer, 0)
            killed += count
            if rng.random() < 0.5:
                box.wait("any", killed)
        box.wait("any", TIMES)
        with penstock.publish("log:victims", codec="json"):
            pass  # closed: no death
        last = start(join_and_stay, "log:alone", told)
        os.read(came, 1)
        kill(last)
        box.wait("any", TIMES + 1)
    assert box.counts["any"] == TIMES + 1, [one.note for one in box.firings]
    tally("triggers fired", TIMES)


def test_death_while_a_file_is_read_fires_once(watched):
    """The list of members is read before the number of deaths: who dies in between is in both."""
    box = watched('[[trigger]]\nname = "any"\ndeath = "any"\n')
    came, told = os.pipe()
    victim = start(join_and_stay, "log:alone", told)
    os.read(came, 1)
    until(lambda: victim in box.box._members._processes, "the process is watched")
    held = next(one for one in box.box._members._held.values() if one.channel == "log:alone")
    inspect, victims = held.inspect, [victim]

    def torn(fd):
        found = inspect(fd)
        if victims:
            kill(victims.pop())
            found["totals"] = inspect(fd)["totals"]
        return found

    held.inspect = torn
    penstock.inspect("log:alone")  # it opens the file, and the box looks at it
    box.wait("any", 1)
    last = start(join_and_stay, "log:alone", told)
    os.read(came, 1)
    kill(last)
    box.wait("any", 2)
    assert [one.note.split()[1] for one in box.firings] == [str(victim), str(last)]


def test_named_process_fires_when_it_ends(watched):
    """However it ends: it need not be killed. Another one does not count."""
    own = Path("/proc/self/cmdline").read_text().partition("\0")[0]
    box = watched(f'[[trigger]]\nname = "named"\ndeath = "{own}"\n[[trigger]]\nname = "other"\ndeath = "no such"')
    came, told = os.pipe()

    def close_and_end():
        with penstock.publish("log:a", codec="json"):
            os.write(told, b"!")
            until(lambda: box.box._members._processes.get(os.getpid()) or os.path.exists(box.archive / "seen"), "seen")
        os._exit(0)

    child = start(close_and_end)
    os.read(came, 1)
    until(lambda: child in box.box._members._processes, "the process is watched")
    (box.archive / "seen").touch()
    os.waitpid(child, 0)
    box.wait("named", 1)
    assert box.counts == {"named": 1}


def test_signal_trigger_fires_each_time(watched, tally):
    box = watched("")
    before = signal.signal(signal.SIGUSR1, lambda *_: box.box.fire("SIGUSR1"))
    try:
        for number in range(TIMES):
            os.kill(os.getpid(), signal.SIGUSR1)
            box.wait("SIGUSR1", number + 1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert box.counts == {"SIGUSR1": TIMES}
    tally("triggers fired", TIMES)


def test_exception_trigger_fires_each_time(watched, monkeypatch, tally):
    box = watched("")
    monkeypatch.setattr(calls, "SEND_SECONDS", 60)
    reported = []
    monkeypatch.setattr(sys, "excepthook", lambda *given: reported.append(given[1]))
    blackbox.install("oops")
    try:
        for number in range(TIMES):
            try:
                raise ValueError(number)
            except ValueError:
                sys.excepthook(*sys.exc_info())
        sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
    finally:
        blackbox.uninstall()
    box.wait("oops", TIMES)
    assert len(reported) == TIMES + 1
    assert box.counts == {"oops": TIMES}
    assert "ValueError: 7" in box.firings[7].note
    tally("triggers fired", TIMES)


@pytest.mark.slow
def test_silence_trigger_fires_each_time(watched, tally):
    box = watched('[[trigger]]\nname = "it"\nsilence = "log:a"\nlonger = "0.03s"')
    with penstock.publish("log:a", codec="json") as pub:
        for number in range(TIMES):
            pub.send(1)
            box.wait("it", number + 1)
        assert box.counts["it"] == TIMES
    tally("triggers fired", TIMES)


@pytest.mark.slow
def test_rate_trigger_fires_each_time(watched, tally):
    box = watched('[[trigger]]\nname = "it"\nrate = "ring:a"\nabove = 1000\nover = "0.02s"')
    sampled = box.box._sampled[0]
    with penstock.publish("ring:a", codec="json") as pub:
        pub.send(0)
        for number in range(TIMES):
            until(lambda: sampled._before is not None and not sampled._is_wrong, "the rate is right again")
            while (
                box.counts["it"] <= number
            ):  # asked before each message: behind the firing one comes at most, and one is no rate
                pub.send(1)
            box.wait("it", number + 1)
        until(lambda: not sampled._is_wrong, "the rate is right again")
    assert box.counts["it"] == TIMES
    tally("triggers fired", TIMES)


def test_low_rate_waits_for_the_first_message(watched):
    """A channel that has not begun is not slow; one that is slow from its first message on is. It is slow once, however long."""
    box = watched('[[trigger]]\nname = "it"\nrate = "log:a"\nbelow = 100\nover = "0.05s"')
    sampled = box.box._sampled[0]
    with penstock.publish("log:a", codec="json") as pub:
        until(lambda: sampled._before is not None, "a sample")
        assert not box.counts
        pub.send(1)
        box.wait("it", 1)
        for _ in range(3):  # it is slow still, and that is no news
            before = sampled._before
            until(lambda before=before: sampled._before is not before, "another sample")
    assert box.counts["it"] == 1


def read_for_ever(name):
    with penstock.subscribe(name) as sub:
        while True:
            sub.recv()


def test_latency_trigger_fires_each_time(watched, tally):
    """No message takes less than 100 ns from a process to another one that sleeps: a sample is wrong if a message was measured since the
    one before. Messages that the reader finds late may be wrong in several samples, so those are counted as the box sees them."""
    box = watched('[[trigger]]\nname = "it"\nlatency = "log:a"\nabove = 0.0000001\nover = "0.01s"')
    sampled = box.box._sampled[0]
    sample, measured = sampled.sample, []

    def note(now, about):
        if about is not None and "totals" in about:
            measured.append(latency_of(about).measured)
        return sample(now, about)

    sampled.sample = note
    reader = start(read_for_ever, "log:a")
    with penstock.publish("log:a", codec="json") as pub:
        pub.wait_for_readers(timeout=60)
        until(lambda: sampled._before is not None, "a sample")
        for number in range(TIMES):
            until(lambda: not sampled._is_wrong, "the latency is right again")
            while box.counts["it"] <= number:  # of messages that wait, one in 61 is measured
                pub.send(1)
                time.sleep(0.001)
    kill(reader)
    box.box.close()
    wrong = [now > before for before, now in pairwise(measured)]
    begins = wrong[0] + sum(now and not before for before, now in pairwise(wrong))
    assert box.counts["it"] == begins >= TIMES
    tally("triggers fired", TIMES)
