"""Does recording keep up, and what does it cost the writer? 1 KiB messages, and a camera's frames, into memory-backed storage.

The storage is warmed first: a virtual machine's memory is several times slower when the host hands it out for the first
time. The same run measures the throughput of a plain `pwrite` of the same bytes there.
"""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
import time
from typing import Any

import numpy as np

import penstock
from bench.ipc import own_channels, tried
from bench.report import Report
from penstock._native import core

SIZE = 1024
MESSAGE = os.urandom(SIZE)
CASE, PACED = "1 KiB messages", "1 KiB messages at 1 GB/s"
BARE, RECORDED = "no recorder, reader in a process", "recorder in a process"
PLAIN, SUMMED = "plain pwrite of the same bytes", "the same, with their CRC-32C"
TERM = 1 << 24
TERMS = 3 * TERM  # bytes
CAMERA, RATE = "640x480x3 at 60 Hz", 60
ENCODINGS = ("raw", "zstd", "png", "jpeg")


def run(report: Report) -> None:
    """Plain writes, a writer with a plain subscriber, a writer with a recorder, in turn."""
    count, rounds = report.sized(600_000, quick=5_000), report.sized(5, quick=1, short=3)
    with own_channels():
        found: dict[str, list] = {PLAIN: [], SUMMED: [], BARE: [], RECORDED: [], "paced": []}

        def run(who: str, case: str, kept: str | None, measure: Any, *args: Any, **options: Any) -> None:
            value = tried(report, who, case, f"{count:,} messages", measure, *args, **options)
            if value is not None and kept:
                found[kept].append(value)

        run(PLAIN, CASE, None, _plain_write, count)  # warms
        for number in range(rounds):
            run(PLAIN, CASE, PLAIN, _plain_write, count)
            run(SUMMED, CASE, SUMMED, _plain_write, count, summed=True)
            run(BARE, CASE, BARE, _burst, f"log:bare{number}", count, record=False)
            run(RECORDED, CASE, RECORDED, _burst, f"log:rec{number}", count, record=True)
        for number in range(rounds):
            run(RECORDED, PACED, "paced", _paced, f"log:paced{number}", count)
        camera(report)
    for who in (BARE, RECORDED):
        if found[who]:
            report.add(CASE, who, "throughput", [one[0] / 1e9 for one in found[who]], "GB/s")
            report.add(CASE, who, "writer CPU per message", [one[1] for one in found[who]], "ns")
            report.add(CASE, who, "other process' CPU per message", [one[2] for one in found[who]], "ns")
    for who in (PLAIN, SUMMED):
        if found[who]:
            report.add(CASE, who, "throughput", [rate / 1e9 for rate in found[who]], "GB/s")
    if paced := found["paced"]:
        report.add(PACED, RECORDED, "messages refused for want of room", [float(no) for no, _ in paced], "messages")
        report.add(PACED, RECORDED, "rate kept", [rate / 1e9 for _, rate in paced], "GB/s")
    aims(report)


def camera(report: Report) -> None:
    """What a camera's recorder costs in its process, by the encoding of the frames; its start is taken off."""
    count, rounds = report.sized(300, quick=5, short=120), report.sized(3, quick=1, short=1)
    found: dict[str, list[tuple[float, float, float]]] = {asked: [] for asked in ENCODINGS}
    for number in range(rounds):
        start = tried(report, "raw", CAMERA, "no frame", _camera, f"frames:none{number}", "raw", 0)
        for asked in ENCODINGS:
            one = tried(report, asked, CAMERA, f"{count} frames", _camera, f"frames:{asked}{number}", asked, count)
            if one is not None and start is not None:
                cpu, lost, ratio = one
                found[asked].append((max(0.0, cpu - start[0]) / count, lost, ratio))
    for asked, rows in found.items():
        if rows:
            report.add(CAMERA, asked, "recorder's CPU per frame", [cpu / 1e6 for cpu, _, _ in rows], "ms")
            report.add(CAMERA, asked, "cores", [cpu * RATE / 1e9 for cpu, _, _ in rows], "cores")
            report.add(CAMERA, asked, "lost", [lost / count for _, lost, _ in rows], "of 1")
            report.add(CAMERA, asked, "size, of a raw recording", [ratio for _, _, ratio in rows], "of 1")


