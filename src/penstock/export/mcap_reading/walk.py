"""The sound records of a damaged MCAP file, and the bytes between them. A wrong bit costs at most its record.

Chunks are found by the summary's chunk index and by their checksums, regardless of their opcode and length. Knows the framing of records;
takes no message.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.export.mcap_reading.records import (
    CHANNEL,
    CHUNK,
    DATA_END,
    FIELDS,
    FOOTER,
    HEAD,
    HEADER,
    IN_SUMMARY,
    MAGIC,
    MESSAGE,
    MESSAGE_INDEX,
    SCHEMA,
    TYPED,
    Malformed,
    Statistics,
    is_sound,
    typed_end,
)

IN_A_ROW = 3  # records that have to follow each other where nothing else confirms a place
BEGINNING = re.compile(rb"(?s)(?=[\x01-\x0f].{4}\x00{4})")  # an opcode, and a length below 4 GiB
WINDOW = 4 << 20  # bytes that are searched at once
RUN = 4 << 20  # bytes of messages that are one place
CHUNK_FIELDS = struct.Struct("<QQQII")
END_SIZE = HEAD.size + 4  # of a DataEnd


@dataclass
class Guide:
    """The facts of a sound summary. chunks: where they begin. end: where the summary begins; None if there is none that is
    sound. channels: the numbers of its channels, and of those that were found."""

    chunks: set[int] = field(default_factory=set)
    end: int | None = None
    statistics: Statistics | None = None
    channels: set[int] = field(default_factory=set)

    def is_plausible(self, fields: bytes) -> bool:
        """Whether a message outside of chunks fits the statistics: its channel, and its log time."""
        number, _, log = struct.unpack_from("<HIQ", fields)
        if number not in self.channels:
            return False
        statistics = self.statistics
        if statistics is None or not statistics.messages:
            return statistics is None
        return statistics.first <= log <= statistics.last and (
            not statistics.by_channel or number in statistics.by_channel
        )


class Place(NamedTuple):
    """A record, or several messages in a row. why: bytes that are not a sound record; opcode is 0 then, or CHUNK."""

    opcode: int
    begin: int
    end: int
    why: str = ""


class _Spans(Malformed):
    """A record whose length is wrong, so that it spans others. at: where the first of them begins."""

    def __init__(self, opcode: int, at: int) -> None:
        super().__init__(f"a record with the opcode {opcode:#04x} spans others: its length is wrong")
        self.at = at


class Walk:
    """One reading of the data section. read: (offset, size) → bytes, fewer at the file's end. is_chunked: the file has chunks."""

    def __init__(self, read: Callable[[int, int], bytes], size: int, guide: Guide) -> None:
        self._read, self._guide, self._size = read, guide, size
        statistics = guide.statistics
        self.is_chunked = bool(guide.chunks) or (statistics is not None and statistics.chunks > 0)
        self._end = size if guide.end is None else guide.end - END_SIZE
        self._anchors = sorted({*(at for at in guide.chunks if at < self._end), self._end})
        self.summary_at: int | None = guide.end

    def places(self) -> list[Place]:
        """All of the data section, in order."""
        found: list[Place] = []
        at = len(MAGIC)
        while at < self._end:
            place = self._place(at)
            if place is None:
                self.summary_at = at + END_SIZE
                return found
            before = found[-1] if found else None
            is_run = before is not None and not place.why and place.opcode == MESSAGE == before.opcode
            if is_run and before is not None and before.end == at and not before.why and place.end - before.begin < RUN:
                found[-1] = Place(MESSAGE, before.begin, place.end)
            else:
                found.append(place)
            if self._guide.statistics is None:
                self.is_chunked = self.is_chunked or place.opcode == CHUNK
            at = place.end
        if self._guide.end is not None and self._read(self._end, HEAD.size) != HEAD.pack(DATA_END, 4):
            found.append(Place(0, self._end, self._guide.end, "there is no DataEnd before the summary"))
        return found

    def _limit(self, at: int) -> int:
        """The start of the next sound record that the summary names, or the end."""
        return self._anchors[min(bisect_right(self._anchors, at), len(self._anchors) - 1)]

    def _place(self, at: int) -> Place | None:
        """The place at an offset; None for the end of the data section in a file without a sound summary."""
        limit = self._limit(at)
        head = self._read(at, HEAD.size)
        if len(head) < HEAD.size:
            return Place(0, at, limit, "the file ends here, without its end: it was cut off, or its writer died")
        opcode, length = HEAD.unpack(head)
        if self._guide.end is None and self._is_data_end(at, opcode, length):
            return None
        own = at + HEAD.size + length if length <= limit - at - HEAD.size else None
        if (opcode == CHUNK or at in self._guide.chunks) and (stop := self._chunk(at, limit, head)):
            return Place(CHUNK, at, stop)
        try:
            return self._other(at, limit, opcode, own)
        except Malformed as error:
            if stop := self._chunk(at, limit, head, only_checked=True):
                return Place(CHUNK, at, stop)
            is_chunk = opcode == CHUNK or at in self._guide.chunks
            stop = error.at if isinstance(error, _Spans) else self._resume(at, limit, own)
            return Place(CHUNK if is_chunk else 0, at, stop, str(error))

    def _other(self, at: int, limit: int, opcode: int, own: int | None) -> Place:
        """A record that is not a sound chunk. `Malformed` if it is not sound."""
        if own is None:
            if self._guide.end is None and limit == self._size:
                raise Malformed("a record begins, and the file ends before it does: it was cut off, or is damaged")
            raise Malformed(f"a record with the opcode {opcode:#04x} is longer than the rest up to byte {limit:,}")
        if opcode in TYPED:
            if (opcode == HEADER) != (at == len(MAGIC)):
                raise Malformed("a Header is the first record, and no other")
            stop = at + HEAD.size + typed_end(opcode, body := self._read(at + HEAD.size, own - at - HEAD.size))
            if stop != own:  # fields of a later version, or a wrong length
                stop = next((end for end in (stop, own) if self._starts(end, limit)), 0)
            if not stop:
                raise Malformed(f"a record with the opcode {opcode:#04x} is longer than its fields")
            if opcode == CHANNEL:
                self._guide.channels.add(int.from_bytes(body[:2], "little"))
            return Place(opcode, at, stop)
        if opcode == CHUNK:
            raise Malformed("in a chunk: its fields do not fit, or its checksum is wrong")
        if opcode != MESSAGE and opcode <= DATA_END:
            raise Malformed(f"a record begins with the opcode {opcode}, which does not belong to the data section")
        if opcode == MESSAGE and not self._is_message(at, own - at - HEAD.size):
            raise Malformed("a message outside of chunks has a channel or a time that the file does not have")
        if opcode > DATA_END and self._chunk(at, limit, b"", only_checked=True):
            raise Malformed("a chunk has the opcode of another record")
        inner = self._find_spanned(at + 1, own) if self._starts(own, limit) else self._search(at + 1, own, limit)
        if inner is not None:
            raise _Spans(opcode, inner)
        return Place(opcode, at, own)

    def _is_message(self, at: int, length: int) -> bool:
        if length < FIELDS.itemsize:
            return False
        return self.is_chunked or self._guide.is_plausible(self._read(at + HEAD.size, FIELDS.itemsize))

    def _chunk(self, at: int, limit: int, head: bytes, *, only_checked: bool = False) -> int:
        """The end of a chunk whose content is sound; 0 without one. Its opcode and length may be wrong if it has a checksum."""
        raw = self._read(at + HEAD.size, CHUNK_FIELDS.size)
        if len(raw) < CHUNK_FIELDS.size:
            return 0
        *_, crc, name = CHUNK_FIELDS.unpack(raw)
        if name > 4:
            return 0
        begin = at + HEAD.size + CHUNK_FIELDS.size + name
        stop: int = begin + 8 + int.from_bytes(self._read(begin, 8), "little")
        if stop > limit or (not crc and (only_checked or head != HEAD.pack(CHUNK, stop - at - HEAD.size))):
            return 0
        if not is_sound(self._read(at + HEAD.size, stop - at - HEAD.size)):
            return 0
        own: int = at + HEAD.size + HEAD.unpack(head)[1] if head else stop
        if own != stop and own <= limit and self._starts(own, limit) and not self._starts(stop, limit):
            return own  # fields of a later version
        return stop

    def _resume(self, at: int, limit: int, own: int | None) -> int:
        """The start of the next sound record after damage at an offset."""
        if own is not None and self._starts(own, limit):
            return own
        found = self._search(at + 1, limit, limit)
        return limit if found is None else found

    def _search(self, begin: int, end: int, limit: int) -> int | None:
        """The first start of a sound record in a range."""
        for here, opcode, length in self._heads(begin, end):
            if opcode == CHUNK:
                if self._chunk(here, limit, HEAD.pack(opcode, length)):
                    return here
            elif self._guide.end is None and self._is_data_end(here, opcode, length):
                return here
            elif length > limit - here - HEAD.size or opcode not in (*TYPED, MESSAGE) or opcode == HEADER:
                continue
            elif self.is_chunked:
                if opcode not in (MESSAGE, SCHEMA, CHANNEL) and self._is_exact(here, opcode, length):
                    return here
            elif self._starts(here, limit):
                return here
        return None

    def _find_spanned(self, begin: int, end: int) -> int | None:
        """Where records outside of chunks begin that follow each other up to the end of the record that spans them."""
        if self.is_chunked:
            return None
        failed: set[int] = set()
        for here, _, _ in self._heads(begin, end):
            at, row = here, 0
            while at + HEAD.size <= end and at not in failed:
                opcode, length = HEAD.unpack(self._read(at, HEAD.size))
                fits = length <= end - at - HEAD.size
                if opcode == MESSAGE:
                    fits = fits and self._is_message(at, length)
                elif fits:
                    fits = opcode in TYPED and self._is_exact(at, opcode, length)
                if not fits:
                    failed.add(at)
                    break
                at, row = at + HEAD.size + length, row + 1
            if at == end and (row >= IN_A_ROW or self._guide.statistics is not None):
                return here
            failed.add(here)
        return None

    def _heads(self, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        """(offset, opcode, length) of all bytes that may be the head of a record."""
        for start in range(begin, end, WINDOW):
            size = min(WINDOW, end - start)
            data = self._read(start, size + HEAD.size - 1)
            for match in BEGINNING.finditer(data):
                if match.start() < size:
                    yield start + match.start(), *HEAD.unpack_from(data, match.start())

    def _is_exact(self, at: int, opcode: int, length: int) -> bool:
        """Whether the fields of a record fill it."""
        try:
            return typed_end(opcode, self._read(at + HEAD.size, length)) == length
        except Malformed:
            return False

    def _starts(self, at: int, limit: int) -> bool:
        """Whether some records follow each other from here, or fewer up to the limit or the data section's end."""
        for _ in range(IN_A_ROW):
            if at == limit:
                return True
            head = self._read(at, HEAD.size)
            if len(head) < HEAD.size:
                return False
            opcode, length = HEAD.unpack(head)
            if self._guide.end is None and self._is_data_end(at, opcode, length):
                return True
            is_known = opcode in TYPED or opcode in (MESSAGE, CHUNK) or opcode > DATA_END
            if not is_known or length > limit - at - HEAD.size:
                return False
            if opcode == MESSAGE and not self._is_message(at, length):
                return False
            if opcode == MESSAGE_INDEX and not self._is_exact(at, opcode, length):
                return False
            at += HEAD.size + length
        return True

    def _is_data_end(self, at: int, opcode: int, length: int) -> bool:
        """Whether the data section ends here: the summary, the Footer or nothing follows."""
        if (opcode, length) != (DATA_END, 4):
            return False
        next_ = self._read(at + END_SIZE, 1)
        return not next_ or next_[0] in (*IN_SUMMARY, FOOTER)
