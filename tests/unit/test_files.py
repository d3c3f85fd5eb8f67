"""Channel files: names, owners, sizes, damage, full memory. Every refusal is a clear error and changes nothing."""

import os
import struct
import subprocess

import pytest

import penstock
from penstock.channel import Channel
from penstock.shm import files

T = 1 << 16


@pytest.mark.parametrize(
    "name", ["", "imu", "log:", "log:a/b", "log:..", "log:a b", "log:" + "x" * 129, "sync:x", "pond:x", "log:ü"]
)
def test_names_that_are_none(name):
    with pytest.raises(penstock.Invalid) as caught:
        penstock.publish(name)
    assert isinstance(caught.value, ValueError)
    assert len(str(caught.value)) > 20


def test_a_name_must_be_text():
    with pytest.raises(penstock.Invalid, match="string"):
        penstock.subscribe(3)


def test_folder_and_file_are_private(channel_folder):
    with penstock.publish("log:a", term_length=T):
        assert (channel_folder / "a.log").stat().st_mode & 0o777 == 0o600
        assert os.listdir(channel_folder) == ["a.log"]  # nothing temporary is left
        assert (channel_folder / "a.log").stat().st_nlink == 1


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"term_length": 2 * T}, "term_length=65536, not 131072"),
        ({"slots": 8}, "slots=64, not 8"),
        ({"window": T // 2, "term_length": T}, "window=65536, not 32768"),
        ({"codec": "json"}, "codec"),
    ],
)
def test_another_size_is_refused_with_both_numbers(channel_folder, asked, said):
    penstock.publish("log:a", term_length=T).close()
    before = (channel_folder / "a.log").read_bytes()
    with pytest.raises(penstock.Mismatch, match=said):
        penstock.publish("log:a", **asked)
    assert (channel_folder / "a.log").read_bytes() == before
    penstock.publish("log:a", term_length=T, slots=64).close()


@pytest.mark.parametrize(
    "options",
    [
        {"term_length": 1000},
        {"term_length": T + 1},
        {"term_length": 1 << 31},
        {"window": 5, "term_length": T},
        {"slots": 1},
        {"slots": 5000},
        {"start_position": 17},
        {"start_position": -T},
        {"start_position": (1 << 63) - T},
        {"initial_term_id": 1 << 31},
        {"term_length": "big"},
        {"drop_after": -1},
        {"spin": "long"},
    ],
)
def test_options_that_make_no_sense(options, channel_folder):
    with pytest.raises(penstock.Invalid):
        penstock.subscribe("log:a", **options)
    assert os.listdir(channel_folder) == []
    with pytest.raises(TypeError):
        penstock.subscribe("log:a", no_such_option=1)


def test_links_and_strangers_are_refused(channel_folder, tmp_path):
    penstock.publish("log:real", term_length=T).close()
    (channel_folder / "soft.log").symlink_to(channel_folder / "real.log")
    with pytest.raises(penstock.SystemFailure, match="symbolic link"):
        penstock.publish("log:soft")
    os.mkdir(channel_folder / "folder.log")
    with pytest.raises(OSError, match="folder"):
        penstock.publish("log:folder")
    os.link(channel_folder / "real.log", channel_folder / "hard.log")
    with pytest.raises(penstock.SystemFailure, match="hard link"):
        penstock.publish("log:real")
    os.unlink(channel_folder / "hard.log")
    os.chmod(channel_folder / "real.log", 0o644)
    with pytest.raises(penstock.SystemFailure, match="chmod 600"):
        penstock.publish("log:real")
    os.chmod(channel_folder, 0o755)
    with pytest.raises(penstock.SystemFailure, match="chmod 700"):
        penstock.publish("log:real")
    os.chmod(channel_folder, 0o700)


