"""VisionIPC by its names: what programs that use it expect."""

import gc
import struct

import numpy as np
import pytest

import penstock
from penstock.compat.visionipc import VisionIpcClient, VisionIpcServer, VisionStreamType

ROAD, WIDE = VisionStreamType.VISION_STREAM_ROAD, VisionStreamType.VISION_STREAM_WIDE_ROAD


def both(name, *streams, num_buffers=1, width=100, height=100, conflate=False):
    server = VisionIpcServer(name)
    for stream in streams:
        server.create_buffers(stream, num_buffers, width, height)
    server.start_listener()
    client = None
    if streams:
        client = VisionIpcClient(name, streams[0], conflate)
        assert client.connect(True)
    return server, client


def test_connect():
    server, client = both("cam", ROAD)
    assert client.is_connected()
    del server
    gc.collect()
    assert not client.is_connected()
    assert not VisionIpcClient("cam", WIDE, False).connect(False)


@pytest.mark.parametrize("streams", [[], [0], [1, 3], [0, 1, 2, 3]])
def test_available_streams(streams):
    assert VisionIpcClient.available_streams("cam", False) == set()
    server, _ = both("cam", *streams)
    assert VisionIpcClient.available_streams("cam", True) == set(streams)
    assert server is not None


def test_buffers_and_sizes():
    _server, client = both("cam", ROAD, num_buffers=5, width=100, height=200)
    assert (client.width, client.height, client.stride, client.uv_offset) == (100, 200, 100, 20000)
    assert (client.buffer_len, client.num_buffers) == (30000, 5)
    unconnected = VisionIpcClient("cam", WIDE, False)
    assert unconnected.width is unconnected.buffer_len is unconnected.lost is None
    assert unconnected.recv() is None
    assert not unconnected.valid


def test_a_frame_arrives():
    server, client = both("cam", ROAD)
    data = np.zeros(client.buffer_len, dtype=np.uint8)
    data.view("<i4")[0] = 1234
    server.send(ROAD, data, frame_id=1337, timestamp_sof=5, timestamp_eof=6)
    got = client.recv()
    assert struct.unpack_from("<i", got.data) == (1234,)
    assert (client.frame_id, client.timestamp_sof, client.timestamp_eof, client.valid) == (1337, 5, 6, True)
    assert (got.width, got.stride) == (100, 100)
    assert client.recv(timeout_ms=10) is None


def test_in_order():
    server, client = both("cam", ROAD)
    data = np.zeros(client.buffer_len, dtype=np.uint8)
    server.send(ROAD, data, frame_id=1)
    server.send(ROAD, data, frame_id=2)
    assert client.recv() is not None
    assert client.frame_id == 1
    assert client.recv() is not None
    assert client.frame_id == 2


def test_newest_only():
    server, client = both("cam", ROAD, conflate=True)
    data = np.zeros(client.buffer_len, dtype=np.uint8)
    server.send(ROAD, data, frame_id=1)
    server.send(ROAD, data, frame_id=2)
    assert client.recv() is not None
    assert client.frame_id == 2
    assert client.recv() is None


def test_a_server_may_return_with_other_sizes():
    server, client = both("cam", ROAD, WIDE)
    server.send(WIDE, np.ones(15000, np.uint8))
    assert client.recv(timeout_ms=10) is None
    old = client
    server.send(ROAD, np.full(15000, 7, np.uint8))
    kept = old.recv()
    del server
    gc.collect()
    server, client = both("cam", ROAD, width=10, height=10)
    server.send(ROAD, np.full(150, 8, np.uint8))
    assert max(client.recv().data) == 8
    assert min(kept.data) == 7  # received frames stay
    with pytest.raises(penstock.PenstockError, match="cam"):
        both("cam", ROAD)


def test_frames_are_filled_in_place_too():
    server, client = both("cam", ROAD, width=4, height=2)
    with server.stream(ROAD).acquire() as frame:
        frame.array[...] = np.arange(12)
    assert client.recv().data.tolist() == list(range(12))
