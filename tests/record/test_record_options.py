"""Options of `Archive.record`: a position that the channel does not keep, and options without an effect, are refused."""

import subprocess
import sys

import pytest

import penstock
from penstock import errors

OPENED = {
    "log": {},
    "ring": {},
    "sync": {},
    "pipe": {},
    "frames": {"shape": (4,)},
}


@pytest.fixture(params=OPENED)
def kind(request):
    return request.param


@pytest.fixture
def opened(kind):
    with penstock.publish(f"{kind}:o", **OPENED[kind]) as pub:
        if kind not in ("pipe", "frames"):
            for number in range(10):
                pub.send(b"%20d" % number)
        yield pub


def nothing_recorded(archive):
    return list(archive.list()) == []


# ---- where a recording begins ----


@pytest.mark.parametrize("start", [-1, 1.5, None, True, "oldest", "5", 1 << 63, float("nan"), (1,)])
@pytest.mark.parametrize("channels", ["log:o", "log:*", ["log:o", "ring:*"]])
@pytest.mark.parametrize("process", [False, True])
def test_a_start_that_is_no_position_is_refused(archive, start, channels, process):
    with penstock.publish("log:o"), pytest.raises(errors.Invalid, match="start is"):
        archive.record(channels, start=start, process=process)
    assert nothing_recorded(archive)


@pytest.mark.parametrize("process", [False, True])
def test_a_position_that_is_not_kept_is_refused_as_by_subscribe(archive, opened, kind, process):
    """33 is within a message; 2**40 was never reached."""
    for start in (33, 1 << 40):
        with pytest.raises((errors.Invalid, errors.Unsupported)):
            penstock.subscribe(f"{kind}:o", start=start).close()
        with pytest.raises((errors.Invalid, errors.Unsupported), match=f"{kind}:o: .*{start}"):
            archive.record(f"{kind}:o", start=start, process=process).stop()
    assert nothing_recorded(archive)


@pytest.mark.parametrize("kind", ["log", "ring", "sync"])
def test_a_position_that_is_kept_begins_the_recording(archive, opened, kind):
    with penstock.subscribe(f"{kind}:o", start=0) as sub:
        for _ in range(3):
            sub.recv(timeout=30)
        position = sub.position
    with archive.record(f"{kind}:o", start=position):
        pass
    (info,) = archive.list()
    assert (info.start_position, info.messages, info.gaps) == (position, 7, 0)


def test_a_position_without_a_publication_is_refused(archive):
    with pytest.raises(errors.Invalid, match="position 64 is not kept"):
        archive.record("log:none", start=64)
    assert nothing_recorded(archive)


def test_a_position_is_of_one_channel_and_of_no_pattern(archive):
    with penstock.publish("log:o"), pytest.raises(errors.Unsupported, match="a position of one channel: with log:\\*"):
        archive.record("log:*", start=0)
    with pytest.raises(errors.Unsupported, match="ring:\\* keeps no message"):
        archive.record("ring:*", start="earliest")
    assert nothing_recorded(archive)


def test_a_continuing_recorder_begins_at_the_oldest_with_a_gap(archive):
    with penstock.publish("log:o", term_length=1 << 16) as pub:
        with archive.record("log:o"):
            pub.send(b"before")
        for _ in range(3000):  # the log keeps none of the first
            pub.send(bytes(200))
        with archive.record("log:o", extend=True):
            pub.send(b"after")
    (info,) = archive.list()
    assert info.gaps == 1
    assert info.lost_bytes > 0


