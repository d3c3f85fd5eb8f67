"""The peers of a `udp:` channel as its files show them: sessions that this machine receives, receivers of its publications. Plain values, no I/O."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Iterable
from typing import Any

from penstock._native import core as _native
from penstock.channels.network import NetworkReceiver, NetworkSession, NetworkStatus

STATES = ("open", "closed", "lost")
SILENT_NS = 2_000_000_000  # after which a peer, which says something five times a second, is away


def source_of(host: bytes, port: int) -> str:
    """An address as people write it."""
    address = ipaddress.IPv6Address(host)
    return f"{address.ipv4_mapped}:{port}" if address.ipv4_mapped else f"[{address}]:{port}"


def network(images: Iterable[dict[str, Any]], logs: Iterable[dict[str, Any]]) -> NetworkStatus:
    """From the images of an endpoint, and the logs of the publications with their receivers."""
    now, logs = time.monotonic_ns(), list(logs)
    sessions = {one.session: one for one in (_session(image, now) for image in images)}
    receivers = [_receiver(row, log, now) for log in logs for row in log["receivers"]]
    return NetworkStatus(tuple(sessions.values()), tuple(receivers), arrives=not logs)


def _session(image: dict[str, Any], now: int) -> NetworkSession:
    source, error = source_of(*image["source"]), image["clock_error"]
    arrives = image["path_limit"]
    return NetworkSession(
        session=image["session"],
        source=source,
        state=STATES[image["state"]],
        position=image["consumed"],
        end=image["high"],
        window=image["window"],
        mtu=image["mtu"],
        silent_ns=max(0, now - image["heard"]) if image["heard"] else 0,
        datagrams_received=image["datagrams"],
        bytes_received=image["bytes"],
        duplicates=image["duplicates"],
        naks_sent=image["naks"],
        bytes_repaired=image["repaired"],
        losses=image["losses"],
        bytes_lost=image["bytes_lost"],
        round_trip_ns=image["round_trip"] or None,
        clock_offset_ns=image["clock_offset"] if error else None,
        clock_error_ns=error or None,
        clock_correction_ns=image["clock_correction"],
        problem=_native.udp_path_text(image["mtu"], arrives, f"from {source}")
        if arrives
        else _silence(image["heard"], now, source)
        if STATES[image["state"]] == "open"
        else None,
    )


def _receiver(row: dict[str, Any], log: dict[str, Any], now: int) -> NetworkReceiver:
    address = source_of(*row["address"])
    return NetworkReceiver(
        session=log["session"],
        address=address,
        receiver=row["receiver"],
        position=row["position"],
        lag=max(0, log["position"] - row["position"]),
        window=row["window"],
        readers=row["readers"],
        silent_ns=max(0, now - row["heard"]),
        naks_received=row["naks"],
        round_trip_ns=row["round_trip"] or None,
        problem=_native.udp_path_text(row["mtu"], row["arrives"], f"at {address}")
        if row["limited"]
        else _silence(row["heard"], now, address),
    )


def _silence(heard: int, now: int, address: str) -> str | None:
    """That nothing is heard from a peer that has neither closed nor is given up yet."""
    if not heard or now - heard < SILENT_NS:
        return None
    return f"nothing is heard from {address}: its program is stopped, or its machine or the network on the way is down"
