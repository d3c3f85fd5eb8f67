"""MCAP files: an archive's messages into one, in the order of their send times. `import_mcap` reads them.

Needs `pip install 'penstock[mcap]'`. Knows planning, merging and the package mcap, which writes.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import logging
import os
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

from penstock import codecs
from penstock.channels.checks import callback, flag
from penstock.channels.uri.value import AnyChannel, uri_of
from penstock.channels.uri.wildcards import matches
from penstock.codecs import foxglove, multipart
from penstock.codecs.frames import FrameFormat
from penstock.codecs.pixels import PICTURES
from penstock.errors import Corrupt, DecodeError, Invalid, NotFound, PenstockError, SystemFailure, Unsupported
from penstock.export import mcap_images, mcap_names, mcap_schemas
from penstock.export.files import Exported, Outcome, Progress
from penstock.export.mcap_codecs import CODEC
from penstock.export.mcap_import import CHANNEL, Imported, Renamed, import_mcap
from penstock.export.mcap_schemas import Form
from penstock.record import TIME_MAX, TIME_MIN, Merged, Moment, Range, ReadPlanner, latched, merged
from penstock.record.archive import Archive
from penstock.util.extras import explain_missing
from penstock.util.files.durable import fresh_path, own_errors, remove_left
from penstock.util.files.storage import path_of
from penstock.util.units import interval
from penstock.util.version import __version__

__all__ = ["COMPRESSIONS", "Imported", "Renamed", "export_mcap", "import_mcap"]

log = logging.getLogger("penstock")

COMPRESSIONS = ("zstd", "lz4", "none")
REPORT = 1000  # messages between two reports of progress
NUMBERS = 65_535  # channels of a file, and schemas


def _package() -> Any:
    with explain_missing("an export to MCAP"):
        import mcap.writer
    return mcap


@dataclass
class _Stream:
    """A channel of the file. left_out: reasons why messages or parts of them are not in the file → how many.

    raw_number: of the channel of the same topic for frames that are not in PNG or JPEG, where others are; None if there was none yet.
    undecodable: the positions of the first and the last frame that does not decode, and how many there are.
    """

    number: int
    form: Form
    has_frames: bool
    left_out: dict[str, int]
    first_sequence: int | None = 0
    rows: int = 0
    bytes: int = 0
    raw_number: int | None = None
    undecodable: tuple[int, int, int] | None = None

    def note_undecodable(self, position: int) -> None:
        first, _, count = self.undecodable or (position, position, 0)
        self.undecodable = first, position, count + 1


@own_errors
def export_mcap(
    archive: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    streams: Sequence[AnyChannel] | None = None,
    since: Moment = TIME_MIN,
    until: Moment = TIME_MAX,
    compression: str | None = None,
    schemas: Mapping[Any, str] | None = None,
    strict: bool = False,
    on_skip: Callable[[str], None] | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Writes an archive's messages into the MCAP file `out`, in the order of their send times.

    Arguments as of `export`. compression: zstd, lz4 or none. schemas: channel or pattern → the name of a schema that other tools know, as
    "foxglove.LaserScan", for messages in JSON. strict: no file is made if it cannot have everything in the archive.

    A topic is a channel's URI, or the topic that it was imported from. The codec is in the channel's metadata, so that `import_mcap` gives
    the same messages again. The file gets its name when everything is in it.
    """
    package, compression = _package(), "zstd" if compression is None else compression
    if compression not in COMPRESSIONS:
        raise Invalid(f"compression is {compression!r}: MCAP files have {', '.join(COMPRESSIONS)}")
    path = path_of(out, "the MCAP file")
    if path.exists():
        raise Invalid(f"{path} exists: name a new file for the export")
    callback(on_skip, "on_skip")
    callback(progress, "progress")
    flag(strict, "strict")
    named = _check_names(schemas)
    span = interval(since, until)
    opened = Archive(archive, create=False)
    damaged: list[str] = []
    survey = ReadPlanner(opened, None if streams is None else opened.channels(streams), damaged.append)
    ranges = survey.plan(since=span[0], until=span[1])
    begin = span[0] if span[0] > TIME_MIN else min((one.time_min for one in ranges if one.messages), default=TIME_MIN)
    kept = latched(survey, begin, span[1])
    fresh = fresh_path(path)
    try:
        fresh.parent.mkdir(parents=True, exist_ok=True)
        remove_left(path)
        with open(fresh, "wb") as file:
            job = _Writing(package, file, compression, named)
            found = job.run(ranges, kept, span, begin, progress or (lambda what, done, count: None), damaged.append)
        texts = [*damaged, *job.left_out()]
        if strict and texts:
            raise Unsupported(f"{path} would not have all of the archive: {'; '.join(texts)}. It was not made")
        os.replace(fresh, path)
    except OSError as error:
        if isinstance(error, PenstockError):
            raise
        raise SystemFailure(error.errno or 0, f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):  # a folder that could not be made
            fresh.unlink()
    for text in texts:
        (on_skip or log.warning)(text)
    if damaged and on_skip is None:
        raise Corrupt(f"{'; '.join(damaged)}; everything else is in {path}")
    return Outcome(tuple(found), tuple(texts), tuple(damaged))


