"""An MCAP file that is read: every record and every checksum that it has, then its messages in the order of their log times.

The package mcap reads past a record that is cut off, and skips the checksums of attachments and of the summary; so the framing is read
here. Knows the format (https://mcap.dev/spec); knows no archive.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np

from penstock.errors import Corrupt
from penstock.export.mcap_order import Part, due_before
from penstock.export.mcap_records import (
    ATTACHMENT,
    CHANNEL,
    CHUNK,
    DATA_END,
    FIELDS,
    FOOTER,
    HEAD,
    HEADER,
    IN_CHUNKS,
    MAGIC,
    MESSAGE,
    MESSAGE_INDEX,
    METADATA,
    SCHEMA,
    Channel,
    Cursor,
    Malformed,
    Schema,
    Statistics,
    attachment_of,
    beginning_of,
    chunk_of,
    compare_crc,
    decompressed,
    is_checked_chunk,
    schema_of,
    summary_of,
)
from penstock.export.mcap_recovery import END_SIZE, Guide, Place, Walk

STRETCH = 4 << 20  # bytes of messages outside of chunks that are read at once
KEPT = 64 << 20  # bytes of messages that are kept in memory from the first reading to the second


@dataclass
class Block:
    """A chunk, or a stretch of messages outside of chunks. offset: of the chunk's record, or of the first message."""

    offset: int
    length: int
    is_chunk: bool
    first: int = 0
    last: int = 0


@dataclass
class Skipped:
    """The parts that a recovery did not import. messages: those that the file's own count has and that were not found; None if it has
    no count. more: messages that its count does not have."""

    chunks: int = 0
    bytes: int = 0
    messages: int | None = None
    more: int = 0
    places: list[str] = field(default_factory=list)


