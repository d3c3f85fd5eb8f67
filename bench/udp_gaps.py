"""How long is a gap open? A stream of single datagrams over a relay that loses 5 % in either direction; for `bench udp`.

A message was lost if it came after its follower should have been there. Its gap was seen when the follower arrived, which is its time
of sending and the usual way; it was filled when the message arrived. Both sides sleep between two messages: on two cores, sides that
spin keep the relay waiting for a core, for milliseconds.
"""

from __future__ import annotations

import contextlib
import statistics
import struct
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import penstock
from bench.ipc import tried
from bench.report import Report
from bench.rivals import loopback, udp_ours
from evidence.bounded import Results, child, context
from evidence.build import build

CASE, WHO = "gap to filled, 5 % lost both ways", "penstock"
APART_S = 250e-6  # between two messages: more than a round trip on loopback
WARM = 400  # messages at first, while the two sides measure their round trip: their gaps do not count
LATE = 3.0  # times the usual way: what comes earlier was not lost


def run(report: Report) -> None:
    """Adds the median and the 99th percentile, in microseconds."""
    found = tried(report, WHO, CASE, "a stream", _gaps, 2_000 if report.quick else 20_000)
    if found is None:
        return
    report.add(CASE, WHO, "gaps", len(found), "gaps")
    report.add(CASE, WHO, "p50", statistics.median(found) / 1e3, "µs")
    report.add(CASE, WHO, "p99", found[min(int(len(found) * 0.99), len(found) - 1)] / 1e3, "µs")


@contextlib.contextmanager
def relay(loss: float) -> Iterator[None]:
    """A relay from the channel "here" to the channel "there", which loses this share of the datagrams in either direction."""
    for name in ("there", "here"):
        loopback.prepare(name, 1, 64)
    program = build("plain", ("net_relay",)) / "tests" / "net_relay"
    command = [str(program), str(loopback.port("here")), str(loopback.port("there")), "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as running:
        assert running.stdin is not None
        running.stdin.write(f"there loss {loss}\nback loss {loss}\n")
        running.stdin.flush()
        try:
            yield
        finally:
            running.stdin.close()  # its end


def _gaps(count: int) -> list[int]:
    """How long each gap was open, in nanoseconds, from the shortest on."""
    ready, results = context.Semaphore(0), Results()
    with relay(0.05), penstock.subscribe(udp_ours.uri("there")) as sub:
        other = child("the sender", _send, count + WARM, ready, results)
        ready.release()
        times = [_received(sub) for _ in range(count + WARM)][WARM:]
        results.done.set()
        other.join()
    usual = statistics.median(came - sent for sent, came in times)
    # Messages behind a gap come together with the one that fills it: only the first of them was lost.
    found = sorted(
        int(came - follower - usual)
        for (_, before), (_, came), (follower, _) in zip(times, times[1:], times[2:], strict=False)
        if came - follower > LATE * usual and came - before > usual
    )
    if not found:
        raise RuntimeError("the relay lost nothing that was waited for")
    return found


def _received(sub: Any) -> tuple[int, int]:
    sent: int = struct.unpack("<q", sub.recv(timeout=udp_ours.BEGIN_S))[0]
    return sent, time.monotonic_ns()


def _send(count: int, ready: Any, results: Results) -> None:
    ready.acquire()
    with penstock.publish(udp_ours.uri("here")) as pub:
        pub.wait_for_readers(1, timeout=udp_ours.BEGIN_S)
        due = time.monotonic()
        for _ in range(count):
            time.sleep(max(due - time.monotonic(), 0))
            pub.send(struct.pack("<q", time.monotonic_ns()))
            due += APART_S
        results.wait()


def aim(report: Report) -> None:
    """The aim for a gap."""
    report.at_most(CASE, "p99", 600, "µs", report.get(CASE, WHO, "p99"))
