"""`penstock view`: a client that speaks Foxglove's protocol subscribes to topics, and decodes messages to what was sent."""

import base64
import io
import json
import struct
import subprocess
import sys
import threading

import numpy as np
import pytest
from viewer import Client, Serving

import penstock
from penstock import cli
from penstock.export import live
from penstock.export.mcap_schemas import schema_name

pytest.importorskip("foxglove", reason="the view needs penstock[foxglove]")
pytest.importorskip("websockets.sync.client", reason="the client is websockets")

IMU = np.dtype([("t", "<f8"), ("gyro", "<f4", (3,)), ("n", "<u2")])


def received(pub, client, message, until):
    """Sends until the client, whose subscription takes a moment, gets a message. The message and its time."""
    done = threading.Event()

    def send():
        while not done.wait(0.02):
            pub.send(message)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        while True:
            number, time_ns, body = client.next()
            if number == until:
                return time_ns, body
    finally:
        done.set()
        sender.join()


def test_json_and_records_are_what_was_sent():
    record = np.array((1.5, (1, 2, 3), 7), IMU)[()]
    with (
        penstock.publish("log:pose", codec="json") as pose,
        penstock.publish("ring:imu", codec=IMU) as imu,
        Serving() as s,
    ):
        pose.send({"x": 2, "name": "é"})
        topic = s.client.topic("log:pose")
        assert (topic["encoding"], topic["schemaEncoding"], topic["schemaName"]) == (
            "json",
            "jsonschema",
            schema_name("log:pose", topic["schema"].encode()),
        )
        assert json.loads(topic["schema"])["type"] == "object"
        time_ns, body = received(pose, s.client, {"x": 2, "name": "é"}, s.client.subscribe("log:pose"))
        assert json.loads(body) == {"x": 2, "name": "é"}
        assert penstock.inspect("log:pose").created_ns <= time_ns
        imu.send(record)
        topic = s.client.topic("ring:imu")
        assert (topic["encoding"], topic["schemaEncoding"]) == ("ros1", "ros1msg")
        assert topic["schema"] == "float64 t\nfloat32[3] gyro\nuint16 n\n"
        _, body = received(imu, s.client, record, s.client.subscribe("ring:imu"))
        assert np.frombuffer(body, IMU)[0] == record


def test_protobuf_messages_have_their_own_schema():
    poses = pytest.importorskip("poses", reason="needs protobuf")
    pose = poses.message_class()
    with penstock.publish("log:pose", codec=pose) as pub, Serving() as s:
        pub.send(pose(x=1.5, mode=1))
        topic = s.client.topic("log:pose")
        assert (topic["encoding"], topic["schemaEncoding"], topic["schemaName"]) == (
            "protobuf",
            "protobuf",
            "robot.Pose",
        )
        _, body = received(pub, s.client, pose(x=1.5, mode=1), s.client.subscribe("log:pose"))
        found = poses.decoded(topic["schemaName"], base64.b64decode(topic["schema"]), body)
        assert (found.x, found.mode) == (1.5, 1)


def test_members_messages_come_without_their_header():
    with penstock.join("sync:s", codec="json") as one, Serving() as s:
        one.send({"a": 2})
        _, body = received(one, s.client, {"a": 2}, s.client.subscribe("sync:s"))
        assert json.loads(body) == {"a": 2}


