"""Channel files: names, owners, sizes, damage, full memory. Every refusal is a clear error and changes nothing."""

import os
import resource
import struct
import subprocess

import pytest
from channel_files import LATENCY_SLOT, terms_at

import penstock
from penstock.channels.storage import files
from penstock.channels.uri.channel import parse

T = 1 << 16


@pytest.mark.parametrize(
    "name",
    ["", "imu", "log:", "log:a//b", "log:a/", "log:/a", "log:..", "log:a b", "log:" + "x" * 129, "pond:x", "log:ü"],
)
def test_names_that_are_none(name):
    with pytest.raises(penstock.Invalid) as caught:
        penstock.publish(name)
    assert isinstance(caught.value, ValueError)
    assert str(caught.value).startswith(repr(name))
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
        ({"max_members": 8}, "max_members=64, not 8"),
        ({"capacity": T // 2, "term_length": T}, "capacity=65536, not 32768"),
        ({"codec": "json"}, "codec"),
    ],
)
def test_another_size_is_refused_with_both_numbers(channel_folder, asked, said):
    penstock.publish("log:a", term_length=T).close()
    before = (channel_folder / "a.log").read_bytes()
    with pytest.raises(penstock.Mismatch, match=said):
        penstock.publish("log:a", **asked)
    assert (channel_folder / "a.log").read_bytes() == before
    penstock.publish("log:a", term_length=T, max_members=64).close()


@pytest.mark.parametrize(
    "options",
    [
        {"term_length": 1000},
        {"term_length": T + 1},
        {"term_length": 1 << 31},
        {"capacity": 5, "term_length": T},
        {"max_members": 1},
        {"max_members": 5000},
        {"term_length": "big"},
        {"drop_after": -1},
        {"spin": "long"},
    ],
)
def test_options_that_make_no_sense(options, channel_folder):
    for tested in (
        {"start_position": 17},
        {"start_position": -T},
        {"start_position": (1 << 63) - T},
        {"initial_term_id": 1 << 31},
    ):
        with pytest.raises(penstock.Invalid):
            penstock.subscribe(penstock.testing.channel("log:a", **tested))
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
        (8, "<I", 99, penstock.Mismatch, "version 99.*version 4"),
        (12, "<I", 2, penstock.Mismatch, "kind 2"),
        (64, "<Q", 5, penstock.Corrupt, "says 5"),
        (128, "<I", 12345, penstock.Corrupt, "damaged.*12345"),
        (128, "<I", 1 << 17, penstock.Corrupt, "its header means"),
        (132, "<I", 7, penstock.Corrupt, "capacity"),
        (144, "<i", 7, None, ""),  # any stream id is one
        (88, "<I", 4000000000, penstock.Corrupt, "max_members"),
        (80, "<q", 33, penstock.Corrupt, "start_position"),
        (60, "<I", 1 << 30, penstock.Corrupt, "metadata"),
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


@pytest.mark.slow
def test_garbage_under_readers_and_writers_never_crashes(channel_folder, rng):
    """Random words all over the mapped file while handles work. Right data or a typed error; never a hang or a crash."""
    for round_number in range(60):
        name = f"log:g{round_number}"
        pub, sub = penstock.publish(name, term_length=T, max_members=4), penstock.subscribe(name)
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
    patch_at = terms_at(path) + 64
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
    assert penstock.list_channels() == []


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
    assert files.create(parse("log:a"), 1000, lambda fd: None) is False
    assert (channel_folder / "a.log").stat().st_ino == before
    assert os.listdir(channel_folder) == ["a.log"]


