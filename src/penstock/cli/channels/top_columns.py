"""The columns of `penstock top`: their texts, orders and styles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.channels.waiting.why.words import seconds_text
from penstock.cli.channels.facts import codec, holds
from penstock.cli.terminal import output
from penstock.watch.rates import Rate

FULL = ("room", "a buffer")  # waits that a reader ends


@dataclass(frozen=True)
class Column:
    """A column: its title, its text, its sort key, and how soon it is dropped if the terminal is narrow (0: never)."""

    title: str
    cell: Callable[[Rate], str]
    order: Callable[[Rate], Any]
    goes: int = 0
    style: Callable[[Rate], str] = lambda rate: ""
    networks: bool = False  # only if a channel has a network


def round_trip(rate: Rate) -> int | None:
    """The longest to a session or a receiver. None if none is known."""
    return None if rate.status.network is None else rate.status.network.round_trip_ns


def lost(rate: Rate) -> str:
    """Losses in messages, or in bytes if the kind counts only bytes."""
    if not rate.lost:
        return "–" if rate.lost is None else "0"
    return output.size(rate.lost) if rate.loses_bytes else output.count(rate.lost)


def waits(rate: Rate) -> str:
    """The number of waits on the channel, and the longest of them."""
    return f"{len(rate.waits)}, {seconds_text(rate.waits[0].seconds)}" if rate.waits else "–"


def quantile(share: float) -> Callable[[Rate], float | None]:
    """The latency since the last refresh that this share of the messages did not exceed. None without messages."""
    return lambda rate: None if rate.latency is None else rate.latency.quantile_ns(share)


P50, P99 = quantile(0.5), quantile(0.99)
COLUMNS = (
    Column("codec", lambda r: codec(r.status), lambda r: r.status.codec or "", 9),
    Column("messages/s", lambda r: output.count(r.messages), lambda r: -r.messages),
    Column("bytes/s", lambda r: output.size(r.bytes), lambda r: -r.bytes, 2),
    Column("writers", lambda r: str(r.status.writers), lambda r: -r.status.writers, 5),
    Column("readers", lambda r: str(r.status.readers), lambda r: -r.status.readers, 5),
    Column("lag", lambda r: output.size(r.status.lag), lambda r: -r.status.lag, 1),
    Column("p50", lambda r: output.duration(P50(r)), lambda r: -(P50(r) or 0), 7),
    Column("p99", lambda r: output.duration(P99(r)), lambda r: -(P99(r) or 0), 3),
    Column("lost/s", lost, lambda r: -(r.lost or 0), 0, lambda r: "bold red" if r.lost else ""),
    Column(
        "refused/s", lambda r: output.count(r.refused), lambda r: -r.refused, 6, lambda r: "yellow" if r.refused else ""
    ),
    Column(
        "naks/s",
        lambda r: "–" if r.naks is None else output.count(r.naks),
        lambda r: -(r.naks or 0),
        6,
        lambda r: "yellow" if r.naks else "",
        networks=True,
    ),
    Column("rtt", lambda r: output.duration(round_trip(r)), lambda r: -(round_trip(r) or 0), 7, networks=True),
    Column("sent", lambda r: output.count(r.status.totals.messages_sent), lambda r: -r.status.totals.messages_sent, 8),
    Column(
        "waits",
        waits,
        lambda r: -max((one.seconds for one in r.waits), default=-1.0),
        4,
        lambda r: "yellow" if any(one.what in FULL and one.seconds >= 1 for one in r.waits) else "",
    ),
    Column("holds", lambda r: holds(r.held_s), lambda r: -(r.held_s or 0), 6),
    Column("memory", lambda r: output.size(r.status.size), lambda r: -r.status.size, 4),
)
SORTS: dict[str, Callable[[Rate], Any]] = {
    "channel": lambda rate: rate.status.channel,
    **{column.title.removesuffix("/s"): column.order for column in COLUMNS},
}
