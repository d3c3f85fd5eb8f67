"""What a late reader of a recording gets first: the newest message of each key, of a log that keeps last values. Knows one recording."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from penstock import codecs
from penstock.codecs import keys
from penstock.errors import Corrupt, Invalid, Unsupported
from penstock.record.format import last_values
from penstock.record.format.folder import Description, RecordingFolder
from penstock.record.format.intervals import Interval
from penstock.record.format.last_values import LastValue
from penstock.record.format.types import RecordingInfo
from penstock.record.read.merging import Merged
from penstock.record.read.planning.plan import ReadPlanner, Stream
from penstock.record.read.planning.ranges import Range
from penstock.record.read.scan import COLUMNS, TIME_MIN

if TYPE_CHECKING:
    import pyarrow as pa

START = "last"
WHOLE = 0xC0  # flags of a message in one frame
COLUMNS_NEEDED = ("position", "timestamp_ns", "session", "payload")


def is_late(start: Any) -> bool:
    """Whether a reader asks for last values first."""
    return isinstance(start, str) and start == START


def newest(codec: dict[str, Any], field: str, messages: Iterable[LastValue]) -> list[LastValue]:
    """The newest of each key, in the order of positions. messages: in that order."""
    key_of = keys.reader(codecs.from_spec(codec), field)
    found: dict[bytes, LastValue] = {}
    for one in messages:
        with contextlib.suppress(Invalid):  # written by something else
            found[key_of(one.payload)] = one
    return sorted(found.values(), key=lambda one: one.position)


def messages_in(batches: Iterable[pa.RecordBatch]) -> Iterable[LastValue]:
    """The messages of batches that have `COLUMNS_NEEDED`."""
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in COLUMNS_NEEDED]
        for row in zip(*columns, strict=True):
            yield LastValue(*row)


def values(
    folder: RecordingFolder, about: Description, until: int, earlier: Iterable[pa.RecordBatch]
) -> list[LastValue]:
    """The newest message of each key that a late reader gets first. earlier: the recording's messages that it does not get."""
    found = last_values.read(folder.path)
    if found is None:
        raise Unsupported(
            f"{about.channel}: recording {about.id} has no last values: only logs that are made with last='name' keep them"
        )
    kept = (one for one in found.values if one.time_ns <= until)
    return newest(about.codec, found.field, [*kept, *messages_in(earlier)])


def batch(found: list[LastValue], channel: str, empty: pa.RecordBatch) -> pa.RecordBatch | None:
    """Messages as a batch of a scan; None for none. empty: one without rows."""
    if not found:
        return None
    import pyarrow as pa

    rows = len(found)
    given: dict[str, list[Any]] = {
        "stream": [channel] * rows,
        "session": [one.session for one in found],
        "position": [one.position for one in found],
        "time": [one.time_ns // 1000 for one in found],
        "timestamp_ns": [one.time_ns for one in found],
        "recorded_ns": [one.time_ns for one in found],
        "flags": [WHOLE] * rows,
        "lost": [0] * rows,
        "payload": [one.payload for one in found],
    }
    assert given.keys() == COLUMNS.keys()
    arrays = [pa.array(given[name.name], name.type) for name in empty.schema]
    return pa.RecordBatch.from_arrays(arrays, schema=empty.schema)


def latched(survey: ReadPlanner, since: int, until: int) -> list[Merged]:
    """What a reader of a plan from `since` to `until` gets beside its ranges, of logs that keep last values: the newest message of each key from
    before `since`, and then those that recordings have only so. In the order of their times, each stream's in its own order."""
    held, streams = survey.held(None), dict[Stream, list[RecordingInfo]]()
    for one in survey.recordings:
        streams.setdefault((one.info.channel, one.info.epoch), []).append(one.info)
    found: list[Merged] = []
    for stream, infos in streams.items():
        field, alone = _alone(infos, held[stream], survey.on_skip)
        if field is None:
            continue
        source = _source(infos[0])
        before: list[LastValue] = []
        if since > TIME_MIN:
            for part in survey.plan(until=since - 1):
                if (part.channel, part.epoch) == stream:
                    before += messages_in(part.scan(COLUMNS_NEEDED, until=since - 1))
        early = [*before, *(one for one in alone if one.time_ns < since)]
        first = newest(source.codec, field, sorted(early, key=lambda one: one.position))
        later = [one for one in alone if since <= one.time_ns <= until]
        found += [
            Merged(source, one.time_ns, one.position, one.session, one.time_ns, one.payload) for one in first + later
        ]
    return sorted(found, key=lambda one: one.time_ns)


def _alone(
    infos: list[RecordingInfo], held: list[Interval], on_skip: Callable[[str], None]
) -> tuple[str | None, list[LastValue]]:
    """The key's field of a stream's recordings, None if it keeps no last values, and those that are in no recording's positions, in their order."""
    field, found = None, dict[int, LastValue]()
    for info in infos:
        try:
            kept = last_values.read(info.path)
        except Corrupt as error:
            on_skip(str(error))
            continue
        if kept is not None:
            field = kept.field
            found |= {one.position: one for one in kept.values}
    return field, [one for at, one in sorted(found.items()) if not any(low <= at < high for low, high in held)]


def _source(info: RecordingInfo) -> Range:
    """A range without messages, for those that are in none."""
    return Range(info.id, info.channel, info.codec, info.epoch, 0, 0, 0, 0, 0, 0, None, False, str(info.path), ())
