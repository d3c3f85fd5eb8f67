"""How fast are large arrays handed over from Python? By reference, without loss: frames per second, CPU per frame, and whether the size matters."""

from __future__ import annotations

import statistics
import time

import numpy as np

import penstock
from bench import rivals
from bench.ipc import cpu_ns, note_lost, own_channels
from bench.processes import flow
from bench.report import Report
from bench.rivals import frames, frames_varying
from evidence.bounded import Failed

NAMES = ("iceoryx2_loan", "dora_loan", "shm_frames")
SIZES = {64: "64 B", 1 << 20: "1 MiB", 8 << 20: "8 MiB"}
SLOW = {"iceoryx2_loan": 4, "shm_frames": 4, "dora_loan": 40}
NUMPY = "NumPy's part of both"


def run(report: Report) -> None:
    """All of it, everyone in turn, several times, medians."""
    found, report.missing = rivals.load(NAMES)
    everyone = {"penstock": frames, "penstock, sizes vary": frames_varying, **found}
    with own_channels():
        in_one_process(report)
        arrays(report)
        for size, case in SIZES.items():
            for readers in (1, 3):
                between_processes(
                    report, everyone, size, f"{case}, {readers} subscriber{'s' if readers > 1 else ''}", readers
                )
    aims(report)


def in_one_process(report: Report) -> None:
    """CPU time of a hand-over, all sizes in turn: acquire and publish, receive with its array, let go.

    A clock is read between the two, since the pool has few buffers; its own time is measured beside them and taken off.
    """
    count, rounds = (300, 2) if report.quick else (3_000, 40)
    cases = [(size, varies) for size in SIZES for varies in (False, True)]
    ends = {
        (size, varies): (
            penstock.publish(f"frames:one{size}{varies}", shape=(size,), varies=varies, buffers=4),
            penstock.subscribe(f"frames:one{size}{varies}", conflate=False),
        )
        for size, varies in cases
    }
    found: dict[tuple[int, bool], list[tuple[float, float]]] = {case: [] for case in cases}
    clocks = []
    for _ in range(rounds):
        clocks.append(cpu_ns(time.process_time_ns, count))
        for case, (pub, sub) in ends.items():
            publishing = receiving = 0
            shape = case[0] // 2 if case[1] else None
            for _ in range(count):
                begun = time.process_time_ns()
                with pub.acquire(shape=shape) as frame:
                    frame.array[0] = 1
                between = time.process_time_ns()
                assert sub.recv().array[0] == 1
                publishing, receiving = publishing + between - begun, receiving + time.process_time_ns() - between
            found[case].append((publishing / count - clocks[-1], receiving / count - clocks[-1]))
    report.note(
        f"a reading of the clock of CPU time takes {statistics.median(clocks):.0f} ns, which are taken off each call"
    )
    for (size, varies), (pub, sub) in ends.items():
        pub.close()
        sub.close()
        for name, values in zip(("publish", "receive"), zip(*found[size, varies], strict=True), strict=True):
            who = f"penstock {name}, sizes vary" if varies else f"penstock {name}"
            report.add(f"{SIZES[size]}, one process", who, "CPU per frame", list(values), "ns")


def arrays(report: Report) -> None:
    """NumPy's part of both calls: an array over a buffer, one number written or read, read-only at the end."""
    count, rounds = (300, 2) if report.quick else (3_000, 40)
    memory = bytearray(1 << 20)

    def both() -> None:
        array = np.frombuffer(memory, np.uint8)
        array[0] = 1
        array.setflags(write=False)
        assert np.frombuffer(memory, np.uint8)[0] == 1

    found = [cpu_ns(both, count) for _ in range(rounds)]
    report.add("1 MiB, one process", NUMPY, "CPU per frame", found, "ns")


def between_processes(report: Report, everyone: dict, size: int, case: str, readers: int) -> None:
    """Frames per second at the slowest receiver; the order of who runs is turned each round."""
    found: dict[str, list] = {}
    for _ in range(1 if report.quick else 3):
        for who, rival in everyone.items():
            if not report.tries(who, case):
                continue
            try:
                count = 500 if report.quick else (100_000 if readers == 1 else 20_000) // SLOW.get(who, 1)
                found.setdefault(who, []).append(flow(report.limit, rival, size, count, readers))
            except Failed as error:
                report.failed(who, case, error)
    for who, flows in found.items():
        if flows:
            report.add(case, who, "hand-overs", [f.rate for f in flows], "frames/s")
            report.add(case, who, "CPU per send", [f.send_ns for f in flows], "ns")
            report.add(case, who, "CPU per receive", [f.receive_ns for f in flows], "ns")
            note_lost(report, who, case, flows)


def aims(report: Report) -> None:
    """The aims of frames."""
    both = []
    for size in SIZES:
        parts = [
            report.get(f"{SIZES[size]}, one process", f"penstock {name}", "CPU per frame")
            for name in ("publish", "receive")
        ]
        both.append(sum(parts) if all(parts) else None)
    for name in ("publish", "receive"):
        spent = report.get("1 MiB, one process", f"penstock {name}", "CPU per frame")
        report.at_most("1 MiB", f"CPU per {name}", 0.9, "µs", spent / 1e3 if spent else None)
    small, large = both[0], both[-1]
    ratio = large / small if small and large else None
    report.at_most("8 MiB", "hand-over, times that of 64 bytes", 1.3, "×", ratio)
    ratio = report.ratio("1 MiB, 1 subscriber", "hand-overs", "penstock", "iceoryx2_loan")
    report.at_least("1 MiB", "hand-overs, times iceoryx2", 3, "×", ratio)
    flat = [report.get(f"{SIZES[size]}, 1 subscriber", "penstock", "hand-overs") for size in SIZES]
    known = [rate for rate in flat if rate]
    ratio = known[0] / known[-1] if len(known) == 3 else None
    report.at_most("1 subscriber", "hand-overs of 64 B, times those of 8 MiB", 1.3, "×", ratio)
