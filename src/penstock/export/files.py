"""Export: an archive's messages as files, decoded, in a pool of processes and without a JVM. A copy made once, not a table kept up to date.

The rows and columns are those of the pipeline's table *messages*. Knows the planner, rows and part files; knows no Spark.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.channels.checks import callback, whole
from penstock.channels.uri.value import AnyChannel
from penstock.codecs import bare
from penstock.columns import contract as contracts
from penstock.columns.contract import Contract
from penstock.columns.parts import Part, check, table_name
from penstock.errors import Invalid
from penstock.export import delta, task
from penstock.record import TIME_MAX, TIME_MIN, Moment, Range, ReadPlanner
from penstock.record.archive import Archive
from penstock.util.files.durable import folder_beside, name_folder, name_place, own_errors, tell_damage
from penstock.util.files.storage import Place, reached, where
from penstock.util.pool import Pool
from penstock.util.units import interval

__all__ = ["FORMS", "Exported", "Outcome", "export"]

FORMS = ("delta", "parquet", "arrow", "csv")
MOST_PROCESSES = 4096
Progress = Callable[[str, int, int], None]
DEFAULT = {"delta": "snappy", "parquet": "snappy", "arrow": "none", "csv": "none"}


@dataclass(frozen=True)
class Exported:
    """A stream's files. folder: within the export."""

    stream: str
    folder: str
    files: int
    rows: int
    bytes: int


@dataclass(frozen=True)
class Outcome:
    """The result of an export. left_out: a text for each thing in the archive that is not there. damaged: those that are damage."""

    streams: tuple[Exported, ...]
    left_out: tuple[str, ...]
    damaged: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """Messages in all."""
        return sum(one.rows for one in self.streams)


