"""The contents of an MCAP file, as far as they were read: schemas, channels, counts, and where its messages are.

Takes records and checks them one by one; knows neither the file nor whether it is damaged.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.export.mcap_reading.order import Part
from penstock.export.mcap_reading.records import (
    ATTACHMENT,
    CHANNEL,
    CHUNK,
    DATA_END,
    FIELDS,
    HEAD,
    HEADER,
    IN_CHUNKS,
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
    checked_content,
    chunk_of,
    is_checked_chunk,
    schema_of,
)

CACHE_MAX = 64 << 20  # bytes of messages that stay in memory from the first pass to the second


@dataclass
class Block:
    """A chunk, or several messages outside of chunks. offset: of the chunk's record, or of the first message. first, last: log times.
    refused: the channels whose messages in it are not taken."""

    offset: int
    length: int
    is_chunk: bool
    first: int = 0
    last: int = 0
    refused: frozenset[int] = frozenset()


class Contents:
    """What was found in a file. A record that breaks the format raises `Malformed`. For one thread.

    look: called with the fields of the messages, as `FIELDS`. chunks: their offsets. unknown: opcode → (records, bytes) of records
    with unknown opcodes. unchecked: messages that no checksum of the file covers; unchecked_definitions: its schemas and channels.
    summary_schemas, summary_channels: copies in the summary, for a recovery that misses the originals. redefined: channels that were
    defined again with other content: messages behind that are not taken, since nobody knows of which of the two they are. refused: how many.
    """

    def __init__(self, look: Callable[[Any], None]) -> None:
        self._look = look
        self.schemas: dict[int, Schema] = {}
        self.channels: dict[int, Channel] = {}
        self.summary_schemas: dict[int, Schema] = {}
        self.summary_channels: dict[int, Channel] = {}
        self.statistics: Statistics | None = None
        self.counts: dict[int, int] = {}
        self.attachments: list[tuple[str, int]] = []
        self.metadata: list[str] = []
        self.unknown: dict[int, tuple[int, int]] = {}
        self.chunks: set[int] = set()
        self.blocks: list[Block] = []
        self.unchecked = self.unchecked_definitions = 0
        self.messages_outside = self.definitions_outside = 0  # of chunks
        self.redefined: set[int] = set()
        self.refused: dict[int, int] = {}
        self._schema_numbers: dict[int, int] = {}  # of channels
        self._redefined_schemas: set[int] = set()
        self._cache: dict[int, Part] = {}
        self._cached_bytes = 0

    def check_outside(self, opcode: int, body: bytes) -> None:
        """A record outside of chunks that could be in one: definitions are taken, messages are only checked."""
        if opcode == MESSAGE:
            if len(body) < FIELDS.itemsize:
                raise Malformed(f"a Message of {len(body)} bytes has no room for its fields")
            self._check_channel(int.from_bytes(body[:2], "little"))
        else:
            self.define(opcode, Cursor(body))
            self.definitions_outside += 1

    def add_run(self, at: int, data: bytes) -> None:
        """Several messages outside of chunks, one after the other."""
        self.messages_outside += self._add(Block(at, len(data), False), self.split(data, define=False))

    def add_record(self, at: int, opcode: int, body: bytes, *, is_first: bool) -> None:
        """Any record of the data section that holds no message itself, or a chunk."""
        cursor = Cursor(body)
        if opcode == HEADER:
            if not is_first:
                raise Malformed("there is a second Header")
            cursor.text()
            cursor.text()
        elif opcode == CHUNK:
            self._add_chunk(at, body)
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

    def _add_chunk(self, at: int, body: bytes) -> None:
        fields = chunk_of(body)
        self.chunks.add(at)
        try:
            part = self.split(checked_content(fields), define=True)
        except Malformed as error:
            raise Malformed(f"in a chunk: {error}") from error
        taken = self._add(Block(at, HEAD.size + len(body), True), part)
        if not fields.crc:
            self.unchecked += taken

    def _add(self, block: Block, part: Part) -> int:
        """Takes the messages of a block: how many."""
        if self.redefined:
            part = self._refuse(block, part)
        if not len(part.fields):
            return 0
        self._look(part.fields)
        log = part.fields["log"]
        block.first, block.last = int(log.min()), int(log.max())
        for number, count in zip(*np.unique(part.fields["channel"], return_counts=True), strict=True):
            self.counts[int(number)] = self.counts.get(int(number), 0) + int(count)
        self.blocks.append(block)
        if self._cached_bytes + len(part.data) <= CACHE_MAX:
            self._cached_bytes += len(part.data)
            self._cache[block.offset] = part
        return len(part.fields)

    def _refuse(self, block: Block, part: Part) -> Part:
        """The messages without those of channels that are defined again."""
        numbers, counts = np.unique(part.fields["channel"], return_counts=True)
        found = {int(one): int(count) for one, count in zip(numbers, counts, strict=True) if int(one) in self.redefined}
        for number, count in found.items():
            self.refused[number] = self.refused.get(number, 0) + count
        block.refused = frozenset(found)
        return part.without(block.refused)

    def redefine(self, opcode: int, number: int) -> None:
        """A channel, or a schema and the channels that have it, was defined again with other content."""
        if opcode == CHANNEL:
            self.redefined.add(number)
            return
        self._redefined_schemas.add(number)
        self.redefined.update(one for one, of in self._schema_numbers.items() if of == number)

    def use_schema(self, number: int, of: int) -> None:
        """A channel has a schema."""
        self._schema_numbers[number] = of
        if of in self._redefined_schemas:
            self.redefined.add(number)

    def take_cached(self, block: Block) -> Part | None:
        """The messages of a block, if they are in memory. Only the first call returns them."""
        return self._cache.pop(block.offset, None)

    def split(self, data: bytes, *, define: bool) -> Part:
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
                self.define(opcode, Cursor(data, at, at + length))
            else:
                records, size = self.unknown.get(opcode, (0, 0))
                self.unknown[opcode] = records + 1, size + length
        for number in np.unique(fields["channel"]).tolist():
            self._check_channel(number)

    def _check_channel(self, number: int) -> None:
        """`Malformed` if a message is of a channel that there is not."""
        if number in self.channels:
            return
        if number not in self.summary_channels:
            raise Malformed(f"a message is of channel {number}, and no record before it defines that channel")
        self.channels[number] = self.summary_channels[number]

    def define(self, opcode: int, cursor: Cursor) -> None:
        """A Schema or Channel record. A repeated one must be identical."""
        number = cursor.number(2)
        if opcode == SCHEMA:
            if number == 0:
                raise Malformed("a schema has the number 0, which means none")
            schema = schema_of(cursor)
            if self.schemas.setdefault(number, schema) != schema:
                self.redefine(SCHEMA, number)
                raise Malformed(f"schema {number} is repeated with other content")
            return
        of = cursor.number(2)
        topic, encoding, metadata = cursor.text(), cursor.text(), cursor.texts()
        if of and of not in self.schemas:
            if of not in self.summary_schemas:
                raise Malformed(f"channel {number} names schema {of}, and no record before it defines that schema")
            self.schemas[of] = self.summary_schemas[of]
        channel = Channel(topic, encoding, self.schemas[of] if of else None, metadata)
        if (before := self.channels.setdefault(number, channel)) != channel:
            self.redefine(CHANNEL, number)
            raise Malformed(repeated(number, before, channel))
        self.use_schema(number, of)

    def count_unchecked(self) -> None:
        """Counts records outside of chunks as unchecked: the checksum over the whole data section is missing or wrong."""
        self.unchecked += self.messages_outside
        self.unchecked_definitions = self.definitions_outside

    def compare_counts(self, stated: Statistics) -> list[tuple[str, int, int]]:
        """(what is counted, the file's own count, the count that was found) for each of its statistics."""
        rows = [
            ("messages", stated.messages, sum(self.counts.values())),
            ("attachments", stated.attachments, len(self.attachments)),
            ("metadata records", stated.metadata, len(self.metadata)),
            ("chunks", stated.chunks, len(self.chunks)),
        ]
        channels = stated.by_channel.items()
        return rows + [(f"messages of channel {n}", count, self.counts.get(n, 0)) for n, count in channels]


def repeated(number: int, before: Channel, after: Channel) -> str:
    """The text for a channel that is defined twice."""
    return f"channel {number} is repeated with other content: topic {before.topic!r}, then {after.topic!r}"
