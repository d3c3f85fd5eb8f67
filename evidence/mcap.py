"""Damaged MCAP files: every byte changed, cut off and left out in several ways. No import gives other messages without saying so."""

from __future__ import annotations

import io
import itertools
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import penstock
from evidence.report import WORKERS, Row
from penstock.export.mcap_import import import_mcap
from penstock.export.mcap_reading.file import McapFile
from penstock.export.mcap_reading.records import CHUNK, HEAD, MAGIC, MESSAGE, chunk_of, decompressed

WHOLE_IMPORTS, READINGS = 56, 5600  # of the short mode
Outcome = tuple[Counter[Any], int, int]


def _written(compression: str, *, chunked: bool, summary: bool, data_crc: bool) -> bytes:
    """A small file with schemas, several channels of a topic, chunks that overlap in time, an attachment and a metadata record."""
    from mcap.writer import CompressionType, IndexType, Writer

    options: dict[str, Any] = (
        {}
        if summary
        else dict.fromkeys(("repeat_channels", "repeat_schemas", "use_statistics", "use_summary_offsets"), False)
        | {"index_types": IndexType.NONE}
    )
    made = io.BytesIO()
    writer = Writer(
        made,
        chunk_size=250,
        compression=CompressionType[compression.upper()],
        use_chunking=chunked,
        enable_data_crcs=data_crc,
        **options,
    )
    writer.start(profile="ros2", library="evidence")
    cdr = writer.register_schema("a/B", "ros2msg", b"int32 x\n")
    plain = writer.register_schema("S", "jsonschema", b"{}")
    channels = [
        writer.register_channel("/a", "cdr", cdr, {"qos": "1"}),
        writer.register_channel("/b", "json", plain),
        writer.register_channel("/b", "json", plain, {"host": "2"}),
        writer.register_channel("/c", "", 0),
    ]
    for number in range(14):
        time_ns = 1_000_000_000 + number * 7 % 11
        writer.add_message(channels[number % 4], time_ns, b'{"i": %d, "v": "abc"}' % number, time_ns + number, number)
        if number == 9:
            writer.add_attachment(1, 2, "map.png", "image/png", b"pixels")
            writer.add_metadata("bag", {"key": "value"})
    writer.finish()
    return made.getvalue()


def files() -> dict[str, bytes]:
    """Files of every compression, with and without chunks, summary, and a checksum over all data. Records outside of
    chunks have a checksum in each file."""
    kinds = itertools.product(("none", "zstd", "lz4"), (True, False), (True, False))
    found = {
        f"{compression}{', summary' * summary}{', data checksum' * data_crc}": _written(
            compression, chunked=True, summary=summary, data_crc=data_crc
        )
        for compression, summary, data_crc in kinds
    }
    for summary in (True, False):
        found[f"no chunks{', summary' * summary}"] = _written("none", chunked=False, summary=summary, data_crc=True)
    return found


def changes(size: int) -> Iterator[tuple[str, int, Callable[[bytes], bytes]]]:
    """Every change of a file of so many bytes: its name, where, and what makes it."""
    for at in range(size):
        for bit in range(8):
            yield f"bit {bit}", at, lambda data, at=at, bit=bit: _with(data, at, data[at] ^ 1 << bit)
        for value in (0x00, 0xFF):
            yield f"byte {value}", at, lambda data, at=at, value=value: _with(data, at, value)
        yield "one more", at, lambda data, at=at: _with(data, at, (data[at] + 1) % 256)
        yield "cut off", at, lambda data, at=at: data[:at]
        for count in (1, 2, 9):
            yield f"{count} left out", at, lambda data, at=at, count=count: data[:at] + data[at + count :]
        yield "doubled", at, lambda data, at=at: data[: at + 1] + data[at:]
        yield "zeros", at, lambda data, at=at: data[:at] + bytes(min(16, len(data) - at)) + data[at + 16 :]


