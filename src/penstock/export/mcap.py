"""MCAP files: an archive's messages into one, in the order of their send times, and a file's messages into an archive.

Needs `pip install 'penstock[mcap]'`. Knows planning, merging and appending.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from penstock import Archive, codecs, protobufs
from penstock.durable import own_errors
from penstock.errors import Corrupt, Invalid, NotFound, PenstockError
from penstock.export import Exported, Outcome, Progress, mcap_schemas
from penstock.kinds import LONGEST_NAME
from penstock.recording import TIME_MAX, TIME_MIN, Merged, Moment, Range, Survey, merged, nanoseconds
from penstock.wildcards import matches_any

__all__ = ["COMPRESSIONS", "export_mcap", "import_mcap"]

log = logging.getLogger("penstock")

COMPRESSIONS = ("zstd", "lz4", "none")
CODEC, CHANNEL = "penstock.codec", "penstock.channel"  # in a channel's metadata
BATCH_BYTES, BATCH_MESSAGES = 32 << 20, 100_000
SAMPLES = 200
REPORT = 1000  # messages between two reports of progress


def _package() -> Any:
    try:
        import mcap.reader
        import mcap.writer
    except ImportError as error:
        raise NotFound("MCAP files need the package mcap: pip install 'penstock[mcap]'") from error
    return mcap


@dataclass
class _Stream:
    """A channel of the file."""

    number: int
    form: mcap_schemas.Form
    codec: dict[str, Any]
    rows: int = 0
    bytes: int = 0


@own_errors
def export_mcap(
    archive: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    streams: Sequence[str] | None = None,
    since: Moment = TIME_MIN,
    until: Moment = TIME_MAX,
    compression: str | None = None,
    left_out: Callable[[str], None] | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Writes an archive's messages into the MCAP file `out`, in the order of their send times.

    Arguments as of `export`. compression: zstd, lz4 or none. A topic is a channel's URI; the codec is in the channel's metadata, so that
    `import_mcap` gives the same messages again. The file gets its name when everything is in it.
    """
    package, compression = _package(), compression or "zstd"
    if compression not in COMPRESSIONS:
        raise Invalid(f"compression is {compression!r}: MCAP files have {', '.join(COMPRESSIONS)}")
    path = Path(out)
    if path.exists():
        raise Invalid(f"{path} exists: name a new file for the export")
    span = nanoseconds(since, "since"), nanoseconds(until, "until")
    opened = Archive(archive, create=False)
    damaged: list[str] = []
    survey = Survey(opened, None if streams is None else opened.channels(streams), damaged.append)
    ranges = survey.plan(since=span[0], until=span[1])
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    fresh.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(fresh, "wb") as file:
            job = _Writing(package, file, compression)
            found = job.run(ranges, span, progress or (lambda what, done, count: None))
        os.replace(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)
    if left_out is not None:
        for text in damaged:
            left_out(text)
    elif damaged:
        raise Corrupt(f"{'; '.join(damaged)}; all else is in {path}")
    return Outcome(tuple(found), tuple(damaged))


