"""The writers of the data source `penstock`: rows become messages on a channel, or in an archive. Each batch of a query goes out once.

Tasks stage encoded messages in files. The driver's commit publishes them through an outbox, or appends them to the archive.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.errors import Invalid, NotFound
from penstock.record.archive import Archive
from penstock.record.write.outbox import Outbox, check_target
from penstock.spark.source import staging
from penstock.spark.source.staging import Encoding
from penstock.util.files.storage import local

SHARED = ("channel", "archive", "path", "codec", "timeColumn", "timeout", "whenUnknown", "outbox")
BATCH = (*SHARED, "txnAppId", "txnVersion")
STREAMING = (*SHARED, "checkpointLocation")
FOLDER = "outbox"  # in a query's checkpoint
STAGED = ".staged"  # in an archive
POLICIES = ("fail", "resend", "skip")


@dataclass(frozen=True)
class Target:
    """Where rows go. archive: None for a channel. outbox: the folder of staged files, which all machines share; "" for one of this
    machine's own."""

    channel: str
    archive: str | None
    codec: str | None
    time: str | None
    timeout: float | None
    when_unknown: str
    outbox: str
    transaction: tuple[str, int] | None = None

    @classmethod
    def of(cls, options: Mapping[str, str], *, streaming: bool, overwrite: bool) -> Target:
        """From the options of a writer. `Invalid` names the option that is wrong."""
        given = {name.lower(): value for name, value in options.items()}
        names = STREAMING if streaming else BATCH
        unknown = sorted(set(given) - {name.lower() for name in names})
        if unknown:
            raise Invalid(f"there is no option {', '.join(unknown)} for writing; there are {', '.join(names)}")
        if overwrite:
            raise Invalid("messages can only be added: write with mode append")
        if not given.get("channel"):
            raise Invalid('name the channel, as .option("channel", "log:out")')
        if "archive" in given and "path" in given:
            raise Invalid("archive and path are the same option: leave one of them out")
        archive = given.get("archive", given.get("path"))
        channel = given["channel"]
        if archive is None:
            check_target(channel)
            if "timecolumn" in given:
                raise Invalid(
                    "timeColumn is for archives: messages on a channel have the time at which they are published"
                )
        else:
            archive = str(local(archive, "the archive"))
        policy = given.get("whenunknown", "fail").strip().lower()
        if policy not in POLICIES:
            raise Invalid(f"whenUnknown is {given['whenunknown']!r}: it must be {', '.join(POLICIES)}")
        return cls(
            channel,
            archive,
            given.get("codec"),
            given.get("timecolumn"),
            _seconds(given.get("timeout")),
            policy,
            _outbox(given, archive, streaming),
            _transaction(given, archive),
        )

    def folder(self, key: str) -> Path:
        """The folder of staged files: of a query, or of a single write."""
        return Path(self.outbox) / key

    def put(self, key: str, number: int, parts: list[str], encoding: Encoding, *, numbered: bool = True) -> None:
        """Publishes or appends a batch, unless that was done. key: the query's name."""
        folder = self.folder(key)
        missing = [name for name in parts if not (folder / name).exists()]
        if missing:
            raise NotFound(
                f"a task wrote {folder / missing[0]}, and the driver does not find it. Set outbox to a folder that all machines share"
            )
        if self.archive is None:
            box = Outbox(
                folder,
                self.channel,
                codec=encoding.codec,
                timeout=self.timeout,
                when_unknown=self.when_unknown,
            )
            box.put(number, parts, staging.bodies)
            return
        paths = [str(folder / name) for name in parts]
        Archive(self.archive).append(
            self.channel,
            (body for path in paths for body in staging.bodies(path)),
            codec=encoding.codec,
            encoded=True,
            times_ns=None if self.time is None else staging.times_ns(paths),
            batch=(key, number) if numbered else None,
        )
        for path in paths:
            os.unlink(path)


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    if not re.fullmatch(r"\s*[0-9]{1,9}(\.[0-9]{1,9})?\s*", text):
        raise Invalid(f"timeout is {text!r}: it must be seconds, as 2.5")
    return float(text)


def _outbox(given: Mapping[str, str], archive: str | None, streaming: bool) -> str:
    if "outbox" in given:
        return str(local(given["outbox"], "outbox"))
    if archive is not None:
        return str(Path(archive) / STAGED)
    if not streaming:
        return "" if "txnappid" not in given else _needs_outbox("a write with txnAppId")
    checkpoint = given.get("checkpointlocation")
    if checkpoint is None or re.match(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]*:/", checkpoint):
        return _needs_outbox("a query whose option checkpointLocation is no folder of this machine")
    return str(local(checkpoint, "checkpointLocation") / FOLDER)


def _needs_outbox(what: str) -> str:
    raise Invalid(f"{what} needs the option outbox: a folder that says which batches were published")


