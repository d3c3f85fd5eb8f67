"""Recordings, for programs that name their types or read them in parts: the results of `penstock.Archive`, and the ranges of a plan.

A public door: everything here is documented to users. Archives themselves are opened by `penstock.Archive`.
"""

from penstock.record.format import intervals
from penstock.record.format.truncations import Truncation
from penstock.record.format.types import Progress, Recorded, Recorder, RecordingInfo, Recordings
from penstock.record.keep.change import Repair
from penstock.record.keep.consumers import Consumer
from penstock.record.keep.push import Pushed
from penstock.record.keep.verify import Damage
from penstock.record.read.archive_watch import ArchiveWatch
from penstock.record.read.late import latched
from penstock.record.read.merging import Merged, merged
from penstock.record.read.pace import Pace
from penstock.record.read.planning.plan import Lost, ReadPlanner, assign_losses, plan, subtract
from penstock.record.read.planning.ranges import Range
from penstock.record.read.player import Played
from penstock.record.read.scan import COLUMNS, TIME_MAX, TIME_MIN, LeftOut, Scanner, described
from penstock.record.write.append import Appended
from penstock.record.write.process import ProcessRecorder
from penstock.record.write.recorder import ThreadRecorder
from penstock.record.write.retention import Expired
from penstock.record.write.snapshot import Snapshot, SnapshotPart
from penstock.util.units import Moment, nanoseconds

__all__ = [
    "COLUMNS",
    "TIME_MAX",
    "TIME_MIN",
    "Appended",
    "ArchiveWatch",
    "Consumer",
    "Damage",
    "Expired",
    "LeftOut",
    "Lost",
    "Merged",
    "Moment",
    "Pace",
    "Played",
    "ProcessRecorder",
    "Progress",
    "Pushed",
    "Range",
    "ReadPlanner",
    "Recorded",
    "Recorder",
    "RecordingInfo",
    "Recordings",
    "Repair",
    "Scanner",
    "Snapshot",
    "SnapshotPart",
    "ThreadRecorder",
    "Truncation",
    "assign_losses",
    "described",
    "intervals",
    "latched",
    "merged",
    "nanoseconds",
    "plan",
    "subtract",
]
