"""Topics of MCAP files as channels. A topic has one name in every file and in every order, and two topics never share one.

Knows names alone; opens nothing.
"""

from __future__ import annotations

import hashlib
import re

from penstock.channels.kind import LONGEST_NAME, check_name
from penstock.channels.uri.channel import parse
from penstock.errors import Invalid

DIGITS = 12  # of SHA-256, in hexadecimal: the end of the name of a topic that is not a channel's name
MARKED = re.compile(rf"-[0-9a-f]{{{DIGITS}}}$")


def channel_of(topic: str) -> str:
    """The channel of another program's topic. `/robot/imu` is `log:robot/imu`. The name of any other topic ends in a part of its
    SHA-256."""
    name = topic[1:]
    if topic.startswith("/") and _is_name(name) and not MARKED.search(name):
        return f"log:{name}"
    return marked(topic)


def marked(topic: str, form: str = "") -> str:
    """The channel of a topic, with a mark that makes it unique. form: distinguishes it from the same topic in another form."""
    mark = hashlib.sha256(f"{topic}\0{form}".encode() if form else topic.encode()).hexdigest()[:DIGITS]
    return f"{stem(topic)}{mark}"


def stem(topic: str) -> str:
    """The beginning of the names of a topic's channels, if they have a mark."""
    parts = [re.sub(r"[^A-Za-z0-9._-]", "_", part).lstrip(".") for part in topic.split("/")]
    plain = "/".join(part for part in parts if part)[: LONGEST_NAME - DIGITS - 1].strip("/") or "topic"
    return f"log:{plain}-"


def is_own(topic: str, noted: str | None) -> bool:
    """Whether Penstock wrote a topic for a channel whose recordings an import can append to. noted: the channel in its metadata."""
    if noted is None or noted != topic:
        return False
    try:
        found = parse(noted)
    except Invalid:
        return False
    kind = found.kind
    plain = kind.in_process and not found.fake and not kind.own_positions and not kind.by_reference
    about = {"codec": {"kind": "bytes"}}
    return plain and kind.recorded_as(about) == about and str(found) == noted


def _is_name(name: str) -> bool:
    """Whether a channel may have this name."""
    try:
        check_name(name)
    except Invalid:
        return False
    return True
