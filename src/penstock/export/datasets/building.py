"""`penstock.dataset`: an archive's streams as a training set, time-aligned rows in Parquet with a certificate.

Decides what is read and where it is written; the folder has its name when everything is in it.
"""

from __future__ import annotations

import datetime
import os
import secrets
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from penstock.util.extras import explain_missing

with explain_missing("penstock.dataset", extra="datasets"):
    import pyarrow  # noqa: F401

from penstock.channels.checks import callback, flag, texts
from penstock.channels.uri.channel import parse
from penstock.channels.uri.value import AnyChannel, uris_of
from penstock.columns.names import clean, folded
from penstock.columns.parts import table_name
from penstock.errors import Invalid, NotFound, PenstockError
from penstock.export.datasets import writing
from penstock.export.datasets.aligning import PICKS, Episodes, Outside, aligned
from penstock.export.datasets.streams import Stream, check_frames
from penstock.export.datasets.writing import Column, RowWriter
from penstock.record import TIME_MAX, TIME_MIN, Moment, ReadPlanner
from penstock.record.archive import Archive
from penstock.util.files.durable import (
    folder_beside,
    name_folder,
    name_place,
    own_errors,
    tell_damage,
    write_atomically,
)
from penstock.util.files.storage import local
from penstock.util.units import interval, seconds

CERTIFICATE = "certificate.json"
FORMAT, VERSION = "penstock training set", 1
IMAGES = ("columns", "png")
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Built:
    """The result of `penstock.dataset`. rows_dropped: rows in which a stream has no message, with drop_incomplete. rows_outside: messages of the
    aligned stream in no episode. rows_without: for each other channel, rows of the set without a message of it, or that were dropped for that. lost_bytes: for each
    channel, bytes that no recording has. left_out: a line for each thing of the archive that is not in the set. damaged: those that are damage."""

    folder: Path
    rows: int
    episodes: int
    images: int
    rows_dropped: int
    rows_outside: int
    rows_without: dict[str, int]
    lost_bytes: dict[str, int]
    left_out: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Wish:
    """What was asked, checked."""

    align: str
    others: list[str]
    markers: str | None
    tolerance_ns: int | None
    pick: str
    images: str
    drop: bool
    since: int
    until: int


@own_errors
def dataset(
    archive: str | os.PathLike[str] | Archive,
    to: str | os.PathLike[str],
    *,
    align: AnyChannel,
    others: Sequence[AnyChannel] = (),
    tolerance: float | str | datetime.timedelta | None = None,
    pick: str = "latest",
    episodes: AnyChannel | None = None,
    images: str = "columns",
    drop_incomplete: bool = False,
    since: Moment = TIME_MIN,
    until: Moment = TIME_MAX,
    on_skip: Callable[[str], None] | None = None,
    progress: Progress | None = None,
) -> Built:
    """Writes a training set into the folder `to`: a row for each message of `align`, with a message of each other channel.

    to: a new or empty folder of this machine. others: channels. pick: "latest", the last message that was sent before the row's or at the same time, or
    "nearest" in time. tolerance: a partner farther away than this is none; seconds, a timedelta or a text such as "20ms"; None: any is taken.
    episodes: a channel of markers; without one, all rows are one episode. images: frames as "columns" of bytes, or as "png" files (extra `datasets`).
    drop_incomplete: leave out rows in which a channel has no partner or one that does not decode. since, until: send times of `align`, both inclusive, as for
    `Archive.scan`. on_skip: called with a text for each damaged part of the archive. Without it such damage raises `Corrupt` at the end; everything
    else is in the folder by then. progress: called with (what, messages done, messages in all).

    `NotFound` for a channel that was not recorded, `Invalid` if the folder is not empty. The certificate says for each stream what was lost.
    """
    callback(on_skip, "on_skip")
    callback(progress, "progress")
    wish = _check(align, others, tolerance, pick, episodes, images, drop_incomplete, since, until)
    place = local(to, "the place of the training set")
    opened = archive if isinstance(archive, Archive) else Archive(archive, create=False)
    work = folder_beside(place, "the training set")
    try:
        built, damaged = _Job(opened, wish, work, progress or (lambda what, done, count: None)).run(place)
        name_folder(work, place, "the training set")
    except BaseException as error:
        shutil.rmtree(work, ignore_errors=True)
        name_place(error, str(work), str(place))
        raise
    tell_damage(damaged, on_skip, place)
    return built


