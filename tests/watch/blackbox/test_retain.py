"""A log that is sized by time keeps that much of its past at the rate that was named; others say how much they keep."""

import json
import re
import time

import pytest

import penstock
from penstock.channels.storage.holding import held
from penstock.channels.uri.opener import parse
from penstock.cli import run
from penstock.kinds.log import LogOptions, advise_retention
from penstock.testing import ManualClock, channel
from penstock.util import units

SECOND = 10**9
STEP = 1024  # positions of a message: a header of 32 bytes and 992 bytes


@pytest.mark.parametrize(("seconds", "per_second"), [(31, 33), (7, 1000), (100, 3), (64, 64)])
def test_log_keeps_at_least_the_time(seconds, per_second):
    """At any moment, and with a reader that is never behind: the most that a log overwrites."""
    clock = ManualClock(SECOND)
    name = channel("log:a", clock=clock)
    with (
        penstock.publish(name, retain=f"{seconds}s", rate=per_second * STEP) as pub,
        penstock.subscribe("log:a") as sub,
    ):
        for number in range(7 * seconds * per_second):
            clock.now_ns = SECOND + number * SECOND // per_second
            pub.send(bytes(STEP - 32))
            sub.recv(timeout=10)
            if number % 97 == 0 and number > seconds * per_second:
                found = held(parse("log:a"), clock.now_ns)
                assert found.seconds >= seconds - 2 / per_second
        assert not held(parse("log:a"), clock.now_ns).is_all


def test_retain_decides_the_term():
    with penstock.publish("log:a", retain=10, rate="100kB") as pub:
        assert penstock.inspect("log:a").details["term_length"] == 1 << 20
        pub.send(b"1")
    with penstock.publish("log:a", retain="5s", rate="100kB"), penstock.subscribe("log:a", retain=10, rate=100_000):
        pass
    with pytest.raises(penstock.Mismatch, match=r"needs 2,097,152. Leave retain out, or remove the channel first"):
        penstock.publish("log:a", retain="20s", rate="100kB")
    penstock.remove("log:a")  # the advice
    with penstock.publish("log:a", retain="20s", rate="100kB"):
        assert penstock.inspect("log:a").details["term_length"] == 1 << 21


def test_retain_of_a_reader_that_comes_first():
    with penstock.subscribe("log:a", retain=10, rate="100kB") as sub, penstock.publish("log:a") as pub:
        pub.send(b"1")
        assert sub.recv(timeout=10) == b"1"
        assert penstock.inspect("log:a").details["term_length"] == 1 << 20


def test_retain_in_a_channel_as_a_value():
    log = penstock.Log("a", retain="10s", rate="100kB")
    assert log.rate == 100_000
    with penstock.publish(log), penstock.subscribe(log):
        assert penstock.inspect(log).details["term_length"] == 1 << 20


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"retain": "30s"}, "needs rate="),
        ({"rate": "1MB"}, "rate has no effect without retain"),
        ({"memory_max": "1MB"}, "memory_max has no effect without retain"),
        ({"retain": "soon", "rate": 1}, "retain is 'soon'"),
        ({"retain": 0, "rate": 1}, "retain is 0"),
        ({"retain": 1, "rate": 0}, "rate is 0"),
        ({"retain": 1, "rate": 1, "term_length": 1 << 16}, "give one of them"),
        (
            {"retain": "1h", "rate": "1MB"},
            "and a log takes 3,221,225,472 at most: give a retain of at most 1073 s, or send",
        ),
        (
            {"retain": "5m", "rate": "1MB"},
            "and memory_max is 268,435,456: give memory_max=1610612736, or a shorter retain",
        ),
        (
            {"retain": "1h", "rate": "1GB", "memory_max": "1TB"},
            "and a log takes 3,221,225,472 at most: give a retain of at most 1.073 s",
        ),
        ({"retain": 10, "rate": 100_000, "capacity": 1 << 21}, "capacity"),
    ],
)
def test_retain_that_cannot_be_kept_is_refused(options, said):
    with pytest.raises(penstock.Invalid, match=said):
        penstock.publish("log:a", **options)
    assert not penstock.list_channels()


@pytest.mark.parametrize("name", ["ring:a", "sync:a", "pipe:a", "udp://127.0.0.1:9/1"])
def test_retain_on_other_kinds_is_refused(name):
    with pytest.raises(TypeError, match=r"no option 'retain'.*these have it: log:NAME"):
        penstock.publish(name, retain="30s", rate=1)


def test_commands_tell_how_much_is_held(capsys):
    """Also doctor, whose advice is followed here: afterwards it finds nothing."""
    clock = ManualClock(time.time_ns() - SECOND)  # the rate that doctor finds is a value
    name = channel("log:a", clock=clock)
    with penstock.publish(name, term_length=1 << 16) as pub, penstock.publish("log:young") as young:
        for _ in range(1000):
            clock.now_ns += 100_000
            pub.send(bytes(500))
        young.send(b"1")
    found = held(parse("log:a"), penstock.inspect("log:a").created_ns + 3600 * SECOND)
    assert not found.is_all
    assert run(["ls", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all(row["held_s"] > 0 for row in rows)
    assert run(["ls"]) == 0
    assert "holds" in capsys.readouterr().out
    run(["doctor", "--before", "1h", "--json"])
    (finding,) = [one for one in json.loads(capsys.readouterr().out) if "snapshot" in one["what"]]
    assert "log:a (" in finding["what"]
    assert "log:young" not in finding["what"]
    penstock.remove("log:a")
    assert follow(finding["advice"])["memory_max"] == 3 << 30
    run(["doctor", "--before", "1h"])
    assert "no channel has overwritten messages" in capsys.readouterr().out


def follow(advice):
    """The options that an advice names, with which a channel can be made."""
    found = dict(re.findall(r"(retain|rate|memory_max)='?([0-9.]+s|[0-9]+)", advice))
    options = {name: value if name == "retain" else int(value) for name, value in found.items()}
    assert LogOptions(**options).term_bytes * 3 <= options.get("memory_max", 256 << 20)
    return options


@pytest.mark.parametrize("rate", [1, 1000, 10**6, 10**7, 10**8, 3 * 10**9, 10**12])
@pytest.mark.parametrize("before", [0.5, 30, 3600])
def test_advice_is_accepted_as_it_is(before, rate):
    """No more than a log can take, at any rate; and the text of a refusal can be followed, too."""
    options = follow(advise_retention(before, rate))
    kept = units.seconds(options["retain"], "retain")
    assert kept == before or (kept < before and options["memory_max"] == 3 << 30)
    with pytest.raises(penstock.Invalid, match="needs") as raised:
        LogOptions(retain=before, rate=rate, memory_max=1)
    told = str(raised.value)
    if wanted := re.search(r"give memory_max=(\d+)", told):
        LogOptions(retain=before, rate=rate, memory_max=int(wanted[1]))
    else:
        most = float(re.search(r"a retain of at most ([0-9.]+) s", told)[1])
        LogOptions(retain=most, rate=rate, memory_max=3 << 30)


def test_doctor_advises_each_kind_by_itself(capsys):
    """A ring is not told to name a rate."""
    with penstock.publish("ring:a", capacity="64KiB") as pub:
        for _ in range(1000):
            pub.send(bytes(500))
    run(["doctor", "--before", "1h", "--json"])
    (finding,) = [one for one in json.loads(capsys.readouterr().out) if "snapshot" in one["what"]]
    assert "ring:a (" in finding["what"]
    assert finding["advice"] == "rings, frames and queues: a larger capacity, or more buffers"
