"""Channels made for others, folders beside the channels, gates of fake channels."""

import stat

import pytest

import penstock
from penstock.channels.storage import discovery, files
from penstock.channels.storage.discovery import survey
from penstock.testing import gate


@pytest.mark.parametrize("channel", ["sync:q", "log:q", "ring:q", "pipe:q"])
def test_an_empty_channel_keeps_its_first_options(channel):
    discovery.make(channel, capacity=1 << 16)
    first = penstock.inspect(channel)
    assert (first.members, first.capacity) == ((), 1 << 16)
    discovery.make(channel, capacity=1 << 20)
    second = penstock.inspect(channel)
    assert (second.created_ns, second.capacity) == (first.created_ns, 1 << 16)


def test_a_channel_that_is_not_in_shared_memory_is_not_made():
    with pytest.raises(penstock.Unsupported, match="not in shared memory"):
        discovery.make("zmq+ipc:///tmp/penstock-none")


def test_a_folder_beside_the_channels_is_private_and_no_channel():
    path = files.private_folder(".mine")
    assert not path.exists()
    assert files.private_folder(".mine", create=True) == path
    assert files.private_folder(".mine", create=True) == path
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    found, strange = survey()
    assert ".mine" not in str(found)
    assert path not in [stranger.path for stranger in strange]


@pytest.mark.parametrize("name", ["mine", ".a/b", ""])
def test_such_a_folder_has_a_hidden_name(name):
    with pytest.raises(penstock.Invalid, match="begins with a dot"):
        files.private_folder(name)


def test_there_is_no_gate_on_a_channel_that_others_share():
    with penstock.publish("log:a"), pytest.raises(penstock.Invalid, match="shared with other processes"):
        gate("log:a")