def _check(
    align: Any, others: Any, tolerance: Any, pick: Any, episodes: Any, images: Any, drop: Any, since: Any, until: Any
) -> _Wish:
    base = uris_of(align)
    if isinstance(others, str):
        raise Invalid(f"others is {others!r}: it must be a list of channels")
    named = texts(uris_of(others), "others", "channels")
    markers = None if episodes is None else uris_of(episodes)
    for name, one in (("align", base), ("episodes", markers)):
        if one is not None and not isinstance(one, str):
            raise Invalid(f"{name} is {one!r}: it must be a channel")
    asked = [base, *named]
    if twice := sorted({one for one in asked if asked.count(one) > 1}):
        raise Invalid(f"{twice[0]} is named twice: a channel is one stream of a training set")
    if pick not in PICKS:
        raise Invalid(f"pick is {pick!r}: it must be 'latest' or 'nearest'")
    if images not in IMAGES:
        raise Invalid(f"images is {images!r}: it must be 'columns' or 'png'")
    if not named:
        for name, given in (("tolerance", tolerance), ("pick", pick if pick != "latest" else None)):
            if given is not None:
                raise Invalid(f"{name} has no effect without other channels: name them in others (--with)")
    if images == "png" and not any(parse(one).kind.by_reference for one in asked):
        raise Invalid("images has no effect without a frames channel: leave it out (--images), or name one")
    span = interval(since, until)
    within = None if tolerance is None else round(seconds(tolerance, "tolerance") * 1e9)
    return _Wish(base, named, markers, within, pick, images, flag(drop, "drop_incomplete"), *span)


class _Job:
    """One call of `dataset`."""

    def __init__(self, archive: Archive, wish: _Wish, work: Path, progress: Progress) -> None:
        self._archive, self._wish, self._work, self._progress = archive, wish, work, progress
        self._damaged: list[str] = []

    def run(self, place: Path) -> tuple[Built, list[str]]:
        """Writes everything into the working folder. The result, and the damage."""
        wish = self._wish
        streams, markers = self._plan()
        base = streams[0]
        for stream in streams:
            check_frames(stream)
            stream.learn_columns()
        episodes, outside = Episodes(markers, wish.until), Outside()
        writer = RowWriter(
            self._work, [writing.column_of(one, self._work, wish.images) for one in streams], drop=wish.drop
        )
        total = sum(one.messages for one in base.ranges)
        try:
            for row in aligned(
                base, streams[1:], episodes, tolerance_ns=wish.tolerance_ns, pick=wish.pick, since=wish.since, until=wish.until,
                outside=outside,
            ):  # fmt: skip
                writer.add(row)
                if base.tally.messages % 64 == 0:
                    self._progress("aligning", base.tally.messages, total)
            writer.close()
        except BaseException:
            writer.discard()
            raise
        self._progress("aligning", total, total)
        every = [*streams, *([markers] if markers is not None else [])]
        left_out = [*self._damaged, *_left_out(streams, episodes)]
        self._write_certificate(writer, streams, every, episodes, outside.count)
        return Built(
            place,
            writer.rows,
            len(writer.spans),
            len(writer.images),
            writer.dropped,
            outside.count,
            {one.channel: one.tally.rows_without for one in streams[1:]},
            {one.channel: sum(gap["bytes"] for gap in one.gaps()) for one in every},
            tuple(left_out),
            tuple(self._damaged),
        ), self._damaged

    def _plan(self) -> tuple[list[Stream], Stream | None]:
        """The streams, the aligned one first, and that of the markers."""
        wish = self._wish
        wanted = [wish.align, *wish.others, *([wish.markers] if wish.markers is not None else [])]
        there = self._archive.channels()
        for channel in wanted:
            if channel not in there:
                raise NotFound(
                    f"{self._archive.path} has no recording of {channel}; it has {', '.join(sorted(there)) or 'none'}"
                )
        survey = ReadPlanner(self._archive, set(wanted), self._note_damage)
        ranges, lost = survey.plan(), survey.lost()
        taken = {folded(one.name) for one in writing.OWN}
        found = {}
        for channel in dict.fromkeys(wanted):
            own = [one for one in ranges if one.channel == channel]
            name = "" if channel == wish.markers and channel not in wanted[:-1] else _name_of(channel, taken)
            found[channel] = Stream(
                channel, name, own, [one for one in lost if one.channel == channel], self._note_damage
            )
        markers = None
        if wish.markers is not None:
            one = found[wish.markers]
            markers = Stream(one.channel, one.name, one.ranges, one.losses, self._note_damage)
        return [found[channel] for channel in wanted[: 1 + len(wish.others)]], markers

    def _identity(self) -> str | None:
        try:
            return self._archive.id
        except (PenstockError, OSError):  # it has none yet, and may not be written
            return None

    def _note_damage(self, text: str) -> None:
        if text not in self._damaged:
            self._damaged.append(text)

    def _write_certificate(
        self, writer: RowWriter, streams: list[Stream], every: list[Stream], episodes: Episodes, outside: int
    ) -> None:
        wish = self._wish
        content = {
            "format": FORMAT,
            "version": VERSION,
            "id": secrets.token_hex(16),
            "made_by": f"penstock {version('penstock')}",
            "archive": {"id": self._identity(), "path": str(self._archive.path)},
            "align": wish.align,
            "with": wish.others,
            "episodes_by": wish.markers,
            "pick": wish.pick,
            "tolerance_ns": wish.tolerance_ns,
            "since_ns": None if wish.since == TIME_MIN else wish.since,
            "until_ns": None if wish.until == TIME_MAX else wish.until,
            "rows": writer.rows,
            "rows_dropped": writer.dropped,
            "rows_outside": outside,
            "episodes": _episodes(writer, episodes),
            "markers_unread": [{"position": position, "message": text} for position, text in episodes.unread],
            "streams": [self._describe(one, writer.columns, one in streams) for one in every],
            "damaged": self._damaged,
            "files": [asdict(one) for one in writer.files],
            "images": [asdict(one) for one in writer.images],
        }
        write_atomically(self._work / CERTIFICATE, msgspec.json.format(msgspec.json.encode(content), indent=1))

    def _describe(self, stream: Stream, columns: Sequence[Column], is_column: bool) -> dict[str, Any]:
        """A stream in the certificate."""
        gaps = stream.gaps()
        found: dict[str, Any] = {
            "channel": stream.channel,
            "codecs": stream.codecs,
            "messages": stream.tally.messages,
            "steps_back": stream.tally.steps_back,
            "lost_bytes": sum(gap["bytes"] for gap in gaps),
            "losses": gaps,
            "recordings": [{"recording": number, "epoch": epoch} for number, epoch in sorted({(one.recording, one.epoch) for one in stream.ranges})],
        }  # fmt: skip
        if is_column:
            column = next(one for one in columns if one.stream is stream)
            found |= {
                "column": stream.name,
                "rows_without": stream.tally.rows_without,
                "undecodable": stream.tally.undecodable,
                "rescued": stream.tally.rescued,
                "values": {
                    f"{stream.name}.{leaf.name}" if leaf.name else stream.name: {
                        "type": str(leaf.type),
                        "dtype": leaf.dtype,
                        "shape": None if leaf.shape is None else list(leaf.shape),
                        "nulls": leaf.nulls,
                        "varies": leaf.varies,
                    }
                    for leaf in column.leaves
                },
            }
        return found


