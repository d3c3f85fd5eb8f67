"""The first pass over a sound MCAP file: its framing, the checksum over its data section, its summary. Damage raises `Corrupt`.

Knows how a file is put together; leaves the records' content to `Contents`.
"""

from __future__ import annotations

import zlib

from penstock.export.mcap_reading.contents import Contents
from penstock.export.mcap_reading.records import (
    DATA_END,
    FOOTER,
    HEAD,
    HEADER,
    IN_CHUNKS,
    MAGIC,
    Malformed,
    compare_crc,
    summary_of,
)
from penstock.export.mcap_reading.source import Source

RUN = 4 << 20  # bytes of messages outside of chunks that are read at once


def check_all(source: Source, contents: Contents) -> None:
    """Reads the whole file into `contents`. `Corrupt` with the offset of the damage."""
    if source.read(0, len(MAGIC)) != MAGIC:
        raise source.foreign()
    _check_summary(source, contents, _DataSection(source, contents).read())


class _DataSection:
    """The records up to the DataEnd, in order."""

    def __init__(self, source: Source, contents: Contents) -> None:
        self._source, self._contents = source, contents
        self._crc = zlib.crc32(MAGIC)

    def read(self) -> int:
        """Reads all records, and returns the offset behind the last one."""
        at = len(MAGIC)
        run: int | None = None  # the offset of the first of several messages outside of chunks
        is_first = True
        self._source.file.seek(at)
        while True:
            begun = at
            try:
                opcode, body = self._record(at)
                at += HEAD.size + len(body)
                if is_first and opcode != HEADER:
                    raise Malformed("the first record is not a Header")
                if run is not None and (opcode not in IN_CHUNKS or at - run > RUN):
                    self._contents.add_run(run, self._source.read(run, begun - run))
                    self._source.file.seek(at)
                    run = None
                if opcode in IN_CHUNKS:
                    run = begun if run is None else run
                    self._contents.check_outside(opcode, body)
                elif opcode == DATA_END:
                    self._end(body)
                    return at
                elif opcode == FOOTER:
                    raise Malformed("there is a Footer, and no DataEnd before it")
                else:
                    self._contents.add_record(begun, opcode, body, is_first=is_first)
                self._crc = zlib.crc32(body, zlib.crc32(HEAD.pack(opcode, len(body)), self._crc))
            except Malformed as error:
                raise self._source.damaged(begun, str(error)) from error
            is_first = False

    def _record(self, at: int) -> tuple[int, bytes]:
        """The record at an offset, which is the file's current position."""
        file = self._source.file
        head = file.read(HEAD.size)
        if len(head) < HEAD.size:
            raise Malformed("the file ends here, without its end: it was cut off, or its writer died")
        opcode, length = HEAD.unpack(head)
        if length > self._source.size - at - HEAD.size:
            raise Malformed(
                f"a record of {length:,} bytes begins, and the file ends before: it was cut off, or is damaged"
            )
        if opcode == 0:
            raise Malformed("a record begins with the opcode 0, which there is not")
        body = file.read(length)
        if len(body) < length:
            raise Malformed("the file became shorter while it was read")
        return opcode, body

    def _end(self, body: bytes) -> None:
        if len(body) != 4:
            raise Malformed(f"a DataEnd of {len(body)} bytes: it has 4")
        stated = int.from_bytes(body, "little")
        compare_crc(stated, self._crc, "the data section, bytes 0 to here,")
        if stated:
            self._contents.unchecked = 0
        else:
            self._contents.count_unchecked()


def _check_summary(source: Source, contents: Contents, at: int) -> None:
    """Reads the summary at an offset, and compares the records that were found with it."""
    data = source.read(at, source.size)
    try:
        contents.statistics, indexed = summary_of(data, at, contents.schemas, contents.channels)
    except Malformed as error:
        raise source.damaged(at, f"in the summary: {error}") from error
    for chunk in sorted(indexed - contents.chunks):
        raise source.damaged(chunk, "its chunk index has a chunk here, and there is none")
    if contents.statistics is None:
        return
    for what, stated, found in contents.compare_counts(contents.statistics):
        if stated != found:
            raise source.damaged(source.size, f"its statistics state {stated:,} {what}, and it has {found:,}")