def test_a_folder_that_cannot_be_made(monkeypatch):
    monkeypatch.setenv("PENSTOCK_DIR", "/proc/none")
    with pytest.raises(penstock.SystemFailure, match="PENSTOCK_DIR"):
        penstock.publish("log:a")


def patch(path, offset, fmt, value):
    data = bytearray(path.read_bytes())
    struct.pack_into(fmt, data, offset, value)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("offset", "fmt", "value", "error", "said"),
    [
        (0, "<Q", 0, penstock.Corrupt, "not a Penstock channel"),
        (8, "<I", 99, penstock.Mismatch, "version 99.*version 1"),
        (12, "<I", 2, penstock.Mismatch, "kind 2"),
        (16, "<Q", 5, penstock.Corrupt, "says 5"),
        (48, "<I", 12345, penstock.Corrupt, "damaged.*12345"),
        (48, "<I", 1 << 17, penstock.Corrupt, "its header means"),
        (52, "<I", 7, penstock.Corrupt, "window"),
        (60, "<i", 7, None, ""),  # any stream id is one
        (64, "<I", 4000000000, penstock.Corrupt, "slots"),
        (72, "<q", 33, penstock.Corrupt, "start_position"),
        (92, "<I", 1 << 30, penstock.Corrupt, "metadata"),
        (256, "<Q", 0xFFFFFFFFFFFFFFFF, penstock.Corrupt, "metadata"),
    ],
)
def test_damaged_headers(channel_folder, offset, fmt, value, error, said):
    penstock.publish("log:a", term_length=T).close()
    patch(channel_folder / "a.log", offset, fmt, value)
    if error is None:
        penstock.subscribe("log:a").close()
        return
    with pytest.raises(error, match=said):
        penstock.subscribe("log:a")


@pytest.mark.parametrize("length", [0, 1, 100, 4096, 8192, 40000, 200000])
def test_files_of_a_wrong_length(channel_folder, length):
    penstock.publish("log:a", term_length=T).close()
    os.truncate(channel_folder / "a.log", length)
    with pytest.raises((penstock.Corrupt, penstock.SystemFailure)):
        penstock.subscribe("log:a")


def test_garbage_under_readers_and_writers_is_an_error_and_never_a_crash(channel_folder, rng):
    """Random words all over the mapped file while handles work. Right data or a typed error; never a hang or a crash."""
    for round_number in range(60):
        name = f"log:g{round_number}"
        pub, sub = penstock.publish(name, term_length=T, slots=4), penstock.subscribe(name)
        path = channel_folder / f"g{round_number}.log"
        size = path.stat().st_size
        for _ in range(50):
            pub.offer(b"x" * rng.randrange(200))
        with open(path, "r+b", buffering=0) as file:
            for _ in range(40):
                # sometimes the words that everything hangs on, sometimes anywhere
                at = rng.choice([rng.randrange(4096, 12288), rng.randrange(0, size - 8)]) & ~7
                word = rng.choice(
                    [0, 1, 2**31 - 1, 2**32 - 1, 2**63, 2**64 - 1, rng.getrandbits(64), rng.getrandbits(16)]
                )
                os.pwrite(file.fileno(), struct.pack("<Q", word), at)
                try:
                    pub.offer(b"y" * rng.randrange(200))
                    sub.poll(limit=100)
                    sub.poll_arrow(limit=100)
                except penstock.PenstockError:
                    pass
                try:
                    penstock.inspect(name)
                    with penstock.subscribe(name, start="earliest") as late:
                        late.poll(limit=100)
                except penstock.PenstockError:
                    pass
        pub.close()
        sub.close()
        penstock.remove(name)


def test_a_truncated_message_of_garbage_names_the_place(channel_folder):
    pub, sub = penstock.publish("log:a", term_length=T), penstock.subscribe("log:a")
    pub.send(b"fine")
    path = channel_folder / "a.log"
    patch_at = path.stat().st_size - 3 * T + 64
    with open(path, "r+b", buffering=0) as file:
        os.pwrite(file.fileno(), struct.pack("<iI", 17, 0), patch_at)
    assert sub.recv(timeout=1) == b"fine"
    with pytest.raises(penstock.Corrupt, match="position 64"):
        sub.recv(timeout=1)


