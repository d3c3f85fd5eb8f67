"""A room in which streams are queried while everything happens to them, beside an oracle that saw every send.

A step changes where rows are: a recorder begins or ends, the pipeline commits, files are joined. Then a query must give what it gave before. Or it
sends, cuts, erases: then the oracle says what the query must give.
"""

import contextlib
import json
import time

import msgspec
import pyarrow as pa

import penstock
import penstock.tables
from penstock.channels.storage.looking import look_at
from penstock.channels.uri.opener import parse
from penstock.tables.schemas import signed

URI = "log:room"
CAPACITY = 65536  # memory has three terms of it
MOVES = ("recording", "recorded_ns", "ingested_at")  # columns that say where a row was read


class Room:
    """One stream. `sent`: (epoch, end position) → message, for each message that was sent."""

    def __init__(self, folder, rng):
        self.folder, self.rng = folder, rng
        self.archive = penstock.Archive(folder / "archive")
        self.lake = penstock.lake(folder / "tables", self.archive)
        self.sent, self.spans, self.erased, self.number, self.queries = {}, {}, 0, 0, 0
        self.cuts, self.recorder = [], None
        self.held = contextlib.ExitStack()
        self._open()

    def _open(self):
        self.publication = penstock.publish(URI, codec="json", capacity=CAPACITY)
        self.epoch = signed(look_at(parse(URI)).epoch)

    def close(self):
        self.stop()
        self.publication.close()

    # ---- steps that send ----

    def send(self):
        """Some messages: alike, with values that fit no column, with new keys, and longer than a frame."""
        for _ in range(self.rng.choice((1, 3, 50, 400))):
            message = {"i": self.number, "v": self.number % 7 / 2}
            kind = self.rng.random()
            if kind < 0.02:
                message["v"] = "odd"
            elif kind < 0.04:
                message["s"] = f"text {self.number}"
            elif kind < 0.05:
                message["long"] = "x" * self.rng.choice((9_000, 17_000, 40_000))
            start = begin_of(self.publication.position, len(msgspec.json.encode(message)))
            end = self.publication.send(message, timeout=60)
            self.sent[self.epoch, start, end] = message
            self.number += 1

    @property
    def has_table(self):
        """Whether a commit has been made."""
        return (self.folder / "tables" / "streams").exists()

    def renew(self):
        """The channel is made anew: its positions begin again in another epoch."""
        self.stop()
        self.publication.close()
        penstock.remove(URI)
        self._open()

    # ---- steps that move rows ----

    def record(self):
        """A recorder begins, where the channel is now."""
        if self.recorder is None:
            self.recorder = self.held.enter_context(self.archive.record(URI))

    def stop(self):
        """And ends."""
        if self.recorder is not None:
            self.held.close()
            self.recorder = None

    def commit(self):
        """The pipeline brings the table up to date."""
        if self.archive.list():
            penstock.tables.run(self.archive.path, self.folder / "tables")

    def join(self):
        """Small files become one."""
        if self.has_table:
            penstock.tables.optimize(self.folder / "tables")

    def purge(self):
        """What the tables have goes from the archive."""
        self.stop()
        self.commit()
        self._note_recordings()
        for info in self.archive.list():
            self.archive.purge(info.id)

    # ---- steps that take rows away ----

    def cut(self):
        """The newest recording is cut back somewhere; the table does not know it yet."""
        self.stop()
        found = [info for info in self.archive.list() if info.messages]
        if found:
            position = self.rng.randrange(found[-1].start_position, found[-1].end_position + 1)
            end = self.archive.truncate(found[-1].id, position, force=True)
            self.cuts.append((signed(found[-1].epoch), end))

    def erase(self):
        """All that was sent so far is erased from the tables."""
        self.commit()
        with contextlib.suppress(penstock.NotFound):  # the tables have nothing of it
            penstock.tables.erase(self.folder / "tables", URI, until=time.time_ns())
            self.erased = self.number

    # ---- what a query must give ----

    def query(self):
        """The rows, by (epoch, position), and what is missing."""
        self.queries += 1
        cut = self.lake.cut(URI)
        found = cut.reader(URI).read_all()
        return found.sort_by([("epoch", "ascending"), ("position", "ascending")]), cut.missing

    def check(self):
        """Each row once; none that was not sent; none missing of what was recorded, or is in memory behind that."""
        found, missing = self.query()
        keys = list(zip(found["epoch"].to_pylist(), found["position"].to_pylist(), strict=True))
        assert len(set(keys)) == len(keys)
        rows = dict(zip(found["i"].to_pylist() if "i" in found.column_names else [], found.to_pylist(), strict=True))
        assert len(rows) == len(keys)
        expected = self.expected(missing)
        wanted, may = {message["i"] for message in expected}, self.cut_through()
        assert wanted - may <= set(rows) <= wanted | may, (set(rows) ^ wanted, missing)
        for message in expected:
            if message["i"] in rows:
                self.compare(rows[message["i"]], message)
        return found

    def expected(self, missing):
        """By the recordings' own positions, and what the query says is missing."""
        self._note_recordings()
        oldest = look_at(parse(URI)).oldest()
        found = []
        for (epoch, start, end), message in self.sent.items():
            recorded = any(epoch == one and low <= start and end <= high for one, low, high in self.spans.values())
            lost = any(signed(one.epoch) == epoch and start < one.end and end > one.start for one in missing)
            alive = epoch == self.epoch and start >= oldest and not lost
            if (recorded or alive) and message["i"] >= self.erased:
                found.append(message)
        return found

    def cut_through(self):
        """Messages that begin in front of a cut and end behind it: a table that has read them keeps them."""
        return {
            message["i"]
            for (epoch, start, end), message in self.sent.items()
            if any(epoch == one and start < at < end for one, at in self.cuts)
        }

    def _note_recordings(self):
        """Those that are purged later stay noted: the tables have them."""
        for info in self.archive.list():
            self.spans[info.id] = signed(info.epoch), info.start_position, info.end_position

    @staticmethod
    def compare(row, message):
        """A row and the message that it must be."""
        assert row["decode_error"] is None
        rescued = {} if row["_rescued"] is None else json.loads(row["_rescued"])
        for key, value in message.items():
            got = row.get(key)
            assert (rescued[key] if got is None else got) == value


def begin_of(tail, length):
    """Where a message begins that is sent when the tail is there: its first frame does not straddle two terms."""
    need, left = -(-(min(length, CAPACITY // 4 - 32) + 32) // 32) * 32, CAPACITY - tail % CAPACITY
    return tail if need <= left else tail + left


def unmoved(table):
    """A query's answer without the columns that say where its rows were read."""
    return table.select([name for name in table.column_names if name not in MOVES])


def same(one, other):
    """Whether two answers are one: rows in their order, and columns, of which a new one may be null everywhere."""
    names = [*one.column_names, *(name for name in other.column_names if name not in one.column_names)]
    return [_column(one, name) for name in names] == [_column(other, name) for name in names]


def _column(table, name):
    return table[name].to_pylist() if name in table.column_names else pa.nulls(table.num_rows).to_pylist()
