"""From MCAP: a program publishes, a recorder records, and an export makes the same file for Foxglove."""

import json
import tempfile

import msgspec
from mcap.reader import make_reader

import penstock
from penstock.export.mcap import export_mcap


class Point(msgspec.Struct):
    x: float
    y: float
    z: float


AT = penstock.Log("robot/at", penstock.objects(Point, schema="foxglove.Point3"))

with tempfile.TemporaryDirectory() as folder:
    archive = penstock.Archive(f"{folder}/drive")
    with penstock.publish(AT) as at, archive.record(AT):
        for n in range(100):
            at.send(Point(n / 10, 0.0, 0.0))
    penstock.remove(AT)
    export_mcap(archive.path, f"{folder}/drive.mcap")
    with open(f"{folder}/drive.mcap", "rb") as read:
        found = [(kind, json.loads(message.data)) for kind, _, message in make_reader(read).iter_messages()]

kind, last = found[-1]
assert kind is not None
print(f"{len(found)} messages of {kind.name}, the last one at {last['x']}")
