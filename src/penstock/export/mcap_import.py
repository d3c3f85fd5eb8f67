"""The messages of an MCAP file into an archive, each topic to a channel. Things that a recording cannot keep are counted and listed.

The file is read twice: once to check it and to find content that cannot be kept, before anything is appended. Knows MCAP files and appending.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.channels import checks
from penstock.channels.uri.value import AnyChannel, uris_of
from penstock.channels.uri.wildcards import is_pattern, matches
from penstock.errors import Invalid, NotFound, Unsupported
from penstock.export import mcap_codecs, mcap_names
from penstock.export.files import Exported, Outcome, Progress
from penstock.export.mcap_reading.file import McapFile
from penstock.export.mcap_reading.order import Part
from penstock.export.mcap_reading.records import Channel
from penstock.export.mcap_schemas import Foreign, Form
from penstock.export.mcap_tally import Tally
from penstock.record import TIME_MAX, TIME_MIN, Moment, RecordingInfo
from penstock.record.archive import Archive
from penstock.util.extras import check_installed
from penstock.util.files import user_files
from penstock.util.files.durable import own_errors
from penstock.util.files.storage import path_of
from penstock.util.units import interval

log = logging.getLogger("penstock")

CHANNEL = "penstock.channel"  # in a channel's metadata
BATCH_BYTES, BATCH_MESSAGES = 32 << 20, 100_000
NAMED = 3  # of the things that a text lists


@dataclass(frozen=True)
class Renamed:
    """A topic whose channel has another name. form: of a topic that has several, the name of this one's schema, or its encoding."""

    topic: str
    channel: str
    form: str = ""


@dataclass(frozen=True)
class Imported(Outcome):
    """The result of an import. left_out: a text for each kind of thing in the file that the archive does not have, with its count.

    damaged: of a recovery, a text for each place that was skipped, and one with the totals. renamed: the topics whose name no channel can have. unchecked: what no checksum
    of the file covers, in words; empty if there is nothing. opaque: a text for each topic whose messages stay bytes, or that nothing
    here can read, with the reason. overlaps: channels that had messages of the same times before: the file may have been imported before.
    """

    renamed: tuple[Renamed, ...] = ()
    unchecked: str = ""
    opaque: tuple[str, ...] = ()
    overlaps: tuple[str, ...] = ()


def needed() -> None:
    """Raises `MissingPackage` with the package to install if there is no package mcap, which has the compressions."""
    check_installed("mcap", "lz4", "zstandard", what="an import of MCAP")


@own_errors
def import_mcap(
    archive: str | os.PathLike[str] | Archive,
    path: str | os.PathLike[str],
    *,
    streams: Sequence[AnyChannel] | None = None,
    since: Moment = TIME_MIN,
    until: Moment = TIME_MAX,
    strict: bool = False,
    recover: bool = False,
    on_skip: Callable[[str], None] | None = None,
    progress: Progress | None = None,
) -> Imported:
    """Appends the messages of an MCAP file to an archive, each topic to a recording, in the order of their log times, which become the
    send times.

    streams: only these topics or channels; patterns too. strict: nothing is imported if the archive cannot keep everything in the file.
    recover: imports the sound parts of a damaged file; the result lists the skipped ones. on_skip: called with a text for each kind of
    thing that the archive will not have. Without it, a message that cannot be imported raises `Unsupported` before anything is.

    A topic that Penstock wrote becomes the same channel with the same codec. `/robot/imu` of another program becomes `log:robot/imu`;
    a topic whose name is not valid for a channel gets a unique one. Its encoding and schema are kept for the next export.
    json, msgpack, protobuf and CDR of ROS 2 are read by these codecs, everything else as bytes. `Corrupt` for any damage that a checksum, a count
    or the format shows; the archive is as before then.
    """
    needed()
    for name, value in (("strict", strict), ("recover", recover)):
        checks.flag(value, name)
    checks.callback(on_skip, "on_skip")
    checks.callback(progress, "progress")
    named = uris_of(streams)
    asked = [named] if isinstance(named, str) else named
    if asked is not None and not checks.texts(asked, "streams", "topics and channels"):
        raise Invalid("streams is empty: name a topic or a channel, or leave it out for all")
    span, path = interval(since, until), path_of(path, "the MCAP file")
    user_files.check(path)
    try:
        file = open(path, "rb")  # noqa: SIM115
    except FileNotFoundError as error:
        raise NotFound(f"there is no file {path}") from error
    with file:
        tally = Tally(span)
        found = McapFile(file, path, recover=recover, look=tally.look)
        found.check()
        job = _Importing(found, path, tally, asked)
        lost = job.skipped() if found.skipped.bytes or found.skipped.messages else []
        if strict and (texts := [*job.left_out(), *lost]):
            raise Unsupported(
                f"{path} has content that an archive does not keep: {'; '.join(texts)}. Nothing was imported"
            )
        if on_skip is None and job.too_late:
            raise Unsupported(
                f"{job.text_of_late()}. Nothing was imported. on_skip=print imports the rest, as the command does"
            )
        opened = archive if isinstance(archive, Archive) else Archive(archive)
        done = job.run(opened, progress or (lambda what, done, count: None))
    if on_skip is not None:
        for text in done.left_out:
            on_skip(text)
    return done


