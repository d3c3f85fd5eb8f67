"""Codecs of ROS 2 messages for users: `penstock.ros2msg`."""

from __future__ import annotations

from penstock.codecs import Codec, from_spec, ros2
from penstock.errors import Invalid


def ros2msg(message: str, definition: str | None = None) -> Codec:
    """A codec for ROS 2 messages: CDR, as ROS 2 and its bags have them. message: the name, as "sensor_msgs/msg/Imu".

    definition: the text of the `.msg` file and of those that it uses, as MCAP files have it (`ros2msg`); by default that of ROS 2
    Jazzy. Messages are dictionaries by field; arrays of numbers are NumPy arrays. `send` also takes objects with these attributes, and refuses
    what the definition does not hold: `Invalid`. `MissingPackage` without the package rosbags: `pip install 'penstock[ros2]'`.

    >>> codec = penstock.ros2msg("geometry_msgs/msg/Point")
    >>> codec.decode(codec.encode({"x": 1.0, "y": 2.0, "z": 0.5}))
    {'x': 1.0, 'y': 2.0, 'z': 0.5}
    """
    for name, value in (("message", message), ("definition", "" if definition is None else definition)):
        if not isinstance(value, str):
            raise Invalid(f"{name} is {value!r}: it must be text")
    return from_spec(ros2.described(message, ros2.standard(message) if definition is None else definition))
