"""The pipeline: archive → *messages*, *losses*, and a table of decoded columns per stream, as Delta tables that only gain rows.

A run reads what the tables lack; a killed one loses and doubles nothing. Tasks read and write with Arrow, wherever an engine does
them; here, on the driver, their files become commits.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Unpack

from penstock.channels.checks import callback
from penstock.columns import contract as contracts
from penstock.columns.contract import types
from penstock.columns.contract.declared import begun, has_columns, inner, is_open
from penstock.columns.contract.decoding import decode
from penstock.errors import Corrupt, Invalid, NotFound, PenstockError
from penstock.record import Range, ReadPlanner
from penstock.record.archive import Archive
from penstock.tables import keep, losses, needs
from penstock.tables.consumer import Consuming
from penstock.tables.delta.files import Added
from penstock.tables.delta.places import Place
from penstock.tables.folder import Folder, erased_spans, locked
from penstock.tables.folder.state import Row, Stored, cut_predicate, sql_text
from penstock.tables.options import Given, Options, Outcome
from penstock.tables.rebuilding import How, rebuild, write_all
from penstock.tables.restoring import continue_restored
from penstock.tables.schemas import of_stream, recording_key
from penstock.tables.work.engine import Engine, LocalEngine, Progress
from penstock.tables.work.tasks import MESSAGES_TABLE, SAMPLE, STREAM_TABLE
from penstock.util.errors_in_text import first_of
from penstock.util.files.storage import where

log = logging.getLogger("penstock")
COMMIT_RANGES = 64
EXPIRE_SECONDS = 60.0  # between two looks for rows that are too old


class Pipeline:
    """An archive and its tables: `step` brings these up to date. A context manager that holds the lock of the folder."""

    def __init__(
        self,
        archive: str | Path,
        out: str | Path,
        options: Options | None = None,
        *,
        engine: Engine | None = None,
        progress: Progress | None = None,
    ) -> None:
        callback(progress, "progress")
        self.options, self.engine = options or Options(), engine or LocalEngine()
        self.progress = progress or (lambda what, done, count: None)
        self.place = Place.of(out)
        home = where(archive, "the archive")
        self.archive = Archive(home.uri, create=False)
        if (
            home.is_local
            and self.place.is_local
            and Path(os.path.realpath(self.place.path)).is_relative_to(os.path.realpath(home.path))
        ):
            raise Invalid(f"the folder of tables, {self.place}, is in the archive {home}: give a folder beside it")
        self._hints = {stream: types.parse(text) for stream, text in self.options.schema.items()}
        self.damaged: list[str] = []
        self._gaps: list[str] = []  # damaged blocks that any step left out: no later step reads their ranges again
        self._lock = contextlib.ExitStack()
        self._consumer: Consuming
        self._folder: Folder | None = None
        self._rebuild = [str(one) for one in self.options.rebuild]
        self._expired = 0.0
        self._erased = 0  # messages that this step left out

    def __enter__(self) -> Pipeline:
        with contextlib.ExitStack() as held:
            held.enter_context(locked(self.place))
            self._consumer = Consuming(
                self.archive, str(self.place)
            )  # a place that is refused keeps nothing from a purge
            self._lock = held.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    # ---- one pass ----

    def step(self) -> Outcome:
        """One pass. `left_out` lists what is not in the tables; if it fails, that is logged."""
        self.damaged, self._erased = [], 0
        try:
            return self._step()
        except BaseException:
            for text in self.damaged:
                log.warning("%s", text)
            raise

    def _step(self) -> Outcome:
        begun = time.monotonic()
        survey = ReadPlanner(self.archive, on_skip=self.damaged.append)
        folder = self._open_folder(survey)
        self._follow_cuts(folder, survey)
        keep.follow_erasures(folder, apart_from=self._rebuild)
        while self._rebuild:
            options = self.options
            how = How(self.engine, self.declared, options.new_keys, options.compression, self.progress)
            rebuild(how, folder, survey, self._rebuild[0])
            del self._rebuild[0]
        planned = needs.plan(survey, folder.have(), self.options.range_bytes)
        rows, lost, at = 0, list[Row](), 0
        while at < len(planned):
            group = _first(planned[at:], self.options.commit_bytes)
            count, more = self._batch(folder, group, at, len(planned))
            rows, lost, at = rows + count, lost + more, at + len(group)
        if folder.messages.table is None:
            folder.messages.commit()
        losses.bring(folder, survey, lost, self.options.compression)
        if self.options.keep and time.monotonic() - self._expired >= EXPIRE_SECONDS:
            keep.expire(folder, self.options.ages())
            self._expired = time.monotonic()
        keep.compact_grown(folder)
        folder.save()
        self._consumer.note(survey.of_consumer(needs.positions_of_all(survey, folder.held())))
        self._folder = None if folder.failed else folder  # after an error, tables are opened again
        total = 0 if folder.messages.table is None else folder.messages.table.count()
        streams = tuple(sorted({row["channel"] for row in folder.messages.state.done}))
        return Outcome(
            len(planned), rows, total, streams, time.monotonic() - begun, self.engine.name, erased=self._erased
        )

    def _open_folder(self, survey: ReadPlanner) -> Folder:
        folder, self._folder = self._folder, None
        if folder is None or not all(one.is_as_noted() for one in folder.all()):
            folder = Folder(self.place, self.damaged)
            folder.clean()
        folder.damaged = self.damaged
        for one in folder.all():
            with folder.apart(one):
                if one.restored and self.options.restored is not None:
                    continue_restored(one, folder, survey, self.options.restored)
            if folder.has(one):
                one.check()
        known = {one.info.channel for one in survey.recordings} | set(folder.streams)
        known |= {row["channel"] for row in folder.messages.state.done}
        for option, named in (("the schema", set(self._hints)), ("keep", set(self.options.ages()) - {None})):
            if unknown := sorted(str(one) for one in named - known):
                raise NotFound(f"{option} names {', '.join(unknown)}, and the archive has no such stream")
        for channel, hints in self._hints.items():
            if channel in self._rebuild:
                continue
            table = folder.streams[channel].table if channel in folder.streams else None
            there = () if table is None else contracts.from_schema(table.schema)
            codecs = [one.info.codec for one in survey.recordings if one.info.channel == channel]
            if codecs and table is None and not any(map(has_columns, codecs)):
                raise Invalid(
                    f"the messages of {channel} are plain bytes, which have no columns: leave it out of the schema"
                )
            found = contracts.declare(there, hints, channel)
            if table is not None and found != there:  # also if no message comes
                with folder.apart(folder.streams[channel]):
                    folder.streams[channel].commit(schema=of_stream(found, "the schema"))
        return folder

    def _follow_cuts(self, folder: Folder, survey: ReadPlanner) -> None:
        """Rows behind new cuts of recordings go."""
        for info, cut in survey.cuts:
            for one in (folder.messages, folder.streams.get(info.channel)):
                if one is None or cut.token in one.state.cuts:
                    continue
                before = one.state.intervals()
                one.state.forget(info, cut)
                is_made_anew = one is not folder.messages and info.channel in self._rebuild
                if one.table is None or before == one.state.intervals() or is_made_anew:
                    continue
                predicate = cut_predicate(info, cut)
                if one is folder.messages:
                    predicate = f"stream = {sql_text(info.channel)} AND {predicate}"
                with folder.apart(one):
                    one.delete(predicate)

    def _batch(
        self, folder: Folder, group: list[tuple[Range, tuple[str, ...]]], at: int, count: int
    ) -> tuple[int, list[Row]]:
        """Some ranges, and one commit of each table that they touch. (rows of *messages*, losses that reading met)"""
        targets = [self._targets(folder, one, names) for one, names in group]
        token = folder.begin_batch([stored.folder for found in targets for stored in found.values()])
        try:
            answers = self._write_group(folder, group, targets, token, at, count)
            rows, lost = self._commit_group(folder, group, targets, answers)
        except BaseException:
            with contextlib.suppress(PenstockError, OSError):
                folder.clean()
            raise
        if folder.failed:  # files may be left that no table has
            with contextlib.suppress(PenstockError, OSError):
                folder.clean()
        else:
            folder.end_batch(token)
        return rows, lost

    def _targets(self, folder: Folder, one: Range, names: tuple[str, ...]) -> dict[str, Stored]:
        found = {MESSAGES_TABLE: folder.messages} if MESSAGES_TABLE in names else {}
        if STREAM_TABLE in names and not folder.is_left_out(one.channel):
            found[STREAM_TABLE] = folder.stream(one.channel)
        return found

    def _write_group(
        self,
        folder: Folder,
        group: list[tuple[Range, tuple[str, ...]]],
        targets: list[dict[str, Stored]],
        token: str,
        at: int,
        count: int,
    ) -> list[Row]:
        """The answers of all ranges. Ranges whose new keys have other columns than the table gets are read again."""
        contracts_of: dict[str, contracts.Contract] = {}
        for (one, _), found in zip(group, targets, strict=True):
            if STREAM_TABLE in found and one.channel not in contracts_of:
                contracts_of[one.channel] = self.contract(found[STREAM_TABLE], one)
        return write_all(
            self.engine,
            [(one.channel, one.bytes) for one, _ in group],
            contracts_of,
            lambda number, contract: self._task(folder, group[number][0], targets[number], contract, token, number),
            lambda number, answer: self._discard(targets[number], answer),
            lambda what, ready, _: self.progress(what, at + ready, count),
        )

    def _task(
        self,
        folder: Folder,
        one: Range,
        targets: dict[str, Stored],
        contract: contracts.Contract,
        token: str,
        number: int,
    ) -> Row:
        return {
            "number": number,
            "range": asdict(one),
            "places": {name: str(stored.place) for name, stored in targets.items()},
            "contract": contracts.pack(contract),
            "mode": self.options.new_keys if STREAM_TABLE in targets else "rescue",
            "erased": erased_spans(folder.erased, one.channel),
            "batch": token,
            "compression": self.options.compression,
            "ingested_us": time.time_ns() // 1000,
        }

    @staticmethod
    def _discard(targets: dict[str, Stored], answer: Row) -> None:
        for name, file in answer["files"].items():
            if file:
                targets[name].place.delete(file[0])

    def contract(self, stored: Stored, one: Range) -> contracts.Contract:
        """The columns of a stream's table: those it has, those that the user and the codec declare, and without any of these, those of
        the first messages."""
        there: contracts.Contract = () if stored.table is None else contracts.from_schema(stored.table.schema)
        found = self.declared(one.channel, [one.codec], there)
        if is_open(one.codec) and stored.table is None:
            try:
                batch = next(one.scan(["payload"], batch_rows=SAMPLE), None)
            except (PenstockError, OSError):  # damaged: the range's task says so
                batch = None
            if batch is not None and (self.options.new_keys == "add" or not found):
                found = decode(one.codec, found, batch.column("payload")).contract
        return found

    def declared(
        self, channel: str, codecs: Iterable[dict[str, Any]], there: contracts.Contract = ()
    ) -> contracts.Contract:
        """The columns of a stream that the user and its codecs declare, behind those that its table has."""
        hints = self._hints.get(channel, {})
        found = contracts.declare(there, hints, channel)
        for codec in codecs:
            found = begun(codec, found)
            _check_hints(hints, codec, channel)
        return found

    def _commit_group(
        self,
        folder: Folder,
        group: list[tuple[Range, tuple[str, ...]]],
        targets: list[dict[str, Stored]],
        answers: list[Row],
    ) -> tuple[int, list[Row]]:
        adds: dict[str, list[Added]] = {}
        schemas: dict[str, Any] = {}
        touched: dict[str, Stored] = {}
        covered: dict[str, list[Row]] = {}
        rows, lost = 0, list[Row]()
        for (one, _), found, answer in zip(group, targets, answers, strict=True):
            if "error" in answer:
                self.damaged.append(f"{one.channel}: {answer['error']}")
                self._discard(found, answer)
                continue
            self._gaps += [text for text in answer["damaged"] if text not in self._gaps]  # two ranges may meet at it
            self._erased += answer["erased"] if MESSAGES_TABLE in found else 0
            lost += [
                {"channel": one.channel, "epoch": one.epoch, "start": low, "end": high} for low, high in answer["lost"]
            ]
            for name, stored in found.items():
                touched[stored.folder] = stored
                where = {"channel": one.channel, "epoch": one.epoch, "recording": one.recording}
                read = ({**where, "start": low, "end": high} for low, high in answer["done"])
                covered.setdefault(stored.folder, []).extend(read)
                if name == STREAM_TABLE:
                    stored.state.codecs[recording_key(one.epoch, one.recording)] = one.codec
                    schemas[stored.folder] = of_stream(answer["contract"], inner(one.codec)["kind"])
                if file := answer["files"].get(name):
                    adds.setdefault(stored.folder, []).append(Added.from_json(file))
                    rows += file[2] if name == MESSAGES_TABLE else 0
        for name, stored in touched.items():
            stored.state.cover(covered[name])
            with folder.apart(stored):
                stored.commit(adds.get(name, []), schema=schemas.get(name))
        return rows, lost

    @property
    def is_behind(self) -> bool:
        """Whether a table's commit failed in the last step: the next one makes up for it."""
        return self._folder is None

    # ---- the end ----

    def left_out(self) -> list[str]:
        """The parts that the last step had to leave out, and the damaged blocks that any step left out."""
        return self.damaged + self._gaps

    def check(self) -> None:
        """`Corrupt` if anything was left out."""
        if found := self.left_out():
            raise Corrupt(f"{first_of(found)}; all else is in the tables")


