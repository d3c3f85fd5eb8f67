"""The messages of a channel that no recording has yet, copied from memory. Knows channels; knows no recording and no table."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from penstock.channels.storage.discovery import listing
from penstock.channels.storage.looking import ChannelLook, Copied
from penstock.errors import PenstockError

COMMIT_S = 0.02  # a claim that is not committed by then is one that lasts, or a dead publication's
REPAIR_S = 0.1  # and the living fill a dead one's by then
PAUSE_S = 0.001


def streams() -> list[str]:
    """The channels of this machine whose messages can be looked at."""
    found = listing(["*", "fake:*"])[0]
    return [str(one) for one in found if one.kind.has_looks]


def copy(look: ChannelLook, start: int, end: int, most: int) -> Copied:
    """The messages that begin in positions [start, end), where messages begin; up to a claim that stays open, since readers do not get further
    either. most: the end of memory, where the last of them may end."""
    found = _settled(look, start, end)
    if end < most and found.resume < end:
        found = _settled(look, start, most)
        found = found._replace(
            batches=[batch.filter(pc.less(batch.column("position"), end)) for batch in found.batches]
        )
    return found


def only(found: Copied, start: int, also: Collection[int]) -> list[pa.RecordBatch]:
    """The messages that begin at `start` or later, or at one of some positions."""
    kept = []
    for batch in found.batches:
        position = batch.column("position")
        wanted = pc.or_(pc.greater_equal(position, start), pc.is_in(position, pa.array(sorted(also), pa.int64())))
        kept.append(batch.filter(wanted))
    return kept


def _settled(look: ChannelLook, start: int, end: int) -> Copied:
    begun, is_repaired = time.monotonic(), False
    while True:
        found = look.copy(start, end)
        spent = time.monotonic() - begun
        if found.end >= end or spent >= COMMIT_S + REPAIR_S:
            return found
        if spent >= COMMIT_S and not is_repaired:
            if not look.has_claims:
                return found
            is_repaired = True
            _repair(look, found.end)
        time.sleep(PAUSE_S)


def _repair(look: ChannelLook, position: int) -> None:
    """Lets a subscription meet the open claim: it fills the claim of a dead publication. With a full channel others do, if they wait."""
    with contextlib.suppress(PenstockError), look.channel.kind.subscribe(look.channel, start=position) as subscription:
        subscription.recv(timeout=REPAIR_S / 2)
