"""Sets of positions as sorted, disjoint intervals [start, end). Knows numbers only; every function takes time linear in its arguments."""

from __future__ import annotations

from collections.abc import Iterable

Interval = tuple[int, int]


def union(*sets: Iterable[Interval]) -> list[Interval]:
    """The positions in any of them. The arguments need not be sorted or disjoint."""
    found: list[Interval] = []
    for low, high in sorted(interval for one in sets for interval in one if interval[0] < interval[1]):
        if found and low <= found[-1][1]:
            if high > found[-1][1]:
                found[-1] = found[-1][0], high
        else:
            found.append((low, high))
    return found


def without(one: list[Interval], other: list[Interval]) -> list[Interval]:
    """The positions in `one` that are not in `other`."""
    found: list[Interval] = []
    number = 0
    for low, high in one:
        at = low
        while number < len(other) and other[number][1] <= at:
            number += 1
        ahead = number
        while ahead < len(other) and other[ahead][0] < high:
            if other[ahead][0] > at:
                found.append((at, other[ahead][0]))
            at = max(at, other[ahead][1])
            ahead += 1
        if at < high:
            found.append((at, high))
    return found


def common(one: list[Interval], other: list[Interval]) -> list[Interval]:
    """The positions in both."""
    found: list[Interval] = []
    a = b = 0
    while a < len(one) and b < len(other):
        low, high = max(one[a][0], other[b][0]), min(one[a][1], other[b][1])
        if low < high:
            found.append((low, high))
        if one[a][1] < other[b][1]:
            a += 1
        else:
            b += 1
    return found


def total(intervals: Iterable[Interval]) -> int:
    """How many positions there are in disjoint intervals."""
    return sum(high - low for low, high in intervals)


def end_of(intervals: list[Interval]) -> int:
    """The end of the last interval; 0 for none."""
    return intervals[-1][1] if intervals else 0
