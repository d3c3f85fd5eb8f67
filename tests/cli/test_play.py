"""`penstock play`."""

import json

import pytest
from cli.running import run_here

import penstock

PATIENCE = 60


@pytest.fixture
def filled(archive):
    clock = penstock.testing.ManualClock(1_769_860_800_000_000_000)
    with (
        penstock.publish(penstock.testing.channel("log:robot/imu", clock=clock), codec="json") as imu,
        penstock.publish(penstock.testing.channel("log:gps", clock=clock)) as gps,
        archive.record("*"),
    ):
        for number in range(3):
            imu.send(number)
            gps.send(b"%d" % number)
            clock.now_ns += 10**9
    return archive


def test_a_whole_archive_is_played(filled):
    with penstock.subscribe("log:again/robot/imu") as imu, penstock.subscribe("log:again/gps") as gps:
        done = run_here("play", filled.path, "--onto", "again/", "--speed", "100")
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("6 messages of 2 channels in ")
        assert (imu.poll(), gps.poll()) == ([0, 1, 2], [b"0", b"1", b"2"])


def test_messages_are_played_with_their_recorded_times(filled):
    with penstock.subscribe("log:again/gps") as gps:
        done = run_here("play", filled.path, "log:gps", "--onto", "again/", "--fast", "--recorded-times")
        assert done.returncode == 0, done.stderr
        assert (gps.recv(timeout=PATIENCE), gps.last.time_ns) == (b"0", 1_769_860_800_000_000_000)


def test_a_part_of_it_is_played_elsewhere(filled):
    with penstock.subscribe("ring:copy") as copy:
        done = run_here(
            *("play", filled.path, "robot/*", "--map", "log:robot/imu=ring:copy", "--fast", "--json"),
            *("--since", "2026-01-31T12:00:01Z", "--until", "2026-01-31T12:00:01Z"),
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == {"messages": {"log:robot/imu": 1}, "left_out": []}
        assert copy.poll() == [1]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--onto", "a", "--map", "b=c"), "cannot both be given"),
        (("--map", "log:imu"), "write FROM=TO"),
        (("--speed", "0"), "--speed (--rate) is 0"),
        (("--rate", "0"), "--speed (--rate) is 0"),
        (("log:nope",), "no recording of log:nope; it has log:gps, log:robot/imu"),
        (("--since", "soon"), "--since is 'soon'"),
    ],
)
def test_mistakes_are_one_line(filled, arguments, says):
    done = run_here("play", filled.path, *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_recordings_says_when(filled):
    out = run_here("recordings", filled.path).stdout.splitlines()
    assert out[0].split() == ["id", "channel", "state", "from", "seconds", "messages", "bytes", "lost"]
    begins = out[1].split()[3] + " " + out[1].split()[4]
    channel = out[1].split()[1]
    done = run_here("replay", filled.path, channel, "--since", begins, "--json")
    assert len(done.stdout.splitlines()) == 3
