"""Ends in C++ and Python that are killed, start in any order, or contradict each other."""

import itertools
import math
import os
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cpp import building

import penstock

EXAMPLES = Path(__file__).parents[2] / "examples" / "cpp"
STREAMS = ("log", "ring", "pipe", "sync")
ORDERS = int(os.environ.get("PENSTOCK_ORDERS", "1"))
SENDER = """
import sys, time, penstock
pub = penstock.publish(sys.argv[1])
pub.wait_for_readers(timeout=60)
for number in range(20):
    pub.send(b"%d" % number)
claim = pub.claim(8)
print("sent", flush=True)
time.sleep(3600)
"""


@pytest.fixture
def robot():
    """The programs of the robot, by name."""
    cpp = building.built_as_one(EXAMPLES)
    return {
        "camera": [cpp, "camera", "100"],
        "controller": [cpp, "controller"],
        "logger": [cpp, "logger"],
        "robot": [sys.executable, EXAMPLES / "robot.py"],
    }


@pytest.mark.slow
def test_the_robot_starts_in_any_order(robot, rng, channel_folder):
    """The example's four programs, in an order drawn at random; all orders and more in `make robot`."""
    orders = rng.sample(list(itertools.permutations(robot)), math.factorial(len(robot)))
    for order in itertools.islice(itertools.cycle(orders), ORDERS):
        running = {name: building.End(*robot[name]) for name in order}
        said = {name: one.said() for name, one in running.items()}
        assert said == {
            "camera": "camera: 100 frames",
            "controller": "controller: 200 poses",
            "logger": said["logger"],
            "robot": "robot: 200 commands in order: True, 100 frames in order: True",
        }, order
        assert said["logger"].startswith("logger: 200 commands, up to ")
        assert penstock.list_channels() == []  # the next run begins anew


@pytest.mark.parametrize("how", ["send", "claim"])
@pytest.mark.parametrize("kind", STREAMS)
def test_python_survives_a_killed_writer_of_cpp(kind, how, end):
    """Also with an open claim: the reader gets all before it, and the end of the stream."""
    with penstock.subscribe(f"{kind}:killed", until_end=True) as sub:
        writer = end("send", f"{kind}:killed", 20, how, "hang=1")
        got = [int(sub.recv(timeout=60)) for _ in range(20)]
        assert writer.line() in {"claimed", "sent"}
        writer.kill()
        with pytest.raises(penstock.EndOfStream):
            sub.recv(timeout=60)
        assert got == list(range(20))


@pytest.mark.parametrize("kind", STREAMS)
def test_cpp_survives_a_killed_writer_of_python(kind, end):
    """Also with an open claim."""
    reader = end("recv", f"{kind}:killed", 0, "recv", "ready=1")
    reader.line()
    writer = subprocess.Popen([sys.executable, "-c", SENDER, f"{kind}:killed"], stdout=subprocess.PIPE)
    assert writer.stdout.readline() == b"sent\n"
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    assert reader.said().split()[:2] == ["end", ",".join(map(str, range(20)))]


def test_a_killed_camera_of_cpp_leaves_its_buffer(end):
    """It publishes beside Python, and dies while it fills a frame: nothing of that frame comes, and its buffer is free."""
    with (
        penstock.publish("frames:both", shape=(4, 6), dtype="u2", buffers=3) as pub,
        penstock.subscribe("frames:both", when_slow="wait") as sub,
    ):
        camera = end("send_frames", "frames:both", 2, "claim")
        assert [int(sub.recv(timeout=60).array.max()) for _ in range(2)] == [0, 1]
        assert camera.line() == "claimed"
        pub.send(np.full((4, 6), 7, "u2"), timeout=60)
        assert int(sub.recv(timeout=60).array.max()) == 7
        held = [pub.acquire(timeout=60) for _ in range(2)]
        assert pub.try_acquire() is None
        camera.kill()
        held.append(pub.acquire(timeout=60))
        for number, frame in enumerate(held):
            frame.array[...] = number
            frame.commit()
        assert [int(sub.recv(timeout=60).array.max()) for _ in held] == [0, 1, 2]
        assert penstock.inspect(pub.channel).writers == 1


@pytest.mark.parametrize("kind", ["log", "sync"])
def test_a_killed_reader_of_cpp_stops_no_writer(kind, end):
    """Its place in a full log is free once it is dead."""
    reader = end("recv", f"{kind}:full", 1, "recv", "ready=1", "hang=1", f"capacity={1 << 16}")
    reader.line()
    with penstock.publish(f"{kind}:full") as pub:
        with pytest.raises(penstock.TimedOut):
            for number in range(3000):
                pub.send(b"%d" % number + bytes(100), timeout=0)
        reader.kill()
        pub.send(b"on", timeout=60)
        assert penstock.inspect(pub.channel).totals.reaped == 1


def test_messages_of_a_killed_puller_are_redelivered(end):
    """A puller in C++ that dies with a message; Python gets it again, and the other way."""
    worker = end("recv", "pipe:jobs", 3, "recv", "hang=1", "ready=1")
    worker.line()
    with penstock.publish("pipe:jobs") as pub:
        for number in range(5):
            pub.send(b"%d" % number)
        assert worker.line() == "all 0,1,2 lost 0 redelivered 0"
        worker.kill()
        with penstock.subscribe("pipe:jobs", acknowledge="manual") as sub:
            assert [int(sub.recv(timeout=60))] == [2]
            assert sub.redelivered
            pid = os.fork()
            if pid == 0:
                os._exit(0)  # a forked child takes nothing with it
            os.waitpid(pid, 0)
        assert end("recv", "pipe:jobs", 1, "recv").said() == "all 2 lost 0 redelivered 1"