@pytest.mark.parametrize("start", ["-1", "1.5", "oldest", "33", "1000000"])
@pytest.mark.parametrize("channel", ["log:o", "log:*"])
def test_the_command_refuses_such_a_start(tmp_path, start, channel):
    with penstock.publish("log:o") as pub:
        for _ in range(10):
            pub.send(bytes(20))
        command = [sys.executable, "-m", "penstock", "record", str(tmp_path / "a"), channel, f"--start={start}"]
        done = subprocess.run([*command, "--seconds=0.1"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert start in done.stderr
    assert "Traceback" not in done.stderr


# ---- options without an effect ----

NONE = {
    "pixels": (["log:o"], {"pixels": False}, "pixels=False is for frames"),
    "pixels of a pattern": (["log:*"], {"pixels": False}, "pixels=False is for frames"),
    "drop_after of a ring": (["ring:o"], {"drop_after": 1.0}, "drop_after= is for channels whose writers wait"),
    "drop_after of frames": (["frames:o"], {"drop_after": 1.0}, "give when_slow='skip'"),
    "both of frames": (["frames:o"], {"drop_after": 1.0, "when_slow": "wait"}, "drop_after= is for"),
    "drop_after of a pattern": (["ring:*"], {"drop_after": 0}, "drop_after= is for"),
    "when_slow": (["log:o"], {"when_slow": "wait"}, "when_slow= is for frames"),
    "when_slow of a pattern": (["log:*", "ring:*"], {"when_slow": "wait"}, "when_slow= is for frames"),
    "sent": (["log:o"], {"sent": True}, "for udp channels"),
    "sent of a pattern": (["log:*"], {"sent": True}, "for udp channels"),
}
SENSELESS = {
    "pixels": (["frames:o"], {"pixels": "no"}, "pixels is 'no'"),
    "process": (["log:o"], {"process": "yes"}, "process is 'yes'"),
    "extend beside a position": (["log:o"], {"extend": True, "start": 0}, "at its end: give one"),
    "extend": (["log:o"], {"extend": 1}, "extend is 1"),
    "sent": (["udp://127.0.0.1:45971/7"], {"sent": None}, "sent is None"),
    "drop_after": (["log:o"], {"drop_after": -1}, "drop_after is -1"),
    "drop_after, no number": (["log:*"], {"drop_after": "1s"}, "drop_after is '1s'"),
    "drop_after, NaN": (["log:o"], {"drop_after": float("nan")}, "drop_after is nan"),
    "drop_after, a truth value": (["log:o"], {"drop_after": True}, "drop_after is True"),
    "when_slow": (["frames:*"], {"when_slow": "perhaps"}, "when_slow is 'perhaps'"),
    "twice": (["log:o", "log:o"], {}, "log:o is named twice"),
    "a pattern twice": (["log:*", "log:*"], {}, "named twice"),
    "none": ([], {}, "at least one channel"),
    "no text": (["log:o", 5], {}, "channels is "),
}


@pytest.mark.parametrize("process", [False, True])
@pytest.mark.parametrize("case", NONE)
def test_an_option_without_an_effect_says_what_it_is_for(archive, case, process):
    channels, options, says = NONE[case]
    with pytest.raises(errors.Unsupported, match=says):
        archive.record(channels, process=process, **options)
    assert nothing_recorded(archive)


@pytest.mark.parametrize("case", SENSELESS)
def test_an_option_that_makes_no_sense_is_named(archive, case):
    channels, options, says = SENSELESS[case]
    with pytest.raises(errors.Invalid, match=says):
        archive.record(channels, **options)
    assert nothing_recorded(archive)


def test_extend_of_udp_starts_a_new_recording_of_sent_messages(archive):
    uri = "udp://127.0.0.1:45971/7"
    with penstock.publish(uri, linger=0) as pub:
        for _ in range(2):
            with archive.record(uri, sent=True, extend=True, start="earliest"):
                pub.offer(b"x")
    assert len(archive.list()) == 2


@pytest.mark.parametrize(
    ("uri", "made"), [("ring:o", {}), ("pipe:o", {}), ("frames:o", {"shape": (4,)})], ids=["ring", "pipe", "frames"]
)
def test_a_start_is_refused_also_where_a_recording_is_continued(archive, uri, made):
    with penstock.publish(uri, **made):
        for _ in range(2):
            with pytest.raises(errors.Unsupported, match="leave start out"):
                archive.record(uri, extend=True, start="earliest")
            archive.record(uri, extend=True).stop()


def test_extend_has_start_where_there_is_no_recording(archive):
    with penstock.publish("log:o") as pub:
        pub.send(b"before")
        for _ in range(2):
            with archive.record("log:o", extend=True, start="earliest"):
                pub.send(b"x")
    assert [info.messages for info in archive.list()] == [3]


def test_an_option_for_one_of_several_channels_is_taken(archive):
    options = {"drop_after": 5.0, "when_slow": "skip", "pixels": False}
    with (
        penstock.publish("log:o") as pub,
        penstock.publish("frames:o", shape=(4,)),
        archive.record(["log:*", "frames:o"], **options),
    ):
        pub.send(b"x")
    assert archive.find("log:o").messages == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["play", "{a}", "--fast", "--speed", "2"], "--speed (--rate) has no effect"),
        (["play", "{a}", "--map", "log:b=log:x", "--map", "log:b=log:y"], "--map names log:b twice"),
        (["metrics", "--once", "--port", "9464"], "--port has no effect"),
        (["record", "{a}", "log:o", "log:o"], "log:o is named twice"),
    ],
)
def test_a_command_refuses_options_without_an_effect(archive, words, says):
    archive.append("log:b", [b"x"])
    command = [sys.executable, "-m", "penstock", *(word.format(a=archive.path) for word in words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert says in done.stderr
