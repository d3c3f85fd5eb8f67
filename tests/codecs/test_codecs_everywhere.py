"""Every codec over every kind of channel that carries messages by a codec: what is received is what was sent."""

import dataclasses

import msgspec
import numpy as np
import pytest
from conformance.sockets import ALL, Meeting
from conformance.subjects import PATIENCE, SUBJECTS, Place

import penstock

RECORD = np.dtype([("t", "<f8"), ("gyro", "<f4", (3,)), ("name", "S4")])


class Pose(msgspec.Struct):
    """A class of this program."""

    x: float
    tags: list[str]


@dataclasses.dataclass
class Order:
    """Another one."""

    symbol: str
    size: int


def record():
    """A codec of a dtype, and a message."""
    return RECORD, np.array((1.5, (1, 2, 3), b"ab"), RECORD)[()]


def protobuf():
    """A codec of a protobuf class, and a message."""
    pose = pytest.importorskip("poses", reason="needs protobuf").message_class()
    return pose, pose(x=1.5, raw=b"\x00\xff", mode=1, path=[0.5], gains={"p": 2.0})


def ros2():
    """A codec of ROS 2, and a message."""
    pytest.importorskip("rosbags", reason="needs rosbags")
    return penstock.ros2msg("geometry_msgs/msg/Point"), {"x": 1.0, "y": -0.0, "z": 2.5}


CODECS = {
    "raw": lambda: (None, b"\x00\xffbytes"),
    "bytes": lambda: ("bytes", b""),
    "json": lambda: ("json", {"a": [1, 2.5, None, True], "é": "€"}),
    "msgpack": lambda: ("msgpack", {"a": [1, b"\xff"], "n": 2**64 - 1}),
    "dtype": record,
    "array": lambda: (penstock.array("<i2", (-1, 2)), np.arange(6, dtype="<i2").reshape(3, 2)),
    "dataclass": lambda: (Order, Order("ABC", 7)),
    "dataclass-msgpack": lambda: (penstock.objects(Order, "msgpack"), Order("ABC", 7)),
    "struct": lambda: (Pose, Pose(1.5, ["a", "b"])),
    "protobuf": protobuf,
    "ros2": ros2,
}
CARRIERS = [subject for subject in SUBJECTS if subject.kind != "frames"]
# A socket that answers carries what one that asks does.
SOCKETS = [role for role in ALL if role.name in ("pair", "dealer", "request", "push")]


@pytest.fixture(params=CODECS)
def codec(request):
    """A codec, and a message."""
    return CODECS[request.param]()


def same(got, sent):
    """Whether a message came as it went, with its type."""
    if isinstance(sent, np.ndarray | np.void):
        return got.dtype == sent.dtype and got.shape == sent.shape and got.tobytes() == sent.tobytes()
    return type(got) is type(sent) and got == sent


@pytest.mark.parametrize("subject", CARRIERS, ids=lambda subject: subject.name.replace(":", "-"))
def test_a_channel_carries_it(subject, codec, tmp_path):
    if subject.kind == "zmq":
        pytest.importorskip("zmq")
    asked, sent = codec
    place = Place(subject, subject.address(tmp_path))
    try:
        pub, sub = place.publish(codec=asked), place.subscribe(codec=asked)
        pub.wait_for_readers(1, timeout=PATIENCE)
        pub.send(sent)
        assert pub.offer_many([sent, sent]) == 2
        assert same(place.body(sub.recv(timeout=PATIENCE)), sent)
        assert same(place.body(sub.recv(timeout=PATIENCE)), sent)
        assert same(place.body(sub.recv(timeout=PATIENCE)), sent)
    finally:
        place.close()


@pytest.mark.parametrize("role", SOCKETS, ids=lambda role: f"{role.backend}-{role.name}")
def test_sockets_carry_it(role, codec, tmp_path):
    if role.backend == "zmq":
        pytest.importorskip("zmq")
    asked, sent = codec
    met = Meeting(role, role.address(tmp_path))
    try:
        one, other = met.join(role.name, codec=asked), met.join(role.partner, codec=asked)
        for end in (one, other):
            end.wait_for_readers(1, timeout=PATIENCE)
        asking = role.name == "request"
        asked_for = one.submit(sent, timeout=PATIENCE) if asking else one.send(sent, timeout=PATIENCE)
        got = other.recv(timeout=PATIENCE)
        assert same(met.body(got), sent)
        if asking:
            assert got.reply(sent) is not False
            assert same(asked_for.result(timeout=PATIENCE), sent)
        if role.name == "dealer":
            other.send(sent, to="a dealer", timeout=PATIENCE)
            assert same(met.body(one.recv(timeout=PATIENCE)), sent)
    finally:
        met.close()


@pytest.mark.parametrize("head", ["frames:", "fake:frames:"])
@pytest.mark.parametrize(
    "dtype", ["u1", "<u2", "<f4", ">f8", "<c16", "?", "<M8[ns]"], ids=lambda dtype: str(np.dtype(dtype).kind)
)
def test_frames_carry_arrays_of_every_dtype(head, dtype):
    sent = np.zeros((2, 3), dtype)
    sent.reshape(-1).view("u1")[:] = np.arange(sent.nbytes, dtype="u1") % 2  # truth values have two
    with (
        penstock.publish(f"{head}c", shape=sent.shape, dtype=dtype) as pub,
        penstock.subscribe(f"{head}c", conflate=False) as sub,
    ):
        pub.send(sent)
        with sub.recv(timeout=PATIENCE) as frame:
            assert same(np.array(frame.array), sent)


@pytest.mark.parametrize("name", [name for name in CODECS if name != "raw"])  # which is no codec
@pytest.mark.parametrize("head", ["frames:", "fake:frames:"])
def test_frames_have_no_other_codec(head, name):
    with pytest.raises(penstock.Invalid, match="codec"):
        penstock.publish(f"{head}c", shape=(2,), codec=CODECS[name]()[0])
