"""The lake: streams of this machine's shared memory, of an archive and of tables, as one.

Decides which streams there are, and takes cuts. Each stream in a query is its table, then the recording, then memory; see docs/design/lake.md.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from penstock.channels.checks import flag, texts
from penstock.channels.storage.looking import looks_at
from penstock.channels.uri.opener import parse as channel_of
from penstock.channels.uri.value import AnyChannel, uri_of, uris_of
from penstock.columns.names import folded, free
from penstock.columns.parts import apart, table_name
from penstock.errors import Invalid, NotFound
from penstock.record import TIME_MAX, TIME_MIN, Moment
from penstock.record.archive import Archive
from penstock.tables.delta.places import Place
from penstock.tables.lake import duck, memory
from penstock.tables.lake.cut import Missing, Sources, StreamCut, take
from penstock.tables.lake.names import StreamNames
from penstock.tables.lake.snapshots import Snapshots
from penstock.tables.lake.syntax import Query, parse
from penstock.tables.options import Span
from penstock.util.extras import explain_missing
from penstock.util.files.storage import where
from penstock.util.strict import Strict
from penstock.util.units import interval, seconds

if TYPE_CHECKING:
    import polars
    from duckdb import DuckDBPyConnection

log = logging.getLogger("penstock")
Where = str | os.PathLike[str]


class Cut(Mapping[str, StreamCut]):
    """Some streams at one instant. Made by `Lake.cut`. Any number of queries sees the same rows; what memory had is kept with it. Any thread.

    A mapping of channels to what there is of each.
    """

    def __init__(self, streams: Mapping[str, StreamCut], names: StreamNames, engine: duck.Engine) -> None:
        self._streams, self._names, self._engine = streams, names, engine

    def __getitem__(self, stream: AnyChannel) -> StreamCut:
        return self._streams[uri_of(stream)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._streams)

    def __len__(self) -> int:
        return len(self._streams)

    def __repr__(self) -> str:
        return f"<Cut {', '.join(self._streams)}>"

    @property
    def missing(self) -> list[Missing]:
        """The messages that are missing, since memory had let go of them."""
        return [one for stream in self._streams.values() for one in stream.missing]

    def reader(
        self,
        stream: AnyChannel,
        *,
        columns: Sequence[str] | None = None,
        since: Moment = TIME_MIN,
        until: Moment = TIME_MAX,
    ) -> pa.RecordBatchReader:
        """The rows of a stream as an Arrow stream, for every library that takes one (the PyCapsule interface).

        columns: only these, in this order. since, until: only rows sent in between, both inclusive; written as for `Archive.scan`. Parts
        without such rows are not read. Rows of a table, of recordings and of memory follow each other; within each, positions rise in a file
        and in a range.
        """
        found = self._streams[self.find(stream)]
        if columns is not None:
            columns = list(texts(columns, "columns", "names of columns"))
            if unknown := sorted(set(columns) - set(found.schema.names)):
                raise NotFound(f"{found.stream} has no column {unknown[0]}; it has {', '.join(found.schema.names)}")
        first, last = interval(since, until)
        times, condition = pc.field("timestamp_ns"), None
        if first > TIME_MIN:
            condition = times >= first
        if last < TIME_MAX:
            condition = times <= last if condition is None else condition & (times <= last)
        reader: pa.RecordBatchReader = found.dataset().scanner(columns, condition).to_reader()
        return reader

    def polars(self, stream: AnyChannel) -> polars.LazyFrame:
        """A stream as a lazy frame of Polars: columns and conditions are pushed down."""
        with explain_missing("a frame of Polars"):
            import polars
        return polars.scan_pyarrow_dataset(self._streams[self.find(stream)].dataset())

    def duckdb(self) -> DuckDBPyConnection:
        """A connection of DuckDB of its own, in which each stream is a view: `select * from "log:imu"`, log_imu, or imu."""
        connection = duck.connect()
        for stream in self:
            self._define(connection, stream)
        return connection

    def sql(self, query: str) -> pa.Table:
        """The rows of a query in DuckDB's SQL. `Invalid` for what is not one query, `NotFound` for a stream that is not in the cut."""
        return self._ask(_parsed(self._engine, query))

    def _ask(self, query: Query) -> pa.Table:
        views = {name: self.find(name) for name in query.tables}
        joins = {}
        for name, call in query.aligned.items():
            joins[name], used = self._joined(call.stream, call.others, call.tolerance)
            views |= used
        return self._run(query.sql, views, joins)

    def align(self, stream: AnyChannel, others: Sequence[AnyChannel], *, tolerance: Span | None = None) -> pa.Table:
        """The rows of a stream, each with the last row of other streams that was sent before it or at the same time (an as-of join).

        others: each is a column: a struct of that stream's columns, named as its channel without the kind, as robot_imu; null where there was none.
        tolerance: null as well if that row was sent longer before than this: seconds, a timedelta, or a text such as "20ms". Of rows of one
        nanosecond, any is taken.
        """
        return self._run(*self._joined(stream, texts(uris_of(others), "others", "streams"), tolerance))

    def _joined(
        self, stream: AnyChannel, others: Sequence[AnyChannel], tolerance: Span | None
    ) -> tuple[str, dict[str, str]]:
        """The query of `align`, and its views."""
        base, used, views = self.find(stream), set[str](), dict[str, tuple[str, Sequence[str]]]()
        streams = {table_name(base): base}
        if tolerance is not None:
            tolerance = seconds(tolerance, "tolerance")
        used.update(map(folded, self[base].schema.names))
        for other in map(self.find, others):
            views[free(other.partition(":")[2], used)] = table_name(other), self[other].schema.names
            streams[table_name(other)] = other
        query = duck.align_sql(table_name(base), views, None if tolerance is None else round(tolerance * 1e9))
        return query, streams

    def _run(self, query: str, views: Mapping[str, str], joins: Mapping[str, str] | None = None) -> pa.Table:
        """views: name in the query → stream. joins: name in the query → query over views."""
        views = apart(views)
        with self._engine.session() as connection:
            for name, stream in views.items():
                self._define(connection, stream, [name])
            try:
                for name, join in (joins or {}).items():
                    connection.execute(f"create temp view {duck.quoted(name)} as {join}")
                found = connection.sql(query)
                duck.check_types(found)
                return found.to_arrow_table()
            except Exception as error:
                raise duck.failed(error) from error

    def find(self, name: AnyChannel) -> str:
        """The stream of a name. `NotFound` for one that is not in the cut."""
        exact = uri_of(name)
        found = (
            exact if exact in self._names.streams else StreamNames(self._streams).find(name) or self._names.find(name)
        )
        if found is None or found not in self._streams:
            raise NotFound(f"this cut has no stream {name}{StreamNames(self._streams).like(name)}")
        return found

    def _define(self, connection: DuckDBPyConnection, stream: str, names: Sequence[str] | None = None) -> None:
        duck.define(connection, self._streams[stream], self._names.of(stream) if names is None else names)