class McapFile:
    """One MCAP file. `check` reads all of it once; afterwards the other attributes and `parts` are valid.

    recover: damage is skipped and counted in `skipped` instead of raising `Corrupt`. unchecked: messages that no checksum of the file covers; unchecked_definitions: its schemas and channels.
    look: `check` calls it with the fields of the messages, as `FIELDS`. unknown: opcode → (records, bytes) of records with unknown opcodes.
    """

    def __init__(
        self, file: BinaryIO, path: object, *, recover: bool = False, look: Callable[[Any], None] = lambda fields: None
    ) -> None:
        self._file, self._path, self._recover, self._look = file, path, recover, look
        self.channels: dict[int, Channel] = {}
        self.counts: dict[int, int] = {}
        self.attachments: list[tuple[str, int]] = []
        self.metadata: list[str] = []
        self.unknown: dict[int, tuple[int, int]] = {}
        self.skipped = Skipped()
        self.unchecked = self.unchecked_definitions = 0
        self.statistics: Statistics | None = None
        self._schemas: dict[int, Schema] = {}
        self._blocks: list[Block] = []
        self._parts: dict[int, Part] = {}
        self._kept = 0
        self._known: tuple[dict[int, Schema], dict[int, Channel]] = {}, {}  # the summary's copies, for a recovery
        self.fault: tuple[int, str] | None = None
        self._chunks: set[int] = set()  # where they begin
        self._indexed: set[int] = set()  # the same, by the summary
        self._outside = self._loose = self._crc = 0
        self._size = file.seek(0, 2)

    # ---- the first reading ----

    def check(self) -> None:
        """Reads the whole file. `Corrupt` with the offset of the damage, unless this is a recovery."""
        if self._recover:
            plain = McapFile(self._file, self._path)
            try:
                plain.check()
            except Corrupt:
                self._recover_all(plain.fault)
                return
            self._recover = False  # it is sound
        self._file.seek(0)
        head = self._file.read(len(MAGIC))
        if head != MAGIC:
            raise Corrupt(f"{self._path} is not an MCAP file: {self._other()}")
        self._crc = zlib.crc32(head)
        self._summary(self._data_section(len(MAGIC)))
        self._compare()

    def _looks_like_one(self) -> bool:
        """Whether a file with other first bytes ends as an MCAP file, or has its name for the format."""
        self._file.seek(max(0, self._size - len(MAGIC)))
        tail = self._file.read()
        self._file.seek(0)
        return tail == MAGIC or sum(a == b for a, b in zip(self._file.read(len(MAGIC)), MAGIC, strict=False)) >= 5

    def _other(self) -> str:
        if not self._size:
            return "it is empty"
        self._file.seek(0)
        return beginning_of(self._file.read(16))

    def _damage(self, at: int, what: str) -> Corrupt:
        self.fault = at, what
        return Corrupt(
            f"{self._path} is damaged at byte {at:,}: {what}. "
            f"Run penstock import ARCHIVE {self._path} --recover (from Python, recover=True) to import the sound parts"
        )

    def _data_section(self, at: int) -> int:
        """Reads the records up to the data section's end, and returns that end."""
        stretch: int | None = None  # where messages outside of chunks began
        is_first = True
        while True:
            begun = at
            try:
                opcode, body = self._record(at)
                at += HEAD.size + len(body)
                if is_first and opcode != HEADER:
                    raise Malformed("the first record is not a Header")
                if stretch is not None and (opcode not in IN_CHUNKS or at - stretch > STRETCH):
                    self._end_stretch(stretch, begun)
                    self._file.seek(at)
                    stretch = None
                if opcode in IN_CHUNKS:
                    stretch = begun if stretch is None else stretch
                    self._check_outside(opcode, body)
                elif opcode == DATA_END:
                    self._data_end(body)
                    return at
                elif opcode == FOOTER:
                    raise Malformed("there is a Footer, and no DataEnd before it")
                else:
                    self._other_record(begun, opcode, body, is_first)
                self._crc = zlib.crc32(body, zlib.crc32(HEAD.pack(opcode, len(body)), self._crc))
            except Malformed as error:
                raise self._damage(begun, str(error)) from error
            is_first = False

    def _record(self, at: int) -> tuple[int, bytes]:
        """The record at an offset, at which the file is."""
        head = self._file.read(HEAD.size)
        if len(head) < HEAD.size:
            raise Malformed("the file ends here, without its end: it was cut off, or its writer died")
        opcode, length = HEAD.unpack(head)
        if length > self._size - at - HEAD.size:
            raise Malformed(
                f"a record of {length:,} bytes begins, and the file ends before: it was cut off, or is damaged"
            )
        if opcode == 0:
            raise Malformed("a record begins with the opcode 0, which there is not")
        body = self._file.read(length)
        if len(body) < length:
            raise Malformed("the file became shorter while it was read")
        return opcode, body

    def _check_outside(self, opcode: int, body: bytes) -> None:
        """A record outside of chunks that could be in one: definitions are taken, messages only looked at."""
        if opcode == MESSAGE:
            if len(body) < FIELDS.itemsize:
                raise Malformed(f"a Message of {len(body)} bytes has no room for its fields")
            self._channel(int.from_bytes(body[:2], "little"))
        else:
            self._define(opcode, Cursor(body))
            self._loose += 1

    def _end_stretch(self, start: int, end: int) -> None:
        self._file.seek(start)
        data = self._file.read(end - start)
        part = self._split(data, define=False)
        block = Block(start, end - start, False)
        self._outside += len(part.fields)
        self._add(block, part)

    def _other_record(self, at: int, opcode: int, body: bytes, is_first: bool) -> None:
        """Any record of the data section that holds no message itself, or a chunk."""
        cursor = Cursor(body)
        if opcode == HEADER:
            if not is_first:
                raise Malformed("there is a second Header")
            cursor.text()
            cursor.text()
        elif opcode == CHUNK:
            self._chunk(at, body)
        elif opcode == MESSAGE_INDEX:
            cursor.number(2)
            cursor.array(16)
        elif opcode == ATTACHMENT:
            self.attachments.append(attachment_of(cursor))
        elif opcode == METADATA:
            name = cursor.text()
            cursor.texts()
            self.metadata.append(name)
        elif opcode < DATA_END:
            raise Malformed(f"a record with the opcode {opcode} does not belong to the data section")
        else:
            if is_checked_chunk(body):
                raise Malformed(f"a chunk has the opcode {opcode:#04x}, which is another record's")
            records, size = self.unknown.get(opcode, (0, 0))
            self.unknown[opcode] = records + 1, size + len(body)

    def _chunk(self, at: int, body: bytes) -> None:
        fields = chunk_of(body)
        self._chunks.add(at)
        try:
            data = decompressed(fields)
            compare_crc(fields.crc, zlib.crc32(data), "the chunk")
            part = self._split(data, define=True)
        except Malformed as error:
            raise Malformed(f"in a chunk: {error}") from error
        if not fields.crc:
            self.unchecked += len(part.fields)
        self._add(Block(at, HEAD.size + len(body), True), part)

    def _add(self, block: Block, part: Part) -> None:
        if not len(part.fields):
            return
        self._look(part.fields)
        log = part.fields["log"]
        block.first, block.last = int(log.min()), int(log.max())
        for number, count in zip(*np.unique(part.fields["channel"], return_counts=True), strict=True):
            self.counts[int(number)] = self.counts.get(int(number), 0) + int(count)
        self._blocks.append(block)
        if self._kept + len(part.data) <= KEPT:
            self._kept += len(part.data)
            self._parts[block.offset] = part

    def _split(self, data: bytes, *, define: bool) -> Part:
        """The messages of a chunk's content. define: also takes its schemas and channels; only if all of it is sound."""
        begins: list[int] = []
        ends: list[int] = []
        at, size = 0, len(data)
        defined: list[tuple[int, int, int]] = []  # opcode, offset, messages in front
        unpack, width, least = HEAD.unpack_from, HEAD.size, FIELDS.itemsize
        while at < size:
            if size - at < width:
                raise Malformed(f"{size - at} bytes after its last record are not a record")
            opcode, length = unpack(data, at)
            at += width
            if length > size - at:
                raise Malformed("one of its records is longer than the rest of it")
            if opcode == MESSAGE:
                if length < least:
                    raise Malformed(f"a Message of {length} bytes has no room for its fields")
                begins.append(at)
                ends.append(at + length)
            elif define:
                if 0 < opcode <= DATA_END and opcode not in IN_CHUNKS:
                    raise Malformed(f"it has a record with the opcode {opcode}, which no chunk has")
                if opcode == 0:
                    raise Malformed("a record in it begins with the opcode 0, which there is not")
                defined.append((opcode, at, len(begins)))
            at += length
        starts = np.array(begins, np.int64)
        raw = np.frombuffer(data, np.uint8)
        rows = raw[starts[:, None] + np.arange(least)] if len(starts) else np.zeros((0, least), np.uint8)
        fields = np.ascontiguousarray(rows).view(FIELDS).reshape(-1)
        self._define_all(data, defined, fields)
        return Part(data, starts + least, np.array(ends, np.int64), fields)

    def _define_all(self, data: bytes, defined: list[tuple[int, int, int]], fields: np.ndarray[Any, Any]) -> None:
        for opcode, at, before in defined:
            (length,) = struct.unpack_from("<Q", data, at - 8)
            if opcode in (SCHEMA, CHANNEL):
                number = int.from_bytes(data[at : at + 2], "little")
                if opcode == CHANNEL and number not in self.channels and (fields["channel"][:before] == number).any():
                    raise Malformed(f"a message of channel {number} is before that channel's record")
                self._define(opcode, Cursor(data, at, at + length))
            else:
                records, size = self.unknown.get(opcode, (0, 0))
                self.unknown[opcode] = records + 1, size + length
        for number in np.unique(fields["channel"]).tolist():
            self._channel(number)

    def _channel(self, number: int) -> None:
        """`Malformed` if a message is of a channel that there is not."""
        if number in self.channels:
            return
        if number not in self._known[1]:
            raise Malformed(f"a message is of channel {number}, and no record before it defines that channel")
        self.channels[number] = self._known[1][number]

    def _define(self, opcode: int, cursor: Cursor) -> None:
        """A Schema or Channel record. A repeated one must be identical."""
        number = cursor.number(2)
        if opcode == SCHEMA:
            if number == 0:
                raise Malformed("a schema has the number 0, which means none")
            schema = schema_of(cursor)
            if self._schemas.setdefault(number, schema) != schema:
                raise Malformed(f"schema {number} is repeated with other content")
            return
        of = cursor.number(2)
        topic, encoding, metadata = cursor.text(), cursor.text(), cursor.texts()
        if of and of not in self._schemas:
            if of not in self._known[0]:
                raise Malformed(f"channel {number} names schema {of}, and no record before it defines that schema")
            self._schemas[of] = self._known[0][of]
        channel = Channel(topic, encoding, self._schemas[of] if of else None, metadata)
        if self.channels.setdefault(number, channel) != channel:
            raise Malformed(f"channel {number} is repeated with other content")

    def _data_end(self, body: bytes) -> None:
        if len(body) != 4:
            raise Malformed(f"a DataEnd of {len(body)} bytes: it has 4")
        stated = int.from_bytes(body, "little")
        compare_crc(stated, self._crc, "the data section, bytes 0 to here,")
        if stated:
            self.unchecked = 0
        else:
            self._count_unchecked()

    def _count_unchecked(self) -> None:
        """Counts records outside of chunks as unchecked: the checksum over the whole data section is missing or wrong."""
        self.unchecked += self._outside
        self.unchecked_definitions = self._loose

    # ---- the summary ----

    def _summary(self, at: int) -> None:
        self._file.seek(at)
        data = self._file.read()
        try:
            self.statistics, self._indexed = summary_of(data, at, self._schemas, self.channels)
        except Malformed as error:
            raise self._damage(at, f"in the summary: {error}") from error

    def _compare(self) -> None:
        """Compares the records that were found with the file's statistics."""
        for at in sorted(self._indexed - self._chunks):
            raise self._damage(at, "its chunk index has a chunk here, and there is none")
        statistics, found = self.statistics, sum(self.counts.values())
        if statistics is None:
            return
        pairs = [
            ("messages", statistics.messages, found),
            ("attachments", statistics.attachments, len(self.attachments)),
            ("metadata records", statistics.metadata, len(self.metadata)),
            ("chunks", statistics.chunks, len(self._chunks)),
        ]
        pairs += [
            (f"messages of channel {n}", count, self.counts.get(n, 0)) for n, count in statistics.by_channel.items()
        ]
        for what, stated, there in pairs:
            if stated != there:
                raise self._damage(self._size, f"its statistics state {stated:,} {what}, and it has {there:,}")

    # ---- a recovery ----

    def _recover_all(self, fault: tuple[int, str] | None) -> None:
        """Takes the sound parts of a damaged file. fault: the damage, if it is in the framing or the content."""
        self._file.seek(0)
        head = self._file.read(len(MAGIC))
        if head != MAGIC and not (self._size > len(MAGIC) and self._looks_like_one()):
            raise Corrupt(f"{self._path} is not an MCAP file: {self._other()}")
        if head != MAGIC:
            self._skip(0, len(MAGIC), "its first bytes are not those of an MCAP file")
        guide = self._guide()
        walk = Walk(self._bytes, self._size, guide)
        places = walk.places()
        chunks = {place.begin for place in places if place.opcode == CHUNK} | guide.chunks
        is_confirmed = walk.summary_at is not None and self._is_confirmed(walk.summary_at - END_SIZE)
        for place in places:
            try:
                if place.why:
                    raise Malformed(place.why)
                self._add_recovered(place, walk.is_chunked, is_confirmed)
            except Malformed as error:
                self._skip(place.begin, place.end, str(error))
        if guide.end is None and walk.summary_at is not None:
            begin = walk.summary_at
            is_here = fault is not None and fault[0] == begin
            self._skip(begin, self._size, fault[1] if fault and is_here else "the summary or its end is damaged")
        if is_confirmed:
            self.unchecked = 0
        else:
            self._count_unchecked()
        if not self.skipped.places and fault is not None:
            self._skip(fault[0], fault[0], fault[1])
        self._count_missing(len(chunks))

    def _is_confirmed(self, end: int) -> bool:
        """Whether the checksum over the data section exists and is right: then only the summary is damaged."""
        stated, found = int.from_bytes(self._bytes(end + HEAD.size, 4), "little"), 0
        for at in range(0, end, STRETCH):
            found = zlib.crc32(self._bytes(at, min(STRETCH, end - at)), found)
        return bool(stated) and stated == found

    def _bytes(self, at: int, size: int) -> bytes:
        self._file.seek(at)
        return self._file.read(size)

    def _skip(self, at: int, until: int, what: str) -> None:
        """Notes damage and the bytes that are skipped for it."""
        self.skipped.bytes += until - at
        if len(self.skipped.places) < 20:
            self.skipped.places.append(f"bytes {at:,} to {until:,}: {what}")

    def _add_recovered(self, place: Place, is_chunked: bool, is_confirmed: bool) -> None:
        """A sound record of a damaged file. is_confirmed: by the checksum over the data section."""
        if place.opcode == MESSAGE:
            if is_chunked and not is_confirmed:
                count = len(self._split(self._bytes(place.begin, place.end - place.begin), define=False).fields)
                several = "a message" if count == 1 else f"{count:,} messages"
                raise Malformed(f"{several} outside of chunks, which nothing confirms in a damaged file")
            self._end_stretch(place.begin, place.end)
            return
        body = self._bytes(place.begin + HEAD.size, place.end - place.begin - HEAD.size)
        if place.opcode not in (SCHEMA, CHANNEL):
            self._other_record(place.begin, place.opcode, body, place.begin == len(MAGIC))
            return
        self._loose += 1
        if is_confirmed:
            self._define(place.opcode, Cursor(body))
            return
        schemas, channels = self._known  # those of a chunk and of the summary are preferred to this one
        number, cursor = int.from_bytes(body[:2], "little"), Cursor(body, 2)
        if place.opcode == SCHEMA:
            schemas.setdefault(number, schema_of(cursor))
        else:
            of = cursor.number(2)
            schema = schemas.get(of, self._schemas.get(of))
            if of and schema is None:
                raise Malformed(f"channel {number} names schema {of}, which the file does not have")
            channels.setdefault(number, Channel(cursor.text(), cursor.text(), schema, cursor.texts()))

    def _guide(self) -> Guide:
        """The contents of a summary that is sound: copies of schemas and channels, the statistics, the places of chunks."""
        tail = 20 + HEAD.size + len(MAGIC)
        if self._size < tail:
            return Guide()
        _, _, start = struct.unpack("<BQQ", self._bytes(self._size - tail, 17))
        if not len(MAGIC) < start < self._size - tail:
            return Guide()
        schemas: dict[int, Schema] = {}
        channels: dict[int, Channel] = {}
        try:
            found = summary_of(self._bytes(start, self._size - start), start, schemas, channels)
        except Malformed:
            return Guide()
        self.statistics, indexed = found
        self._known = schemas, channels
        return Guide(indexed, start, self.statistics, set(channels))

    def _count_missing(self, chunks: int) -> None:
        """Compares the recovered records with the file's statistics."""
        statistics, skipped = self.statistics, self.skipped
        skipped.chunks = max(chunks, statistics.chunks if statistics else 0) - sum(
            block.is_chunk for block in self._blocks
        )
        if statistics is None:
            return
        stated = statistics.by_channel or {}
        numbers = {*stated, *self.counts}
        if sum(stated.values()) == statistics.messages:
            differences = [stated.get(n, 0) - self.counts.get(n, 0) for n in numbers]
        else:
            differences = [statistics.messages - sum(self.counts.values())]
        skipped.messages = sum(max(0, one) for one in differences)
        skipped.more = sum(max(0, -one) for one in differences)

    # ---- the second reading ----

    def parts(self) -> Iterator[Part]:
        """All messages in the order of their log times, those of equal times as in the file. Blocks that overlap in time are in memory
        together."""
        blocks = sorted(self._blocks, key=lambda block: (block.first, block.offset))
        waiting: list[tuple[int, Part]] = []
        for number, block in enumerate(blocks):
            waiting.append((block.offset, self._part(block)))
            until = blocks[number + 1].first if number + 1 < len(blocks) else 1 << 64
            yield from due_before(waiting, until)

    def _part(self, block: Block) -> Part:
        kept = self._parts.pop(block.offset, None)
        if kept is not None:
            return kept
        self._file.seek(block.offset)
        data = self._file.read(block.length)
        try:
            if block.is_chunk:
                fields = chunk_of(data[HEAD.size :])
                data = decompressed(fields)
                compare_crc(fields.crc, zlib.crc32(data), "the chunk")
            part = self._split(data, define=False)
        except Malformed as error:
            raise self._damage(block.offset, f"the file changed while it was read: {error}") from error
        return part
