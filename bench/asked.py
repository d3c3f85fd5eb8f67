"""The aims of calls, wake-ups, frames and copies, and their places in the results: the first table of docs/performance.md. Runs nothing.

An aim's value, limit and verdict come from the aims of a question; the numbers beside it come from results of the same run.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench import imports, pipes, record, ring, wakes
from bench.ipc import COPIES
from bench.reasons import CALLS

Place = tuple[str, str, str]  # case, who, metric of a result


@dataclass(frozen=True)
class Beside:
    """A number that an aim is seen beside: a rival's, or what the machine allows."""

    who: str
    place: Place


@dataclass(frozen=True)
class Row:
    """A line of the table. aim: case and metric of the question's aim; a note in brackets may follow. before: when the work began."""

    what: str
    question: str
    aim: tuple[str, str]
    before: str
    rivals: tuple[Beside, ...] = ()
    limits: tuple[Beside, ...] = ()
    elsewhere: str = ""  # the rival's value of another run, by which the aim is judged where the rival is missing

    def asks(self, case: str, metric: str) -> bool:
        """Whether this is the row's aim."""
        return case == self.aim[0] and (metric == self.aim[1] or metric.startswith(f"{self.aim[1]} ("))


ONE, THREE, LARGE = "64 B, 1 subscriber", "64 B, 3 subscribers", "1 MiB, 1 subscriber"
ALONE, CPU, RATE = "64 B, one process", "CPU per message", "throughput"
ASKED = "64 B, request and reply"
BARE_CALLS = (
    Beside("a method that does nothing", (CALLS, "a method that does nothing", "CPU per call")),
    Beside("the clock", (CALLS, "the clock", "CPU per call")),
)


def _of_aeron(half: str) -> tuple[Beside, ...]:
    return (Beside("pyaeron", (ALONE, f"pyaeron {half}", CPU)),)


def _wakes() -> list[Row]:
    found = []
    for place in ("apart", "one core", "one core busy"):
        case = f"64 B, round trip, {place}"
        bare, asleep, comes = wakes.BARE, *list(wakes.WAYS)[:2]
        futex, slept = Beside("bare futex", (case, bare, "p50")), Beside("without a spin", (case, asleep, "p50"))
        found.append(
            Row(f"round trip asleep, {place}", "wakes", (case, "sleeping, times a bare futex"), "–", (), (futex,))
        )
        mine = Beside("by default", (case, comes, "p50"))
        before, metric = "–", "as it comes, times without a spin"
        if place == "apart":
            before, metric = "32 to 48 µs", "as it comes"
        found.append(Row(f"round trip by default, {place}", "wakes", (case, metric), before, (), (mine, slept)))
    return found


ROWS = (
    Row(
        "log, 64 B, send",
        "log_ipc",
        ("64 B, one by one", "CPU per send, time stamp included"),
        "98 ns",
        _of_aeron("send"),
        BARE_CALLS,
    ),
    Row(
        "log, 64 B, receive",
        "log_ipc",
        ("64 B, one by one", "CPU per receive"),
        "88 ns",
        _of_aeron("receive"),
        BARE_CALLS,
    ),
    Row("ring, 64 B, send", "ring", ("64 B, one by one", "CPU per send"), "86 ns", (), BARE_CALLS),
    Row("ring, 64 B, receive", "ring", ("64 B, one by one", "CPU per receive"), "85 ns", (), BARE_CALLS),
    Row(
        "pipe, one by one", "pipes", (ONE, "one by one, times pyzmq"), "7.7 ×", (Beside("pyzmq", (ONE, "pyzmq", RATE)),)
    ),
    Row(
        "sync queue, one by one, 64 B", "sync", (ONE, "one by one"), "2.9 M/s", (Beside("pyzmq", (ONE, "pyzmq", RATE)),)
    ),
    Row(
        "three readers on a ring",
        "ring",
        (THREE, "throughput, times msgq"),
        "16 ×",
        (Beside("msgq", (THREE, "msgq", RATE)),),
        elsewhere=f"msgq, in another run: {ring.MSGQ['three']:,.0f} messages/s",
    ),
    *(
        Row(
            f"frames, {half}",
            "frames",
            ("1 MiB", f"CPU per {half}"),
            before,
            (Beside("iceoryx2, loaned", ("1 MiB, 1 subscriber", "iceoryx2_loan", f"CPU per {other}")),),
            (Beside("NumPy's part of both", ("1 MiB, one process", "NumPy's part of both", "CPU per frame")),),
        )
        for half, other, before in (("publish", "send", "4.4 µs"), ("receive", "receive", "3.6 µs"))
    ),
    Row(
        "1 MiB copied in and out",
        "log_ipc",
        ("1 MiB", "rate, of one memcpy in and one out"),
        "0.77 ×",
        (),
        (Beside("the two copies", ("1 MiB, one process", COPIES, "rate")),),
    ),
    Row(
        "1 MiB between processes",
        "log_ipc",
        (LARGE, "throughput, times iceoryx2"),
        "0.38 ×",
        (Beside("iceoryx2", (LARGE, "iceoryx2", RATE)),),
    ),
    Row(
        "request and reply, spinning",
        "pipes",
        (ASKED, "spinning, p50"),
        "1.5 to 3.0 µs",
        (Beside("pyzmq", (ASKED, "zmq_rpc", "p50")),),
        (Beside("two logs", (ASKED, pipes.LOG, "p50")),),
    ),
    *_wakes(),
    Row(
        "recording, 1 KiB",
        "record",
        (record.CASE, "recorded, of a plain pwrite of the same bytes"),
        "0.55 ×",
        (),
        (Beside("pwrite", (record.CASE, record.PLAIN, RATE)), Beside("recorded", (record.CASE, record.RECORDED, RATE))),
    ),
    *(
        Row(
            f"import penstock, {what}",
            "imports",
            (imports.CASE, metric),
            before,
            (Beside("pyzmq", (imports.CASE, "pyzmq", metric)),),
            (Beside("Python alone", (imports.CASE, imports.ALONE, metric)),),
        )
        for what, metric, before in (("CPU", imports.CPU, "180 to 260 ms"), ("memory", imports.MEMORY, "40 MB"))
    ),
)
