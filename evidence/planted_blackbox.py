"""Bugs planted into snapshots, the black box and logs sized by time."""

from __future__ import annotations

from typing import Any

from evidence.planting import Planted

SNAPSHOT = "tests/watch/blackbox/test_snapshot.py"
KILLED = "tests/watch/blackbox/test_killed_programs.py"
TRIGGERS = "tests/watch/blackbox/test_triggers.py"
BOX = "tests/watch/blackbox/test_box.py"
CONFIG = "tests/watch/blackbox/test_config.py"
RETAIN = "tests/watch/blackbox/test_retain.py"


def _a_snapshot_begins_too_late() -> None:
    from penstock.record.write.past import Past

    plain = Past.skip_older

    def skip(self: Any, subscription: Any, first: int) -> int:
        self.since_ns += 2_000_000
        return plain(self, subscription, first)

    Past.skip_older = skip  # type: ignore[method-assign]


def _a_snapshot_begins_at_the_newest() -> None:
    from penstock.record.write.past import Past

    def join(self: Any, channel: Any, options: Any) -> Any:
        return channel.kind.tap(channel, start="newest", **options)

    Past.join = join  # type: ignore[method-assign]


def _a_shortage_is_not_told() -> None:
    from penstock.record.write.past import Past

    Past.is_short = lambda self, subscription: False  # type: ignore[method-assign]


def _a_failed_snapshot_stays() -> None:
    from penstock.record.write.snapshot import Snapshotter

    Snapshotter._undo = lambda self, recordings: None  # type: ignore[method-assign]


def _a_snapshot_is_taken_beside_a_recorder() -> None:
    from penstock.record.write.snapshot import Snapshotter

    Snapshotter._check_not_recorded = lambda self, there: None  # type: ignore[method-assign]


def _who_closes_has_died() -> None:
    from penstock.watch.blackbox import members

    plain = members.MemberWatch._look_at

    def look_at(self: Any, held: Any, ended: Any, *, first: bool = False) -> None:
        held.deaths = -1
        plain(self, held, ended, first=first)

    members.MemberWatch._look_at = look_at  # type: ignore[method-assign]


def _the_box_does_not_cool_down() -> None:
    from penstock.watch.blackbox.box import BlackBox

    plain = BlackBox._finish

    def finish(self: Any, running: Any) -> None:
        plain(self, running)
        self._quiet_until = 0.0

    BlackBox._finish = finish  # type: ignore[method-assign]


def _a_killed_snapshot_is_forgotten() -> None:
    from penstock.watch.blackbox import box

    box.find_unfinished = lambda archive: []


def _the_disk_is_not_bounded() -> None:
    from penstock.record.write import retention

    retention.expire = lambda *given, **named: retention.Expired((), ())


def _silence_is_told_again_and_again() -> None:
    from penstock.watch.blackbox.samples import Sampled

    plain = Sampled.sample

    def sample(self: Any, now: float, about: Any) -> str:
        self._is_wrong = False
        return plain(self, now, about)

    Sampled.sample = sample  # type: ignore[method-assign]


def _conditions_read_attributes() -> None:
    from penstock.watch.blackbox import expressions

    expressions._field = getattr


def _an_open_claim_ends_a_snapshot() -> None:
    from penstock.record.write import writer

    def record_rest(self: Any) -> None:
        while self.turn() > 0:
            pass

    writer.RecordingWriter.drain = record_rest  # type: ignore[method-assign]


def _a_term_is_half_as_long() -> None:
    from penstock.kinds.log import LogOptions

    plain: Any = LogOptions.term_bytes.fget  # type: ignore[attr-defined]
    LogOptions.term_bytes = property(  # type: ignore[assignment,method-assign]
        lambda self: plain(self) // 2 if self.retain is not None else plain(self)
    )


def _a_failed_command_leaves_its_folder() -> None:
    from penstock.record.format.archive_folder import ArchiveFolder

    ArchiveFolder.remove_made = lambda self: None  # type: ignore[method-assign]


