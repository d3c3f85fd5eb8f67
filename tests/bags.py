"""ROS 2 bags for tests, made by rosbags' own writer, and messages for them: every plain type, alone and in arrays, and messages inside."""

from __future__ import annotations

import numpy as np
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

PLAIN = ("bool", "byte", "char", "float32", "float64", *(f"{s}int{b}" for b in (8, 16, 32, 64) for s in ("", "u")))
KINDS = {kind: "u1" if kind in ("byte", "char") else "?" if kind == "bool" else kind for kind in PLAIN}
NAME = "robot_msgs/msg/Everything"
LINE = "=" * 80
TEXT = "\n".join(
    [
        "# every form of every plain type",
        "int32 FIRST=1  # a constant",
        *[f"{kind} one_{kind}" for kind in PLAIN],
        *[f"{kind}[3] three_{kind}" for kind in PLAIN],
        *[f"{kind}[] many_{kind}" for kind in PLAIN],
        *[f"{kind}[<=4] few_{kind}" for kind in PLAIN],
        "string text",
        "string<=8 short_text",
        "string[2] two_texts",
        "string[] texts",
        "string<=8[<=3] short_texts",
        "Part part",
        "Part[2] two_parts",
        "Part[] parts",
        "Part[<=2] few_parts",
        "std_msgs/Header header",
        "std_msgs/Empty nothing",
        "builtin_interfaces/Duration took 5",
        LINE,
        "MSG: robot_msgs/Part",
        "uint8 flag",
        "float64 x",
        "string name",
        "int16[] steps",
        LINE,
        "MSG: std_msgs/Header",
        "builtin_interfaces/Time stamp",
        "string frame_id",
        LINE,
        "MSG: std_msgs/Empty",
        LINE,
        "MSG: builtin_interfaces/Time",
        "int32 sec",
        "uint32 nanosec",
        LINE,
        "MSG: builtin_interfaces/Duration",
        "int32 sec",
        "uint32 nanosec",
        "",
    ]
)


def numbers(random, kind, count):
    """Numbers of a plain type: its ends among them."""
    dtype = np.dtype(KINDS[kind])
    if dtype.kind == "b":
        return np.array([random.random() < 0.5 for _ in range(count)], dtype)
    if dtype.kind == "f":
        ends = [0.0, -0.0, float(np.finfo(dtype).max), float(np.finfo(dtype).tiny), float("inf"), -1.5]
        return np.array([random.choice([*ends, random.gauss(0, 1e3)]) for _ in range(count)], dtype)
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    return np.array([random.choice([low, high, 0, random.randint(low, high)]) for _ in range(count)], dtype)


def text(random, most=40):
    """A text of at most so many bytes."""
    return "".join(random.choices("abc é€😀", k=random.randint(0, most // 4)))


def part(random):
    """A message that stands inside another."""
    return {
        "flag": random.randint(0, 255),
        "x": random.gauss(0, 1),
        "name": text(random),
        "steps": numbers(random, "int16", random.randint(0, 5)),
    }


def message(random):
    """A message of `NAME`, as a dictionary."""
    found = {f"one_{kind}": numbers(random, kind, 1)[0].item() for kind in PLAIN}
    found |= {f"three_{kind}": numbers(random, kind, 3) for kind in PLAIN}
    found |= {f"many_{kind}": numbers(random, kind, random.randint(0, 9)) for kind in PLAIN}
    found |= {f"few_{kind}": numbers(random, kind, random.randint(0, 4)) for kind in PLAIN}
    return found | {
        "text": text(random),
        "short_text": text(random, 8),
        "two_texts": [text(random), text(random)],
        "texts": [text(random) for _ in range(random.randint(0, 3))],
        "short_texts": [text(random, 8) for _ in range(random.randint(0, 3))],
        "part": part(random),
        "two_parts": [part(random), part(random)],
        "parts": [part(random) for _ in range(random.randint(0, 3))],
        "few_parts": [part(random) for _ in range(random.randint(0, 2))],
        "header": {"stamp": {"sec": random.randint(-(2**31), 2**31 - 1), "nanosec": 5}, "frame_id": "map"},
        "nothing": {},
        "took": {"sec": -1, "nanosec": 999_999_999},
    }


def store():
    """rosbags' types."""
    found = get_typestore(Stores.ROS2_JAZZY)
    found.register(get_types_from_msg(TEXT, NAME))
    return found


def built(types, name, value):
    """rosbags' object of a message, made of a dictionary by rosbags' own definitions."""

    def inner(desc, one):
        node, about = int(desc[0]), desc[1]
        if node == 2:
            return built(types, about, one)
        if node in (3, 4):
            return [inner(about[0], item) for item in one] if int(about[0][0]) == 2 else one
        return one - 256 if about[0] == "byte" and one > 127 else one  # rosbags writes a single byte with a sign

    fields = [(one, desc) for one, desc in types.fielddefs[name][1] if one in value]
    return types.types[name](**{one: inner(desc, value[one]) for one, desc in fields})


def write(folder, topics, messages, *, little=True):
    """Writes a bag with rosbags. topics: topic → message's name; messages: (topic, time, dictionary). The MCAP file's path."""
    types = store()
    with Writer(folder, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        ways = {topic: writer.add_connection(topic, name, typestore=types) for topic, name in topics.items()}
        for topic, time_ns, value in messages:
            made = built(types, topics[topic], value)
            writer.write(ways[topic], time_ns, types.serialize_cdr(made, topics[topic], little_endian=little))
    (file,) = folder.glob("*.mcap")
    return file


def same(one, other):
    """Whether two messages have the same values, with those that are not numbers and both zeros told apart."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and repr(one) == repr(other)