def test_failing_while_filling_leaves_nothing(channel_folder):
    def fail(fd):
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        files.create(parse("log:a"), 1000, fail)
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
    with pytest.raises(penstock.SystemFailure, match=r"25\.3 MB.*free.*smaller capacity") as caught:
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
    penstock.publish(
        penstock.testing.channel("log:a", initial_term_id=-2), term_length=T, max_members=4, stream_id=9, codec="json"
    ).close()
    header = (channel_folder / "a.log").read_bytes()[:4096]
    magic, version, kind, state = struct.unpack_from("<8sIII", header, 0)
    slots = struct.unpack_from("<I", header, 88)[0]
    assert (magic, version, kind, state, slots) == (b"PENSTOCK", 4, 1, 0, 4)
    assert struct.unpack_from("<Q", header, 64) == (12288 + 3 * T + 4 * LATENCY_SLOT,)
    assert struct.unpack_from("<IIIii", header, 128) == (T, T, T // 4, -2, 9)  # LogWords
    assert header[256 : 256 + struct.unpack_from("<I", header, 60)[0]] == b'{"codec":{"kind":"json"}}'


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("ring", {"capacity": T}, struct.pack("<IIQ", T, 0, 0)),
        ("frames", {"buffers": 3, "shape": (50, 100), "dtype": "uint8"}, struct.pack("<QII", 5000, 3, 0)),
        ("pipe", {"capacity": T, "max_messages": 77, "max_pipes": 9}, struct.pack("<III", T, 77, 9)),
    ],
)
def test_each_kind_has_its_own_words_in_the_header(channel_folder, kind, options, words):
    penstock.publish(f"{kind}:a", **options).close()
    header = (channel_folder / f"a.{kind}").read_bytes()[:4096]
    at = 144 if kind == "frames" else 128  # behind the words of its ring
    assert header[at : at + len(words)] == words
    assert header[160:256] == bytes(96)


def test_a_log_says_how_long_its_frames_are_at_most(channel_folder):
    """The word `max_frame`: messages that are longer go out in fragments."""
    penstock.publish("log:a", term_length=T).close()
    path = channel_folder / "a.log"
    with open(path, "r+b", buffering=0) as file:
        os.pwrite(file.fileno(), struct.pack("<I", 1024), 128 + 8)
    message = bytes(range(256)) * 20
    with penstock.publish("log:a") as pub, penstock.subscribe("log:a") as sub:
        pub.send(message)
        assert sub.recv(timeout=1) == message
    frames = path.read_bytes()[terms_at(path) :]
    assert [struct.unpack_from("<i", frames, at)[0] for at in range(0, 5120, 1024)] == [1024] * 5


@pytest.mark.parametrize("word", [0, 32, 1000, T, 2**32 - 32])
def test_a_log_with_frames_of_a_wrong_length_is_damaged(channel_folder, word):
    penstock.publish("log:a", term_length=T).close()
    with open(channel_folder / "a.log", "r+b", buffering=0) as file:
        os.pwrite(file.fileno(), struct.pack("<I", word), 128 + 8)
    with pytest.raises(penstock.Corrupt, match="max_frame"):
        penstock.subscribe("log:a")


def _strange(folder, kind):
    """Puts a file of that kind beside the channels. Returns the error's text."""
    path = folder / "strange.log"
    if kind == "empty":
        path.write_bytes(b"")
    elif kind == "foreign":
        path.write_bytes(b"not a channel" * 1000)
    elif kind == "open to others":
        path.write_bytes(bytes(9000))
        path.chmod(0o644)
        return "chmod 600"
    elif kind == "symbolic link":
        path.symlink_to("x.log")
        return "symbolic link"
    elif kind == "dangling link":
        path.symlink_to("nowhere")
        return "symbolic link"
    elif kind == "hard link":
        (folder / "other").write_bytes(b"")
        (folder / "other").chmod(0o600)
        os.link(folder / "other", path)
        return "hard link"
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path, 0o600)
    elif kind == "cut":
        path.write_bytes((folder / "x.log").read_bytes()[:5000])
    elif kind == "nested":  # a header that is right, with metadata that no parser can hold
        data = bytearray((folder / "x.log").read_bytes())
        struct.pack_into("<I", data, 92, 3800)
        data[256 : 256 + 3800] = b"[" * 3800
        path.write_bytes(data)
    elif kind == "not UTF-8":
        with open(os.fsencode(folder) + b"/\xff.log", "wb"):
            return "no channel"
    else:
        (folder / "a b\n[red].log").write_bytes(b"")
        return "no channel"
    if path.exists() and not path.is_dir():
        path.chmod(0o600)
    return ""


