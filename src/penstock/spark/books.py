"""The ledgers of all tables of a folder, and what streams' messages look like: keys, columns, and how files follow when these grow."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from penstock import columns
from penstock.codecs import bare
from penstock.errors import Corrupt, PenstockError
from penstock.record import Range
from penstock.spark import tasks as work
from penstock.spark.ledger import OURS, Ledger, Row, key_of
from penstock.spark.needs import Have, has_columns
from penstock.spark.tables import stream_folder
from penstock.tables.delta_files import same_type
from penstock.tables.places import Place

SAMPLE = 2000
WHOLE = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
Do = Callable[[str, list[Row]], list[Row]]


class Books:
    """The ledgers by name; those of decoded columns by channel.

    The ledger of *messages* has the keys of all streams. damaged: gets a line for each stream whose table cannot be read or written:
    such a table is left out, and all others are brought up to date.
    """

    def __init__(self, place: Place, names: tuple[str, ...], damaged: list[str]) -> None:
        self.place, self.names, self.damaged = place, names, damaged
        schemas = {"raw": work.RAW, "messages": work.MESSAGES}
        self._of = {name: Ledger(place / name, schema) for name, schema in schemas.items() if name in names}
        for ledger in self._of.values():
            ledger.begin()
        self._streams: dict[str, Ledger] = {}
        self._left_out: set[str] = set()
        self._folders = self["messages"].folders
        for channel in self._folders if "streams" in names else ():
            self._open(channel)

    def __getitem__(self, name: str) -> Ledger:
        return self._of[name]

    def all(self) -> Iterator[Ledger]:
        """All that are open. *messages* comes before the tables of decoded columns: they are made from its rows."""
        yield from self.recorded()

    def recorded(self) -> list[Ledger]:
        """Those whose rows come from recordings."""
        return [*self._of.values(), *self._streams.values()]

    def stream(self, channel: str) -> Ledger:
        """The ledger of a stream's own table."""
        if channel not in self._folders:
            self._folders[channel] = stream_folder(channel)
            self["messages"].changed()
            self._open(channel)
        return self._streams[channel]

    def _open(self, channel: str) -> None:
        try:
            ledger = self._streams[channel] = Ledger(self.place / self._folders[channel], None, name=channel)
            if ledger.table is None:
                ledger.cuts = list(self["messages"].cuts)
        except PenstockError as error:
            self._leave_out(channel, str(error))

    def _leave_out(self, channel: str, error: str) -> None:
        self.damaged.append(f"the table of {channel}: {error}")
        self._left_out.add(channel)

    def drop(self, ledger: Ledger) -> None:
        """A table that cannot be brought up to date now: the next run tries again. `Corrupt` for a table that all others need."""
        if ledger.name is None:
            raise Corrupt(self.damaged.pop())
        self._streams.pop(ledger.name, None)
        self._left_out.add(ledger.name)

    def left_out(self) -> bool:
        """Whether there are tables that cannot be brought up to date now."""
        return bool(self._left_out)

    def have(self) -> dict[str, Have]:
        """The positions that the tables hold, as `needs.plan` takes it."""
        found = {name: ledger.intervals() for name, ledger in self._of.items()}
        if "streams" in self.names:
            held: Have = {}
            for ledger in self._streams.values():
                held |= ledger.intervals()
            for channel in self._left_out:  # nothing can be added to it
                held |= {key: value for key, value in found["messages"].items() if key[0] == channel}
            found["stream"] = held
        return found

    def places(self, channel: str, names: tuple[str, ...]) -> dict[str, str]:
        """The folders of a task's tables."""
        found = {name: str(self[name].place) for name in names if name != "stream"}
        if "stream" in names and channel not in self._left_out:
            found["stream"] = str(self.stream(channel).place)
        return found

    # ---- what messages look like ----

    def begin(self, one: Range) -> None:
        """The keys of a stream's first messages, to begin with. Empty if they cannot be read: then the range's task says so."""
        key = stream_key(one.channel, one.codec)
        if columns.is_open(one.codec) and key not in self["messages"].keys:
            try:
                batch = next(one.scan(["payload"], batch_rows=SAMPLE), None)
            except PenstockError:
                batch = None
            found = () if batch is None else columns.learn(one.codec, (), batch.column("payload"))
            self["messages"].keys[key] = columns.keys_to_json(found)

    def learn(self, one: Range, more: list[Any]) -> None:
        """Keys that a task found."""
        key, keys = stream_key(one.channel, one.codec), self["messages"].keys
        joined = columns.merged(one.codec, columns.keys_from_json(keys[key]), columns.keys_from_json(more))
        keys[key] = columns.keys_to_json(joined)

    def wanted(self, one: Range) -> Row:
        """Keys and columns, for a range's task."""
        found: Row = {"keys": self["messages"].keys.get(stream_key(one.channel, one.codec), [])}
        if "streams" in self.names and has_columns(one.codec) and one.channel not in self._left_out:
            ledger = self.stream(one.channel)
            if one.codec not in ledger.codecs:
                ledger.codecs.append(one.codec)
            found["columns"] = work.pack(self._columns(ledger))
        return found

    def is_stale(self, one: Range, given: Row) -> bool:
        """Whether a task wrote with types that are not its stream's any more."""
        now = self.wanted(one)
        there, then = (columns.keys_from_json(row["keys"]) for row in (given, now))
        if _retyped(there, then):
            return True
        return "columns" in given and _differ(work.unpack(given["columns"]), work.unpack(now["columns"]))

    def _columns(self, ledger: Ledger) -> pa.Schema:
        """The columns of a stream's own table: of all its codecs, each with a type that holds the values of all."""
        types: dict[str, pa.DataType] = {}
        spelled: dict[str, str] = {}
        about: dict[str, Any] = {}
        for codec in ledger.codecs:
            keys = self["messages"].keys.get(stream_key(ledger.name or "", codec), [])
            for field in columns.schema(codec, columns.keys_from_json(keys)):
                if pa.types.is_null(field.type):
                    continue
                name = spelled.setdefault(field.name.lower(), field.name)
                types[name] = common(types[name], field.type) if name in types else field.type
                about.setdefault(name, dict(field.metadata or {}))
        made = [pa.field(name, kind, metadata=about[name]) for name, kind in types.items()]
        return pa.schema([*work.STREAM, *made])

    # ---- commits ----

    def exchange(self, name: str, answers: list[Row]) -> None:
        """Files that were written again in place of others."""
        self[name].exchange(answers)

    def commit(self, ledger: Ledger, schema: pa.Schema | None = None) -> bool:
        """Commits one table. An error of a stream's own table leaves that table out; the next run tries again."""
        if ledger.name is None:
            return ledger.commit(schema=schema)
        try:
            return ledger.commit(schema=schema)
        except PenstockError as error:
            self.drop(ledger)
            self.damaged.append(f"the table of {ledger.name}: {error}")
            return False

    def commit_all(self, do: Do) -> None:
        """Commits what is new, *messages* before the tables that are made from its rows. Files follow if keys grew."""
        if "raw" in self._of:
            self.commit(self["raw"])
        self._check(do)
        self.commit(self["messages"])
        for ledger in list(self._streams.values()):
            self._conform(ledger, do)

    def mend(self, do: Do) -> None:
        """Brings tables of decoded columns to the keys that *messages* has: a run may have been killed between two commits."""
        for ledger in list(self._streams.values()):
            self._conform(ledger, do)

    def _check(self, do: Do) -> None:
        """Rows of *messages* are decoded again where types have grown: their errors may be others now."""
        messages, todo = self["messages"], list[Row]()
        for key, keys in messages.keys.items():
            if key in messages.checked and _retyped(*map(columns.keys_from_json, (messages.checked[key], keys))):
                about = {"kind": "check", "place": str(messages.place), "keys": keys}
                todo += [
                    {**about, "stream": row["channel"], "entry": row}
                    for path, row in messages.files.items()
                    if path not in messages.fresh() and stream_key(row["channel"], row["codec"]) == key
                ]
        messages.exchange(do("amending", todo))
        if messages.checked != messages.keys:
            messages.changed()

    def _conform(self, ledger: Ledger, do: Do) -> None:
        """Commits a stream's own table. Where a column has another type now, all its files are written again with it."""
        wanted = self._columns(ledger)
        schema = None
        if ledger.table is None:
            schema = wanted
        elif _differ(ledger.table.schema, wanted):
            schema = wanted
            entries = [row for path, row in ledger.files.items() if path not in ledger.fresh()]
            answers = do("amending", [self._retype(ledger, entry, wanted) for entry in entries])
            if any("error" in answer for answer in answers):
                self.drop(ledger)
                return
            ledger.exchange(answers)
        elif set(wanted.names) - set(ledger.table.schema.names):
            schema = wanted
        if ledger.is_changed() or (schema is not None and ledger.table is not None):
            self.commit(ledger, schema)

    def _retype(self, ledger: Ledger, entry: Row, wanted: pa.Schema) -> Row:
        messages = self["messages"]
        paths = [
            row["path"]
            for row in messages.files.values()
            if key_of(row) == key_of(entry) and row["start"] < entry["end"] and row["end"] > entry["start"]
        ]
        return {
            "kind": "retype",
            "stream": entry["channel"],
            "place": str(ledger.place),
            "entry": entry,
            "messages": str(messages.place),
            "paths": paths,
            "keys": messages.keys.get(stream_key(entry["channel"], entry["codec"]), []),
            "columns": work.pack(wanted),
        }

    # ---- files that no table has ----

    def delete_files(self, answer: Row) -> None:
        """Deletes what a task wrote that is of no use."""
        for name, file in answer["files"].items():
            if file:
                place = answer["given"]["places"][name]
                Place.of(place).delete(file[0])

    def sweep(self, retain: float) -> int:
        """Deletes files of the pipeline's that no table has: those that were replaced, and those of runs that were killed, once they are
        older than `retain` seconds. How many. Names that the pipeline does not give are left alone."""
        count = 0
        for ledger in self.all():
            replaced, now = {path for path, _ in ledger.old}, time.time()
            for info in ledger.place.list():
                name = info.base_name
                ours = OURS.fullmatch(name.partition(".parquet")[0] + ".parquet")
                if ours and info.is_file and name not in ledger.files and name not in replaced:
                    age = now - info.mtime.timestamp() if info.mtime else 0
                    count += age >= retain and ledger.place.delete(name)
        return count + self.sweep_replaced(retain)

    def sweep_replaced(self, retain: float) -> int:
        """Deletes files that were replaced `retain` seconds ago."""
        count, now = 0, time.time()
        for ledger in self.all():
            gone = [row for row in ledger.old if now >= row[1] + retain]
            if gone:
                count += sum(ledger.place.delete(path) for path, _ in gone)
                ledger.old = [row for row in ledger.old if row not in gone]
                ledger.changed()
                self.commit(ledger)
        return count