def fields(body):
    """A protobuf message's fields of bytes, by number."""
    found, at = {}, 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = body[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(body):
        key = number()
        if key & 7 == 2:
            length = number()
            found[key >> 3] = body[at : at + length]
            at += length
        elif key & 7 == 5:
            found[key >> 3] = struct.unpack_from("<I", body, at)[0]
            at += 4
        else:
            found[key >> 3] = number()
    return found


class Camera:
    """Publishes one picture again and again."""

    def __init__(self, pub, pixels):
        self.pub, self.pixels = pub, pixels

    def send(self, _):
        with self.pub.acquire() as frame:
            frame.array[...] = self.pixels


def test_frames_are_compressed_pictures():
    image = pytest.importorskip("PIL.Image", reason="JPEG needs pillow")
    pixels = np.zeros((48, 64, 3), "u1")
    pixels[:, :32] = (250, 10, 10)
    with penstock.publish("frames:cam", shape=pixels.shape) as pub, Serving() as s:
        Camera(pub, pixels).send(None)
        assert s.client.topic("frames:cam")["schemaName"] == "foxglove.CompressedImage"
        _, body = received(Camera(pub, pixels), s.client, None, s.client.subscribe("frames:cam"))
        found = fields(body)
        assert (found[3], found[4]) == (b"jpeg", b"cam")
        seen = np.asarray(image.open(io.BytesIO(found[2])), "i4")
        assert np.abs(seen - pixels)[:, [*range(24), *range(40, 64)]].max() < 12


def test_depth_is_a_raw_picture():
    depth = np.arange(12, dtype="u2").reshape(3, 4) * 1000
    with penstock.publish("frames:depth", shape=depth.shape, dtype="u2") as pub, Serving() as s:
        Camera(pub, depth).send(None)
        assert s.client.topic("frames:depth")["schemaName"] == "foxglove.RawImage"
        _, body = received(Camera(pub, depth), s.client, None, s.client.subscribe("frames:depth"))
        assert depth.tobytes() in fields(body).values()
        assert b"mono16" in fields(body).values()


def test_pictures_of_several_sizes_are_shown():
    depth = np.arange(6, dtype="u2").reshape(2, 3) * 1000

    class Varying:
        def send(self, _):
            for shape in ((0, 4), (2, 3)):
                pub.send(np.resize(depth, shape))

    with penstock.publish("frames:depth", shape=(4, 4), dtype="u2", varies=True) as pub, Serving() as s:
        Varying().send(None)
        _, body = received(Varying(), s.client, None, s.client.subscribe("frames:depth"))
        found = fields(body)
        assert depth.tobytes() in found.values()
        assert {2, 3} <= set(found.values())


def test_no_writer_waits_for_it():
    with penstock.publish("log:a", capacity=1 << 16, codec="json") as pub, live.Viewed(["log:a"]) as viewed:
        assert viewed.channels == ["log:a"]
        for n in range(5000):  # far more than there is room for; the view does nothing meanwhile
            pub.send({"n": n, "text": "x" * 100}, timeout=60)
        viewed.step(0)


def test_a_pipe_is_left_out():
    with penstock.publish("pipe:jobs") as pub, penstock.publish("log:a"), live.Viewed(["*"]) as viewed:
        assert viewed.channels == ["log:a"]
        pub.offer(b"job")
        assert penstock.inspect("pipe:jobs").readers == 0
        with pytest.raises(penstock.Unsupported, match="would consume them"):
            live.Viewed(["pipe:jobs"])


def test_errors_are_one_line(capfd, monkeypatch):
    with live.Viewed(["*"]) as viewed:
        assert cli.run(["view", "--port", str(viewed.port)]) == 1
        assert capfd.readouterr().err == f"penstock: cannot serve on port {viewed.port}: Address already in use\n"
    monkeypatch.setitem(sys.modules, "foxglove", None)
    assert cli.run(["view"]) == 1
    assert capfd.readouterr().err == ("penstock: the view needs foxglove-sdk: pip install 'penstock[foxglove]'\n")


def test_the_command_serves_until_it_is_ended():
    with penstock.publish("log:a", codec="json") as pub:
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", "penstock", "view", "--port", "0"], stdout=subprocess.PIPE, text=True
        )
        try:
            port = int(process.stdout.readline().split()[1].rpartition(":")[2])
            client = Client(port)
            pub.send({"n": 1})
            client.topic("log:a")
            client.left.close()
            process.send_signal(2)
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
