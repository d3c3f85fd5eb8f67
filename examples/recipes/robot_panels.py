"""Robotics: what each panel of Foxglove gets from `penstock view`, read by a client of its protocol in place of the app."""

import base64
import contextlib
import io
import json
import struct
import subprocess
import sys
from typing import Any

import msgspec
import numpy as np
from google.protobuf import descriptor_pb2, message_factory
from PIL import Image
from websockets.sync.client import connect

import penstock

FLOAT32 = 7  # Foxglove's number for the type
IMU = np.dtype([("gyro", "<f4", (3,)), ("ticks", "<u4")])


class Time(msgspec.Struct):
    """Foxglove's time."""

    sec: int
    nsec: int = 0


class Axes(msgspec.Struct):
    """A vector or a rotation."""

    x: float = 0.0
    y: float = 0.0
    z: float = 0.0
    w: float = 1.0


class Pose(msgspec.Struct):
    """Where a sensor is."""

    position: Axes = msgspec.field(default_factory=Axes)
    orientation: Axes = msgspec.field(default_factory=Axes)


class Element(msgspec.Struct):
    """A number of a point."""

    name: str
    offset: int
    type: int = FLOAT32


class Cloud(msgspec.Struct):
    """foxglove.PointCloud."""

    timestamp: Time
    frame_id: str
    pose: Pose
    point_stride: int
    fields: list[Element]
    data: bytes


class Log(msgspec.Struct):
    """foxglove.Log."""

    timestamp: Time
    level: int
    message: str
    name: str
    file: str = ""
    line: int = 0


class Joint(msgspec.Struct):
    """foxglove.JointState."""

    name: str
    position: float
    velocity: float = 0.0
    acceleration: float = 0.0
    effort: float = 0.0


class Joints(msgspec.Struct):
    """foxglove.JointStates."""

    timestamp: Time
    joints: list[Joint]


def send_all(opened: contextlib.ExitStack) -> None:
    """One message for each panel. The robot's programs would do this."""

    def publish(name: str, cls: type) -> Any:
        codec = penstock.objects(cls, schema=f"foxglove.{name}")
        return opened.enter_context(penstock.publish(f"log:panels/{name}", codec=codec))

    camera = opened.enter_context(penstock.publish("frames:panels/camera", shape=(48, 64, 3), dtype="u1"))
    camera.send(np.full((48, 64, 3), 200, "u1"))
    points = np.arange(300, dtype="<f4").reshape(100, 3)
    axes = [Element(axis, 4 * at) for at, axis in enumerate("xyz")]
    publish("PointCloud", Cloud).send(Cloud(Time(1), "lidar", Pose(), 12, axes, points.tobytes()))
    imu = opened.enter_context(penstock.publish("log:panels/imu", codec=IMU))
    imu.send(np.array(((0.5, 0.25, -1), 7), IMU))
    publish("Log", Log).send(Log(Time(2), 3, "the battery is low", "power"))
    publish("JointStates", Joints).send(Joints(Time(3), [Joint("hip", 0.5), Joint("knee", 1.5)]))


class Client:
    """Speaks foxglove.sdk.v1: topics as they are advertised, and a message of a topic."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._topics: dict[str, dict[str, Any]] = {}

    def read(self, name: str) -> tuple[dict[str, Any], bytes]:
        """A topic, and the newest message of it."""
        while name not in self._topics:
            self._take(self._socket.recv(timeout=60))
        topic = self._topics[name]
        wanted = [{"id": topic["id"], "channelId": topic["id"]}]
        self._socket.send(json.dumps({"op": "subscribe", "subscriptions": wanted}))
        while True:
            said = self._socket.recv(timeout=60)
            if isinstance(said, str):
                self._take(said)
            elif said[0] == 1 and struct.unpack_from("<I", said, 1)[0] == topic["id"]:
                return topic, said[13:]

    def _take(self, said: str | bytes) -> None:
        if isinstance(said, str):
            self._topics |= {one["topic"]: one for one in json.loads(said).get("channels", ())}


def unpacked(topic: dict[str, Any], body: bytes) -> Any:
    """A protobuf message, by the schema of its topic alone."""
    files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(topic["schema"]))
    return message_factory.GetMessages(files.file)[topic["schemaName"]].FromString(body)


def show(client: Client) -> None:
    """Each panel's reading, as the app would read it."""
    topic, body = client.read("frames:panels/camera")
    message = unpacked(topic, body)
    picture = Image.open(io.BytesIO(message.data))
    print("Image", topic["schemaName"], message.format, picture.size, picture.getpixel((0, 0)))

    topic, body = client.read("log:panels/PointCloud")
    found = json.loads(body)
    points = np.frombuffer(base64.b64decode(found["data"]), "<f4").reshape(-1, found["point_stride"] // 4)
    print("3D", topic["schemaName"], found["frame_id"], [one["name"] for one in found["fields"]], points[-1].tolist())

    topic, body = client.read("log:panels/imu")
    print("Plot", topic["encoding"], topic["schema"].splitlines(), struct.unpack("<3fI", body))

    topic, body = client.read("log:panels/Log")
    found = json.loads(body)
    print("Log", topic["schemaName"], found["level"], found["name"], found["message"])

    topic, body = client.read("log:panels/JointStates")
    rows = [(one["name"], one["position"]) for one in json.loads(body)["joints"]]
    print("Table", topic["schemaName"], rows)


with contextlib.ExitStack() as opened:
    send_all(opened)
    command = [sys.executable, "-m", "penstock", "view", "panels/*", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as view:
        assert view.stdout is not None
        try:
            url = next(word for line in view.stdout for word in line.split() if word.startswith("ws://"))
            with connect(url, subprotocols=["foxglove.sdk.v1"], max_size=None) as socket:  # type: ignore[list-item]
                show(Client(socket))
        finally:
            view.terminate()
