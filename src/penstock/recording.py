"""Recordings, for programs that name their types or read them in parts: what `penstock.Archive` gives, and how a plan divides it.

A public door: everything here is documented to users. Archives themselves are opened by `penstock.Archive`.
"""

from penstock.moments import Moment, nanoseconds
from penstock.record import intervals
from penstock.record.append import Appended
from penstock.record.consumers import Consumer
from penstock.record.cuts import Cut
from penstock.record.merging import Merged, merged
from penstock.record.plan import Lost, Survey, plan, subtract, told_by
from penstock.record.playing import Played
from penstock.record.process import ProcessRecorder
from penstock.record.push import Pushed
from penstock.record.ranges import Range
from penstock.record.recorder import ThreadRecorder
from penstock.record.repair import Repair
from penstock.record.retention import Expired
from penstock.record.scan import COLUMNS, TIME_MAX, TIME_MIN, Scanner
from penstock.record.types import Progress, Recorded, Recorder, RecordingInfo, Recordings
from penstock.record.verify import Damage
from penstock.record.watch import Watch

__all__ = [
    "COLUMNS",
    "TIME_MAX",
    "TIME_MIN",
    "Appended",
    "Consumer",
    "Cut",
    "Damage",
    "Expired",
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
    "intervals",
    "merged",
    "nanoseconds",
    "plan",
    "subtract",
    "told_by",
]
