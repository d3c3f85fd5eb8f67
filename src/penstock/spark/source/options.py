"""The options of the data source, checked: an unknown name, stream, unit or column is an error of one line. Knows no Spark."""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.channels.uri.wildcards import check_patterns, matches
from penstock.errors import Invalid
from penstock.record import TIME_MAX, TIME_MIN, ArchiveWatch, Range, ReadPlanner, intervals, nanoseconds
from penstock.record.archive import Archive
from penstock.spark.source import offsets
from penstock.util.files import storage
from penstock.util.units import LEAST, MOST, interval, seconds

TYPES = {
    "stream": "string",
    "session": "int",
    "position": "bigint",
    "time": "timestamp",
    "timestamp_ns": "bigint",
    "flags": "int",
    "lost": "bigint",
    "recorded_ns": "bigint",
    "payload": "binary",
}
DEFAULT = ("stream", "session", "position", "time", "timestamp_ns", "lost", "payload")
SHARED = ("path", "stream", "startingOffsets", "startingTimestamp", "minPartitions", "rangeBytes", "batchRows")
BATCH = (*SHARED, "since", "until", "start", "end", "endingOffsets", "live")
OFFSETS = ("startingOffsets", "startingTimestamp", "endingOffsets")
STREAMING = (
    *SHARED,
    "maxBytesPerTrigger",
    "maxMessagesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "failOnDataLoss",
    "consumer",
)
UNITS = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
POSITION_MAX = (1 << 64) - 1
DELAY_S = 900.0  # Kafka's maxTriggerDelay
RANGE_BYTES_MAX, RANGE_BYTES_MIN = 128 << 20, 8 << 20
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True)
class Request:
    """A request to an archive. channels: URIs and patterns; None for all. delay_s: after which a batch may have fewer messages than
    min_messages. range_bytes: 0 for what fits this machine."""

    path: str
    channels: tuple[str, ...] | None = None
    since: int = TIME_MIN
    until: int = TIME_MAX
    start: int = 0
    end: int = POSITION_MAX
    range_bytes: int = 0
    batch_rows: int = 32768
    starting: Any = None
    ending: Any = None
    starting_ns: int | None = None
    min_partitions: int = 0
    max_bytes: int | None = None
    max_messages: int | None = None
    min_messages: int = 0
    delay_s: float = DELAY_S
    on_loss: str = "true"
    consumer: str = ""
    live: bool = False

    @classmethod
    def of(cls, options: Mapping[str, str], *, streaming: bool = False) -> Request:
        """The request that options make. `Invalid` names the option that is wrong."""
        given = {name.lower(): value for name, value in options.items()}  # Spark gives the names in small letters
        names, others = (STREAMING, BATCH) if streaming else (BATCH, STREAMING)
        unknown = sorted(set(given) - {name.lower() for name in names})
        if unknown:
            where = "readStream" if not streaming else "read"
            elsewhere = [name for name in others if name.lower() in unknown]
            hint = f" ({', '.join(elsewhere)}: only with {where})" if elsewhere else ""
            raise Invalid(f"there is no option {', '.join(unknown)}{hint}; there are {', '.join(names)}")
        found: dict[str, Any] = {"path": storage.where(path_of(given), "the archive").uri}
        if "stream" in given:
            found["channels"] = _streams(given["stream"])
        for name in ("since", "until"):
            if name in given:
                found[name] = nanoseconds(given[name], name)
        interval(found.get("since", LEAST), found.get("until", MOST))
        for name in ("start", "end"):
            if name in given:
                found[name] = _whole(given[name], name, 0, POSITION_MAX)
        cls._offsets_of(given, found)
        if "rangebytes" in given:
            found["range_bytes"] = _size(given["rangebytes"], "rangeBytes")
        if "batchrows" in given:
            found["batch_rows"] = _whole(given["batchrows"], "batchRows", 1, (1 << 31) - 1)
        if "live" in given:
            found["live"] = _flag(given["live"], "live")
            if found["live"] and (other := [name for name in OFFSETS if name.lower() in given]):
                raise Invalid(
                    f"{other[0]} is about recordings alone: leave it out, or live; start, end, since and until go with it"
                )
        return cls(**found)

    @staticmethod
    def _offsets_of(given: Mapping[str, str], found: dict[str, Any]) -> None:
        """Where to begin and to end, and how much at a time."""
        if "startingoffsets" in given and "startingtimestamp" in given:
            raise Invalid("startingOffsets and startingTimestamp say the same thing: leave one of them out")
        if "startingoffsets" in given:
            found["starting"] = offsets.start_of(given["startingoffsets"], "startingOffsets")
        if "startingtimestamp" in given:
            found["starting_ns"] = nanoseconds(given["startingtimestamp"], "startingTimestamp")
        if "endingoffsets" in given:
            found["ending"] = offsets.start_of(given["endingoffsets"], "endingOffsets")
        if "minpartitions" in given:
            found["min_partitions"] = _whole(given["minpartitions"], "minPartitions", 1, 1_000_000)
        if "maxbytespertrigger" in given:
            found["max_bytes"] = _size(given["maxbytespertrigger"], "maxBytesPerTrigger")
        if "maxmessagespertrigger" in given:
            found["max_messages"] = _whole(given["maxmessagespertrigger"], "maxMessagesPerTrigger", 1, POSITION_MAX)
        if "minoffsetspertrigger" in given:
            found["min_messages"] = _whole(given["minoffsetspertrigger"], "minOffsetsPerTrigger", 1, POSITION_MAX)
            most = found.get("max_messages")
            if most is not None and most < found["min_messages"]:
                raise Invalid(
                    "minOffsetsPerTrigger is more than maxMessagesPerTrigger: no batch can have so many messages"
                )
        if "maxtriggerdelay" in given:
            if "min_messages" not in found:
                raise Invalid("maxTriggerDelay goes with minOffsetsPerTrigger: without it, no batch waits")
            found["delay_s"] = seconds(given["maxtriggerdelay"], "maxTriggerDelay")
        if "failondataloss" in given:
            found["on_loss"] = given["failondataloss"].strip().lower()
            if found["on_loss"] not in ("true", "false", "mark"):
                raise Invalid(f"failOnDataLoss is {given['failondataloss']!r}: it must be true, false or mark")
        if "consumer" in given:
            found["consumer"] = consumer_name(given["consumer"])

    def check(self) -> Archive:
        """The archive. `NotFound` if there is no such archive or stream."""
        archive = Archive(self.path, create=False)
        if not self.live:  # a live stream need not be in the archive
            self.selected(archive)
        return archive

    def selected(self, archive: Archive) -> set[str] | None:
        """The streams that are asked for; None for all. `NotFound` for one that the archive does not have."""
        return None if self.channels is None else archive.channels(self.channels)

    def missing(self, archive: Archive) -> list[str]:
        """The streams and patterns that no recording of an archive has."""
        there = {info.channel for info in archive.list() if info.channel}
        return [name for name in self.channels or () if not any(matches(name, channel) for channel in there)]

    def plan(self) -> list[Range]:
        """The ranges to read, by the indexes alone. `NotFound` if there is no such archive or stream."""
        archive = Archive(self.path, create=False)
        channels = self.selected(archive)
        if self.starting is not None or self.starting_ns is not None or self.ending is not None:
            return self._plan_ranges(archive)
        survey = ReadPlanner(archive, channels)
        return survey.plan(
            since=self.since if self.since > TIME_MIN else None,
            until=self.until if self.until < TIME_MAX else None,
            start=self.start,
            end=self.end,
            range_bytes=self.bytes_of_ranges(sum(one.info.bytes for one in survey.recordings)),
        )

    def bytes_of_ranges(self, total: int) -> int:
        """About how large a range is: two tasks per core for what there is, within reason, if no option says otherwise. A task costs
        Spark as much as some 5 MiB of messages."""
        fair = min(RANGE_BYTES_MAX, max(RANGE_BYTES_MIN, total // (2 * (os.cpu_count() or 1))))
        size = self.range_bytes or fair
        return max(1, min(size, total // self.min_partitions)) if self.min_partitions else size

    def begin(self, watch: ArchiveWatch) -> offsets.Positions:
        """The positions that startingOffsets or startingTimestamp leave out."""
        if self.starting_ns is not None:
            return {one: [(0, watch.first_since(one, self.starting_ns))] for one in watch.held()}
        return offsets.resolve("earliest" if self.starting is None else self.starting, watch.held(), newest(watch))

    def _plan_ranges(self, archive: Archive) -> list[Range]:
        """The ranges between startingOffsets and endingOffsets."""
        watch = archive.watch(self.channels)
        watch.refresh()
        held, begin = watch.held(), self.begin(watch)
        end = held if self.ending in (None, "latest") else offsets.resolve(self.ending, held, newest(watch))
        wanted = {}
        for stream, there in held.items():
            inside = (
                there
                if isinstance(self.ending, dict) and stream not in end
                else intervals.common(there, end.get(stream, []))
            )
            inside = intervals.common(inside, [(self.start, self.end)])
            wanted[stream] = intervals.without(inside, begin.get(stream, []))
        told = {stream: intervals.end_of(done) for stream, done in begin.items()}
        size = self.bytes_of_ranges(sum(map(intervals.total, wanted.values())))
        ranges = watch.plan(wanted, range_bytes=size, reported=told)
        return [one for one in ranges if one.time_max >= self.since and one.time_min <= self.until]


def path_of(options: Mapping[str, str]) -> str:
    """The archive that the options name. `Invalid` if none do."""
    if not (path := options.get("path")):
        raise Invalid(
            'name the archive: spark.read.format("penstock").load("ARCHIVE"). Spark passes on no options of a table in its '
            "catalog: say them in the query, SELECT … FROM frames WITH (path 'ARCHIVE'), or in CREATE VIEW … AS such a query"
        )
    return path


def newest(watch: ArchiveWatch) -> dict[str, int]:
    """Channel → epoch of its newest recording."""
    return {info.channel: info.epoch for info in watch.recordings}


def consumer_name(text: str) -> str:
    """The name of a query, checked: it becomes a file's name."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", text):
        raise Invalid(
            f"consumer is {text!r}: it must be letters, digits, '.', '_' and '-', at most 100, and begin with no sign"
        )
    return text


def chosen(columns: Iterable[str]) -> list[str]:
    """Names of columns, checked."""
    if isinstance(columns, str):
        raise Invalid(f"columns is {columns!r}: it must be a list of names")
    names = list(columns)
    unknown = [str(name) for name in names if name not in TYPES]
    if unknown:
        raise Invalid(f"recordings have no column {', '.join(unknown)}; they have {', '.join(TYPES)}")
    if not names or len(set(names)) != len(names):
        raise Invalid(f"columns is {names}: it must name at least one column, and none twice")
    return names


def join_streams(streams: str | Sequence[str]) -> str:
    """Streams as the option `stream` has them."""
    names = [streams] if isinstance(streams, str) else list(streams)
    if not all(isinstance(name, str) for name in names):
        raise Invalid(f"stream is {streams!r}: it must be a channel or a list of channels")
    _streams(",".join(names))
    return ",".join(names)


def _streams(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise Invalid(f"stream is {text!r}: it must be channels with commas between them; leave it out for all")
    check_patterns(names)
    return names


def _whole(text: str, name: str, least: int, most: int) -> int:
    if not re.fullmatch(r"\s*-?[0-9]{1,30}\s*", text) or not least <= int(text) <= most:
        raise Invalid(f"{name} is {text!r}: it must be a whole number from {least} to {most}")
    return int(text)


def _flag(text: str, name: str) -> bool:
    if (value := text.strip().lower()) not in ("true", "false"):
        raise Invalid(f"{name} is {text!r}: it must be true or false")
    return value == "true"


def _size(text: str, name: str) -> int:
    found = re.fullmatch(r"\s*([0-9]{1,18})\s*([A-Za-z]*)\s*", text)
    if found is None or found[2].lower() not in UNITS or not int(found[1]):
        raise Invalid(f"{name} is {text!r}: it must be a number of bytes above 0, as 8388608 or 8MiB")
    return int(found[1]) * UNITS[found[2].lower()]