def _camera(name: str, asked: str, count: int) -> tuple[float, float, float]:
    """(CPU ns of the recorder's process, frames lost, bytes of a raw recording's) at 60 Hz."""
    folder = tempfile.mkdtemp(prefix="penstock-bench-archive-", dir="/dev/shm")
    y, x = np.mgrid[:480, :640]
    scene = np.stack([x / 3 + y / 5, x / 2, y / 2], -1) + np.random.default_rng(7).integers(0, 8, (480, 640, 3))
    frames = [np.roll(scene, step * 7, 1).astype("u1") for step in range(8)]
    try:
        with penstock.publish(name, shape=(480, 640, 3)) as pub:
            used = _ended_cpu()
            archive = penstock.Archive(folder)
            recorder = archive.record(name, process=True, pixels=asked)
            begun = time.perf_counter()
            for number in range(count):
                time.sleep(max(0.0, begun + number / RATE - time.perf_counter()))
                pub.send(frames[number % 8])
            recorder.stop()
            info = archive.find(name)
        return _ended_cpu() - used, float(info.lost_messages or 0), info.ratio or 1.0
    finally:
        shutil.rmtree(folder)


def aims(report: Report) -> None:
    """The aims of a recorder that keeps up."""
    report.at_most(CAMERA, "recorded raw", 0.5, "cores", report.get(CAMERA, "raw", "cores"))
    without = report.get(CASE, BARE, "writer CPU per message")
    with_it = report.get(CASE, RECORDED, "writer CPU per message")
    report.at_least(CASE, "recorded", 1.0, "GB/s", report.get(CASE, RECORDED, "throughput"))
    for bare in (PLAIN, SUMMED):
        report.at_least(CASE, f"recorded, of {bare}", 0.9, "×", report.ratio(CASE, "throughput", RECORDED, bare))
    slower = None if not without or with_it is None else with_it / without
    report.at_most(CASE, "writer CPU with the recorder, of that with a plain reader", 1.05, "×", slower)


def _plain_write(count: int, *, summed: bool = False) -> float:
    """Bytes per second of a process that does nothing but write them in blocks of 256 KiB, as many of these as a log has. summed: and sums
    each block, as a recording does."""
    blocks = [os.urandom(SIZE * 256) for _ in range(TERMS // (SIZE * 256))]
    with tempfile.TemporaryFile(prefix="penstock-bench-", dir="/dev/shm") as file:
        begun = time.perf_counter()
        for number in range(count // 256):
            block = blocks[number % len(blocks)]
            if summed:
                core.crc32c(block, 0)
            os.pwrite(file.fileno(), block, number * len(block))
        return count // 256 * SIZE * 256 / (time.perf_counter() - begun)


def _reader(name: str, count: int, ready) -> None:
    with penstock.subscribe(name) as sub:
        ready.set()
        got = 0
        while got < count:
            rows = sub.poll_arrow(5_000).num_rows
            got += rows
            if not rows:
                penstock.wait([sub], 1)


def _burst(name: str, count: int, *, record: bool) -> tuple[float, float, float]:
    """(payload bytes per second until all is read or durable in memory, CPU ns per message: the writer's, the other process')."""
    import multiprocessing

    folder = tempfile.mkdtemp(prefix="penstock-bench-archive-", dir="/dev/shm")
    pub = penstock.publish(name, term_length=TERM)
    context = multiprocessing.get_context("fork")
    try:
        if record:
            recorder = penstock.Archive(folder).record(name, process=True, sync_interval=1.0)
        else:
            ready = context.Event()
            child = context.Process(target=_reader, args=(name, count, ready))
            child.start()
            ready.wait(30)
        begun, others, cpu = time.perf_counter(), _ended_cpu(), time.thread_time_ns()
        send = pub.send
        for _ in range(count):
            send(MESSAGE)
        cpu = time.thread_time_ns() - cpu
        if record:
            done = recorder.stop()
            assert done[0].messages == count
        else:
            child.join()
        rate = count * SIZE / (time.perf_counter() - begun)
        return rate, cpu / count, (_ended_cpu() - others) / count
    finally:
        pub.close()
        shutil.rmtree(folder)


def _ended_cpu() -> float:
    """CPU ns of the processes that this one started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1e9


def _paced(name: str, count: int) -> tuple[int, float]:
    """(refusals, bytes per second) of a writer that offers 1 GB/s and never waits."""
    folder = tempfile.mkdtemp(prefix="penstock-bench-archive-", dir="/dev/shm")
    pub = penstock.publish(name, term_length=TERM)
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
