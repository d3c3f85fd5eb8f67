"""No time stamp stops anything: frames may have any time of 64 bits, and messages any time that their codec has."""

import itertools
import struct

import msgspec
import numpy as np
import pyarrow.csv
import pytest

import penstock
from penstock.export import export
from penstock.spark import queries
from penstock.tables import pipeline

TIMES = [-(1 << 63), 0, (1 << 63) - 1, -(1 << 63), 5, -1, (1 << 63) - 2]
FAR = [1 << 62, -(1 << 62), 253_402_300_800, -62_135_596_801, (1 << 63) - 1]  # seconds since 1970


def stamp(seconds, nanoseconds=0):
    """A time as MessagePack has it."""
    return b"\xc7\x0c\xff" + struct.pack(">Iq", nanoseconds, seconds)


@pytest.fixture
def filled(archive):
    for channel, codec in (("log:j", "json"), ("log:b", "bytes"), ("log:d", np.dtype([("x", "<i8")]))):
        messages = {"json": [{"x": n} for n in range(7)], "bytes": [b"x"] * 7}.get(str(codec), [(n,) for n in range(7)])
        archive.append(channel, messages, codec=codec, times_ns=TIMES)
    return archive


def test_intervals_of_far_times_are_right_or_null(filled, tmp_path):
    export(filled.path, tmp_path / "csv", form="csv")
    for name in ("log_j", "log_b", "log_d"):
        (path,) = (tmp_path / "csv" / name).glob("*.csv")
        found = pyarrow.csv.read_csv(path)
        assert found["timestamp_ns"].to_pylist() == TIMES
        apart = [b - a for a, b in itertools.pairwise(TIMES)]
        assert found["interval_ns"].to_pylist() == [
            None,
            *(one if -(1 << 63) <= one < 1 << 63 else None for one in apart),
        ]


def test_stats_take_far_times(filled, tmp_path):
    pytest.importorskip("duckdb")
    pipeline.run(filled.path, tmp_path / "tables")
    found = queries.by_duckdb(
        tmp_path / "tables", "select sum(messages) as m, max(interval_p99_ns) as i from stats", None
    )
    assert found.to_pylist() == [{"m": 21, "i": -6}]


def test_msgpack_with_times_that_no_datetime_holds_decodes(archive):
    messages = [b"\x82\xa1t" + stamp(one) + b"\xa1u" + stamp(7) for one in FAR] + [b"\x81\xa1t" + stamp(0, 10**9)]
    archive.append("log:m", messages, codec="msgpack", encoded=True)
    found = [one.data for one in archive.replay("log:m")]
    assert [one["t"].code for one in found] == [-1] * 6
    assert [msgspec.msgpack.encode(one["t"]) for one in found] == [*map(stamp, FAR), stamp(0, 10**9)]
    assert {one["u"].timestamp() for one in found[:-1]} == {7.0}
    with penstock.publish("log:live", codec="msgpack") as pub, penstock.subscribe("log:live") as sub:
        pub.send(found[0])
        assert sub.recv(timeout=60) == found[0]


@pytest.mark.parametrize(
    "wrong", [b"\x81\xa1t" + stamp(1 << 62)[:-1], b"\xc1" + stamp(1 << 62), stamp(1 << 62) + b"\xc1"]
)
def test_msgpack_that_is_wrong_otherwise_is_still_refused(archive, wrong):
    archive.append("log:m", [wrong], codec="msgpack", encoded=True)
    with pytest.raises(penstock.DecodeError, match="is not msgpack"):
        list(archive.replay("log:m"))