class _Writing:
    """One file that is written."""

    def __init__(self, package: Any, file: BinaryIO, compression: str, schemas: dict[str, str]) -> None:
        kinds = package.writer.CompressionType
        kind = {"zstd": kinds.ZSTD, "lz4": kinds.LZ4, "none": kinds.NONE}[compression]
        self._writer = package.writer.Writer(file, compression=kind, enable_data_crcs=True)
        self._schema_patterns = schemas
        self._streams: dict[tuple[str, str], _Stream | None] = {}
        self._schemas: dict[tuple[str, str, bytes], int] = {}
        self._frames: dict[tuple[str, str], int] = {}

    def run(
        self,
        ranges: list[Range],
        kept: list[Merged],
        span: tuple[int, int],
        begin: int,
        progress: Progress,
        on_skip: Callable[[str], None],
    ) -> list[Exported]:
        """Writes all messages of the ranges, and beside them `kept`: those that were sent before `begin` are logged then, for players show nothing
        earlier. on_skip: called with a line for each piece of damage."""
        of_stream: dict[tuple[str, str], list[Range]] = {}
        for one in [*ranges, *{id(message.source): message.source for message in kept}.values()]:
            of_stream.setdefault(_key(one), []).append(one)
        _check_schemas(self._schema_patterns, [group[0] for group in of_stream.values()])
        if len(of_stream) > NUMBERS:
            raise Unsupported(f"{len(of_stream):,} streams: an MCAP file has at most {NUMBERS:,}; choose some of them")
        self._writer.start(profile=_profile(list(of_stream.values())), library=f"penstock {__version__}")
        for key, group in of_stream.items():
            self._streams[key] = self._stream(group)
        total = sum(one.messages for one in ranges) + len(kept)
        readable = [one for one in ranges if self._streams[_key(one)]]
        early = ((max(one.time_ns, begin), one) for one in kept)
        own = ((one.time_ns, one) for one in merged(readable, *span, on_skip))
        for done, (logged, message) in enumerate(heapq.merge(early, own, key=lambda one: one[0])):
            if done % REPORT == 0:
                progress("exporting", done, total)
            self._add(message, logged)
        progress("exporting", total, total)
        self._writer.finish()
        found = [(channel, stream) for (channel, _), stream in self._streams.items() if stream is not None]
        return [Exported(channel, channel, 1, stream.rows, stream.bytes) for channel, stream in found if stream.rows]

    def left_out(self) -> list[str]:
        """A text for each thing that is not in the file."""
        found = [f"{channel} is left out: {why}" for channel, why in self._frames_texts()]
        for (channel, _), stream in self._streams.items():
            for what, count in (stream.left_out if stream is not None else {}).items():
                found.append(f"{channel}: {what.format(f'{count:,}')}")
            if stream is not None and stream.undecodable is not None:
                first, last, count = stream.undecodable
                found.append(
                    f"{channel}: {count:,} frames that do not decode are left out, at positions {first:,} to {last:,}"
                )
        return found

    def _frames_texts(self) -> Iterable[tuple[str, str]]:
        for (channel, codec), count in self._frames.items():
            if json.loads(codec).get("pixels"):
                yield channel, f"{count:,} frames, whose shape and dtype are not a picture"
            else:
                yield channel, f"{count:,} frames, recorded without their pixels"

    def _stream(self, group: list[Range]) -> _Stream | None:
        """The file's channel for a stream; None if nothing of it can be written."""
        first = group[0]
        form = mcap_schemas.form_of(first.codec, _no_objects(group))
        if form is None:
            self._frames[_key(first)] = sum(one.messages for one in group)
            return None
        for pattern, name in self._schema_patterns.items():
            if matches(pattern, first.channel):
                form = replace(form, name=name)
        schema = 0
        if form.schema is not None:
            name = mcap_schemas.schema_name(first.channel, form.schema[1]) if form.name is None else form.name
            schema = self._schema(name, *form.schema)
        codec = codecs.body_spec(first.codec) or first.codec
        frames = codec["kind"] == "frame"
        topic, about = (
            first.channel,
            {CHANNEL: first.channel, CODEC: json.dumps(_image_codec(codec) if frames else codec)},
        )
        foreign = mcap_schemas.foreign_of(first.codec)
        if foreign is not None and _is_import_of(foreign, first.channel):
            topic, about = foreign.topic, foreign.channel_metadata
        number = self._writer.register_channel(topic, form.message_encoding, schema, about)
        return _Stream(number, form, frames, {}, first_sequence=0 if foreign is None else foreign.first_sequence)

    def _schema(self, name: str, encoding: str, data: bytes) -> int:
        key = name, encoding, data
        if key not in self._schemas:
            self._schemas[key] = self._writer.register_schema(name, encoding, data)
        return self._schemas[key]

    def _add(self, message: Merged, logged: int) -> None:
        stream = self._streams[_key(message.source)]
        assert stream is not None
        body, time, number = message.payload, message.time_ns, stream.number
        if time < 0:
            _count(stream, "{} messages sent before 1970 are left out: MCAP has no such times")
            return
        if stream.form.has_envelope:
            _, _, begin, kind = multipart.pipe_parts(body)
            if message.source.codec["kind"] == "pipe" and kind & multipart.PARTS:
                _count(stream, "{} messages of several parts are left out")
                return
            if begin > multipart.SYNC_HEADER.size:
                _count(stream, "the senders and types of {} messages are left out")
            body = body[begin:]
        elif stream.has_frames:
            try:
                image = _image(message)
            except (DecodeError, ValueError, struct.error):
                stream.note_undecodable(message.position)
                return
            if isinstance(image, str):
                _count(stream, image)
                return
            body, has_fields, is_compressed = image
            if not is_compressed and mcap_images.is_compressed(message.source.codec):
                number = self._raw_number(stream, message.source)
            if has_fields:
                _count(stream, "the fields of {} frames are left out")
        sequence = 0 if stream.first_sequence is None else stream.first_sequence + stream.rows & 0xFFFFFFFF
        self._writer.add_message(number, logged, body, time, sequence)
        stream.rows += 1
        stream.bytes += len(body)

    def _raw_number(self, stream: _Stream, source: Range) -> int:
        """The channel of a stream of pictures for those of its frames that are neither in PNG nor in JPEG."""
        if stream.raw_number is None:
            schema = self._schema(mcap_images.NAME, "protobuf", mcap_images.description())
            about = {CHANNEL: source.channel, CODEC: json.dumps(mcap_images.image_codec())}
            stream.raw_number = self._writer.register_channel(source.channel, "protobuf", schema, about)
        return stream.raw_number


