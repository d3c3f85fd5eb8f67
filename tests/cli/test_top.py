"""`penstock top`: rates from counts, a screen that fits its terminal, keys, and a terminal left as it was."""

import codecs
import contextlib
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from fcntl import ioctl

import pytest
from conftest import heed_interrupts

import penstock
from penstock import cli
from penstock.cli.channels import top
from penstock.cli.terminal import fitting, screen
from penstock.watch import rates

COMMAND = (sys.executable, "-m", "penstock")


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def look(made, clock, passed):
    clock.now += passed
    return {rate.status.channel: rate for rate in made.update(penstock.list_channels())}


def test_rates_are_the_differences_of_counts_by_time():
    clock = Clock()
    made = rates.Rates(clock)
    with penstock.publish("log:a") as pub, penstock.subscribe("log:a") as sub, penstock.publish("ring:b") as ring:
        assert look(made, clock, 0)["log:a"].messages == 0
        for _ in range(30):
            pub.send(b"12345")
        sub.poll()
        ring.send(b"x")
        found = look(made, clock, 2)
        assert (found["log:a"].messages, found["log:a"].bytes, found["ring:b"].messages) == (15, 75, 0.5)
        assert {one.member.role: one.messages for one in found["log:a"].members} == {
            "publication": 15,
            "subscription": 15,
        }
        assert look(made, clock, 2)["log:a"].messages == 0
        assert look(made, clock, 0)["log:a"].messages == 0, "no time has passed"
        assert found["log:a"].history == (rates.Sample(15, 75, 0, 0, 0, found["log:a"].latency.quantile_ns(0.99)),)


def test_a_channel_made_again_begins_anew():
    clock = Clock()
    made = rates.Rates(clock)
    with penstock.publish("log:a") as pub:
        for _ in range(9):
            pub.send(b"x")
        look(made, clock, 0)
    penstock.remove("log:a")
    with penstock.publish("log:a") as pub:
        pub.send(b"x")
        found = look(made, clock, 1)["log:a"]
    assert (found.messages, found.history) == (0, ())


def test_losses_are_seen():
    clock = Clock()
    made = rates.Rates(clock)
    with penstock.publish("ring:r", capacity=1 << 16) as pub, penstock.subscribe("ring:r") as sub:
        look(made, clock, 0)
        for _ in range(5000):
            pub.send(b"x" * 100)
        while sub.try_recv() is not None:
            pass
        found = look(made, clock, 1)["ring:r"]
        assert found.lost == sub.lost_messages if hasattr(sub, "lost_messages") else found.lost > 0
        assert not found.loses_bytes


@pytest.mark.parametrize(
    ("values", "width", "drawn"),
    [
        ((), 3, "   "),
        ((0, 0), 3, "   "),
        ((1,), 3, "  █"),
        ((0, 4, 8), 3, " ▄█"),
        ((1e-9, 8), 2, "▁█"),
        ((9, 9, 9, 1, 8), 2, "▁█"),
        ((1,), 0, ""),
    ],
)
def test_sparkline(values, width, drawn):
    assert top.sparkline(values, width) == drawn


@pytest.fixture
def busy():
    made, clock = rates.Rates(Clock()), None
    clock = made._clock
    names = ["log:a", "log:a-name-that-is-rather-long-for-a-column", "ring:" + "x" * 128, "sync:s"]
    handles = [penstock.publish(name) for name in names]
    made.update(penstock.list_channels())
    for number, handle in enumerate(handles, 1):
        for _ in range(number * 1000):
            handle.offer(b"12345678")
    clock.now += 1
    yield made.update(penstock.list_channels())
    for handle in handles:
        handle.close()


@pytest.mark.parametrize("width", [40, 60, 80, 100, 132, 200, 400])
@pytest.mark.parametrize("members", [False, True])
def test_no_line_is_longer_than_the_terminal(busy, width, members):
    lines = [screen.join_line(line) for line in top.draw(top.View(rates=busy, members=members), width)]
    assert max(map(len, lines)) <= width, lines
    if width < 60:
        return
    for line in lines[2:]:
        assert line.startswith(("log:", "ring:", "sync:", "  ")), line
    assert sum(line.startswith(("log:", "ring:", "sync:")) for line in lines) == 4
    title = lines[1].split()
    assert {"channel", "messages/s", "lag", "lost/s"} <= set(title)
    assert ("p99" in title) == (width >= 80)
    assert ("codec" in title) == (width >= 200)


@pytest.mark.parametrize("width", [8, 12, 20, 40])
def test_two_names_never_look_the_same(width):
    names = ["log:a", "log:" + "x" * 60]
    names += [f"log:robot/front_left/camera_{n}/info" for n in range(20)]
    names += [f"log:robot/{n}/front_left/camera/depth/image/compressed" for n in range(300)]
    names += ["log:" + "y" * 30 + one + "y" * 30 for one in "abc"]
    names += ["log:" + "z" * n for n in range(40, 50)]
    found = fitting.shortened(names, width)
    assert found.keys() == set(names)
    assert len(set(found.values())) == len(names)
    assert max(map(len, found.values())) <= width
    assert found["log:a"] == "log:a"


