"""`penstock.Archive`: a folder of recordings with a catalog. Record, list, read, replay, follow, verify, repair.

The one class for users; each job has its own module.
"""

from __future__ import annotations

import builtins
import datetime
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from penstock import codecs
from penstock.channels.checks import callback, flag, more_than_zero, whole
from penstock.channels.uri.channel import FAKE
from penstock.channels.uri.channel import named as uri_text
from penstock.channels.uri.registry import kind_names
from penstock.channels.uri.value import AnyChannel, AnyChannels, several, shaping_of
from penstock.channels.uri.wildcards import is_pattern
from penstock.errors import Invalid
from penstock.record.format.archive_folder import IDENTITY
from penstock.record.format.remote_archive import RemoteArchive, verify_remote
from penstock.record.format.types import Recorder
from penstock.record.keep import consumers as consumer_files
from penstock.record.keep import purge_guard, truncate
from penstock.record.keep import push as pushing
from penstock.record.keep import repair as repairing
from penstock.record.keep import replicate as copying
from penstock.record.keep import verify as verification
from penstock.record.keep.change import Repair
from penstock.record.keep.consumers import Consumer
from penstock.record.keep.push import Pushed
from penstock.record.read.archive_reader import ArchiveReader
from penstock.record.read.scan import FOR_EVER
from penstock.record.write import append as appending
from penstock.record.write import record_options, retention
from penstock.record.write import snapshot as snapshots
from penstock.record.write.append import RECORDING_LENGTH, Appended
from penstock.record.write.connector import Channels
from penstock.record.write.opener import Wanted, WriterOpener, any_subscription
from penstock.record.write.pattern_watch import PatternWatch, open_named
from penstock.record.write.recorder import SEGMENT_LENGTH, ThreadRecorder
from penstock.record.write.retention import Expired, Limits, Retention
from penstock.record.write.snapshot import Snapshot, Snapshotter, SnapshotWish
from penstock.record.write.writer import PendingWriter, RecordingWriter, no_new_writers
from penstock.util import units
from penstock.util.clock import Clock
from penstock.util.files.durable import own_errors
from penstock.util.files.storage import local, text_of, where

if TYPE_CHECKING:
    from penstock.record.serve.server import Server


