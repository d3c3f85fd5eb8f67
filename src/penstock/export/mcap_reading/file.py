"""One MCAP file: a first pass over all of it, then its messages in the order of their log times.

The package mcap reads past a record that is cut off, and skips the checksums of attachments and of the summary; so the framing is read
here. Knows the format (https://mcap.dev/spec); knows no archive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from penstock.errors import Corrupt
from penstock.export.mcap_reading.checking import check_all
from penstock.export.mcap_reading.contents import Block, Contents
from penstock.export.mcap_reading.order import Part, due_before
from penstock.export.mcap_reading.records import HEAD, Malformed, checked_content, chunk_of
from penstock.export.mcap_reading.recovery import Recovery, Skipped
from penstock.export.mcap_reading.source import Source


class McapFile:
    """One MCAP file. `check` reads all of it once; afterwards `contents`, `skipped` and `parts` are valid. For one thread.

    recover: damage is skipped and counted in `skipped` instead of raising `Corrupt`.
    look: `check` calls it with the fields of the messages, as `FIELDS`.
    """

    def __init__(
        self, file: BinaryIO, path: object, *, recover: bool = False, look: Callable[[Any], None] = lambda fields: None
    ) -> None:
        self._source, self._recover = Source(file, path), recover
        self.contents = Contents(look)
        self.skipped = Skipped()

    def check(self) -> None:
        """Reads the whole file. `Corrupt` with the offset of the damage, unless this is a recovery."""
        if self._recover:
            try:
                check_all(self._source, Contents(lambda fields: None))
            except Corrupt:
                Recovery(self._source, self.contents, self.skipped).run(self._source.fault)
                return
        check_all(self._source, self.contents)

    def parts(self) -> Iterator[Part]:
        """All messages in the order of their log times, those of equal times as in the file. Blocks that overlap in time are in memory
        together."""
        blocks = sorted(self.contents.blocks, key=lambda block: (block.first, block.offset))
        waiting: list[tuple[int, Part]] = []
        for number, block in enumerate(blocks):
            waiting.append((block.offset, self._part(block)))
            until = blocks[number + 1].first if number + 1 < len(blocks) else 1 << 64
            yield from due_before(waiting, until)

    def _part(self, block: Block) -> Part:
        cached = self.contents.take_cached(block)
        if cached is not None:
            return cached
        data = self._source.read(block.offset, block.length)
        try:
            if block.is_chunk:
                data = checked_content(chunk_of(data[HEAD.size :]))
            return self.contents.split(data, define=False).without(block.refused)
        except Malformed as error:
            raise self._source.damaged(block.offset, f"the file changed while it was read: {error}") from error
