"""The policy of a subscription on `udp:`: its codec, the messages that it refuses, its log lines.

The compiled reader calls these functions by name. It knows the sessions' metadata, and no codec.
"""

from __future__ import annotations

import logging

from penstock import codecs

TELLS_WITHIN_NS = 3_000_000_000  # a Penstock publication announces its codec once per second

_logger = logging.getLogger("penstock")


def choose_codec(announced: list[bytes], time_ns: int | None, waited_ns: int) -> bytes | None:
    """The metadata of the codec that a subscription without one reads; None: not known yet.

    announced: the sessions' metadata, in order. time_ns: when the first message was sent; None: there is none. waited_ns: its age.
    The first session that announces a codec decides. Messages are bytes if the first has no send time, which only foreign
    publications omit, or if no codec is announced for some seconds.
    """
    for metadata in announced:
        if metadata:
            return metadata
    if time_ns is None or (time_ns != 0 and waited_ns < TELLS_WITHIN_NS):
        return None
    return codecs.metadata(codecs.BYTES)


def refuse_codec(sends: bytes, reads: bytes, source: str, session: int, position: int) -> str | None:
    """The reason to skip a message with another codec than the subscription's. None: it is delivered."""
    return (
        f"the publication at {source} (session {session}) sends {_text(sends)}, and this subscription reads {_text(reads)}: its message at"
        f" position {position} is left out. Use one codec, or another stream"
    )


def log_refusal(why: str) -> None:
    """Logs that a session cannot be received or joined, since the caller may continue to wait."""
    _logger.warning("%s", why)


def _text(metadata: bytes) -> str:
    return metadata.decode(errors="backslashreplace")