def stream_key(channel: str, codec: Row) -> str:
    """The name under which the keys of a stream's messages are kept: a stream may have several codecs one after the other."""
    return f"{channel}|{json.dumps(bare(codec), sort_keys=True)}"


def common(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The type that holds every value of both exactly; text if there is none."""
    if one == other:
        return one
    pair = {one, other}
    if pair <= set(WHOLE):
        return max(pair, key=WHOLE.index)
    if pair <= {*WHOLE[:2], pa.float32()}:
        return pa.float32()
    if pair <= {*WHOLE[:3], pa.float32(), pa.float64()}:
        return pa.float64()
    if pair <= {*WHOLE, pa.decimal128(20, 0), pa.decimal128(38, 0)}:
        return pa.decimal128(38, 0)
    return pa.string()


def _retyped(before: columns.Keys, now: columns.Keys) -> bool:
    """Whether a column that had a type has another."""
    types = {key.label: key.type for key in now}
    return any(not pa.types.is_null(key.type) and types.get(key.label) != key.type for key in before)


def _differ(before: pa.Schema, now: pa.Schema) -> bool:
    """Whether a column that both have has another type."""
    return any(f.name in now.names and not same_type(f.type, now.field(f.name).type) for f in before)


__all__ = ["Books", "Corrupt", "common", "stream_key"]