def test_eighty_columns_have_room_for_a_members_command():
    """The command matters more than the median: it stands whole beside the pid, the rate, the lag and p99."""
    clock = Clock()
    made = rates.Rates(clock)
    with penstock.publish("pipe:jobs") as pub, penstock.subscribe("pipe:jobs") as sub:
        look(made, clock, 0)
        for _ in range(1000):
            pub.send(b"x")
            sub.recv()
        found = look(made, clock, 1)["pipe:jobs"]
        lines = [screen.join_line(line) for line in top._members(found, 80)]
    (reading,) = [line for line in lines if "p99" in line]
    assert "1,000/s  lag 0 B  p99" in reading
    assert f"pid {os.getpid()}" in reading
    assert reading.count(str(os.getpid())) == 1, "a peer without a name is not named by its number again"
    assert reading.split("p99 ")[1].split("  ")[1].startswith("python"), reading


def test_a_low_terminal_says_what_it_hides(busy):
    lines = [screen.join_line(line) for line in top.draw(top.View(rates=busy), 100, 4)]
    assert len(lines) == 4
    assert lines[-1] == "… 3 lines more"


def test_keys(busy):
    view = top.View(rates=busy)
    order = [rate.status.channel for rate in view.ordered()]
    view.press("r")
    assert [rate.status.channel for rate in view.ordered()] != order
    sorts = set()
    for _ in range(len(top.SORTS)):
        sorts.add(view.sort)
        view.ordered()
        view.press("s")
    assert sorts == set(top.SORTS)
    view.press("m")
    view.press(" ")
    view.press("+")
    view.press("x")
    assert (view.members, view.paused, view.every, view.ended) == (True, True, 0.5, False)
    for _ in range(99):
        view.press("+")
    assert view.every == top.FASTEST
    view.press("q")
    assert view.ended


def test_json_and_plain_text(capfd):
    with penstock.publish("log:a", codec="json"), penstock.publish("ring:b"):
        assert cli.run(["top", "--json", "-n", "2", "--every", "0.1"]) == 0
        rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
        assert [row["channel"] for row in rows] == ["log:a", "ring:b"] * 2
        assert {"messages_per_s", "bytes_per_s", "lost_per_s", "lag", "members"} <= rows[0].keys()
        assert cli.run(["top", "log:a", "-n", "1", "--every", "0.1", "--members"]) == 0
        said = capfd.readouterr().out
        assert "log:a" in said
        assert "ring:b" not in said
        assert f"pid {os.getpid()}" in said
        assert "\x1b" not in said


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--every", "0"), "penstock: --every is 0.0: it must be from 0.1 to 3600 seconds"),
        (("--every", "nan"), "penstock: --every is nan: it must be from 0.1 to 3600 seconds"),
        (("-n", "0"), "penstock: --count is 0: it must be a number of refreshes from 1 on"),
        (("log:none",), "penstock: there is no channel log:none"),
    ],
)
def test_refusals(capfd, arguments, error):
    assert cli.run(["top", *arguments]) == 1
    assert capfd.readouterr().err.splitlines() == [error]


class Terminal:
    """The command on a terminal of its own."""

    def __init__(self, *arguments, columns=100):
        self.master, slave = pty.openpty()
        ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        environment = {**os.environ, "TERM": "xterm"}
        for name in ("COLUMNS", "LINES"):
            environment.pop(name, None)
        self.process = subprocess.Popen(
            [*COMMAND, "top", *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
            preexec_fn=heed_interrupts,
        )
        self.said, self.decoder = "", codecs.getincrementaldecoder("utf-8")()

    def read(self):
        """What it has said; at least a byte. A page may end within a character."""
        said = os.read(self.master, 65536)
        self.said += self.decoder.decode(said)
        return said

    def until(self, pattern):
        while not re.search(pattern, self.said):
            self.read()

    def press(self, keys):
        self.said = ""
        os.write(self.master, keys.encode())

    def end(self):
        """Reads on until it has ended: it waits for room on its terminal."""
        os.set_blocking(self.master, False)
        end = time.monotonic() + 60
        while self.process.poll() is None:
            assert time.monotonic() < end
            if select.select([self.master], [], [], 0.05)[0]:
                self.read()
        with contextlib.suppress(BlockingIOError):
            while self.read():  # it gives a page at a time
                pass
        same = termios.tcgetattr(self.slave) == self.before
        os.close(self.master)
        os.close(self.slave)
        return self.process.returncode, same


def test_on_a_terminal():
    with penstock.publish("log:a") as pub:
        shown = Terminal("--every", "0.1")
        shown.until(r"log:a")
        assert "\x1b[?1049h" in shown.said
        pub.send(b"x")
        shown.press("m")
        shown.until(rf"pid {os.getpid()}")
        shown.press(" ")
        shown.until("paused")
        shown.press("s")
        shown.until("by bytes")
        shown.press("q")
        assert shown.end() == (0, True)
        assert shown.said.endswith("\x1b[?25h\x1b[?1049l")


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_the_terminal_as_it_was(sent):
    with penstock.publish("log:a"):
        shown = Terminal("--every", "60")
        shown.until("log:a")
        shown.process.send_signal(sent)
        assert shown.end() == (128 + sent, True)
        assert "\x1b[?1049l" in shown.said
