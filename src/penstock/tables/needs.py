"""Parts of an archive that tables lack, as ranges to read: a range that both tables lack is read once.

Knows plans and intervals; reads no message.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from penstock.columns.contract.declared import has_columns
from penstock.record import Range, ReadPlanner, intervals
from penstock.tables.folder import Have


def plan(survey: ReadPlanner, have: Mapping[str, Have], range_bytes: int) -> list[tuple[Range, tuple[str, ...]]]:
    """(range, the tables that lack it), each position once per table. have: what *messages* holds, and the streams' tables; streams
    of plain bytes only have no table of their own."""
    tabled = _with_table(survey, have)
    have = _fill_positions(survey, have, tabled)
    anywhere = _union_positions(*have.values())
    found = [(one, tuple(have)) for one in survey.plan(done=anywhere, range_bytes=range_bytes)]
    fresh: Have = {}
    for planned, _ in found:
        fresh.setdefault((planned.channel, planned.epoch), []).append((planned.start, planned.end))
    full = _union_positions(anywhere, fresh)
    for name, held in have.items():
        then = _union_positions(held, fresh)
        if then != full:
            found += [(planned, (name,)) for planned in survey.plan(done=then, range_bytes=range_bytes)]
    wanted = [
        (planned, names if planned.channel in tabled else tuple(name for name in names if name != "stream"))
        for planned, names in found
    ]
    # In the order of one run for all, since new keys get their columns' names in the order in which they arrive.
    order = {one.info.id: number for number, one in enumerate(survey.recordings)}
    wanted.sort(key=lambda pair: (order[pair[0].recording], pair[0].start))
    return [(planned, names) for planned, names in wanted if names]


def positions_of_all(survey: ReadPlanner, have: Mapping[str, Have]) -> Have:
    """The positions that every table holds."""
    first, *others = _fill_positions(survey, have, _with_table(survey, have)).values()
    for held in others:
        first = {key: intervals.common(value, held.get(key, [])) for key, value in first.items()}
    return first


def _with_table(survey: ReadPlanner, have: Mapping[str, Have]) -> set[str]:
    """The streams that have a table, or get one: any recording has columns."""
    there = {channel for channel, _ in have["stream"]}
    return there | {one.info.channel for one in survey.recordings if has_columns(one.info.codec)}


def _fill_positions(survey: ReadPlanner, have: Mapping[str, Have], tabled: Container[str]) -> dict[str, Have]:
    """The positions that each table holds. Of streams that have no table of their own, it is what *messages* holds."""
    found = {name: {key: value for key, value in held.items() if value} for name, held in have.items()}
    for one in survey.recordings:
        key = (one.info.channel, one.info.epoch)
        if one.info.channel not in tabled:
            found["stream"].pop(key, None)
            if key in found["messages"]:
                found["stream"][key] = found["messages"][key]
    return found


def _union_positions(*many: Have) -> Have:
    return {key: intervals.union(*(held.get(key, []) for held in many)) for key in set().union(*many)}
