"""Bugs planted into archives, recorders and the catalog, one for each class of fault that was found there."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evidence.planting import Planted

ARCHIVES = "tests/record/test_archives.py"
CATALOG = "tests/record/test_catalog.py"
PROCESS = "tests/record/test_record_process.py"
DAMAGE = "tests/record/test_damage.py"
CALLS = "tests/record/test_archive_calls.py"


def _archives_keep_a_relative_path() -> None:
    Path.absolute = lambda self: self  # type: ignore[method-assign]


def _a_lock_goes_by_closing_only() -> None:
    from penstock.record.format import folder

    folder._unlock_and_close = os.close


def _repair_writes_every_row() -> None:
    from penstock.record.format.catalog import Catalog

    def revise(self: Any, before: Any, wanted: Any) -> None:
        if self.exists():
            self._write({**dict.fromkeys(self.rows()), **wanted}, 5.0)
        else:
            self._put_new(wanted)

    Catalog.revise = revise  # type: ignore[method-assign]


def _truncate_promises_as_before() -> None:
    from penstock.record.keep import truncate

    truncate._lower_catalog_row = lambda *_: None


def _extend_touches_before_it_locks() -> None:
    from penstock.record.keep import repair
    from penstock.record.write.opener import WriterOpener

    plain = WriterOpener._extension

    def extension(self: Any, info: Any, *options: Any) -> Any:
        with contextlib.suppress(ValueError):
            repair.close_crashed(self._files.folder(info.id))
        return plain(self, info, *options)

    WriterOpener._extension = extension  # type: ignore[method-assign]


def _a_refused_recorder_keeps_its_subscription() -> None:
    from penstock.record.write.writer import RecordingWriter

    plain = RecordingWriter.__init__

    def begin(self: Any, folder: Any, description: Any, subscription: Any, *rest: Any) -> None:
        class Agent:
            def __getattr__(self, name: str) -> Any:
                return (lambda: None) if name == "close" else getattr(subscription, name)

        try:
            plain(self, folder, description, Agent(), *rest)
        except BaseException:
            _kept.append(subscription)
            raise
        self.subscription = subscription

    RecordingWriter.__init__ = begin  # type: ignore[method-assign, assignment]


_kept: list[Any] = []


def _readers_skip_the_continuity_check() -> None:
    from penstock.record.read import archive_reader, scan

    class Loose(scan.Scanner):
        def __init__(self, segments: list[tuple[str, str]], *options: Any, **named: Any) -> None:
            super().__init__(segments, *options, **named)
            each = [scan.Scanner([segment], *options, **{**named, "begins": None}) for segment in segments]
            self._batches = itertools.chain.from_iterable(each)

        def __iter__(self) -> Iterator[Any]:
            return iter(self._batches)

        def __next__(self) -> Any:
            return next(self._batches)

    archive_reader.Scanner = Loose  # type: ignore[misc]


def _readers_do_not_look_where_a_recording_begins() -> None:
    from penstock.record.read import archive_reader
    from penstock.record.read.planning import needed_segments

    def segments_for(folder: Any, begins: int, start: int, end: int) -> Any:
        return needed_segments.Needed([(str(s.data), str(s.index)) for s in folder.segments() if s.base < end], None, 0)

    archive_reader.segments_for = needed_segments.segments_for = segments_for


def _readers_do_not_look_where_a_recording_ends() -> None:
    from penstock.record.format import coverage
    from penstock.record.read.planning import needed_segments

    coverage.cut_short = needed_segments.cut_short = lambda *_: ""


def _repair_gives_up_what_follows_damage() -> None:
    from penstock.record.keep import repair

    plain = repair.as_holes
    repair.as_holes = lambda entries, bad: plain(entries[: min(bad, default=len(entries))], [])


def _an_append_reads_its_messages_under_the_lock() -> None:
    from penstock.record.write import append

    class Lazy:
        def __init__(self, folder: Any, bodies: Any, times_ns: Any, clock: Any, channel: str) -> None:
            self._found = ((clock.now_ns(), body) for body in bodies)

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def __iter__(self) -> Any:
            return self._found

    append.Spool = Lazy  # type: ignore[misc, assignment]


def _list_trusts_the_indexes() -> None:
    from penstock.record.format import coverage

    coverage.unfit = lambda segment, about, expected: ""
    coverage.cut_short = lambda *_: ""


def _the_recorder_waits_for_the_catalog() -> None:
    from penstock.record.write.recorder import ThreadRecorder

    def note(self: Any) -> None:
        with contextlib.suppress(Exception):
            self._notes._catalog.note({writer.description.id: writer.row for writer in self._writers}, wait=30)

    ThreadRecorder._note = note  # type: ignore[method-assign]


def _the_catalog_is_asked_and_not_the_folder() -> None:
    from penstock.record.read.planning.lister import Lister

    Lister._find_synced = lambda self, folder, about: self._files.catalog.rows()[about.id].synced_position  # type: ignore[method-assign]


def _an_unusable_catalog_stays() -> None:
    from penstock.record.format.catalog import Catalog

    Catalog.note = Catalog._write  # type: ignore[method-assign, assignment]


def _verify_leaves_the_catalog_out() -> None:
    from penstock.record.keep import verify

    verify._compare = lambda *_: []


def _verify_trusts_a_missing_folder() -> None:
    from penstock.record.keep import verify

    plain = verify.verify

    def trusting(archive: Any, recording: int | None) -> Any:
        there = recording is None or archive.folder(recording).path.is_dir()
        return plain(archive, recording) if there else []

    verify.verify = trusting


def _verify_trusts_the_segments_that_are_left() -> None:
    from penstock.record.keep import verify

    verify._verify_mark = lambda *_: []


def _one_bad_folder_hides_all() -> None:
    from penstock.record.read.planning.lister import Lister

    Lister._read_folder = Lister._info  # type: ignore[method-assign]


def _a_purge_goes_file_by_file() -> None:
    from penstock.record.format.archive_folder import ArchiveFolder

    ArchiveFolder.purge = lambda self, folder: shutil.rmtree(folder.path)  # type: ignore[method-assign]


def _numbers_are_given_twice() -> None:
    from penstock.record.format import archive_folder

    archive_folder.open_private = lambda path, flags: os.open(os.devnull, flags)


def _the_umask_decides() -> None:
    from penstock.record.format import archive_folder, folder

    def make_folder(path: Path) -> Path:
        path.mkdir(exist_ok=True)
        return path

    folder.make_folder = archive_folder.make_folder = make_folder


def _an_error_leaves_the_subscription_open() -> None:
    from penstock.record.write.recorder import ThreadRecorder

    ThreadRecorder._release_all = lambda self: None  # type: ignore[method-assign]


def _following_does_not_look_for_the_recorder() -> None:
    from penstock.record.read import follow

    follow.CHECK_SECONDS = 3600.0


def _a_recorder_believes_that_its_parent_lives() -> None:
    from penstock.record.write import process

    first = os.getppid()
    os.getppid = lambda: first
    process._all = weakref.WeakSet[Any]()
    process._all.add = lambda _: None  # type: ignore[method-assign]


def _a_dead_recorder_is_not_noticed() -> None:
    from penstock.record.write.process import ProcessRecorder

    ProcessRecorder._check_child = lambda self: None  # type: ignore[method-assign]


def _part(harm: str, which: str) -> str:
    return f"{ARCHIVES}::test_a_reader_never_gets_part_of_a_recording_in_silence[{harm}-{which}]"


BUGS: dict[str, Planted] = {
    "archives keep a relative path": Planted(
        _archives_keep_a_relative_path,
        (f"{CALLS}::test_a_recorder_continues_after_chdir",),
    ),
    "a lock goes by closing only": Planted(
        _a_lock_goes_by_closing_only,
        (f"{CALLS}::test_a_child_forked_under_a_folder_lock_blocks_nothing",),
    ),
    "a repair writes every row of the catalog": Planted(
        _repair_writes_every_row,
        (f"{CALLS}::test_a_repair_keeps_the_row_of_a_recorder_ending_meanwhile",),
    ),
    "a truncation cuts before the catalog promises less": Planted(
        _truncate_promises_as_before,
        (f"{CALLS}::test_a_killed_truncation_leaves_an_archive_that_verifies",),
    ),
    "extend touches a recording before it has the lock": Planted(
        _extend_touches_before_it_locks,
        (f"{ARCHIVES}::test_extending_beside_a_live_recorder_is_refused_first",),
    ),
    "extend touches a recording before it has the lock, simulated": Planted(_extend_touches_before_it_locks),
    "a recorder that cannot begin keeps its subscription": Planted(
        _a_refused_recorder_keeps_its_subscription,
        (f"{ARCHIVES}::test_a_track_that_cannot_begin_gives_everything_back",),
    ),
    "readers do not compare a segment with the one before": Planted(
        _readers_skip_the_continuity_check, (_part("both files of a segment", "middle"),)
    ),
    "readers do not look where a recording begins": Planted(
        _readers_do_not_look_where_a_recording_begins, (_part("both files of a segment", "first"),)
    ),
    "readers do not look where a recording ends": Planted(
        _readers_do_not_look_where_a_recording_ends, (_part("seal and last entry", "last"),)
    ),
    "repair gives up what follows damage": Planted(
        _repair_gives_up_what_follows_damage,
        (f"{DAMAGE}::test_repair_writes_the_gap_down_and_moves_no_sound_segment",),
    ),
    "an append reads its messages under the lock": Planted(
        _an_append_reads_its_messages_under_the_lock,
        (f"{DAMAGE}::test_an_append_reads_its_messages_before_it_locks",),
    ),
    "the list trusts the indexes": Planted(_list_trusts_the_indexes, (_part("all entries", "middle"),)),
    "the recorder waits for the catalog": Planted(
        _the_recorder_waits_for_the_catalog, (f"{CATALOG}::test_the_recorders_thread_never_touches_sqlite",)
    ),
    "the catalog is asked and not the folder": Planted(
        _the_catalog_is_asked_and_not_the_folder, (f"{CATALOG}::test_a_recorder_does_not_notice[locked]",)
    ),
    "an unusable catalog stays": Planted(
        _an_unusable_catalog_stays,
        (f"{CATALOG}::test_the_next_recorder_rebuilds_an_unusable_catalog[garbage]",),
    ),
    "verify leaves the catalog out": Planted(
        _verify_leaves_the_catalog_out,
        (f"{CATALOG}::test_verify_names_each_difference_of_catalog_and_folders",),
    ),
    "verify trusts a missing folder": Planted(
        _verify_trusts_a_missing_folder, (f"{ARCHIVES}::test_verify_names_what_is_gone",)
    ),
    "verify trusts the segments that are left": Planted(
        _verify_trusts_the_segments_that_are_left, (f"{ARCHIVES}::test_verify_names_what_is_gone",)
    ),
    "one bad folder hides all": Planted(
        _one_bad_folder_hides_all,
        (f"{ARCHIVES}::test_one_strange_thing_hides_no_other_recording[an empty folder]",),
    ),
    "a purge goes file by file": Planted(
        _a_purge_goes_file_by_file, (f"{ARCHIVES}::test_listing_beside_recording_and_purging_never_fails",)
    ),
    "numbers of recordings are given twice": Planted(
        _numbers_are_given_twice, (f"{ARCHIVES}::test_a_number_is_never_given_twice",)
    ),
    "the umask decides who may enter an archive": Planted(
        _the_umask_decides, (f"{ARCHIVES}::test_an_archive_is_its_owners_alone_whatever_the_umask",)
    ),
    "an error in the recorder leaves its subscription open": Planted(
        _an_error_leaves_the_subscription_open,
        (f"{ARCHIVES}::test_a_recorder_threads_error_is_reported_and_frees_writers",),
    ),
    "following does not look for the recorder": Planted(
        _following_does_not_look_for_the_recorder,
        (f"{ARCHIVES}::test_following_ends_with_the_recorder[stopped-False]",),
    ),
    "a recorder believes that its parent lives": Planted(
        _a_recorder_believes_that_its_parent_lives,
        (f"{PROCESS}::test_the_recorder_ends_with_its_parent_despite_a_child[9]",),
    ),
    "a parent does not notice that its recorder died": Planted(
        _a_dead_recorder_is_not_noticed, (f"{PROCESS}::test_the_parent_learns_at_once_that_its_recorder_was_killed",)
    ),
}