STRANGE = (
    *("empty", "foreign", "open to others", "symbolic link", "dangling link", "hard link", "folder", "pipe", "cut"),
    *("nested", "not UTF-8", "no name"),
)


@pytest.mark.parametrize("kind", STRANGE)
def test_a_strange_file_hides_no_channel(channel_folder, caplog, kind):
    penstock.publish("log:x", term_length=T).close()
    said = _strange(channel_folder, kind)
    for _ in range(2):
        assert [status.channel for status in penstock.list_channels()] == ["log:x"]
    (record,) = caplog.records  # once
    assert (record.name, record.levelname) == ("penstock", "WARNING")
    assert str(channel_folder) in record.getMessage()
    assert "\n" not in record.getMessage()
    assert said in record.getMessage()


def test_a_channel_that_goes_meanwhile_is_no_error(monkeypatch):
    for name in ("log:a", "log:b", "log:c"):
        penstock.publish(name, term_length=T).close()
    listing = files.listing

    def then_one_goes():
        found = listing()
        penstock.remove("log:b")
        return found

    monkeypatch.setattr(files, "listing", then_one_goes)
    assert [status.channel for status in penstock.list_channels()] == ["log:a", "log:c"]


def test_too_few_descriptors_are_no_strange_files():
    penstock.publish("log:a", term_length=T).close()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    taken = len(os.listdir("/proc/self/fd"))
    held = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken + 20, hard))
    try:
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        refused = []
        for _ in range(10):
            try:
                assert [status.channel for status in penstock.list_channels()] == ["log:a"]
            except penstock.SystemFailure as error:
                refused.append(str(error))
            os.close(held.pop())
        assert any(text.endswith("Too many open files: raise the limit, ulimit -n") for text in refused)
        assert 1 <= len(refused) < 10  # without a descriptor for the folder, for its listing, for the channel
    finally:
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_failed_removal_is_an_error_of_ours(channel_folder):
    os.mkdir(channel_folder / "folder.log")
    with pytest.raises(penstock.SystemFailure, match=r"cannot remove log:folder .*folder\.log"):
        penstock.remove("log:folder")


@pytest.mark.parametrize("kept", ["nothing", "notes", "channels"])
def test_only_a_folder_of_channels_is_one_to_close_to_others(channel_folder, kept):
    if kept != "nothing":
        penstock.publish("log:a", term_length=T).close()
    if kept == "notes":
        (channel_folder / "notes.txt").write_text("mine")
    channel_folder.chmod(0o755)
    with pytest.raises(penstock.SystemFailure) as caught:
        penstock.list_channels()
    assert ("chmod 700" in str(caught.value)) == (kept == "channels")
    assert ("PENSTOCK_DIR" in str(caught.value)) == (kept != "channels")


def test_a_folder_that_is_not_utf8_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_DIR", os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    with pytest.raises(penstock.SystemFailure, match=r"\\xff is not UTF-8"):
        penstock.publish("log:a")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("options", "capacity", "term_length"),
    [
        ({}, 8 << 20, 8 << 20),
        ({"capacity": T}, T, T),
        ({"capacity": T + 32}, T + 32, 2 * T),
        ({"capacity": 1 << 15}, 1 << 15, 1 << 16),
        ({"term_length": T}, T, T),
        ({"capacity": T // 2, "term_length": T}, T // 2, T),
    ],
)
def test_a_logs_term_follows_from_its_capacity(options, capacity, term_length):
    with penstock.publish("log:room", **options):
        status = penstock.inspect("log:room")
        assert (status.capacity, status.details["term_length"]) == (capacity, term_length)