def _parsed(engine: duck.Engine, query: str) -> Query:
    with engine.session() as connection:
        return parse(connection, query)


class Lake(Strict):
    """Streams of shared memory, of an archive and of tables, as one. Made by `penstock.lake`. Any thread; no channel is open between two calls."""

    def __init__(
        self,
        tables: Where | None = None,
        archive: Where | Archive | None = None,
        *,
        live: bool = True,
        strict: bool = False,
    ) -> None:
        self._live, self._strict = flag(live, "live"), flag(strict, "strict")
        if tables is None and archive is None and not live:
            raise Invalid("a lake needs tables, an archive, or live=True: without any of them it has no stream")
        if not (archive is None or isinstance(archive, Archive)):
            archive = Archive(where(archive, "the archive").uri, create=False)
        self._engine = duck.Engine()
        self._sources = Sources(None if tables is None else Snapshots(Place.of(tables)), archive)

    def __repr__(self) -> str:
        places = [] if self._sources.snapshots is None else [f"tables={str(self._sources.snapshots.place)!r}"]
        places += [] if self._sources.archive is None else [f"archive={str(self._sources.archive.path)!r}"]
        return f"Lake({', '.join([*places, f'live={self._live}'])})"

    def tables(self) -> dict[str, tuple[str, ...]]:
        """The streams that there are: channel → where, in some of `tables`, `archive` and `memory`."""
        found: dict[str, list[str]] = {}
        for place, streams in (
            ("tables", self._in_tables()),
            ("archive", self._recorded()),
            ("memory", self._live_now()),
        ):
            for stream in streams:
                found.setdefault(stream, []).append(place)
        return {stream: tuple(places) for stream, places in sorted(found.items())}

    def cut(self, *streams: AnyChannel) -> Cut:
        """Some streams as they are now; all that have columns, if none is named. `NotFound` for one that there is not."""
        every = StreamNames(self.tables())
        if streams:
            return self._cut([self._find(every, stream) for stream in streams], every)
        return self._cut(every.streams, every, skip=True)

    def sql(self, query: str) -> pa.Table:
        """The rows of a query in DuckDB's SQL, over the streams that it names as they are now.

        A stream is named by its channel in quotes, by its table's name, or by the channel without its kind: 'log:imu', log_imu, imu.
        Messages that are missing are logged; with `strict` they are `Busy`.
        """
        asked = _parsed(self._engine, query)
        return self.told(self.cut_named(asked.streams()))._ask(asked)

    def cut_of(self, query: str) -> Cut:
        """The streams that a query names, as they are now. `Invalid` for what is not one query."""
        return self.cut_named(_parsed(self._engine, query).streams())

    def cut_named(self, names: Sequence[str]) -> Cut:
        """The streams of these names, as they are now; none, if there is no name. For engines that find the names of a query themselves."""
        if not names:
            return Cut({}, StreamNames(()), self._engine)
        if all(":" in name for name in names) and (found := self._exact(names)) is not None:
            return found
        return self.cut(*names)

    def reader(
        self,
        stream: AnyChannel,
        *,
        columns: Sequence[str] | None = None,
        since: Moment = TIME_MIN,
        until: Moment = TIME_MAX,
    ) -> pa.RecordBatchReader:
        """The rows of a stream as it is now; see `Cut.reader`."""
        return self.told(self.cut(stream)).reader(stream, columns=columns, since=since, until=until)

    def polars(self, stream: AnyChannel) -> polars.LazyFrame:
        """A stream as it is now, as a lazy frame of Polars."""
        return self.told(self.cut(stream)).polars(stream)

    def align(self, stream: AnyChannel, others: Sequence[AnyChannel], *, tolerance: Span | None = None) -> pa.Table:
        """The rows of a stream, each with the last row of other streams before it; see `Cut.align`."""
        named = texts(uris_of(others), "others", "streams")
        return self.told(self.cut(stream, *named)).align(stream, named, tolerance=tolerance)

    def duckdb(self) -> DuckDBPyConnection:
        """All streams as they are now, as views of a connection of DuckDB."""
        return self.told(self.cut()).duckdb()

    @staticmethod
    def told(cut: Cut) -> Cut:
        """A cut, after what it lacks is in the log."""
        for one in cut.missing:
            log.warning("%s", one)
        return cut

    # ---- which streams there are ----

    def _in_tables(self) -> list[str]:
        return [] if self._sources.snapshots is None else self._sources.snapshots.streams()

    def _recorded(self) -> set[str]:
        return set() if self._sources.archive is None else self._sources.archive.channels()

    def _live_now(self) -> list[str]:
        return memory.streams() if self._live else []

    @staticmethod
    def _find(every: StreamNames, name: AnyChannel) -> str:
        found = every.find(name)
        if found is None:
            raise NotFound(f"there is no stream {name}{every.like(name)}")
        return found

    def _missing(self, stream: str, names: StreamNames) -> NotFound:
        if stream in self._recorded():
            return NotFound(f"{stream} has no rows: its recordings have no message")
        return NotFound(f"there is no stream {stream}{names.like(stream)}")

    def _exact(self, channels: Sequence[str]) -> Cut | None:
        """Streams that are named by their channels need no list of all. None if one is not there under this name."""
        try:
            return self._cut(channels, StreamNames(channels))
        except (NotFound, Invalid):
            return None

    def _cut(self, streams: Sequence[str], names: StreamNames, *, skip: bool = False) -> Cut:
        """skip: leaves out streams without columns, and those that are gone by now."""
        looks = {stream: looks_at(channel_of(stream)) if self._live else [] for stream in streams}
        made: dict[str, StreamCut] = {}
        for stream, cut in take(self._sources, looks, self._strict).items():
            if isinstance(cut, StreamCut):
                made[stream] = cut
            elif not skip:
                raise cut or self._missing(stream, names)
        return Cut(made, names, self._engine)


__all__ = ["Cut", "Lake"]
