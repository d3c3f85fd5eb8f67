"""Does recording keep up, and what does it cost the writer? 1 KiB messages into memory-backed storage.

The storage is warmed first: a virtual machine's memory is several times slower when the host hands it out for the first
time. What a plain `pwrite` of the same bytes reaches there is measured in the same run.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time

import penstock
from bench.log_ipc import own_channels
from bench.report import Report

SIZE = 1024
MESSAGE = os.urandom(SIZE)


def run(report: Report) -> None:
    """Plain writes, a writer with a plain subscriber, a writer with a recorder, in turn."""
    count, rounds = (5_000, 1) if report.quick else (600_000, 5)
    with own_channels():
        bare, recorded, plain = [], [], []
        _plain_write(count)  # warms
        for number in range(rounds):
            plain.append(_plain_write(count))
            bare.append(_burst(f"log:bare{number}", count, record=False))
            recorded.append(_burst(f"log:rec{number}", count, record=True))
        paced = [_paced(f"log:paced{number}", count) for number in range(rounds)]
    case = "1 KiB messages"
    report.add(case, "no recorder, reader in a process", "throughput", [b[0] / 1e9 for b in bare], "GB/s")
    report.add(case, "no recorder, reader in a process", "writer CPU per message", [b[1] for b in bare], "ns")
    report.add(case, "recorder in a process", "throughput", [r[0] / 1e9 for r in recorded], "GB/s")
    report.add(case, "recorder in a process", "writer CPU per message", [r[1] for r in recorded], "ns")
    report.add(case, "plain pwrite of the same bytes", "throughput", [p / 1e9 for p in plain], "GB/s")
    report.add(
        "1 KiB messages at 1 GB/s",
        "recorder in a process",
        "messages refused for want of room",
        [float(p[0]) for p in paced],
        "messages",
    )
    report.add("1 KiB messages at 1 GB/s", "recorder in a process", "rate kept", [p[1] / 1e9 for p in paced], "GB/s")
    without = report.get(case, "no recorder, reader in a process", "writer CPU per message")
    with_it = report.get(case, "recorder in a process", "writer CPU per message")
    report.at_least(case, "recorded", 1.0, "GB/s", report.get(case, "recorder in a process", "throughput"))
    slower = None if not without or with_it is None else with_it / without
    report.at_most(case, "writer CPU with the recorder, of that with a plain reader", 1.05, "×", slower)


def _plain_write(count: int) -> float:
    """Bytes per second of a process that does nothing but write them in blocks of 256 KiB."""
    import concurrent.futures
    import multiprocessing

    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        return pool.submit(_write_blocks, count).result()


def _write_blocks(count: int) -> float:
    with tempfile.TemporaryFile(prefix="penstock-bench-", dir="/dev/shm") as file:
        block = MESSAGE * 256
        begun = time.perf_counter()
        for number in range(count // 256):
            os.pwrite(file.fileno(), block, number * len(block))
        return count // 256 * len(block) / (time.perf_counter() - begun)


def _reader(name: str, count: int, ready) -> None:
    with penstock.subscribe(name) as sub:
        ready.set()
        got = 0
        while got < count:
            rows = sub.poll_arrow(5_000).num_rows
            got += rows
            if not rows:
                penstock.wait([sub], 1)


def _burst(name: str, count: int, *, record: bool) -> tuple[float, float]:
    """(payload bytes per second until all is read or durable in memory, writer's CPU ns per message)."""
    import multiprocessing

    folder = tempfile.mkdtemp(prefix="penstock-bench-archive-", dir="/dev/shm")
    pub = penstock.publish(name, term_length=1 << 24)
    context = multiprocessing.get_context("fork")
    try:
        if record:
            recorder = penstock.Archive(folder).record(name, process=True, sync_interval=1.0)
        else:
            ready = context.Event()
            child = context.Process(target=_reader, args=(name, count, ready))
            child.start()
            ready.wait(30)
        begun, cpu = time.perf_counter(), time.thread_time_ns()
        send = pub.send
        for _ in range(count):
            send(MESSAGE)
        cpu = time.thread_time_ns() - cpu
        if record:
            done = recorder.stop()
            assert done[0].messages == count
        else:
            child.join()
        return count * SIZE / (time.perf_counter() - begun), cpu / count
    finally:
        pub.close()
        shutil.rmtree(folder)


def _paced(name: str, count: int) -> tuple[int, float]:
    """(refusals, bytes per second) of a writer that offers 1 GB/s and never waits."""
    folder = tempfile.mkdtemp(prefix="penstock-bench-archive-", dir="/dev/shm")
    pub = penstock.publish(name, term_length=1 << 24)
    recorder = penstock.Archive(folder).record(name, process=True)
    try:
        per_slice = 500  # messages in each 500 µs
        refused, begun, offer = 0, time.perf_counter(), pub.offer
        for number in range(count // per_slice):
            due = begun + number * per_slice * SIZE / 1e9
            while time.perf_counter() < due:
                pass
            for _ in range(per_slice):
                refused += offer(MESSAGE) is None
        rate = count * SIZE / (time.perf_counter() - begun)
        recorder.stop()
        return refused, rate
    finally:
        pub.close()
        shutil.rmtree(folder)