def _transaction(given: Mapping[str, str], archive: str | None) -> tuple[str, int] | None:
    name, version = given.get("txnappid"), given.get("txnversion")
    if name is None and version is None:
        return None
    if name is None or version is None or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise Invalid(
            "txnAppId and txnVersion go together: a name of letters, digits, '.', '_' and '-', and a number that rises"
        )
    if not re.fullmatch(r"[0-9]{1,18}", version):
        raise Invalid(f"txnVersion is {version!r}: it must be a whole number from 0")
    return name, int(version)


def columns_of(schema: StructType) -> dict[str, str]:
    """name → type of a DataFrame's columns. `Invalid` if two have one name."""
    found: dict[str, str] = {}
    for field in schema.fields:
        if field.name in found:
            raise Invalid(f"there are two columns {field.name}: give one of them another name")
        found[field.name] = field.dataType.simpleString()
    return found


@dataclass
class Staged(WriterCommitMessage):
    """The result of a task. name: of its file; None if it had no rows. query: the key of the file's folder."""

    name: str | None
    query: str
    partition: int
    messages: int


def _names(messages: list[WriterCommitMessage | None]) -> list[str]:
    """The files of a batch, in the order of its partitions."""
    found = sorted((one for one in messages if isinstance(one, Staged)), key=lambda one: one.partition)
    return [one.name for one in found if one.name is not None]


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a query, each once. Its methods run in tasks (`write`) and beside the driver."""

    def __init__(self, target: Target, encoding: Encoding) -> None:
        self.target, self.encoding = target, encoding

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stages one partition's messages."""
        context = TaskContext.get()
        assert context is not None
        query, batch = (context.getLocalProperty(f) for f in ("sql.streaming.queryId", "streaming.sql.batchId"))
        return self.stage(iterator, str(query), int(batch or 0), context.partitionId())

    def stage(self, iterator: Iterator[pa.RecordBatch], query: str, batch: int, partition: int) -> Staged:
        """Stages messages of a query's batch."""
        name = f"{batch}-{partition:05d}-{secrets.token_hex(6)}.arrow"
        durable = self.target.archive is None  # an outbox goes on with these files after a crash
        count = staging.write(self.target.folder(query) / name, iterator, self.encoding, durable=durable)
        return Staged(name if count else None, query, partition, count)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """All tasks of a batch are done. A batch that Spark repeats is recognised."""
        query = next((one.query for one in messages if isinstance(one, Staged)), None)
        if query is None:
            return  # there were no tasks: there are no rows
        self.target.put(query, batchId, _names(messages), self.encoding)
        folder = self.target.folder(query)
        for path in folder.glob("*.arrow"):  # of attempts that failed, and of drivers that were killed
            if int(path.name.partition("-")[0]) <= batchId:
                path.unlink(missing_ok=True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """A task failed. Spark also calls it for a batch whose commit failed, which goes on with its files: they stay."""


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame once. With txnAppId and txnVersion, a write that is repeated is recognised."""

    def __init__(self, target: Target, encoding: Encoding) -> None:
        self.target, self.encoding = target, encoding
        self.is_own = not target.outbox
        if self.is_own:
            self.target = Target(**{**target.__dict__, "outbox": tempfile.gettempdir()})
        transaction = target.transaction
        self.key = f"penstock-write-{secrets.token_hex(8)}" if transaction is None else transaction[0]
        self.number = 0 if transaction is None else transaction[1]

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stages one partition's messages."""
        context = TaskContext.get()
        assert context is not None
        name = f"{self.number}-{context.partitionId():05d}-{secrets.token_hex(6)}.arrow"
        durable = self.target.transaction is not None and self.target.archive is None
        count = staging.write(self.target.folder(self.key) / name, iterator, self.encoding, durable=durable)
        return Staged(name if count else None, self.key, context.partitionId(), count)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks are done."""
        try:
            self.target.put(
                self.key,
                self.number,
                _names(messages),
                self.encoding,
                numbered=self.target.transaction is not None,
            )
        finally:
            self._clean()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task, or the commit, failed."""
        self._clean()

    def _clean(self) -> None:
        """Removes what a write without a transaction staged: nothing continues it."""
        if self.target.transaction is None:
            shutil.rmtree(self.target.folder(self.key), ignore_errors=True)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """The writer of a query. `Invalid` for options, or columns, that make no messages."""
    target = Target.of(options, streaming=True, overwrite=overwrite)
    return StreamWriter(target, Encoding.of(columns_of(schema), target.codec, target.time))


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """The writer of a DataFrame. `Invalid` for options, or columns, that make no messages."""
    target = Target.of(options, streaming=False, overwrite=overwrite)
    return BatchWriter(target, Encoding.of(columns_of(schema), target.codec, target.time))
