"""Does a message cost more when something grows? Channels of 64 KiB to 1 GiB, 1 to 64 readers, messages of 8 B to 64 MiB, archives of 1 MB to 50 GB.

One thread of one process sends a burst and then receives it, so that only the calls are measured: CPU time, medians.
`--plot` draws a panel for each kind and each thing that grows.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import penstock
from bench.ipc import tried
from bench.report import Report
from bench.sparse import ARCHIVE_BYTES, QUICK_ARCHIVE_BYTES, times

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
CAPACITY, READERS, MEMBERS, MESSAGE, RECORDED = "capacity", "readers", "members", "message size", "bytes recorded"
CAPACITIES = (64 * KIB, 512 * KIB, 4 * MIB, 32 * MIB, 256 * MIB, GIB)
COUNTS = (1, 2, 4, 8, 16, 32, 64)
SIZES = (8, 64, 512, 4 * KIB, 32 * KIB, 256 * KIB, 2 * MIB, 16 * MIB, 64 * MIB)
SMALL, BURST = 64, 128  # bytes of a message where its size does not grow; messages in a burst
FRAME, BUFFERS = 32 * KIB, 4  # bytes of a frame and frames in a pool, where that does not grow
ROUNDS = 40
COPIES = "memcpy in + out"
FLAT, LINEAR = 2.0, 1.5  # how far the end of a line may lie above its promise
LINES = True  # of --plot: a line for each metric
UNITS = {"B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB, "GB": 10**9}


def label(value: int) -> str:
    """A number of bytes as the tables show it: 64 KiB."""
    unit = next(name for name in ("GiB", "MiB", "KiB", "B") if value >= UNITS[name])
    return f"{value // UNITS[unit]} {unit}"


def number(text: str) -> float:
    """The number that a label shows."""
    value, _, unit = text.partition(" ")
    return float(value) * UNITS.get(unit, 1)


@dataclass(frozen=True)
class Kind:
    """A kind of channel: the options for a capacity and for so many readers.

    capacities: the least and the most that are measured; a file may be larger than its capacity. room: how many messages a capacity must hold for the
    largest message to fit. by_reference: nothing is copied. shared: each message goes to one reader.
    """

    name: str
    options: Callable[[int, int], dict[str, Any]]
    capacities: tuple[int, int] = (64 * KIB, GIB)
    room: int = 4
    ends: str = READERS
    by_reference: bool = False
    shared: bool = False

    def axes(self, *, quick: bool) -> dict[str, tuple[int, ...]]:
        """The things that grow, and their points."""
        found = {
            CAPACITY: tuple(one for one in CAPACITIES if self.capacities[0] <= one <= self.capacities[1]),
            self.ends: COUNTS if self.ends == READERS else COUNTS[1:],
            MESSAGE: SIZES,
        }
        return {axis: points[:2] + points[3:4] for axis, points in found.items()} if quick else found


TERMS = (64 * KIB, 256 * MIB)  # the file of a log has three of them
BUFFERS_MAX = (BUFFERS * FRAME, 1024 * FRAME)
KINDS = (
    Kind("log", lambda capacity, _: {"term_length": capacity, "max_members": 128}, TERMS),
    Kind("ring", lambda capacity, _: {"capacity": capacity, "max_members": 128}),
    Kind("sync", lambda capacity, _: {"capacity": capacity, "max_members": 128}, TERMS, ends=MEMBERS),
    Kind(
        "pipe",
        lambda capacity, readers: {"capacity": capacity, "max_pipes": readers + 1, "max_members": 128},
        shared=True,
    ),
    Kind(
        "frames", lambda capacity, _: {"buffers": capacity // FRAME, "max_members": 128}, BUFFERS_MAX, by_reference=True
    ),
)


def run(report: Report) -> None:
    """Each kind in turn, then archives, then what was promised."""
    for kind in KINDS:
        for axis, points in kind.axes(quick=report.quick).items():
            case = f"{kind.name}, by {axis}"
            rounds = report.sized(ROUNDS, quick=2, short=20)
            found = tried(report, kind.name, case, "its rounds", measure, kind, axis, points, rounds)
            for point, costs in (found or {}).items():
                for metric, ns in costs.items():
                    report.add(case, str(point) if axis in (READERS, MEMBERS) else label(point), metric, ns / 1e3, "µs")
    sizes = QUICK_ARCHIVE_BYTES if report.quick else ARCHIVE_BYTES
    found = tried(report, "archive", "archive", "its rounds", times, sizes, report.sized(9, quick=1))
    for size, costs in (found or {}).items():
        for metric, s in costs.items():
            report.add(f"archive, by {RECORDED}", f"{size / 1e9:g} GB", metric, s * 1e3, "ms")
    aims(report)


@dataclass(frozen=True)
class Ends:
    """The calls of a channel: `send` takes the message, each reader has one `receive`."""

    send: Callable[[Any], Any]
    receive: tuple[Callable[[], Any], ...]
    message: bytes
    burst: int
    shared: bool


def measure(kind: Kind, axis: str, points: tuple[int, ...], rounds: int) -> dict[int, dict[str, float]]:
    """CPU time of a call at each point, in ns. The points are measured in turn where they fit into memory together."""
    found: dict[int, dict[str, list[float]]] = {point: {} for point in points}
    with contextlib.ExitStack() as stack:
        if axis != MESSAGE:
            every = {point: stack.enter_context(opened(kind, axis, point)) for point in points}
            for _ in range(rounds):
                for point, ends in every.items():
                    note(found[point], ends)
    for point in points if axis == MESSAGE else ():  # one after another: the largest have half a GiB
        with opened(kind, axis, point) as ends:
            for _ in range(rounds if len(ends.message) < MIB else 5):
                note(found[point], ends)
                if not kind.by_reference:
                    note_copies(found[point], ends)
    return {
        point: {metric: statistics.median(values[len(values) // 4 :]) for metric, values in costs.items()}
        for point, costs in found.items()
    }


@contextlib.contextmanager
def opened(kind: Kind, axis: str, point: int) -> Iterator[Ends]:
    """A channel with its handles, once written through and read."""
    size = point if axis == MESSAGE else FRAME if kind.by_reference else SMALL
    if axis == CAPACITY:
        capacity = point
    else:
        capacity = (
            FRAME * BUFFERS if kind.by_reference else max(64 * KIB, 1 << (kind.room * (size + 64) - 1).bit_length())
        )
    readers = point if axis == READERS else point - 1 if axis == MEMBERS else 1
    burst = 2 if kind.by_reference else max(1, min(BURST, capacity // 4 // (size + 64)))
    channel = f"{kind.name}:grows-{point}"
    options = kind.options(capacity, readers)
    with contextlib.ExitStack() as stack:
        if kind.by_reference:
            send, *receive = frames(stack, channel, options, size, readers)
        elif kind.ends == MEMBERS:
            members = [stack.enter_context(penstock.join(channel, **options)) for _ in range(readers + 1)]
            send, *receive = members[0].send, *(member.try_recv for member in members[1:])
        else:
            send = stack.enter_context(penstock.publish(channel, **options)).send
            receive = [stack.enter_context(penstock.subscribe(channel)).try_recv for _ in range(readers)]
        ends = Ends(
            send,
            tuple(receive),
            b"" if kind.by_reference else bytes(size),
            burst * (readers if kind.shared else 1),
            kind.shared,
        )
        penstock.remove(channel)  # the open handles keep it
        lap(ends, 0 if kind.by_reference else capacity * (3 if kind.name in ("log", "sync") else 1))
        yield ends


def frames(stack: contextlib.ExitStack, channel: str, options: dict[str, Any], size: int, readers: int) -> list[Any]:
    """The calls of a channel of frames."""
    pub = stack.enter_context(penstock.publish(channel, shape=(size,), **options))
    subs = [stack.enter_context(penstock.subscribe(channel, conflate=False)) for _ in range(readers)]

    def send(_: Any) -> None:
        with pub.acquire() as frame:
            frame.array[0] = 1

    return [send, *(sub.try_recv for sub in subs)]


def lap(ends: Ends, capacity: int) -> None:
    """Once through the channel, with large messages: afterwards the kernel has given out its pages."""
    large = bytes(max(len(ends.message), min(capacity // 64, MIB)))
    for _ in range(capacity // (len(large) + 1) + 2):
        ends.send(large)
        for receive in ends.receive:
            while receive() is not None:
                pass


def note(costs: dict[str, list[float]], ends: Ends) -> None:
    """CPU time of each send and receive of a few bursts."""
    clock, send, message, burst = time.thread_time_ns, ends.send, ends.message, ends.burst
    repeats = 1 if len(message) >= MIB else max(1, BURST // burst)
    sending = receiving = 0
    for _ in range(repeats):
        begun = clock()
        for _ in range(burst):
            send(message)
        between = clock()
        for receive in ends.receive:
            if ends.shared:
                while receive() is not None:
                    pass
            else:
                for _ in range(burst):
                    receive()
        sending, receiving = sending + between - begun, receiving + clock() - between
    costs.setdefault("send", []).append(sending / burst / repeats)
    received = burst if ends.shared else burst * len(ends.receive)
    costs.setdefault("receive", []).append(receiving / received / repeats)


_place = bytearray()


def note_copies(costs: dict[str, list[float]], ends: Ends) -> None:
    """The two copies that a message of that size is, and nothing else."""
    global _place
    clock, message, size = time.thread_time_ns, ends.message, len(ends.message)
    if len(_place) != 4 * size:
        _place = bytearray(4 * size)
    place = memoryview(_place)
    repeats = 1 if size >= MIB else BURST // 4
    begun = clock()
    for _ in range(repeats):
        for at in range(0, 4 * size, size):
            place[at : at + size] = message
            bytes(place[at : at + size])
    costs.setdefault(COPIES, []).append((clock() - begun) / 4 / repeats)


def line(report: Report, case: str, *metrics: str) -> dict[float, float]:
    """The points of a line: what grows → the sum of these metrics."""
    found: dict[float, float] = {}
    for row in report.results:
        if row.case == case and row.metric in metrics:
            found[number(row.who)] = found.get(number(row.who), 0.0) + row.value
    return found


def aims(report: Report) -> None:
    """The promises: flat, or linear with the slope of the two copies."""
    for kind in KINDS:
        for axis in (CAPACITY, kind.ends, *((MESSAGE,) if kind.by_reference else ())):
            flat(report, kind.name, axis, "send", "receive")
        if not kind.by_reference and not report.quick:
            case = f"{kind.name}, by {MESSAGE}"
            ours, copies = line(report, case, "send", "receive"), line(report, case, COPIES)
            grown = ours[max(ours)] / copies[max(ours)] if ours and copies else None
            report.at_most(kind.name, f"linear by {MESSAGE}: 64 MiB, times two copies", LINEAR, "×", grown)
    for metric in ("open", "list"):
        flat(report, "archive", RECORDED, metric)
    spent = line(report, f"archive, by {RECORDED}", "plan")
    if spent and not report.quick:
        per_gb = spent[max(spent)] / (max(spent) / 1e9)
        report.at_most("archive", f"at most linear by {RECORDED}: plan, for each GB", 10, "ms", per_gb)


def flat(report: Report, name: str, axis: str, *metrics: str) -> None:
    """An aim: no point of the line is dearer than the first one, but for caches."""
    case = f"{name}, by {axis}"
    costs = [cost for _, cost in sorted(line(report, case, *metrics).items())]
    grown = max(costs[1:]) / costs[0] if costs else None
    report.at_most(name, f"flat by {axis}: {' + '.join(metrics)}, the dearest point, times the first", FLAT, "×", grown)
