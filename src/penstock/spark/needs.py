"""Parts of an archive that tables lack, as ranges to read: a range that several tables lack is read once for all of them.

Knows plans and ledgers' intervals; reads no message.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock import columns
from penstock.record import Range, ReadPlanner, intervals
from penstock.spark.ledger import Interval, Key

Have = dict[Key, list[Interval]]


def has_columns(codec: dict[str, object]) -> bool:
    """Whether messages of a codec have columns of their own, and so a table."""
    return columns.is_open(codec) or len(columns.schema(codec)) > 0


def plan(survey: ReadPlanner, have: Mapping[str, Have], range_bytes: int) -> list[tuple[Range, tuple[str, ...]]]:
    """(range, the tables that lack it), each position once per table. have: what each table holds; "stream" stands for the
    tables of decoded columns, which streams of plain bytes do not have."""
    have = _filled(survey, have)
    names = tuple(have)
    keys = {key for held in have.values() for key in held}
    anywhere = {key: normal([part for held in have.values() for part in held.get(key, [])]) for key in keys}
    found = [(one, names) for one in survey.plan(done=anywhere, range_bytes=range_bytes)]
    fresh: Have = {}
    for planned, _ in found:
        fresh.setdefault((planned.channel, planned.epoch), []).append((planned.start, planned.end))
    full = _joined(anywhere, fresh)
    groups: list[tuple[Have, list[str]]] = []
    for name, held in have.items():
        then = _joined(held, fresh)
        alike = next((group for known, group in groups if known == then), None)
        if alike is not None:
            alike.append(name)
        elif then != full:
            groups.append((then, [name]))
    for then, group in groups:
        found += [(planned, tuple(group)) for planned in survey.plan(done=then, range_bytes=range_bytes)]
    wanted = [(planned, _without_columns(planned, tables)) for planned, tables in found]
    # In the order of one run for all, since new keys get their columns' names in the order in which they come.
    order = {one.info.id: number for number, one in enumerate(survey.recordings)}
    wanted.sort(key=lambda pair: (order[pair[0].recording], pair[0].start))
    return [(planned, tables) for planned, tables in wanted if tables]


def _filled(survey: ReadPlanner, have: Mapping[str, Have]) -> dict[str, Have]:
    """The positions that each table holds. Of streams that have no table of their own, it is what *messages* holds: so nothing lacks by itself."""
    found = {name: {key: normal(value) for key, value in held.items() if value} for name, held in have.items()}
    if "stream" in found:
        for one in survey.recordings:
            key = (one.info.channel, one.info.epoch)
            if not has_columns(one.info.codec):
                found["stream"].pop(key, None)
                if key in found["messages"]:
                    found["stream"][key] = found["messages"][key]
    return found


def held_by_all(survey: ReadPlanner, have: Mapping[str, Have]) -> Have:
    """The positions that every table holds, as `plan` takes `have`."""
    first, *others = _filled(survey, have).values()
    for held in others:
        first = {key: intervals.common(value, held.get(key, [])) for key, value in first.items()}
    return first


def _without_columns(one: Range, names: tuple[str, ...]) -> tuple[str, ...]:
    return names if has_columns(one.codec) else tuple(name for name in names if name != "stream")


def _joined(held: Have, fresh: Have) -> Have:
    return {key: normal([*held.get(key, []), *fresh.get(key, [])]) for key in held.keys() | fresh.keys()}


def normal(intervals: list[Interval]) -> list[Interval]:
    """Intervals in order, those that touch as one."""
    found: list[Interval] = []
    for low, high in sorted(intervals):
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return found
