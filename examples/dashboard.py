"""A dashboard over two sensors that are being recorded: each line is one query over memory and recording, up to now."""

import math
import multiprocessing
import tempfile
import time
from multiprocessing.synchronize import Event
from pathlib import Path

import penstock

QUERY = """
select count(*) as rows, round(avg(imu.x), 3) as mean, round(max(imu.x) - min(imu.x), 3) as swing,
       (select count(*) from 'log:dashboard/speed') as speeds
from 'log:dashboard/imu' imu where time > now() - interval 1 minute
"""


def sense(name: str, shift: float, stop: Event) -> None:
    """Publishes a wave until it is told to stop."""
    with penstock.publish(name, codec="json") as sensor:
        step = 0
        while not stop.is_set():
            sensor.send({"x": math.sin(step / 50 + shift)})
            step += 1
            time.sleep(0.002)


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    names = ["log:dashboard/imu", "log:dashboard/speed"]
    sensors = [context.Process(target=sense, args=(name, shift, stop)) for shift, name in enumerate(names)]
    for sensor in sensors:
        sensor.start()
    with tempfile.TemporaryDirectory() as folder:
        archive = penstock.Archive(Path(folder, "archive"))
        with archive.record(names, start="earliest"):
            lake = penstock.lake(archive=archive)
            for name in names:  # both sensors have begun
                while name not in lake.tables() or lake.reader(name, columns=["position"]).read_all().num_rows == 0:
                    time.sleep(0.05)
            for _ in range(5):
                time.sleep(0.2)
                (line,) = lake.sql(QUERY).to_pylist()
                print(line)
        stop.set()
        for sensor in sensors:
            sensor.join()
    for name in names:
        penstock.remove(name)