class _Writing:
    """One file that is written."""

    def __init__(self, package: Any, file: BinaryIO, compression: str) -> None:
        kinds = package.writer.CompressionType
        kind = {"zstd": kinds.ZSTD, "lz4": kinds.LZ4, "none": kinds.NONE}[compression]
        self._writer = package.writer.Writer(file, compression=kind)
        self._streams: dict[tuple[str, str], _Stream | None] = {}

    def run(self, ranges: list[Range], span: tuple[int, int], progress: Progress) -> list[Exported]:
        """Writes all messages of the ranges."""
        from penstock import __version__

        self._writer.start(profile="", library=f"penstock {__version__}")
        for one in ranges:
            self._stream(one)
        total = sum(one.messages for one in ranges)
        for done, message in enumerate(merged([one for one in ranges if self._stream(one)], *span)):
            if done % REPORT == 0:
                progress("exporting", done, total)
            self._add(message)
        progress("exporting", total, total)
        self._writer.finish()
        found = [(channel, stream) for (channel, _), stream in self._streams.items() if stream is not None]
        return [Exported(channel, channel, 1, stream.rows, stream.bytes) for channel, stream in found if stream.rows]

    def _stream(self, one: Range) -> _Stream | None:
        """The file's channel for a range's messages."""
        key = one.channel, json.dumps(one.codec, sort_keys=True)
        if key not in self._streams:
            form = mcap_schemas.form_of(one.codec, _samples(one))
            self._streams[key] = None if form is None else self._registered(one, form)
            if form is None:
                log.warning("%s is left out: frames are not written into MCAP files", one.channel)
        return self._streams[key]

    def _registered(self, one: Range, form: mcap_schemas.Form) -> _Stream:
        codec = codecs.body_spec(one.codec) or one.codec
        schema = 0
        if form.schema is not None:
            encoding, text = form.schema
            schema = self._writer.register_schema(form.name or schema_name(one.channel), encoding, text)
        about = {CHANNEL: one.channel, CODEC: json.dumps(codec)}
        number = self._writer.register_channel(one.channel, form.message_encoding, schema, about)
        return _Stream(number, form, codec)

    def _add(self, message: Merged) -> None:
        stream = self._stream(message.source)
        assert stream is not None
        body, time = message.payload, max(message.time_ns, 0)
        if stream.form.has_envelope:
            body = body[codecs.pipe_parts(body)[2] :]
        self._writer.add_message(stream.number, time, body, time, stream.rows & 0xFFFFFFFF)
        stream.rows += 1
        stream.bytes += len(body)


def _samples(one: Range) -> list[bytes]:
    """The bodies of some of a range's messages."""
    try:
        batch = next(one.scan(["payload"], batch_rows=SAMPLES, batch_bytes=1 << 20), None)
    except PenstockError:  # damaged: reading it will say so
        batch = None
    found = [] if batch is None else batch.column("payload").to_pylist()
    return [body[codecs.pipe_parts(body)[2] :] for body in found] if codecs.body_spec(one.codec) else found


def schema_name(channel: str) -> str:
    """A name as ROS has them: package/Type."""
    return "penstock/" + (re.sub(r"[^A-Za-z0-9]", "_", channel.partition(":")[2]).strip("_") or "Message")


# ---- import ----


@own_errors
def import_mcap(
    archive: str | os.PathLike[str] | Archive,
    path: str | os.PathLike[str],
    *,
    streams: Sequence[str] | None = None,
    since: Moment = TIME_MIN,
    until: Moment = TIME_MAX,
    progress: Progress | None = None,
) -> Outcome:
    """Appends the messages of an MCAP file to an archive, each topic to a recording. Their log times are the send times.

    streams: only these channels; patterns too. A topic that Penstock wrote becomes the same channel with the same codec, or a `log:`
    where its kind has recordings of its own form. Any other topic `/robot/imu` becomes `log:robot/imu`: json, msgpack and protobuf by
    these codecs, everything else as bytes.
    """
    package = _package()
    span = nanoseconds(since, "since"), nanoseconds(until, "until")
    opened = archive if isinstance(archive, Archive) else Archive(archive)
    try:
        with open(path, "rb") as file:
            job = _Importing(opened, span, progress or (lambda what, done, count: None))
            return job.run(_Reader(package, file, path), streams)
    except FileNotFoundError as error:
        raise NotFound(f"there is no file {path}") from error


class _Reader:
    """An MCAP file that is read. Every error of its reader becomes `Corrupt`: the reader has many errors for a damaged file."""

    def __init__(self, package: Any, file: BinaryIO, path: object) -> None:
        self._package, self._file, self._path = package, file, path
        self.channels: list[Any] = []
        self.schemas: dict[int, Any] = {}
        self.counts: dict[int, int] = {}
        try:
            summary = package.reader.make_reader(file).get_summary()
        except Exception as error:
            raise self._corrupt(error) from error
        if summary is None:
            raise Corrupt(f"{path} has no summary, as if its writer had died: run mcap recover on it")
        self.channels = [channel for _, channel in sorted(summary.channels.items())]
        self.schemas = summary.schemas
        self.counts = summary.statistics.channel_message_counts if summary.statistics else {}

    def _corrupt(self, error: Exception) -> Corrupt:
        return Corrupt(f"{self._path} is no MCAP file, or damaged: {str(error) or type(error).__name__}")

    def messages(self, topics: list[str]) -> Iterator[tuple[Any, Any]]:
        """(channel, message) of these topics, by log time."""
        self._file.seek(0)
        try:
            for _, channel, message in self._package.reader.make_reader(self._file).iter_messages(topics):
                yield channel, message
        except Exception as error:
            raise self._corrupt(error) from error


