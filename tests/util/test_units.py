"""Moments, spans and sizes as people write them."""

import datetime
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.errors import Invalid
from penstock.util import units
from penstock.util.clock import SystemClock

NOW = 1_769_860_800_123_456_789  # 2026-01-31T12:00:00.123456789Z
SECOND = 10**9


@pytest.fixture(params=["UTC", "Asia/Tokyo", "America/New_York"])
def zone(request, monkeypatch):
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


def of(text):
    return units.nanoseconds(text, "since", lambda: NOW)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("now", NOW),
        ("10m ago", NOW - 600 * SECOND),
        (" 1h 30m ago ", NOW - 5400 * SECOND),
        ("1h30m ago", NOW - 5400 * SECOND),
        ("2 days ago", NOW - 2 * 86400 * SECOND),
        ("1 week ago", NOW - 7 * 86400 * SECOND),
        ("1.5s ago", NOW - 3 * SECOND // 2),
        ("250ms ago", NOW - SECOND // 4),
        ("5 MIN AGO", NOW - 300 * SECOND),
        ("2026-01-31T12:00:00Z", NOW - 123456789),
        ("2026-01-31T12:00:00.123456789Z", NOW),
        ("2026-01-31 13:00:00.1234567+01:00", NOW - 89),
        ("@1769860800", NOW - 123456789),
        ("@1769860800.123456789", NOW),
        ("@-1.5", -3 * SECOND // 2),
        (str(NOW), NOW),
        ("-7", -7),
    ],
)
def test_a_text_is_a_moment(text, ns, zone):
    assert of(text) == ns


def test_a_text_without_a_zone_is_local_time(zone):
    offset = {"UTC": 0, "Asia/Tokyo": 9, "America/New_York": -5}[zone] * 3600 * SECOND
    noon = NOW - 123456789
    assert of("2026-01-31T12:00") == noon - offset
    assert of("2026-01-31") == noon - 12 * 3600 * SECOND - offset
    today = of("today")
    assert today <= NOW < today + 86400 * SECOND
    assert (today + offset) % (86400 * SECOND) == 0
    assert of("yesterday") == today - 86400 * SECOND


def test_a_day_of_a_clock_change_begins_at_its_midnight(monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        noon = of("2026-03-08T16:00:00Z")  # the clocks went forward in the night
        assert units.nanoseconds("today", "since", lambda: noon) == of("2026-03-08T05:00:00Z")
        assert units.nanoseconds("yesterday", "since", lambda: noon) == of("2026-03-07T05:00:00Z")
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "soon",
        "ago",
        "10 ago",
        "10y ago",
        "10m",
        "2026-13-01",
        "2026-01-31T25:00",
        "@",
        "@1e9",
        "inf",
        "nan",
        "1700000000.5",
        "9" * 25,
        "10m  ago ago",
        "١٢m ago",
    ],
)
def test_any_other_text_says_what_to_write(wrong):
    with pytest.raises(Invalid, match=r"^until is .*: it must be a time such as '2026-01-31T12:00:00Z'.*'10m ago'"):
        units.nanoseconds(wrong, "until")


@given(st.text(max_size=40) | st.integers() | st.floats() | st.none() | st.booleans() | st.datetimes())
def test_anything_is_a_moment_or_invalid(anything):
    try:
        found = units.nanoseconds(anything, "since")
    except Invalid:
        return
    assert -(1 << 63) <= found < 1 << 63


@given(st.integers(-(10**18) * 9, 9 * 10**18))
def test_shown_values_are_read_again(ns):
    assert units.nanoseconds(units.shown(ns), "since") == ns // SECOND * SECOND


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("10m", 600),
        ("1h 30m", 5400),
        ("7 days", 604800),
        ("0.5", 0.5),
        (3, 3),
        ("1.5h", 5400),
        (datetime.timedelta(minutes=2), 120),
    ],
)
def test_a_span_is_seconds(text, seconds):
    assert units.seconds(text, "max_age") == seconds


@pytest.mark.parametrize("wrong", ["", "10 parsecs", 0, -1, "0s", "inf", float("nan"), None, True, "-5m"])
def test_any_other_span_is_invalid(wrong):
    with pytest.raises(Invalid, match=r"^max_age is"):
        units.seconds(wrong, "max_age")


@pytest.mark.parametrize(
    ("text", "size"),
    [(5, 5), ("5", 5), ("500MB", 500_000_000), ("1.5 GB", 1_500_000_000), ("8MiB", 8 << 20), ("2tb", 2 * 10**12)],
)
def test_a_size_is_bytes(text, size):
    assert units.size(text, "max_bytes") == size


@pytest.mark.parametrize("wrong", ["", "0", 0, -5, 1.5, "5 m", "MB", "1e9", None, True, "9" * 18 + "TB"])
def test_any_other_size_is_invalid(wrong):
    with pytest.raises(Invalid, match=r"^max_bytes is"):
        units.size(wrong, "max_bytes")


class Later(SystemClock):
    def now_ns(self):
        return NOW + 180 * SECOND


def test_an_archive_is_asked_by_texts(archive):
    clock = penstock.testing.ManualClock(NOW)
    with penstock.publish(penstock.testing.channel("log:x", clock=clock)) as pub, archive.record("log:x"):
        for number in range(3):
            pub.send(b"%d" % number)
            clock.now_ns += 60 * SECOND
    asked = [
        message.data for message in archive.replay("log:x", since="2026-01-31T12:01:00Z", until="2026-01-31T12:02Z")
    ]
    assert asked == [b"1"]
    later = penstock.Archive(archive.path, clock=Later())
    assert later.read("log:x", since="1h ago").num_rows == 3
    assert [message.data for message in later.replay("log:x", since="90s ago")] == [b"2"]
    with pytest.raises(Invalid, match=r"^since is 'soon'"):
        archive.scan("log:x", since="soon")