def _image_codec(codec: dict[str, Any]) -> dict[str, Any]:
    return mcap_images.image_codec(compressed=mcap_images.is_compressed(codec))


def _profile(streams: list[list[Range]]) -> str:
    """The file's profile: ROS tools read only files with their profile. A file is one if all its topics came from such files, or are of ROS 2's codec."""
    found = set()
    for group in streams:
        foreign, kind = mcap_schemas.foreign_of(group[0].codec), group[0].codec["kind"]
        found.add(foreign.form.message_encoding if foreign is not None else "cdr" if kind == "ros2" else "")
    return {"cdr": "ros2", "ros1": "ros1"}.get(found.pop(), "") if len(found) == 1 else ""


def _key(one: Range) -> tuple[str, str]:
    return one.channel, json.dumps(one.codec, sort_keys=True)


def _count(stream: _Stream, what: str) -> None:
    stream.left_out[what] = stream.left_out.get(what, 0) + 1


def _image(message: Merged) -> tuple[bytes, bool, bool] | str:
    """A frame as an image, whether it had fields or a header, and whether it is one in PNG or JPEG; why not, for one that is left out."""
    name = message.source.channel.partition(":")[2]
    if mcap_images.is_compressed(message.source.codec):
        form = FrameFormat(message.source.codec)
        note = form.read_note(message.payload)
        if note.encoding in PICTURES:
            stored = form.stored_pixels(message.payload, note)
            return mcap_images.wrap(stored, note.encoding, message.time_ns, name), bool(note.rest), True
    found = codecs.from_spec(message.source.codec).decode(message.payload)
    if "pixels" not in found:
        return "{} frames are left out: they were recorded without their pixels"
    encoding = mcap_images.encoding(found["pixels"].shape, found["pixels"].dtype.str)
    if encoding is None:
        return "{} frames are left out: they are not pictures"
    has_fields = bool(found["meta"]) or "header" in found
    return mcap_images.encode(found["pixels"], encoding, message.time_ns, name), has_fields, False


