"""The promises on which programs that pass frames by VisionIPC rely."""

import gc
import mmap
import threading

import numpy as np
import pytest
from peers.bounds import ends

import penstock
from penstock.compat import visionipc as ours

WIDTH, HEIGHT = 20, 10
SIZE = WIDTH * HEIGHT * 3 // 2


def serve(vision, name, *streams, num_buffers=3):
    server = vision.VisionIpcServer(name)
    for stream in streams:
        server.create_buffers(stream, num_buffers, WIDTH, HEIGHT)
    server.start_listener()
    assert vision.VisionIpcClient.available_streams(name, True) == set(streams)
    return server


def connected(vision, name, stream, conflate=False):
    client = vision.VisionIpcClient(name, stream, conflate)
    with ends("connect"):
        assert client.connect(True)
    return client


def test_streams_are_any_numbers(vision, endpoint):
    streams = (0, 3, 4, 77, 4_000_000_000)
    server = serve(vision, endpoint, *streams)
    clients = [connected(vision, endpoint, stream) for stream in streams]
    for number, stream in enumerate(streams):
        server.send(stream, bytes([number]) * SIZE, frame_id=number)
    assert [client.recv(5000).data[0] for client in clients] == [0, 1, 2, 3, 4]
    assert all(type(stream) is int for stream in vision.VisionIpcClient.available_streams(endpoint, False))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, "array", "flat array"])
def test_a_frame_is_sent_from_any_bytes(vision, endpoint, kind):
    server = serve(vision, endpoint, 1)
    client = connected(vision, endpoint, 1)
    data = bytes(range(256)) + bytes(SIZE - 256)
    array = np.frombuffer(data, np.uint8)
    server.send(1, kind(data) if callable(kind) else array.copy(), 9, 10, 11)
    got = client.recv(5000)
    assert isinstance(got.data, memoryview)
    assert (got.data.format, got.data.nbytes, len(got.data)) == ("B", SIZE, SIZE)
    assert got.data == data
    assert (got.frame_id, client.frame_id, client.timestamp_sof, client.timestamp_eof) == (9, 9, 10, 11)
    assert (got.width, got.height, got.stride, got.uv_offset) == (WIDTH, HEIGHT, WIDTH, WIDTH * HEIGHT)


def test_buffers_are_numbered_in_turn(vision, endpoint):
    server = serve(vision, endpoint, 0)
    client = connected(vision, endpoint, 0)
    found = []
    for number in range(7):
        server.send(0, bytes([number]) * SIZE, frame_id=100 + number)
        got = client.recv(5000)
        found.append((got.idx, got.frame_id))
    assert found == [(number % 3, 100 + number) for number in range(7)]
    assert client.num_buffers == 3


def test_a_descriptor_of_the_bytes(vision, endpoint):
    server = serve(vision, endpoint, 0)
    client = connected(vision, endpoint, 0)
    data = np.random.default_rng(1).integers(0, 255, SIZE, dtype=np.uint8)
    server.send(0, data)
    got = client.recv(5000)
    assert got.fd >= 0
    assert got.fd == got.fd
    with mmap.mmap(got.fd, SIZE, prot=mmap.PROT_READ) as mapped:
        assert mapped[:] == data.tobytes()


def test_before_connecting(vision, endpoint):
    client = vision.VisionIpcClient(endpoint, 0, False)
    with ends("connect"):
        assert not client.connect(False)
    assert not client.is_connected()
    assert client.num_buffers == 0
    assert client.width is client.height is client.stride is client.uv_offset is client.buffer_len is None
    with ends("recv") as took:
        assert client.recv(60) is None
    assert took[0] >= 0.06
    assert vision.VisionIpcClient.available_streams(endpoint, False) == set()


def test_receiving_waits_milliseconds(vision, endpoint, tally):
    server = serve(vision, endpoint, 0)
    client = connected(vision, endpoint, 0)
    for call in (lambda: client.recv(60), lambda: client.recv(timeout_ms=60), client.recv):
        with ends("recv") as took:
            assert call() is None
        assert took[0] >= 0.06
    tally("calls whose unit of time was measured", 2)
    del server