def test_a_struct_with_another_field_is_refused(end):
    """Both sides name the field in one line."""
    other = np.dtype([("number", "<i8"), ("x", "<f8"), ("y", "<f4"), ("heading", "<f4")])
    with penstock.publish("log:pose", codec=other):
        error = end("recv_pose", "log:pose", 0, "-").failed()
    assert error.endswith(
        ') exists with the codec struct, and this program has Pose: field 3 is ["y","<f4"] there and ["y","<f8"] in Pose. '
        "Use the codec that is there, or remove the channel first: penstock rm log:pose"
    )
    end("send_pose", "log:back", 0, "-").said()
    with pytest.raises(penstock.Mismatch, match=r"exists with the codec .*'y', '<f8'.* not .*'y', '<f4'") as refused:
        penstock.subscribe("log:back", codec=other)
    assert "\n" not in str(refused.value)


def test_a_subscription_names_its_struct_first(end):
    """Before the first publication: the codec that a subscription named is checked against the publication's."""
    pose = np.dtype([("number", "<i8"), ("x", "<f8"), ("y", "<f8")])
    with penstock.subscribe("ring:pose", codec=pose):
        error = end("send_pose", "ring:pose", 0, "-").failed()
    assert (
        "has no publication yet, and a subscription named the codec struct, and this program has Pose: field 4 is missing there"
        in error
    )


@pytest.mark.parametrize("kind", STREAMS)
def test_options_that_contradict_are_refused(kind, end):
    """Those of a subscription that came first, and those of a channel that exists."""
    with penstock.subscribe(f"{kind}:small", capacity=1 << 16):
        error = end("send", f"{kind}:small", 0, "send", f"capacity={1 << 17}").failed()
    assert "a subscription named capacity=65536, not 131072. Give capacity=65536 or leave capacity out" in error
    with penstock.publish(f"{kind}:large", capacity=1 << 17):
        error = end("recv", f"{kind}:large", 0, "recv", f"capacity={1 << 16}").failed()
    assert "exists with capacity=131072, not 65536" in error


@pytest.mark.parametrize("kind", ["log", "ring", "pipe", "sync", "frames"])
def test_headers_of_another_layout_are_refused(kind, end, channel_folder):
    """A channel of a newer library: the error names both layout versions."""
    shape = {"shape": (2, 2), "dtype": "u2"} if kind == "frames" else {}
    with penstock.publish(f"{kind}:new", **shape):
        with (channel_folder / f"new.{kind}").open("r+b") as file:
            file.seek(8)
            (version,) = struct.unpack("<I", file.read(4))
            file.seek(8)
            file.write(struct.pack("<I", version + 1))
        what = "recv_frames" if kind == "frames" else "recv"
        error = end(what, f"{kind}:new", 1, "recv").failed()
        assert f") has layout version {version + 1}; this library knows version {version}: run all" in error
        penstock.remove(f"{kind}:new")


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("log", "'log' names no kind of channel: write 'log:log'"),
        ("lock:imu", "there is no kind 'lock'; use log:, ring:, pipe:, sync: or frames:"),
        ("log:.imu", "'.imu' is not a channel name"),
        ("udp:127.0.0.1:4000", "C++ has the channels of this machine"),
        ("frames:cam", "frames have a subscription of their own: FrameSubscription"),
    ],
)
def test_a_wrong_uri_is_one_line(uri, text, end):
    assert text in end("recv", uri, 0, "recv").failed()


def test_a_folder_that_others_enter_is_refused(end, channel_folder):
    channel_folder.chmod(0o755)
    assert "may be entered by others, and must be private" in end("recv", "log:x", 0, "recv").failed()
    channel_folder.chmod(0o700)


def test_a_link_in_place_of_a_channel_is_refused(end, channel_folder, tmp_path):
    (tmp_path / "elsewhere").write_bytes(b"")
    (channel_folder / "x.log").symlink_to(tmp_path / "elsewhere")
    assert "it is a symbolic link" in end("recv", "log:x", 0, "recv").failed()


def test_what_has_no_effect_is_refused_in_one_line(end):
    """Before a channel is made, with the channel's name, and never by waiting for itself."""
    said = end("refuse", "-", 0, "-").said().splitlines()
    codes = [line.partition(" ")[0] for line in said]
    invalid, mismatch, unsupported, too_large, busy = "8", "1", "9", "7", "2"
    assert codes == [
        *[invalid] * 18, *[mismatch] * 4, *[invalid] * 5, "taken", *[unsupported] * 3, too_large, busy, busy, "taken",
    ], said  # fmt: skip
    capacities, others = said[:12], said[12:18]
    for line, kind in zip(capacities, ["log:w", "ring:w", "pipe:w", "sync:w"] * 3, strict=True):
        assert f"{kind}: capacity is " in line
    assert all("w: " in line or "'log:a\\x0" in line for line in others), others
    assert all("exists with shape=[4,4], not" in line for line in said[18:20]), said[18:20]
    assert "sync:m: a type of 100000 bytes" in said[31]
    assert penstock.list_channels() == []


def test_a_field_that_is_named_twice_does_not_compile(tmp_path):
    """With the header of structs alone, which penstock.hpp includes: the compiler takes a tenth of the time."""
    compiler = shutil.which("c++") or shutil.which("g++") or pytest.skip("there is no C++ compiler here")
    (tmp_path / "a.cpp").write_text(
        "#include <front/codecs/struct_fields.hpp>\nstruct D { int x; };\nPENSTOCK_STRUCT(D, x, x);\n"
    )
    command = [compiler, "-std=c++20", "-fsyntax-only", "-I", penstock.get_include(), str(tmp_path / "a.cpp")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    assert "a field of a struct is named once" in done.stderr
