"""Options that contradict each other are refused: neither has an effect that the other takes away."""

import numpy as np
import pytest

import penstock
from penstock.channels.uri import wildcards

PAIRS = [
    ("ring:c", {"conflate": True, "last": 5}),
    ("ring:c", {"last": 1, "start": 0}),
    ("frames:c", {"conflate": True, "last": 5}),
    ("frames:c", {"conflate": True, "when_slow": "wait"}),
    ("frames:c", {"conflate": True, "when_slow": "wait", "last": 3}),
    ("frames:c", {"codec": penstock.array("u1", (2,)), "shape": (3,)}),
    ("frames:c", {"codec": penstock.array("u1", (2,)), "dtype": "f4"}),
    ("log:c", {"last": 1, "start": "earliest"}),
    ("log:c", {"when_slow": "wait", "drop_after": 1}),
    ("sync:c", {"when_slow": "fail", "drop_after": 1}),
]


@pytest.mark.parametrize(("uri", "options"), PAIRS, ids=["-".join([uri, *options]) for uri, options in PAIRS])
def test_contradicting_options_of_a_subscription_are_refused(uri, options):
    """The error names both, and the channel."""
    own = {"shape": (2,)} if uri.startswith("frames") else {}
    with penstock.publish(uri, **own), pytest.raises(penstock.Invalid, match=rf"^{uri}: "):
        penstock.subscribe(uri, **options)


def test_options_that_agree_are_taken():
    """The same shape said twice contradicts nothing."""
    with penstock.publish("ring:a") as pub:
        pub.send(b"1")
        with penstock.subscribe("ring:a", conflate=True, last=1) as sub:
            assert sub.recv(1) == b"1"
    codec = penstock.array("u1", (2,))
    with penstock.publish("frames:a", codec=codec, shape=2, dtype="uint8") as pub:
        pub.send(np.zeros(2, "u1"))


@pytest.mark.parametrize("pattern", ["lgo:*", "LOG:*", "lgo:a", "fake:lgo:*", "x:*"])
def test_patterns_of_no_kind_are_refused(pattern):
    """A kind that does not exist is an error with a suggestion, not an empty list."""
    with pytest.raises(penstock.Invalid, match="there is no kind"):
        penstock.list_channels(pattern)
    with pytest.raises(penstock.Invalid, match="there is no kind"):
        penstock.list_channels(["log:*", pattern])
    assert penstock.list_channels(["log:*", "*", "l*:*", "robot/*", "fake:*", "udp://*"]) == []


def test_patterns_of_a_kind_that_is_in_no_list_are_refused():
    """ZeroMQ's channels are not in shared memory: a list of them would always be empty."""
    with pytest.raises(penstock.Unsupported, match="not in shared memory"):
        penstock.list_channels("zmq+tcp://*")
    with pytest.raises(penstock.Invalid, match="is text"):
        wildcards.check_patterns([5])


def test_a_wait_for_nothing_is_refused():
    """Nothing would end it. With a timeout it is a wait of that length."""
    with pytest.raises(penstock.Invalid, match="no handle to wait for"):
        penstock.wait([])
    assert penstock.wait([], timeout=0) == []


def test_names_that_the_library_lists_are_there():
    """Everything in `dir(penstock)` can be had."""
    for name in dir(penstock):
        getattr(penstock, name)
