"""What a channel has beside its messages: the last value of each key of a log, and attributes of frames. It travels in their description.

Knows channels' headers. It must never know a route.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

from penstock._native import core as _native
from penstock.channels.kind import Kind
from penstock.channels.storage import inspection
from penstock.errors import Busy

NAMES = {"last": "last values", "attributes": "attributes"}
log = logging.getLogger("penstock")


def described(kind: Kind, subscription: Any) -> dict[str, Any]:
    """What a subscription's channel has, for the description of its messages."""
    if kind.by_reference:
        return {"attributes": subscription.attributes} if subscription.attributes else {}
    if "last" not in kind.value_options:
        return {}
    found = inspection.about_opened(kind, subscription)
    if found.get("last") is None:
        return {}
    return {"last": {"field": found["last"], "keys": found["last_keys"], "max": found["last_max"]}}


def split(spec: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A description without last values, and the options of a log that keeps them."""
    last = spec.get("last")
    if last is None:
        return spec, {}
    options = {"last": last["field"], "last_keys": last["keys"], "last_max": last["max"]}
    return {name: value for name, value in spec.items() if name != "last"}, options


def warn(channel: str, names: Any, why: object) -> None:
    """Logs what a target does not get."""
    left = [text for name, text in NAMES.items() if name in names]
    if left:
        log.warning("%s does not get the %s of its source: %s", channel, " and ".join(left), why)


def last_values(channel: str, subscription: Any, begin: int, own: list[int]) -> deque[bytes]:
    """The newest message of each key from before a subscription's position, of those from position `begin` on. own: sessions to leave out."""
    try:
        found = _native.last_values(subscription)
    except Busy as error:  # a stopped writer holds their lock
        warn(channel, ["last"], error)
        return deque()
    return deque(payload for position, _, session, payload in found if position >= begin and session not in own)
