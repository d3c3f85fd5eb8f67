"""A robot of six programs, all of them killed with `kill -9` at once. A black box that watched them writes what they had sent, from memory."""

import itertools
import json
import math
import multiprocessing
import os
import queue
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

import penstock
from penstock.export.mcap import export_mcap
from penstock.watch.blackbox import BlackBox, load

CONFIG = Path(__file__).with_name("box.toml")
ENOUGH = 100  # messages of each program before it is killed


def imu() -> None:
    row = np.dtype([("time_ns", "i8"), ("gyro", "f4", 3), ("acc", "f4", 3)])
    with penstock.publish("log:robot/imu", codec=row) as pub:
        for step in itertools.count():
            angle = step / 100
            pub.send(np.array((time.time_ns(), (0, 0, math.sin(angle)), (0, 0, -9.81)), row))
            time.sleep(0.002)


def wheels() -> None:
    with penstock.publish("log:robot/wheels", codec="json") as pub:
        for step in itertools.count():
            pub.send({"left": 1 + step % 7 / 10, "right": 1 + step % 5 / 10})
            time.sleep(0.005)


def battery() -> None:
    with penstock.publish("log:robot/battery", codec="json") as pub:
        for step in itertools.count():
            pub.send({"volts": 12.6 - step / 10_000})
            time.sleep(0.01)


def lidar() -> None:
    row = np.dtype([("ranges", "f4", 90)])
    with penstock.publish("ring:robot/lidar", codec=row) as pub:
        for step in itertools.count():
            pub.send(np.array((np.full(90, 2 + step % 3),), row))
            time.sleep(0.01)


def camera() -> None:
    with penstock.publish("frames:robot/camera", shape=(48, 64), dtype="u1") as pub:
        for step in itertools.count():
            with pub.acquire() as frame:
                frame.array[:] = step % 256
            time.sleep(0.01)


def planner() -> None:
    """Reads the wheels, and says what to do next."""
    with penstock.subscribe("log:robot/wheels") as sub, penstock.publish("log:robot/plan", codec="json") as pub:
        for message in sub:
            pub.send({"turn": message["left"] - message["right"]})


PROGRAMS = (imu, wheels, battery, lidar, camera, planner)


def sent() -> dict[str, int]:
    """How many messages each channel of the robot has had."""
    return {one.channel: one.totals.messages_sent for one in penstock.list_channels("robot/*")}


def crash() -> Any:
    """Starts the robot beside a black box, and kills it. The snapshot that the box took."""
    taken: queue.Queue[Any] = queue.Queue()
    with BlackBox(load(CONFIG), on_snapshot=taken.put):
        robot = [
            multiprocessing.get_context("spawn").Process(target=program, name=program.__name__) for program in PROGRAMS
        ]
        for one in robot:
            one.start()
        while len(counts := sent()) < len(PROGRAMS) or min(counts.values()) < ENOUGH:
            assert all(one.is_alive() for one in robot), "a program ended by itself"
            time.sleep(0.01)
        for one in robot:
            os.kill(one.pid or 0, signal.SIGKILL)
        for one in robot:
            one.join()
        return taken.get(timeout=60)


def main() -> None:
    """Runs in the current folder, and makes black-box/ and robot.mcap there."""
    snapshot = crash()
    print("six programs were killed at once; the black box has written")
    for part in sorted(snapshot.parts, key=lambda part: part.channel):
        print(f"  {part.channel}: {part.messages} messages, {part.lost_bytes} bytes lost")
    archive = penstock.Archive("black-box")
    about = archive.find("log:robot/imu").snapshot or {}
    print(f"because {about['trigger']}; {len(about['processes'])} processes had its channels open")
    print(f"damage: {archive.verify() or 'none'}")

    Path("robot.mcap").unlink(missing_ok=True)
    done = export_mcap("black-box", "robot.mcap")
    print(f"robot.mcap, for Foxglove: {done.rows} messages")

    imus = archive.read("log:robot/imu", decode=True)
    turned = np.stack(imus["gyro"].to_numpy())[:, 2]
    print(f"as a table: {imus.num_rows} rows, with gyro and acc; the last turn was {turned[-1]:+.2f} rad/s")
    last = list(archive.replay("log:robot/plan"))[-1].data
    print(f"the last plan: {json.dumps(last)}")
    for channel in sent():
        penstock.remove(channel)


if __name__ == "__main__":
    main()
