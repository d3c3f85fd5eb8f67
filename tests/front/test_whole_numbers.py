"""Whole numbers of other libraries are whole numbers, wherever an option takes one."""

import numpy as np
import pytest

import penstock

OPTIONS = {
    "log:w": {"capacity": 1 << 16, "max_members": 8},
    "ring:w": {"capacity": 1 << 16, "max_members": 8},
    "sync:w": {"capacity": 1 << 16, "max_members": 8},
    "pipe:w": {"capacity": 1 << 16, "max_messages": 3, "max_pipes": 4, "max_members": 8},
    "frames:w": {"shape": 3, "buffers": 4, "max_members": 8},
    "udp://127.0.0.1:40127/7": {"mtu": 1408, "term_length": 1 << 16},
    "zmq+tcp://127.0.0.1:*": {"max_messages": 3},
}


@pytest.mark.parametrize("uri", OPTIONS)
def test_numpys_whole_numbers_are_options(uri):
    """A channel made with NumPy's numbers is the one made with Python's."""
    options = OPTIONS[uri]
    with penstock.publish(uri, **{name: np.int64(value) for name, value in options.items()}) as pub:
        if not uri.startswith(("udp", "zmq")):
            with (
                penstock.publish(uri, **options) if not uri.startswith(("ring", "frames")) else penstock.subscribe(uri)
            ):
                assert penstock.inspect(uri).max_members == 8
        pub.wait_for_readers(np.int64(0), timeout=np.float32(1.5))


def test_numpys_whole_numbers_of_a_subscription():
    """And of one that is older than its channel, which keeps them."""
    with (
        penstock.subscribe("log:e", capacity=np.int64(1 << 16), last=np.int8(1)) as sub,
        penstock.publish("log:e") as pub,
    ):
        pub.send(b"x")
        assert sub.recv(timeout=np.int64(60)) == b"x"
        assert penstock.inspect("log:e").capacity == 1 << 16


def test_shapes_of_numpys_whole_numbers():
    """A shape is any list of whole numbers, or one."""
    assert penstock.array("f4", np.int64(3)).spec == penstock.array("f4", (3,)).spec
    assert penstock.array("f4", np.array([2, 3])).spec == penstock.array("f4", (2, 3)).spec
    with penstock.publish("frames:s", shape=np.array([2, 3])) as pub:
        pub.send(np.zeros((2, 3), "u1"))
    for wrong in (2.5, "3", b"3", (2, 2.5), (True,), True, (0,), ()):
        with pytest.raises(penstock.Invalid, match="shape"):
            penstock.publish("frames:x", shape=wrong)
