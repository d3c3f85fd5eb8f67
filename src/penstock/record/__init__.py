"""Recordings, for programs that name their types or read them in parts: what `penstock.Archive` gives, and how a plan divides it.

A public door: everything here is documented to users. Archives themselves are opened by `penstock.Archive`.
"""

from penstock.record.format import intervals
from penstock.record.format.cuts import Cut
from penstock.record.format.types import Progress, Recorded, Recorder, RecordingInfo, Recordings
from penstock.record.keep.consumers import Consumer
from penstock.record.keep.push import Pushed
from penstock.record.keep.repair import Repair
from penstock.record.keep.verify import Damage
from penstock.record.read.merging import Merged, merged
from penstock.record.read.plan import Lost, Survey, plan, subtract, told_by
from penstock.record.read.playing import Played
from penstock.record.read.ranges import Range
from penstock.record.read.scan import COLUMNS, TIME_MAX, TIME_MIN, LeftOut, Scanner, described
from penstock.record.read.watch import Watch
from penstock.record.write.append import Appended
from penstock.record.write.process import ProcessRecorder
from penstock.record.write.recorder import ThreadRecorder
from penstock.record.write.retention import Expired
from penstock.util.moments import Moment, nanoseconds

__all__ = [
    "COLUMNS",
    "TIME_MAX",
    "TIME_MIN",
    "Appended",
    "Consumer",
    "Cut",
    "Damage",
    "Expired",
    "LeftOut",
    "Lost",
    "Merged",
    "Moment",
    "Played",
    "ProcessRecorder",
    "Progress",
    "Pushed",
    "Range",
    "Recorded",
    "Recorder",
    "RecordingInfo",
    "Recordings",
    "Repair",
    "Scanner",
    "Survey",
    "ThreadRecorder",
    "Watch",
    "described",
    "intervals",
    "merged",
    "nanoseconds",
    "plan",
    "subtract",
    "told_by",
]