def _with(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + bytes([value]) + data[at + 1 :]


def outcome(data: bytes, *, recover: bool) -> tuple[Outcome, McapFile]:
    """The messages that an import would take, with all that belongs to them; the numbers of attachments and metadata records; the file."""
    file = McapFile(io.BytesIO(data), "damaged.mcap", recover=recover)
    file.check()
    found: Counter[Any] = Counter()
    times = []
    for part in file.parts():
        rows = zip(part.begins.tolist(), part.ends.tolist(), part.fields.tolist(), strict=True)
        for begin, end, (channel, *fields) in rows:
            found[(file.contents.channels[channel], *fields, part.data[begin:end])] += 1
            times.append(fields[1])
    assert times == sorted(times), "the messages are not in the order of their times"
    return (found, len(file.contents.attachments), len(file.contents.metadata)), file


def judge(truth: Outcome, data: bytes) -> str:
    """The fault in the reading of a changed file; empty if there is none."""
    try:
        found, file = outcome(data, recover=False)
        if found != truth and not (
            file.contents.unknown or file.contents.unchecked or file.contents.unchecked_definitions
        ):
            return "other messages, and not a word"
        if sum(found[0].values()) != sum(truth[0].values()) and (
            file.contents.statistics or not file.contents.unchecked
        ):
            return "another count of messages, and the file's own count or checksum was there"
    except penstock.Corrupt as error:
        if not str(error):
            return "an error without a text"
    try:
        found, file = outcome(data, recover=True)
    except penstock.Corrupt as error:
        return "" if "is not an MCAP file" in str(error) else f"a recovery fails: {error}"
    return _judge_recovery(truth[0], found[0], file)


def costs(data: bytes) -> list[int]:
    """For each byte of a whole file with a summary: how many messages a wrong bit there may cost. Those of its chunk, or its message."""
    found, at = [0] * len(data), len(MAGIC)
    while at < len(data) - len(MAGIC):
        opcode, length = HEAD.unpack_from(data, at)
        stop = at + HEAD.size + length
        if opcode == MESSAGE:
            found[at:stop] = [1] * (stop - at)
        elif opcode == CHUNK:
            content = decompressed(chunk_of(data[at + HEAD.size : stop]))
            inner = count = 0
            while inner < len(content):
                kind, size = HEAD.unpack_from(content, inner)
                count, inner = count + (kind == MESSAGE), inner + HEAD.size + size
            found[at:stop] = [count] * (stop - at)
        at = stop
    return found


def judge_cost(truth: Outcome, data: bytes, cost: int) -> str:
    """The fault in the recovery of a file with one wrong bit, which may cost so many messages; empty if there is none."""
    try:
        found, _ = outcome(data, recover=True)
    except penstock.Corrupt as error:
        return "" if "is not an MCAP file" in str(error) else f"a recovery fails: {error}"
    lost = (truth[0] - found[0]).total()
    return f"one wrong bit costs {lost} messages, and {cost} are in its record" if lost > cost else ""


def _judge_recovery(truth: Counter[Any], found: Counter[Any], file: McapFile) -> str:
    """The fault in a recovery. Messages that no checksum confirms may be others, and are counted as such."""
    invented, lost = (found - truth).total(), (truth - found).total()
    places, skipped = file.skipped.places, file.skipped
    by_topic: Counter[str] = Counter()
    for counter, sign in ((found, 1), (truth, -1)):
        for (channel, *_), count in counter.items():
            by_topic[channel.topic] += sign * count
    if invented and not (file.contents.unchecked or file.contents.unchecked_definitions):
        return "a recovery gives messages that were never written"
    if max(by_topic.values(), default=0) > 0 and not file.contents.unchecked_definitions and not skipped.more:
        return "a recovery gives more messages than were written, and does not say so"
    if lost > invented and not places:
        return "a recovery loses messages, and does not say so"
    if places and skipped.messages is not None:
        count = found.total() - truth.total()
        if skipped.more - skipped.messages != count:
            return (
                f"a recovery counts {skipped.messages} missing and {skipped.more} more, and the difference is {count}"
            )
    return ""


def _whole_import(folder: Path, data: bytes, truth: list[tuple[str, int, bytes]]) -> str:
    """The same by the whole import, into an archive."""
    path, archive = folder / "changed.mcap", folder / "archive"
    path.write_bytes(data)
    shutil.rmtree(archive, ignore_errors=True)
    try:
        done = import_mcap(archive, path)
    except penstock.Corrupt:
        return "an import that failed left an archive" if archive.exists() else ""
    opened = penstock.Archive(archive)
    found = sorted(
        (info.channel, m.time_ns, bytes(m.data)) for info in opened.list() for m in opened.replay(info.id, decode=False)
    )
    return (
        "" if found == truth or done.unchecked or "opcode" in str(done.left_out) else "an import gives other messages"
    )


def _of_file(name: str, long: bool, seed: int) -> tuple[int, list[str]]:
    """All changes of one file, or a seeded part of them: how many, and what is wrong."""
    data, chance = files()[name], random.Random(f"{name} {seed}")
    ways, parts = list(changes(len(data))), len(files())
    truth, _ = outcome(data, recover=False)
    rows = sorted(
        (f"log:{channel.topic[1:]}", log, body) for (channel, _, log, _, body), n in truth[0].items() for _ in range(n)
    )
    whole = chance.sample(ways, WHOLE_IMPORTS * (20 if long else 1) // parts)
    read = ways if long else chance.sample(ways, READINGS // parts)
    folder = Path(tempfile.mkdtemp(prefix="penstock-mcap-"))
    failed: list[str] = []
    try:
        cost = costs(data) if "summary" in name else []
        for what, at, change in read:
            changed = change(data)
            if wrong := judge(truth, changed) or (
                judge_cost(truth, changed, cost[at]) if cost and "bit" in what else ""
            ):
                failed.append(f"{name}: byte {at}, {what}: {wrong}")
        for what, at, change in whole:
            if wrong := _whole_import(folder, change(data), rows):
                failed.append(f"{name}: byte {at}, {what}: {wrong}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return len(read) + len(whole), failed


def damage(*, long: bool, seed: int) -> Row:
    """All changes of all files in the long mode; a seeded part of them in the short one."""
    try:
        import mcap.writer  # noqa: F401
    except ImportError:
        return Row("mcap", "changes of MCAP files", 0, skipped="the package mcap is not installed")
    begun, names = time.monotonic(), list(files())
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        found = list(pool.map(partial(_of_file, long=long, seed=seed), names))
    count, failed = sum(one for one, _ in found), [text for _, texts in found for text in texts]
    row = Row("mcap", "changes of MCAP files, each read and recovered", count, len(failed), time.monotonic() - begun)
    row.failure = f"python -m evidence mcap --seed {seed}   # {failed[0]}" if failed else ""
    row.details = {"failures": failed[:20]}
    return row