class Archive(ArchiveReader):
    """A folder of recordings: record, list, scan, replay, follow, verify, repair.

    Made if it does not exist, unless `create=False`: then `NotFound`. Safe to open from several processes and threads at once.
    `recording` arguments are a recording's id, or a channel's URI, which means its newest recording.
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True, clock: Clock | None = None) -> None:
        path = text_of(path, "the archive")
        word = path.partition(":")[0]
        if word in (FAKE, *kind_names()) and not os.path.exists(path):
            raise Invalid(f"{path} is a channel: give an archive's folder (./{path} if it has that name)")
        super().__init__(path, connector=Channels(), create=create, clock=clock)
        self._opener = WriterOpener(self._files, self._lister, self._connector, self._clock)

    # ---- writing ----

    @own_errors
    def record(
        self,
        channels: AnyChannels,
        *,
        start: str | int = "newest",
        process: bool = False,
        extend: bool = False,
        sync_interval: float = 1.0,
        segment_length: int = SEGMENT_LENGTH,
        drop_after: float | None = None,
        pixels: bool | str = True,
        when_slow: str | None = None,
        sent: bool = False,
        max_bytes: int | str | None = None,
        max_age: float | str | datetime.timedelta | None = None,
    ) -> Recorder:
        """Records channels from `start` on until the recorder is stopped, in a thread or in a child process.

        channels: URIs, and patterns as ``robot/*``, ``log:*`` or ``*``, which also take channels that appear later, each from its first
        message if its kind keeps messages.
        extend: continue the newest recording of the same channel where it ended, with a gap if the channel no longer keeps the next messages.
        A channel without a recording begins at `start`, which is a word then.
        sync_interval: seconds between two syncs, each of which makes everything recorded durable. drop_after: lose messages rather than make the
        channel's writers wait longer than this; losses are recorded as gaps. pixels: of frames channels, record the
        frames as they are (True or "raw"), encoded ("zstd", "png", "jpeg", with a level or a quality as "zstd:9", "png:6", "jpeg:80"; in
        threads, and a frame for which they have no room is lost and counted), or only their notes (False). when_slow: "wait" makes the publications of frames channels wait for this recorder, and
        "skip" makes none wait; by default, publications that wait for any subscription wait. sent: on udp channels, record the publications of this machine, instead of
        the received sessions; each publication gets a recording. A channel without a publication gets its recording with the first one.

        max_bytes, max_age: retain about this many bytes of these channels, and no recording whose newest message is older; as
        in `expire`. The recorder then divides its recordings at a part of that limit, without gaps.
        """
        self._writable()
        self._files.check_writable()
        limits = _limits(max_bytes, max_age)
        names = record_options.check_names(channels := several(channels))
        start = record_options.check_start(start, names, extend)
        record_options.check_options(
            names, drop_after, when_slow, process=process, extend=extend, pixels=pixels, sent=sent
        )
        segment_length = whole(segment_length, "segment_length", 1 << 16, FOR_EVER)
        self._connector.check_agreement(channels)
        more_than_zero(sync_interval, "sync_interval")
        if process:
            options = {
                "start": start,
                "extend": extend,
                "sync_interval": sync_interval,
                "segment_length": segment_length,
                "drop_after": drop_after,
                "pixels": pixels,
                "when_slow": when_slow,
                "sent": sent,
                "max_bytes": limits.bytes,
                "max_age": None if limits.age_ns is None else limits.age_ns / 1e9,
            }
            return self._connector.record_in_process(self.path, names, options)
        made: list[RecordingWriter | PendingWriter] = []
        named = [name for name in names if not is_pattern(name)]

        def opened(
            name: str, start: str | int, wanted: Wanted = any_subscription
        ) -> RecordingWriter | PendingWriter | None:
            return self._opener.open(
                name, start, extend, segment_length, drop_after, pixels, sent, when_slow, wanted=wanted
            )

        try:
            new_writers, awaited = no_new_writers, open_named(named, made, lambda name: opened(name, start))
            if patterns := [name for name in names if is_pattern(name) or name in awaited]:
                new_writers = PatternWatch(
                    self._connector.discover(patterns), made, start, opened, self._connector.identity
                )
                made += new_writers()
            return ThreadRecorder(
                [writer for writer in made if isinstance(writer, RecordingWriter)],
                self.catalog,
                sync_interval=sync_interval,
                clock=self._clock,
                waiting=[writer for writer in made if isinstance(writer, PendingWriter)],
                new_writers=new_writers,
                retention=self._retention(limits),
            ).start()
        except BaseException:
            for writer in made:
                writer.release()
            raise

    @own_errors
    def snapshot(
        self,
        channels: AnyChannels,
        *,
        before: float | str | datetime.timedelta,
        after: float | str | datetime.timedelta = 0,
        note: str = "",
        trigger: str = "call",
        drop_after: float | None = None,
        pixels: bool = True,
    ) -> Snapshot:
        """Writes what shared memory still has of channels as recordings, and what is sent until `after` later. No program of them need live.

        channels: URIs and patterns. before, after: seconds, a timedelta, or a text as "30s". A channel that has less than `before` in memory
        is written with what it has: the result's `short` names it. note, trigger: texts for the recordings' descriptions. drop_after, pixels:
        as of `record`; by default, living writers wait for the snapshot as for any recorder.

        `NotFound` if no channel matches, `Busy` if a recorder writes one of them into this archive, `SystemFailure` if there is no room: then
        nothing of it is in the archive. Blocks for `after` seconds.
        """
        time_ns = self._clock.now_ns()
        wish = snapshots.check_wish(channels := several(channels), before, after, note, trigger, drop_after, pixels)
        self._connector.check_agreement(channels, create=False)
        return self._take_snapshot(wish, time_ns)

    @own_errors
    def _take_snapshot(self, wish: SnapshotWish, time_ns: int, end_ns: Callable[[], int] | None = None) -> Snapshot:
        """The same for a black box: around an earlier moment, and as long as `end_ns()` is in the future."""
        self._writable()
        self._files.check_writable()
        taker = Snapshotter(self._files, self._lister, self._opener, self._connector, self._clock)
        return taker.take(wish, time_ns, end_ns)

    def _retention(self, limits: Limits) -> Retention | None:
        if limits == Limits():
            return None
        return Retention(self._files, self._lister, self._opener, self._clock, limits)

    @own_errors
    def append(
        self,
        channel: AnyChannel,
        messages: Iterable[Any],
        *,
        codec: Any = None,
        encoded: bool = False,
        times_ns: Iterable[int] | None = None,
        batch: tuple[str, int] | None = None,
        recording_length: int = RECORDING_LENGTH,
    ) -> Appended:
        """Appends messages to a recording that programs write, without a live channel. All of them are in it, durably, or none.

        channel: the channel of the messages for readers; `log:NAME`. codec: as of `publish`; encoded: messages are bytes that this codec
        has encoded. times_ns: when each was sent; now by default. batch: a writer's name and its number for these messages, which only
        rises: a batch that was appended before is not appended again. A new recording begins once one has `recording_length` bytes.
        Waits while another program appends to this archive.
        """
        self._writable()
        self._files.check_writable()
        flag(encoded, "encoded")
        length = whole(recording_length, "recording_length", 1, FOR_EVER)
        shaping = shaping_of(channel) or {}
        if codec is not None and "codec" in shaping:
            raise TypeError(f"{channel} was given as a value: give codec to the value")
        how = codecs.resolve(shaping.get("codec", codec))
        given = appending.as_messages(uri_text(channel), how, messages, times_ns, encoded=encoded)
        return appending.append(self._files, self._connector, self._clock, given, appending.check_batch(batch), length)

    # ---- keeping ----

    @own_errors
    def push(
        self,
        target: str,
        *,
        recording: int | AnyChannel | None = None,
        replace: bool = False,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> builtins.list[Pushed]:
        """Copies the sealed segments of all recordings, or of one, to an object storage such as s3://BUCKET/FOLDER.

        An archive there is opened by `Archive("s3://BUCKET/FOLDER")`. A second push copies only new segments. Each copy is read back and
        compared. Nothing is deleted, here or there; with `replace`, objects there of a recording that was cut back here since. Each
        result has the error of its recording, if there was one: the others continue. Credentials come from the environment.
        """
        self._writable()
        callback(progress, "progress")
        flag(replace, "replace")
        place = where(target, "the target", to_write=True)
        if place.is_local:
            raise Invalid(f"{target} is not an object storage: name one such as s3://BUCKET/FOLDER")
        self._files.identity()
        pushing.identify((self.path / IDENTITY).read_bytes(), place)
        folders = self.folders() if recording is None else [self._lister.locate(recording)]
        return pushing.push(folders, place, replace=replace, progress=progress or (lambda what, done, count: None))

    @own_errors
    def replicate(
        self,
        target: str | os.PathLike[str],
        *,
        recording: int | AnyChannel | None = None,
        replace: bool = False,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> builtins.list[Pushed]:
        """Copies all recordings of this archive, or one, into an archive in a folder of this machine, wherever this one is.

        A second call copies only what is new, and live recordings as far as they go: those have the state `partial` there. Each block is compared
        with its checksum. The copy has the name of this archive. Nothing is deleted, here or there; with `replace`, what was cut back or repaired
        here since. Each result has the error of its recording, if there was one: the others continue.
        """
        callback(progress, "progress")
        flag(replace, "replace")
        folder = local(target, "the target")
        folders = self.folders() if recording is None else [self._lister.locate(recording)]
        there = copying.opened(self._files, folder)
        return copying.replicate(folders, there, replace=replace, progress=progress or (lambda what, done, count: None))

    @own_errors
    def serve(
        self,
        listen: str = "127.0.0.1:4860",
        *,
        tls: tuple[str, str] | None = None,
        token_file: str | os.PathLike[str] | None = None,
        insecure: bool = False,
    ) -> Server:
        """Serves the archive over Arrow Flight to other processes and machines, which can only read it, until the result is closed.

        `penstock.Archive(server.uri)` is the archive there. listen: HOST:PORT; port 0 takes a free one. tls: the files of a
        certificate and of its key. token_file: a file with a token that clients must have; only its owner may read it. An address that
        other machines can reach needs both, unless `insecure`. The server works in threads of its own; any thread may close it.
        """
        from penstock.record.serve.server import Server

        return Server(self, listen, tls=tls, token_file=token_file, insecure=flag(insecure, "insecure"))

    @own_errors
    def verify(self, recording: int | AnyChannel | None = None) -> builtins.list[verification.Damage]:
        """Checks every byte of the recordings, or of one, and returns each damage. Also compares the catalog's rows with the recordings.
        Readers leave damaged blocks out as gaps, so only this call can show that there are none.

        An empty list: no byte has changed, and nothing durable is missing. `NotFound` if there never was such a
        recording.
        """
        if isinstance(self._files, RemoteArchive):
            folders = self.folders() if recording is None else [self._lister.locate(recording)]
            return [verification.Damage(*found) for folder in folders for found in verify_remote(folder)]
        return verification.verify(self._files, self._lister.number(recording))

    @own_errors
    def repair(self, recording: int | AnyChannel | None = None) -> builtins.list[Repair]:
        """Writes damage down: a damaged block becomes a gap of its recording, which keeps all other messages. Rebuilds the catalog.

        Nothing is deleted, and no sound segment is moved. Damaged blocks stay in their files, and replaced indexes are kept in
        the recording's folder `damaged`. Files that a repair of an earlier version moved there are restored where they fit. Files and folders that
        are not recordings move into the archive's. Live recordings are not changed.
        """
        self._writable()
        number = self._lister.number(recording)
        if number is not None:
            self._lister.locate(number)
        mended = [] if number is not None else purge_guard.mend(self._files)
        return [Repair(path, "written again: a checksum was wrong") for path in mended] + repairing.repair(
            self._files, number
        )

    @own_errors
    def truncate(self, recording: int | AnyChannel, position: int, *, force: bool = False) -> int:
        """Cuts a recording that is not being written at the last block or gap that ends at or before `position`; returns its new end.

        It is closed afterwards. The rest is deleted. `Busy` if a consumer has yet to read it, unless forced.
        """
        self._writable()
        flag(force, "force")
        whole(position, "position", 0, FOR_EVER)
        folder = self._lister.locate(recording)
        if not force:
            purge_guard.check_read(self.path, folder, position)
        return truncate.truncate(self._files, folder, position)

    @own_errors
    def purge(self, recording: int | AnyChannel, *, force: bool = False) -> None:
        """Deletes a recording that is not being written. `Busy` if a consumer has yet to read a part of it, unless forced."""
        self._writable()
        flag(force, "force")
        retention.purge(self._files, int(self._lister.locate(recording).path.name), force=force)

    @own_errors
    def expire(
        self,
        channels: AnyChannels = "*",
        *,
        max_bytes: int | str | None = None,
        max_age: float | str | datetime.timedelta | None = None,
        force: bool = False,
    ) -> Expired:
        """Deletes the oldest recordings of some channels until they hold at most `max_bytes` bytes together, and those whose newest message is
        older than `max_age`.

        channels: URIs and patterns. max_bytes: a number, or a text as "20GB". max_age: seconds, a timedelta, or a text as "7d". A recording
        that a consumer has yet to read is kept unless forced, and one that is being written always is: the result names them in `kept`.
        """
        self._writable()
        flag(force, "force")
        limits, wanted = _limits(max_bytes, max_age), self.channels(channels)
        if limits == Limits():
            raise Invalid("nothing would be deleted: give max_bytes or max_age")
        return retention.expire(
            self._files, self._lister, limits, self._clock.now_ns(), wanted.__contains__, force=force
        )

    @own_errors
    def consumers(self) -> builtins.list[Consumer]:
        """The queries that read this archive step by step, and their progress."""
        return [] if isinstance(self._files, RemoteArchive) else consumer_files.read(self.path)

    @own_errors
    def note_consumer(self, consumer: Consumer) -> None:
        """Writes a query's progress durably. `purge` and `truncate` keep unread messages."""
        self._writable()
        if not isinstance(consumer, Consumer):
            raise Invalid(f"consumer is {consumer!r}: it must be a penstock.record.Consumer")
        consumer_files.write(self.path, consumer)

    @own_errors
    def forget_consumer(self, name: str) -> None:
        """Removes a consumer that no longer exists, so that nothing is kept for it. `NotFound` if no consumer has that name."""
        self._writable()
        consumer_files.forget(self.path, name)


def _limits(max_bytes: int | str | None, max_age: float | str | datetime.timedelta | None) -> Limits:
    return Limits(
        None if max_bytes is None else units.size(max_bytes, "max_bytes"),
        None if max_age is None else int(units.seconds(max_age, "max_age") * 1e9),
    )
