"""dora-rs: a dataflow of Python nodes, which dora starts itself. Arrow arrays are sent, and read in place.

An input below dora's threshold for shared memory asks for the lossless queue policy, which goes through dora's daemon. Larger
messages go through shared memory, where dora drops what finds no room: receivers acknowledge, and a sender that gets no
acknowledgement sends one message more. The daemon's CPU time is in no figure.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.processes import Flow
from evidence.bounded import Failed

dora = importlib.import_module("dora")

ROOT = Path(__file__).parents[2]
SHARED = 4096  # bytes from which dora uses shared memory
PATIENCE = 0.1  # seconds without an acknowledgement after which one message more is sent
LOSSLESS = {"queue_size": 1000, "queue_policy": "backpressure"}


def window(size: int) -> int:
    """Messages that a sender may be ahead of its slowest receiver."""
    return 16 if size >= SHARED else 1000


def flow(size: int, count: int, readers: int, *, loaned: bool = False) -> Flow:
    """Like `bench.processes.flow`: run it bounded."""
    arguments, ahead = (size, count, readers, int(loaned)), window(size)
    taken = {"queue_size": max(ahead, 64)} if size >= SHARED else LOSSLESS
    sender = {
        "outputs": ["data"],
        "inputs": {f"got{i}": {"source": f"receiver{i}/got", **LOSSLESS} for i in range(readers)},
        "shared_memory_pool_size": f"{max(64, 16 * ahead * size >> 20)}MB",
    }
    receiver = {"outputs": ["got"], "inputs": {"data": {"source": "sender/data", **taken}}}
    nodes = {"sender": ("send", sender)} | {f"receiver{i}": ("receive", receiver) for i in range(readers)}
    found = _run(nodes, arguments)
    cpu, sent = found.pop("sender")
    slowest = max(wall for wall, _, _ in found.values())
    received = sum(cpu for _, cpu, _ in found.values()) / readers
    lost = sent - min(got for _, _, got in found.values())
    return Flow(count / (slowest / 1e9), cpu / count, received / count, lost)


def round_trips(size: int, count: int) -> list[float]:
    """Like `bench.processes.round_trips`: run it bounded."""
    there, back = ({"data": {"source": f"{other}/data"}} for other in ("echo", "asker"))
    shared = {"outputs": ["data"], "shared_memory_pool_size": f"{max(64, 64 * size >> 20)}MB"}
    nodes = {"asker": ("ask", {**shared, "inputs": there}), "echo": ("echo", {**shared, "inputs": back})}
    times: list[float] = _run(nodes, (size, count))["asker"]
    return sorted(times[count // 10 :])


def _run(nodes: dict[str, tuple[str, dict[str, Any]]], arguments: tuple[int, ...]) -> dict[str, Any]:
    """What each node that has a result wrote."""
    with tempfile.TemporaryDirectory() as folder:
        given = " ".join(map(str, arguments))
        described = [
            {
                "id": name,
                "path": sys.executable,
                "args": f"-m bench.rivals.dora {folder}/{name}.json {role} {given}",
                **node,
            }
            for name, (role, node) in nodes.items()
        ]
        Path(folder, "dataflow.yml").write_text(json.dumps({"nodes": described}))
        done = subprocess.run(
            [sys.executable, "-c", "import dora; dora.run('dataflow.yml')"],
            env=os.environ | {"PYTHONPATH": str(ROOT), "DORA_LOG_LEVEL": "error"},
            cwd=folder,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise Failed(f"dora run died: {(done.stdout + done.stderr)[-300:].strip()}")
        return {path.stem: json.loads(path.read_text()) for path in Path(folder).glob("*.json")}


# ---- nodes ----


def _array(size: int) -> Any:
    return pa.Array.from_buffers(pa.uint8(), size, [None, pa.py_buffer(os.urandom(size))])


def _send(node: Any, size: int, count: int, readers: int, loaned: int) -> tuple[int, int]:
    data, ahead, got = _array(size), window(size), {f"got{i}": 0 for i in range(readers)}
    sent = again = 0
    cpu = time.process_time_ns()

    def send() -> None:
        if loaned:
            with node.send_output_raw("data", size) as buffer:
                np.frombuffer(buffer, "u1")[0] = 1
        else:
            node.send_output("data", data)

    while min(got.values()) < count:
        if sent < count and sent - min(got.values()) < ahead:
            send()
            sent += 1
            continue
        event = node.next(timeout=PATIENCE)
        if event["type"] == "INPUT":
            got[event["id"]] = event["metadata"]["got"]
        elif event["type"] == "ERROR":  # so dora says that the time is over
            send()
            again += 1
    cpu = time.process_time_ns() - cpu
    time.sleep(0.2)  # an output that closes may drop what is on its way
    return cpu, sent + again


def _receive(node: Any, size: int, count: int, readers: int, loaned: int) -> tuple[int, int, int]:
    got, step = 0, window(size) // 4
    for event in node:
        if event["type"] == "STOP":
            break
        if event["type"] != "INPUT":
            continue
        assert len(event["value"]) == size
        got += 1
        if got == 1:
            cpu, begun = time.process_time_ns(), time.perf_counter_ns()
        elif got == count:
            found = time.perf_counter_ns() - begun, time.process_time_ns() - cpu
        if got % step == 0 or got >= count:
            node.send_output("got", b"", {"got": min(got, count)})
    return (*found, got)


def _ask(node: Any, size: int, count: int) -> list[int]:
    data, times = _array(size), []
    for _ in range(count):
        begun = time.perf_counter_ns()
        node.send_output("data", data)
        while (event := node.next(timeout=1))["type"] != "INPUT":
            if event["type"] == "ERROR":
                raise Failed("a message was lost")
        times.append(time.perf_counter_ns() - begun)
    return times


def _echo(node: Any, size: int, count: int) -> None:
    for event in node:
        if event["type"] == "STOP":
            break
        if event["type"] == "INPUT":
            node.send_output("data", event["value"])


if __name__ == "__main__":
    role = {"send": _send, "receive": _receive, "ask": _ask, "echo": _echo}[sys.argv[2]]
    found = role(dora.Node(), *map(int, sys.argv[3:]))
    if found is not None:
        Path(sys.argv[1]).write_text(json.dumps(found))