def test_no_channel_is_an_error_that_names_it():
    with pytest.raises(penstock.NotFound, match="log:none"):
        penstock.inspect("log:none")
    with pytest.raises(FileNotFoundError):
        penstock.remove("log:none")
    assert penstock.channels() == []


def test_removing_a_channel_leaves_its_users_alone():
    pub, sub = penstock.publish("log:a", term_length=T), penstock.subscribe("log:a")
    penstock.remove("log:a")
    pub.send(b"still here")
    assert sub.recv(timeout=1) == b"still here"
    with penstock.publish("log:a", term_length=2 * T) as other:
        other.send(b"another")
        assert sub.try_recv() is None


def test_creating_loses_the_race_cleanly(channel_folder):
    penstock.publish("log:a", term_length=T).close()
    before = (channel_folder / "a.log").stat().st_ino
    assert files.create(Channel("log", "a"), 1000, lambda fd: None) is False
    assert (channel_folder / "a.log").stat().st_ino == before
    assert os.listdir(channel_folder) == ["a.log"]


def test_failing_while_filling_leaves_nothing(channel_folder):
    def fail(fd):
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        files.create(Channel("log", "a"), 1000, fail)
    assert os.listdir(channel_folder) == []


@pytest.mark.parametrize("way", ["anonymous", "named"])
def test_without_proc_a_temporary_name_is_used(channel_folder, monkeypatch, way):
    if way == "named":
        real = os.path.isdir
        monkeypatch.setattr(os.path, "isdir", lambda p: False if p == "/proc/self/fd" else real(p))
    with penstock.publish("log:a", term_length=T) as pub, penstock.subscribe("log:a") as sub:
        pub.send(b"x")
        assert sub.recv(timeout=1) == b"x"
    assert os.listdir(channel_folder) == ["a.log"]


@pytest.fixture
def tiny_memory(tmp_path):
    """A mounted tmpfs of one megabyte."""
    place = tmp_path / "tiny"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], capture_output=True)
    if done.returncode != 0:
        pytest.skip("mounting a tmpfs needs root")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_full_shared_memory_is_an_error_that_says_what_to_do(tiny_memory, monkeypatch):
    folder = tiny_memory / "channels"
    monkeypatch.setenv("PENSTOCK_DIR", str(folder))
    with pytest.raises(penstock.SystemFailure, match=r"25\.2 MB.*free.*term_length") as caught:
        penstock.publish("log:big")
    assert caught.value.errno == 28
    assert os.listdir(folder) == []
    with penstock.publish("log:small", term_length=T) as pub, penstock.subscribe("log:small") as sub:
        (tiny_memory / "filler").write_bytes(bytes(os.statvfs(tiny_memory).f_bavail * 4096))
        for _ in range(5000):  # the channel's own memory was allocated when it was made
            pub.send(b"x" * 100)
            assert sub.recv(timeout=1) == b"x" * 100


def test_random_option_files_are_stable(channel_folder):
    """The same options give the same layout: golden header bytes."""
    penstock.publish("log:a", term_length=T, slots=4, stream_id=9, initial_term_id=-2, codec="json").close()
    header = (channel_folder / "a.log").read_bytes()[:4096]
    magic, version, kind, size = struct.unpack_from("<8sIIQ", header, 0)
    assert (magic, version, kind, size) == (b"PENSTOCK", 1, 1, 12288 + 3 * T)
    assert struct.unpack_from("<IIiiII", header, 48) == (T, T, -2, 9, 4, T // 4)
    assert header[256 : 256 + struct.unpack_from("<I", header, 92)[0]] == b'{"codec":{"kind":"json"}}'