def test_connecting_to_a_stream_that_the_server_lacks_ends(vision, endpoint):
    server = serve(vision, endpoint, 0)
    client = vision.VisionIpcClient(endpoint, 1, False)
    with ends("connect to a stream that the server does not have"):
        there = client.connect(True)
    assert client.num_buffers == 0
    if vision is ours:  # the original says that it is connected, to nothing
        assert not there
        assert not client.is_connected()
    del server


def test_connecting_waits_for_the_server_and_does_not_spin(monkeypatch, endpoint):
    """The original keeps the GIL while it waits, so that a thread cannot start the server."""
    looks, plain = [], penstock.inspect
    monkeypatch.setattr(penstock, "inspect", lambda channel: looks.append(channel) or plain(channel))
    began, servers = threading.Event(), []

    def start():
        began.wait()
        threading.Event().wait(1.2)  # as long as this the client must not look all the time
        servers.append((len(looks), ours.VisionIpcServer(endpoint)))
        servers[0][1].create_buffers(0, 2, WIDTH, HEIGHT)
        servers[0][1].start_listener()

    thread = threading.Thread(target=start)
    thread.start()
    client = ours.VisionIpcClient(endpoint, 0, False)
    began.set()
    with ends("connect"):
        assert client.connect(True)
    thread.join()
    assert servers[0][0] < 20
    assert client.is_connected()


def test_a_server_that_came_back_is_another_one(endpoint):
    """The original notices with the first frame that it receives."""
    server = serve(ours, endpoint, 0)
    client = connected(ours, endpoint, 0)
    assert client.is_connected()
    del server
    gc.collect()
    assert not client.is_connected()
    server = serve(ours, endpoint, 0)
    assert not client.is_connected()
    assert client.connect(True)
    assert client.is_connected()
    server.send(0, bytes(SIZE), frame_id=5)
    assert client.recv(5000).frame_id == 5


def test_frames_that_do_not_fit_and_streams_that_are_not_there(vision, endpoint):
    server = serve(vision, endpoint, 0)
    wrong = penstock.Invalid if vision is ours else AssertionError
    for data in (b"", bytes(SIZE - 1), bytes(SIZE + 1)):
        with pytest.raises(wrong):
            server.send(0, data)
    with pytest.raises(TypeError):
        server.send(0, "text")
    with pytest.raises(TypeError):
        vision.VisionIpcClient(endpoint, "0", False)
    if vision is ours:  # the original's process ends here
        with pytest.raises(penstock.Invalid, match="create_buffers"):
            server.send(1, bytes(SIZE))
        for number in (-1, 0xFFFFFFFF):
            with pytest.raises(penstock.Invalid, match="stream"):
                ours.VisionIpcClient(endpoint, number, False)


def test_a_prefix_keeps_servers_apart(monkeypatch, endpoint):
    server = serve(ours, endpoint, 0)
    monkeypatch.setenv("OPENPILOT_PREFIX", "other")
    assert ours.VisionIpcClient.available_streams(endpoint, False) == set()
    assert serve(ours, endpoint, 5)
    assert ours.get_endpoint_name(endpoint, 5) == f"frames:other.{endpoint}/5"
    del server


def test_a_received_frame_stays_as_it_is(endpoint):
    """The original overwrites it when its buffer's turn comes."""
    server = serve(ours, endpoint, 0, num_buffers=1)
    client = connected(ours, endpoint, 0)
    server.send(0, bytes([1]) * SIZE)
    kept = client.recv(5000).data
    for number in range(2, 9):
        server.send(0, bytes([number]) * SIZE)
        assert client.recv(5000).data[0] == number
    assert set(kept) == {1}
    with pytest.raises(TypeError, match="read-only"):
        kept[0] = 5