@dataclass
class _Topic:
    """A channel of the file, and its messages that are not in the archive yet."""

    name: str
    codec: dict[str, Any]
    bodies: list[bytes]
    times: list[int]
    rows: int = 0
    bytes: int = 0


class _Importing:
    """One import: one pass over the file, which holds a bounded number of bytes in memory."""

    def __init__(self, archive: Archive, span: tuple[int, int], progress: Progress) -> None:
        self._archive, self._span, self._progress = archive, span, progress
        self._topics: dict[int, _Topic] = {}

    def run(self, reader: _Reader, streams: Sequence[str] | None) -> Outcome:
        """Appends the file's messages, some thousands of a topic at a time."""
        for one in reader.channels:
            name, codec = _target(one, reader.schemas.get(one.schema_id))
            if streams is None or matches_any(streams, name):
                self._topics[one.id] = _Topic(name, codec, [], [])
        wanted = sorted({one.topic for one in reader.channels if one.id in self._topics})
        total = sum(reader.counts.get(number, 0) for number in self._topics)
        done = held = 0
        since, until = self._span
        for channel, message in reader.messages(wanted) if wanted else ():
            topic = self._topics.get(channel.id)
            if topic is None or not since <= message.log_time <= until:
                continue
            topic.bodies.append(message.data)
            topic.times.append(message.log_time)
            held += len(message.data)
            if done % REPORT == 0:
                self._progress("importing", done, total)
            done += 1
            if held >= BATCH_BYTES or len(topic.bodies) >= BATCH_MESSAGES:
                held -= self._put(topic) if held < BATCH_BYTES else sum(map(self._put, self._topics.values()))
        for topic in self._topics.values():
            self._put(topic)
        self._progress("importing", total, total)
        rows = [Exported(one.name, one.name, 1, one.rows, one.bytes) for one in self._topics.values() if one.rows]
        return Outcome(tuple(rows), ())

    def _put(self, topic: _Topic) -> int:
        """Appends the messages of a topic that are in memory; how many bytes."""
        if not topic.bodies:
            return 0
        given: dict[str, Any] = {"codec": topic.codec, "encoded": True, "times_ns": topic.times}
        try:
            self._archive.append(topic.name, topic.bodies, **given)
        except Invalid:  # its kind has recordings of its own form
            topic.name = f"log:{_name(topic.name.partition(':')[2])}"
            self._archive.append(topic.name, topic.bodies, **given)
        size = sum(map(len, topic.bodies))
        topic.rows, topic.bytes = topic.rows + len(topic.bodies), topic.bytes + size
        topic.bodies, topic.times = [], []
        return size


def _target(channel: Any, schema: Any) -> tuple[str, dict[str, Any]]:
    """The channel and the codec of a topic. schema: the file's for it, or None."""
    known = channel.metadata.get(CHANNEL)
    if known is not None:
        try:
            codec = json.loads(channel.metadata[CODEC])
            codecs.from_spec(codec)
        except (KeyError, ValueError, TypeError, AttributeError, PenstockError):
            codec = codecs.BYTES.spec
        return known, codec
    return f"log:{_name(channel.topic)}", _foreign(channel.message_encoding, schema)


def _foreign(encoding: str, schema: Any) -> dict[str, Any]:
    """The codec of another program's topic."""
    if encoding == "protobuf" and schema is not None and schema.encoding == "protobuf":
        try:
            return codecs.from_spec(protobufs.described(schema.name, schema.data)).spec
        except PenstockError:  # a description that describes no such message
            pass
    return {"kind": encoding if encoding in ("json", "msgpack") else "bytes"}


def _name(topic: str) -> str:
    """A topic as a channel's name."""
    parts = [re.sub(r"[^A-Za-z0-9._-]", "_", part) for part in topic.split("/")]
    return "/".join(part for part in parts if part.strip("."))[:LONGEST_NAME].strip("/") or "topic"
