"""A recovery: takes the sound records of a damaged MCAP file, and counts the rest as skipped.

Knows which records of a damaged file can be trusted; `walk` finds them.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.export.mcap_reading.contents import Contents, repeated
from penstock.export.mcap_reading.records import (
    CHANNEL,
    CHUNK,
    HEAD,
    MAGIC,
    MESSAGE,
    SCHEMA,
    Channel,
    Cursor,
    Malformed,
    Schema,
    schema_of,
    summary_of,
)
from penstock.export.mcap_reading.source import Source
from penstock.export.mcap_reading.walk import END_SIZE, Guide, Place, Walk

PIECE = 4 << 20  # bytes that are read at once for a checksum
PLACES_MAX = 20  # that are named; all are counted


@dataclass
class Skipped:
    """The parts that a recovery did not import. messages: those that the file's own count has and that were not found; None if it has
    no count. more: messages that its count does not have."""

    chunks: int = 0
    bytes: int = 0
    messages: int | None = None
    more: int = 0
    places: list[str] = field(default_factory=list)


class Recovery:
    """One recovery of a file into `contents` and `skipped`."""

    def __init__(self, source: Source, contents: Contents, skipped: Skipped) -> None:
        self._source, self._contents, self._skipped = source, contents, skipped
        self._guide_schemas: dict[int, Schema] = {}  # the summary's
        self._guide_channels: dict[int, Channel] = {}
        self._written: dict[tuple[int, int], bytes] = {}  # the first definition outside of chunks of each number

    def run(self, fault: tuple[int, str] | None) -> None:
        """Takes the sound parts. fault: the first damage, if it is in the framing or the content. `Corrupt` if it is not an MCAP file."""
        source, contents = self._source, self._contents
        is_magic = source.read(0, len(MAGIC)) == MAGIC
        if not is_magic and not (source.size > len(MAGIC) and source.resembles_mcap()):
            raise source.foreign()
        if not is_magic:
            self._skip(0, len(MAGIC), "its first bytes are not those of an MCAP file")
        guide = self._read_guide()
        walk = Walk(source.read, source.size, guide)
        places = walk.places()
        chunks = {place.begin for place in places if place.opcode == CHUNK} | guide.chunks
        is_confirmed = walk.summary_at is not None and self._is_confirmed(walk.summary_at - END_SIZE)
        for place in places:
            try:
                if place.why:
                    raise Malformed(place.why)
                self._add(place, walk.is_chunked, is_confirmed)
            except Malformed as error:
                self._skip(place.begin, place.end, str(error))
        if guide.end is None and walk.summary_at is not None:
            begin = walk.summary_at
            is_here = fault is not None and fault[0] == begin
            self._skip(begin, source.size, fault[1] if fault and is_here else "the summary or its end is damaged")
        if is_confirmed:
            contents.unchecked = 0
        else:
            contents.count_unchecked()
        if not self._skipped.places and fault is not None:
            self._skip(fault[0], fault[0], fault[1])
        for number, count in sorted(contents.refused.items()):
            self._skipped.places.append(
                f"messages behind a second, other definition of channel {number}, topic {contents.channels[number].topic!r}, or of its schema: "
                f"{count:,}. Nobody knows of which of the two they are"
            )
        self._count_missing(len(chunks))

    def _read_guide(self) -> Guide:
        """The contents of a sound summary: copies of schemas and channels, the statistics, the offsets of chunks."""
        source, contents = self._source, self._contents
        tail = 20 + HEAD.size + len(MAGIC)
        if source.size < tail:
            return Guide()
        _, _, start = struct.unpack("<BQQ", source.read(source.size - tail, 17))
        if not len(MAGIC) < start < source.size - tail:
            return Guide()
        schemas: dict[int, Schema] = {}
        channels: dict[int, Channel] = {}
        try:
            statistics, indexed = summary_of(source.read(start, source.size - start), start, schemas, channels)
        except Malformed:
            return Guide()
        contents.statistics = statistics
        contents.summary_schemas, contents.summary_channels = schemas, channels
        self._guide_schemas, self._guide_channels = dict(schemas), dict(channels)
        return Guide(indexed, start, statistics, set(channels))

    def _is_confirmed(self, end: int) -> bool:
        """Whether the checksum over the data section exists and is right: then only the summary is damaged."""
        read = self._source.read
        stated, found = int.from_bytes(read(end + HEAD.size, 4), "little"), 0
        for at in range(0, end, PIECE):
            found = zlib.crc32(read(at, min(PIECE, end - at)), found)
        return bool(stated) and stated == found

    def _skip(self, at: int, until: int, what: str) -> None:
        """Notes damage and the bytes that are skipped for it."""
        self._skipped.bytes += until - at
        if len(self._skipped.places) < PLACES_MAX:
            self._skipped.places.append(f"bytes {at:,} to {until:,}: {what}")

    def _add(self, place: Place, is_chunked: bool, is_confirmed: bool) -> None:
        """A sound record, or several messages. is_confirmed: by the checksum over the data section."""
        contents = self._contents
        data = self._source.read(place.begin, place.end - place.begin)
        if place.opcode == MESSAGE:
            if is_chunked and not is_confirmed:
                count = len(contents.split(data, define=False).fields)
                several = "a message" if count == 1 else f"{count:,} messages"
                raise Malformed(f"{several} outside of chunks, which nothing confirms in a damaged file")
            contents.add_run(place.begin, data)
            return
        body = data[HEAD.size :]
        if place.opcode not in (SCHEMA, CHANNEL):
            contents.add_record(place.begin, place.opcode, body, is_first=place.begin == len(MAGIC))
            return
        contents.definitions_outside += 1
        if is_confirmed:
            contents.define(place.opcode, Cursor(body))
        else:
            self._define_unconfirmed(place.opcode, body, is_chunked)

    def _define_unconfirmed(self, opcode: int, body: bytes, is_chunked: bool) -> None:
        """A Schema or Channel record. Those of a chunk and of the summary are preferred to it, unless the data has two of them."""
        contents, number = self._contents, int.from_bytes(body[:2], "little")
        schemas, channels = contents.summary_schemas, contents.summary_channels
        if opcode == SCHEMA:
            schema = schema_of(Cursor(body, 2))
            if _is_of_another(number, schema, self._guide_schemas):
                return
            schemas.setdefault(number, schema)
        else:
            channel = self._channel(body)
            if _is_of_another(number, channel, self._guide_channels):
                return
            channels.setdefault(number, channel)
        first = self._written.setdefault((opcode, number), body)
        if opcode == CHANNEL:
            contents.use_schema(number, int.from_bytes(first[2:4], "little"))
        if is_chunked or first == body:
            return
        contents.redefine(opcode, number)  # what was before it has the first definition, whatever the summary says
        if opcode == SCHEMA:
            schemas[number] = schema_of(Cursor(first, 2))
        for (kind, one), written in self._written.items():
            if kind == CHANNEL and (one == number if opcode == CHANNEL else one in contents.redefined):
                channels[one] = contents.channels[one] = self._channel(written)
        raise Malformed(
            f"schema {number} is repeated with other content"
            if opcode == SCHEMA
            else repeated(number, channels[number], channel)
        )

    def _channel(self, body: bytes) -> Channel:
        """The channel of a record outside of chunks."""
        cursor = Cursor(body)
        number, of = cursor.number(2), cursor.number(2)
        schema = self._contents.summary_schemas.get(of, self._contents.schemas.get(of))
        if of and schema is None:
            raise Malformed(f"channel {number} names schema {of}, which the file does not have")
        return Channel(cursor.text(), cursor.text(), schema, cursor.texts())

    def _count_missing(self, chunks: int) -> None:
        """Compares the recovered records with the file's statistics."""
        statistics, skipped, counts = self._contents.statistics, self._skipped, self._contents.counts
        skipped.chunks = max(chunks, statistics.chunks if statistics else 0) - sum(
            block.is_chunk for block in self._contents.blocks
        )
        if statistics is None:
            return
        stated = statistics.by_channel or {}
        if sum(stated.values()) == statistics.messages:
            differences = [stated.get(n, 0) - counts.get(n, 0) for n in {*stated, *counts}]
        else:
            differences = [statistics.messages - sum(counts.values())]
        skipped.messages = sum(max(0, one) for one in differences)
        skipped.more = sum(max(0, -one) for one in differences)


def _is_of_another(number: int, found: object, guide: Mapping[int, object]) -> bool:
    """Whether a definition is the summary's of another number: its own number is damaged."""
    return guide.get(number) != found and any(one == found for one in guide.values())
