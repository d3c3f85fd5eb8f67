"""Where things lie in a channel's file, by the words of its header: docs/design/term_log.md, docs/design/latency.md."""

import struct
from pathlib import Path

LATENCY_SLOT = 2048  # bytes for each slot of the participants' table; the tables end the file


def terms_at(path: Path) -> int:
    """Where the first of a log's three terms begins."""
    with open(path, "rb") as file:
        header = file.read(4096)
    slots, term_length = struct.unpack_from("<I", header, 88)[0], struct.unpack_from("<I", header, 128)[0]
    return path.stat().st_size - slots * LATENCY_SLOT - 3 * term_length