def _is_import_of(foreign: mcap_schemas.Foreign, channel: str) -> bool:
    """Whether a channel is the one that an import makes of a topic: another one may have been played from it."""
    plain = mcap_names.channel_of(foreign.topic), foreign.topic
    return channel in plain or channel.startswith(mcap_names.stem(foreign.topic))


def _check_names(schemas: Mapping[Any, str] | None) -> dict[str, str]:
    """The names of schemas by channel. `Invalid` unless it maps channels to names."""
    found = {uri_of(one): name for one, name in schemas.items()} if isinstance(schemas, Mapping) else {}
    if not isinstance(schemas, Mapping | None) or not all(
        isinstance(one, str) for pair in found.items() for one in pair
    ):
        raise Invalid(f"schemas is {schemas!r}: it must be a mapping, as {{'log:scan': 'foxglove.LaserScan'}}")
    return found


def _check_schemas(asked: dict[str, str], firsts: list[Range]) -> None:
    """`NotFound` or `Invalid` for a schema that would be ignored."""
    for pattern in asked:
        of_it = [one for one in firsts if matches(pattern, one.channel)]
        if not of_it:
            raise NotFound(f"no recording of {pattern}, for which a schema is named")
        for one in of_it:
            kind = (codecs.body_spec(one.codec) or one.codec)["kind"]
            if kind != "json":
                raise Invalid(f"{one.channel} has messages of the codec {kind}: a schema is named for those in JSON")
            foxglove.check(asked[pattern], mcap_schemas.json_schema_of(one), one.channel)


def _no_objects(group: list[Range]) -> list[bytes]:
    """Of a stream in JSON without a declared class, a message that is not an object, if it has one: its schema must allow that."""
    codec = group[0].codec
    body = codecs.body_spec(codec)
    plain = body or codec
    if plain["kind"] != "json" or "schema" in plain or "mcap" in plain:
        return []
    for one in group:
        try:
            for batch in one.scan(["payload"]):
                for payload in batch.column("payload").to_pylist():
                    text = payload if body is None else payload[multipart.pipe_parts(payload)[2] :]
                    if not mcap_schemas.is_object(text):
                        return [text]
        except PenstockError:  # damaged: reading it will report that
            continue
    return []