@dataclass
class _Topic:
    """A topic in one form, with the numbers of its channels, and its messages that are not in the archive yet."""

    topic: str
    name: str
    codec: dict[str, Any]
    opaque: str = ""
    numbers: list[int] = field(default_factory=list)
    metadata: list[dict[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    form: str = ""
    held: int = 0
    rows: int = 0
    bytes: int = 0


class _Importing:
    """One import: the file was checked."""

    def __init__(self, file: McapFile, path: object, tally: Tally, streams: Sequence[str] | None) -> None:
        self._file, self._path, self._tally = file, path, tally
        channels = file.contents.channels
        self._topics = _chosen(_topics(channels, tally), streams, path)
        self._owner = np.full(1 << 16, -1, np.int32)  # by the number of a channel
        for index, topic in enumerate(self._topics):
            self._owner[topic.numbers] = index
        self._counted, self._late, self._published, self._sequenced = tally.total(self._owner >= 0).tolist()
        self._idle = sorted({one.topic for one in self._topics} - {channels[n].topic for n in file.contents.counts})
        self._there: list[RecordingInfo] = []  # before the import
        self._overlaps: list[str] = []
        self.too_late = [one.topic for one in self._topics if tally.counts[1][one.numbers].any()]

    def text_of_late(self) -> str:
        """The messages that no recording can have."""
        return (
            f"{_many(self._late, 'message')} of {_names(self.too_late)} with log times of 2^63 nanoseconds or more, "
            "beyond the year 2262: a send time has 63 bits"
        )

    def left_out(self) -> list[str]:
        """A text for each kind of thing that the archive will not have."""
        contents, found = self._file.contents, []
        if self.too_late:
            found.append(self.text_of_late())
        if self._published:
            found.append(f"{_many(self._published, 'publish time')}: a recording keeps one time, the log time")
        if self._idle:
            names = _names(self._idle)
            found.append(f"{_many(len(self._idle), 'topic')} without a message, {names}, with schema and metadata")
        if self._sequenced:
            found.append(f"{_many(self._sequenced, 'sequence number')}")
        if contents.attachments:
            size = sum(size for _, size in contents.attachments)
            names = _names([name for name, _ in contents.attachments])
            found.append(f"{_many(len(contents.attachments), 'attachment')}, {names}: {size:,} bytes")
        if contents.metadata:
            found.append(f"{_many(len(contents.metadata), 'metadata record')}, {_names(contents.metadata)}")
        found += [
            f"the metadata of {len(one.metadata)} channels of {one.topic!r}, where they differ"
            for one in self._topics
            if any(metadata != one.metadata[0] for metadata in one.metadata)
        ]
        found += [
            f"{_many(count, 'record')} with the opcode {opcode:#04x}, which MCAP does not have: {size:,} bytes"
            for opcode, (count, size) in sorted(contents.unknown.items())
        ]
        return found

    def skipped(self) -> list[str]:
        """A text for each place that a recovery skipped, and one with the totals."""
        skipped = self._file.skipped
        if not skipped.places:
            return []
        if skipped.messages is None:
            missing = ", how many messages is not known: the file has no sound count"
        else:
            missing = f", {_many(skipped.messages, 'message')} by the file's own count"
        more = f"; {_many(skipped.more, 'message')} more than its own count" if skipped.more else ""
        total = f"{_many(skipped.bytes, 'byte')} in all, {_many(skipped.chunks, 'chunk')}{missing}{more}"
        return [*skipped.places, total]

    def _describe_unchecked(self) -> str:
        """The parts that no checksum covers, in words."""
        contents = self._file.contents
        if contents.unchecked:
            what = f"{contents.unchecked:,} of {sum(contents.counts.values()):,} messages"
        else:
            what = _many(contents.unchecked_definitions, "schema or channel", "schemas and channels")
        if contents.unchecked or contents.unchecked_definitions:
            return f"no checksum of the file covers {what}: damage there cannot be seen"
        return ""

    def run(self, archive: Archive, progress: Progress) -> Imported:
        """Appends the file's messages, some thousands of a topic at a time."""
        done = held = 0
        self._there = [one for one in archive.list() if one.messages]
        try:
            for part in self._file.parts():
                progress("importing", done, self._counted)
                taken = self._collect(part)
                done, held = done + taken[0], held + taken[1]
                full = [one for one in self._topics if held >= BATCH_BYTES or len(one.bodies) >= BATCH_MESSAGES]
                held -= sum(self._append(archive, one) for one in full)
            for topic in self._topics:
                self._append(archive, topic)
        except BaseException:
            if there := sum(topic.rows for topic in self._topics):
                log.warning("%s: %d of %d messages were imported before this error", self._path, there, self._counted)
            raise
        progress("importing", self._counted, self._counted)
        rows = [Exported(one.name, one.name, 1, one.rows, one.bytes) for one in self._topics if one.rows]
        renamed = [
            Renamed(one.topic, one.name, one.form)
            for one in self._topics
            if one.rows and one.name not in (f"log:{one.topic.removeprefix('/')}", one.topic)
        ]
        opaque = tuple(f"{one.topic!r}: {one.opaque}" for one in self._topics if one.rows and one.opaque)
        texts = tuple(self.left_out()), tuple(self.skipped())
        unchecked = self._describe_unchecked()
        return Imported(tuple(rows), *texts, tuple(renamed), unchecked, opaque, tuple(self._overlaps))

    def _collect(self, part: Part) -> tuple[int, int]:
        """Messages of the file, each to its topic: how many, and how many bytes."""
        owners = self._owner[part.fields["channel"]]
        owners[~self._tally.in_span(part.fields["log"])] = -1
        count = size = 0
        for index in np.unique(owners).tolist():
            if index < 0:
                continue
            topic, chosen = self._topics[index], owners == index
            begins, ends = part.begins[chosen].tolist(), part.ends[chosen].tolist()
            data = part.data
            topic.bodies += [data[begin:end] for begin, end in zip(begins, ends, strict=True)]
            topic.times += part.fields["log"][chosen].tolist()
            length = sum(ends) - sum(begins)
            topic.held += length
            count, size = count + len(begins), size + length
        return count, size

    def _append(self, archive: Archive, topic: _Topic) -> int:
        """Appends the messages of a topic that are in memory; how many bytes."""
        if not topic.bodies:
            return 0
        first, last = min(topic.times), max(topic.times)
        if not topic.rows and any(
            one.channel == topic.name and one.time_min <= last and first <= one.time_max for one in self._there
        ):
            self._overlaps.append(topic.name)
        archive.append(topic.name, topic.bodies, codec=topic.codec, encoded=True, times_ns=topic.times)
        size = topic.held
        topic.rows, topic.bytes = topic.rows + len(topic.bodies), topic.bytes + size
        topic.bodies, topic.times, topic.held = [], [], 0
        return size


def _topics(channels: dict[int, Channel], tally: Tally) -> list[_Topic]:
    """The file's topics, one for each form of a topic, with a unique name."""
    grouped: dict[tuple[Any, ...], _Topic] = {}
    for number, channel in sorted(channels.items()):
        metadata = dict(channel.metadata)
        own = mcap_names.is_own(channel.topic, metadata.get(CHANNEL))
        known = mcap_codecs.written(metadata) if CHANNEL in metadata else None
        key = channel.topic, channel.encoding, channel.schema, json.dumps(known, sort_keys=True), own
        if key not in grouped:
            codec, opaque = (known, "") if known else mcap_codecs.foreign(channel)
            grouped[key] = _Topic(channel.topic, channel.topic if own else "", codec, opaque)
        grouped[key].numbers.append(number)
        grouped[key].metadata.append(metadata)
    _name_all(grouped)
    for (_, encoding, schema, _, _), topic in grouped.items():
        form = Form(encoding, (schema.encoding, schema.data) if schema else None, schema.name if schema else None)
        common = {
            key: value
            for key, value in topic.metadata[0].items()
            if all(one.get(key) == value for one in topic.metadata)
        }
        first = tally.first_sequence(topic.numbers[0]) if len(topic.numbers) == 1 else None
        is_foreign = topic.name != topic.topic or not mcap_codecs.is_usual(topic.codec, form)
        if is_foreign:
            topic.codec = {**topic.codec, "mcap": Foreign(topic.topic, form, common, first).packed()}
        if first is not None and (is_foreign or first == 0):  # the next export writes the same
            tally.counts[3, topic.numbers] = 0
    return list(grouped.values())


def _name_all(grouped: dict[tuple[Any, ...], _Topic]) -> None:
    """Names the topics: Penstock's own first. `Invalid` if two would still have one name."""
    taken: dict[str, _Topic] = {}
    forms: dict[str, int] = {}
    for topic in grouped.values():
        forms[topic.topic] = forms.get(topic.topic, 0) + 1
    for key, topic in sorted(grouped.items(), key=lambda one: not one[1].name):
        if forms[topic.topic] > 1:
            topic.form = key[2].name if key[2] is not None else key[1]
            topic.name = mcap_names.marked(topic.topic, repr(key[1:4]))
        elif not topic.name:
            name = mcap_names.channel_of(topic.topic)
            topic.name = mcap_names.marked(topic.topic) if name in taken else name
        if topic.name in taken:
            raise Invalid(
                f"the topics {taken[topic.name].topic!r} and {topic.topic!r} would both be {topic.name}: "
                "import one of them with streams= (--stream)"
            )
        taken[topic.name] = topic


def _chosen(topics: list[_Topic], streams: Sequence[str] | None, path: object) -> list[_Topic]:
    """The requested topics. `NotFound` if one does not exist."""
    if streams is None:
        return topics
    chosen = []
    for asked in streams:
        of_it = [one for one in topics if asked == one.topic or _fits(asked, one.name)]
        if not of_it:
            there = _names([one.topic for one in topics]) if topics else "none"
            raise NotFound(f"{path} has no topic {asked}: it has {there}")
        chosen += [one for one in of_it if one not in chosen]
    return chosen


def _fits(asked: str, name: str) -> bool:
    if asked.startswith("/") and not is_pattern(asked):
        return False
    return matches(asked, name)


def _names(names: list[str]) -> str:
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return ", ".join(map(repr, names[:NAMED])) + more


def _many(count: int, what: str, several: str = "") -> str:
    return f"1 {what}" if count == 1 else f"{count:,} {several or what + 's'}"