def _mistakes_are_told_in_pythons_words() -> None:
    from penstock.watch.blackbox import toml_words

    toml_words.explain = lambda text, examples: text


def _a_fifo_is_read_as_configuration() -> None:
    from penstock.util.files import user_files

    user_files._check = lambda path, mode: None


def _longest_may_be_shorter_than_after() -> None:
    from penstock.util import units

    plain = units.seconds

    def seconds(value: Any, name: str, **options: Any) -> float:
        return 1e9 if name == "longest" else plain(value, name, **options)

    units.seconds = seconds  # type: ignore[assignment]


def _advice_forgets_memory_max() -> None:
    from penstock.kinds import log

    log.MEMORY_MAX = 1 << 40


BUGS: dict[str, Planted] = {
    "a failed command leaves its folder": Planted(
        _a_failed_command_leaves_its_folder, (f"{SNAPSHOT}::test_failed_command_leaves_no_new_archive",)
    ),
    "mistakes are told in Python's words": Planted(
        _mistakes_are_told_in_pythons_words, (f"{CONFIG}::test_mistake_is_told_with_its_place",)
    ),
    "a device is read as configuration": Planted(
        _a_fifo_is_read_as_configuration, (f"{CONFIG}::test_only_a_regular_file_is_a_configuration",)
    ),
    "longest may be shorter than after": Planted(
        _longest_may_be_shorter_than_after, (f"{CONFIG}::test_mistake_is_told_with_its_place",)
    ),
    "an advice forgets memory_max": Planted(
        _advice_forgets_memory_max, (f"{RETAIN}::test_advice_is_accepted_as_it_is",)
    ),
    "a snapshot begins too late": Planted(
        _a_snapshot_begins_too_late, (f"{SNAPSHOT}::test_snapshot_of_killed_programs", KILLED)
    ),
    "a snapshot begins at the newest message": Planted(
        _a_snapshot_begins_at_the_newest, (f"{SNAPSHOT}::test_snapshot_of_killed_programs",)
    ),
    "a snapshot does not tell what it lacks": Planted(
        _a_shortage_is_not_told, (f"{SNAPSHOT}::test_snapshot_tells_how_much_there_was",)
    ),
    "a failed snapshot stays in the archive": Planted(
        _a_failed_snapshot_stays, (f"{SNAPSHOT}::test_snapshot_without_room_leaves_nothing",)
    ),
    "a snapshot is taken beside a recorder": Planted(
        _a_snapshot_is_taken_beside_a_recorder, (f"{SNAPSHOT}::test_snapshot_beside_a_recorder_is_refused",)
    ),
    "a writer that closes counts as dead": Planted(
        _who_closes_has_died, (f"{BOX}::test_box_survives_channels_that_come_and_go", TRIGGERS)
    ),
    "the black box does not cool down": Planted(
        _the_box_does_not_cool_down, (f"{BOX}::test_cool_down_keeps_from_another_snapshot",)
    ),
    "the snapshot of a killed box is forgotten": Planted(
        _a_killed_snapshot_is_forgotten, (f"{BOX}::test_snapshot_of_a_killed_box_is_taken_again",)
    ),
    "the black box fills the disk": Planted(_the_disk_is_not_bounded, (f"{BOX}::test_disk_is_bounded_oldest_first",)),
    "silence is told again and again": Planted(
        _silence_is_told_again_and_again, (f"{TRIGGERS}::test_low_rate_waits_for_the_first_message", TRIGGERS)
    ),
    "a condition reads attributes": Planted(
        _conditions_read_attributes, (f"{CONFIG}::test_condition_on_a_field_that_is_not_there",)
    ),
    "an open claim ends a snapshot": Planted(
        _an_open_claim_ends_a_snapshot, (f"{SNAPSHOT}::test_snapshot_passes_claims_of_the_stopped",)
    ),
    "a log keeps half of the time": Planted(_a_term_is_half_as_long, (f"{RETAIN}::test_log_keeps_at_least_the_time",)),
}
