"""Robotics: a ROS 2 bag becomes an archive, tables and a bag again; the two bags are compared. No ROS is installed."""

import tempfile
from pathlib import Path

import numpy as np
from mcap.reader import make_reader
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

import penstock.tables
from penstock.export.mcap import export_mcap, import_mcap

SECOND = 10**9
STARTED = 1_769_860_800 * SECOND


def write_bag(folder: Path) -> Path:
    """A bag of another program: a laser and its pose, ten times a second."""
    store = get_typestore(Stores.ROS2_JAZZY)
    scan, pose = "sensor_msgs/msg/LaserScan", "geometry_msgs/msg/PoseStamped"
    make = store.types
    with Writer(folder, version=9, storage_plugin=StoragePlugin.MCAP) as bag:
        scans = bag.add_connection("/robot/scan", scan, typestore=store)
        poses = bag.add_connection("/robot/pose", pose, typestore=store)
        for n in range(100):
            time_ns = STARTED + n * SECOND // 10
            stamp = make["builtin_interfaces/msg/Time"](time_ns // SECOND, time_ns % SECOND)
            header = make["std_msgs/msg/Header"](stamp, "laser")
            ranges = np.full(360, 1 + n / 100, np.float32)
            made = make[scan](header, 0.0, 6.28, 0.0175, 0.0, 0.1, 0.1, 30.0, ranges, np.zeros(0, np.float32))
            bag.write(scans, time_ns, store.serialize_cdr(made, scan))
            at = make["geometry_msgs/msg/Point"](n / 10, 0.0, 0.0)
            turned = make["geometry_msgs/msg/Quaternion"](0.0, 0.0, 0.0, 1.0)
            where = make[pose](header, make["geometry_msgs/msg/Pose"](at, turned))
            bag.write(poses, time_ns, store.serialize_cdr(where, pose))
    return folder / f"{folder.name}.mcap"


def read_bag(path: Path) -> list[tuple[object, ...]]:
    """All that a bag has of each message, by MCAP's own reader."""
    with open(path, "rb") as file:
        return [
            (
                channel.topic,
                channel.message_encoding,
                schema,
                channel.metadata,
                one.log_time,
                one.publish_time,
                one.data,
            )
            for schema, channel, one in make_reader(file, validate_crcs=True).iter_messages()
        ]


with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    bag = write_bag(folder / "drive")
    archive = penstock.Archive(folder / "archive")
    done = import_mcap(archive, bag, on_skip=lambda text: print("left out:", text))
    print({stream.stream: stream.rows for stream in done.streams}, archive.verify())

    penstock.tables.run(archive.path, folder / "tables")
    lake = penstock.lake(tables=folder / "tables", live=False)
    asked = "select count(*) n, max(pose.position.x) far, min(header.frame_id) frame from 'log:robot/pose'"
    print(lake.sql(asked).to_pylist())
    print(lake.sql("select round(max(ranges[360])::double, 2) farthest from 'log:robot/scan'").to_pylist())

    export_mcap(archive.path, folder / "again.mcap")
    before, after = read_bag(bag), read_bag(folder / "again.mcap")
    print(len(before), "messages; the second bag is the same:", before == after)