def _episodes(writer: RowWriter, episodes: Episodes) -> list[dict[str, Any]]:
    """The episodes in the certificate, in the order of their index; those without a row have none."""
    found = []
    for number, one in enumerate(episodes.all):
        span = writer.spans.get(number)
        found.append(
            {
                "episode_index": None if span is None else span.index,
                "number": one.number,
                "first_row": None if span is None else span.first,
                "rows": 0 if span is None else span.rows,
                "start_ns": one.start_ns if one.start_ns is not None or span is None else span.begins_ns,
                "end_ns": one.end_ns if one.end_ns is not None or span is None else span.ends_ns,
                "end_marked": one.ended,
            }
        )
    return found


def _left_out(streams: list[Stream], episodes: Episodes) -> list[str]:
    """A line for each thing that is not in the set, besides damage."""
    found = []
    for one in streams:
        if count := one.tally.undecodable:
            found.append(f"{one.channel}: {count:,} messages do not decode: their values are null")
        if count := one.tally.rescued:
            found.append(f"{one.channel}: {count:,} messages have values that do not fit their columns: these are null")
        if count := one.tally.steps_back:
            found.append(
                f"{one.channel}: the clock of its messages steps back {count:,} times: partners near there may be missing"
            )
    if episodes.unread:
        position, text = episodes.unread[0]
        found.append(
            f"{len(episodes.unread):,} markers are neither a start nor an end, as {text} at position {position}"
        )
    if episodes.stray_ends:
        found.append(f"{episodes.stray_ends:,} markers end an episode that did not begin")
    return found


def _name_of(channel: str, taken: set[str]) -> str:
    """The name of a stream's columns: the channel without its kind, as robot_imu; with it, where another stream has that."""
    for name in (clean(channel.partition(":")[2].replace("/", "_")), table_name(channel)):
        every = {folded(one) for one in (name, *(f"{name}_{end}" for end in ("recording", "position", "time", "lost")))}
        if not every & taken:
            taken |= every
            return name
    raise Invalid(f"{channel} has the columns of another stream of this training set: leave one of them out")