def _check_hints(hints: Mapping[str, Any], codec: dict[str, Any], channel: str) -> None:
    """`Invalid` for a declared column that the codec has in another type."""
    declared = {column.label: column.type for column in begun(codec, ())}
    for key, kind in hints.items():
        there = declared.get(contracts.text_label(key))
        if there is not None and there != kind:
            raise Invalid(
                f"the schema says that {key} of {channel} is {types.ddl(kind)}; its codec says {types.ddl(there)}: leave {key} out of the schema"
            )


def _first(planned: Sequence[tuple[Range, tuple[str, ...]]], commit_bytes: int) -> list[tuple[Range, tuple[str, ...]]]:
    """As many ranges as one commit has."""
    size, found = 0, list[tuple[Range, tuple[str, ...]]]()
    for one in planned:
        if found and (size + one[0].bytes > commit_bytes or len(found) >= COMMIT_RANGES):
            break
        found.append(one)
        size += one[0].bytes
    return found


def run(
    archive: str | Path,
    out: str | Path,
    *,
    engine: Engine | None = None,
    progress: Progress | None = None,
    **options: Unpack[Given],
) -> Outcome:
    """Brings the tables in `out` up to date with an archive, once.

    engine: who does the tasks; by default this machine, without a JVM (`penstock.spark.pipeline.run` has Spark do them). out: a folder of its own;
    nothing is deleted in it that the pipeline did not write. progress is called with (what, done, all).

    Options: schema: stream → columns, as {"log:imu": "px double, ts timestamp"}. new_keys: what becomes of a key that has no column: `add`
    makes one, `rescue` puts its values into `_rescued`, `fail` leaves the stream out. keep: how long rows stay, as "30d" or seconds, or by stream as {"log:imu": "7d", None: "30d"}. restored: for tables that were set back: `keep` leaves out the rows that are gone, `refill` reads them again.
    rebuild: streams whose tables are rebuilt, in one commit. compression: as pyarrow names it. range_bytes: about how much of the archive a task reads; commit_bytes: and how much is read
    between commits.

    Raises `Busy` if another pipeline writes to `out`, and `Corrupt` if a recording or a stream of the archive is damaged; all else is in
    the tables then.
    """
    with Pipeline(archive, out, Options.given(options), engine=engine, progress=progress) as pipeline:
        outcome = pipeline.step()
    pipeline.check()
    return outcome