@reached
@own_errors
def export(
    archive: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    form: str = "parquet",
    streams: Sequence[AnyChannel] | None = None,
    since: Moment = TIME_MIN,
    until: Moment = TIME_MAX,
    compression: str | None = None,
    processes: int | None = None,
    range_bytes: int = 64 << 20,
    on_skip: Callable[[str], None] | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Writes an archive's messages into `out`, a folder for each stream, as `delta`, `parquet`, `arrow` or `csv`.

    out: a new or empty folder, or a URI such as s3://BUCKET/FOLDER. streams: only these channels; patterns as "robot/*" too. since, until: send
    times, both inclusive: datetimes, texts as "10m ago", or nanoseconds. processes: the number of processes; by default one per core, and only this one for less than 64 MiB. range_bytes: about how
    much of a recording becomes one file. on_skip: called with a text for each damaged part of the archive. Without it such damage
    raises `Corrupt` at the end; everything else is exported by then.
    """
    if form not in FORMS:
        raise Invalid(f"there is no format {form!r}: there are {', '.join(FORMS)}")
    if processes is not None:
        processes = whole(processes, "processes", 1, MOST_PROCESSES)
    range_bytes = whole(range_bytes, "range_bytes", 1)
    callback(on_skip, "on_skip")
    callback(progress, "progress")
    files = "parquet" if form == "delta" else form
    compression = DEFAULT[form] if compression is None else compression
    check(files, compression)
    if form == "delta":
        delta.needed()
    span = interval(since, until)
    place = where(out, "the place of the export", to_write=True)
    work = _target(place)
    damaged: list[str] = []
    try:
        ranges = _plan_tasks(Archive(archive, create=False), streams, span, range_bytes, damaged)
        job = _Job(work, files, compression, span, progress or (lambda what, done, count: None), damaged)
        total = sum(one.bytes for one in ranges)
        job.run(ranges, processes or (1 if total < 64 << 20 else len(os.sched_getaffinity(0))))
        found = job.finish(form == "delta")
        if place.is_local:
            name_folder(Path(work.path), Path(place.path), "the export")
    except BaseException as error:
        if place.is_local:
            shutil.rmtree(work.path, ignore_errors=True)
            name_place(error, work.path, place.path)
        raise
    tell_damage(damaged, on_skip, place)
    return Outcome(tuple(found), tuple(damaged), tuple(damaged))


def _target(place: Place) -> Place:
    """The folder to write: one beside `place`, which is renamed at the end, or the place on an object storage itself."""
    if place.is_local:
        return where(folder_beside(Path(place.path), "the export"))
    from pyarrow import fs

    if place.fs.get_file_info(fs.FileSelector(place.path, allow_not_found=True, recursive=True)):
        raise Invalid(f"{place} holds objects already: name another prefix for the export")
    return place


def _plan_tasks(
    archive: Archive, streams: Sequence[AnyChannel] | None, span: tuple[int, int], range_bytes: int, damaged: list[str]
) -> list[Range]:
    survey = ReadPlanner(archive, None if streams is None else archive.channels(streams), damaged.append)
    since, until = span
    return survey.plan(
        since=since if since > TIME_MIN else None, until=until if until < TIME_MAX else None, range_bytes=range_bytes
    )


@dataclass
class _Stream:
    """A channel's messages of one codec: they share columns."""

    channel: str
    codec: dict[str, Any]
    folder: str
    ranges: list[Range]
    contract: Contract = ()


class _Job:
    """One export."""

    def __init__(
        self, work: Place, form: str, compression: str, span: tuple[int, int], progress: Progress, damaged: list[str]
    ) -> None:
        self._work, self._form, self._compression, self._span = work, form, compression, span
        self._progress, self._damaged = progress, damaged
        self._streams: list[_Stream] = []
        self._parts: dict[str, dict[int, Part]] = {}

    def run(self, ranges: list[Range], processes: int) -> None:
        """Writes all files. A stream whose messages have more keys than its first ones is written again with all of them."""
        self._streams = _group_streams(ranges)
        todo = [(stream, number) for stream in self._streams for number in range(len(stream.ranges))]
        for stream in self._streams:
            stream.contract = task.beginning(stream.ranges[0])
        with Pool("penstock.export.task:run", min(processes, max(1, len(todo)))) as pool:
            while todo:
                tasks = [self._task(stream, number) for stream, number in todo]
                answers = pool.map(tasks, lambda done, count: self._progress("exporting", done, count))
                grown = []
                for (stream, number), answer in zip(todo, answers, strict=True):
                    self._add_answer(stream, number, answer)
                    if "contract" in answer:
                        stream.contract = contracts.merged(stream.contract, contracts.unpack(answer["contract"]))
                        grown += [stream] if stream not in grown else []
                todo = [(stream, number) for stream in grown for number in range(len(stream.ranges))]

    def _task(self, stream: _Stream, number: int) -> dict[str, Any]:
        return {
            "range": asdict(stream.ranges[number]),
            "contract": contracts.pack(stream.contract),
            "since": self._span[0],
            "until": self._span[1],
            "out": self._work.uri,
            "relative": f"{stream.folder}/part-{number:06d}",
            "form": self._form,
            "compression": self._compression,
        }

    def _add_answer(self, stream: _Stream, number: int, answer: dict[str, Any]) -> None:
        parts = self._parts.setdefault(stream.folder, {})
        if "error" in answer:
            planned = stream.ranges[number]
            self._damaged.append(
                f"{stream.channel}: positions {planned.start} to {planned.end} are left out: {answer['error']}"
            )
        elif "part" in answer:
            parts[number] = Part(**answer["part"])
        for text in answer.get("damaged", ()) if "contract" not in answer else ():
            if text not in self._damaged:  # two ranges may meet at it
                self._damaged.append(text)

    def finish(self, as_delta: bool) -> list[Exported]:
        """The streams that have rows; on request a Delta table of each."""
        found = []
        for stream in self._streams:
            parts = [part for _, part in sorted(self._parts.get(stream.folder, {}).items())]
            if not parts:
                continue
            if as_delta:
                schema = task.schema(stream.contract)
                delta.commit(self._work / stream.folder, parts, schema, stream.channel)
            rows, size = sum(part.rows for part in parts), sum(part.bytes for part in parts)
            found.append(Exported(stream.channel, stream.folder, len(parts), rows, size))
        return found


def _group_streams(ranges: list[Range]) -> list[_Stream]:
    """Ranges by channel and codec, each group with its own folder: the stream's table name; `.2` is that of its second codec."""
    found: dict[str, _Stream] = {}
    codecs: Counter[str] = Counter()
    for one in ranges:
        key = f"{one.channel} {json.dumps(bare(one.codec), sort_keys=True)}"
        if key not in found:
            codecs[one.channel] += 1
            number = f".{codecs[one.channel]}" if codecs[one.channel] > 1 else ""
            found[key] = _Stream(one.channel, one.codec, f"{table_name(one.channel)}{number}", [])
        found[key].ranges.append(one)
    return list(found.values())
