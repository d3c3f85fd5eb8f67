"""What a subscription on `udp:` decides: which codec its messages have, whose messages it refuses, what it logs.

The compiled reader calls these functions by name. It knows what the sessions have told, and no codec.
"""

from __future__ import annotations

import logging

from penstock import codecs

TELLS_WITHIN_NS = 3_000_000_000  # a Penstock publication tells its codec once a second

_logger = logging.getLogger("penstock")


def choose_codec(announced: list[bytes], time_ns: int | None, waited_ns: int) -> bytes | None:
    """The metadata of the codec that a subscription without one reads; None: not known yet.

    told: what the sessions have told, in order. time_ns: when the first message was sent; None: there is none. waited_ns: how long it
    has been there. The first session that tells a codec decides. A message without a send time is no Penstock publication's, which
    never tells one; nor is one whose publication has told nothing for some seconds. Their messages are bytes.
    """
    for metadata in announced:
        if metadata:
            return metadata
    if time_ns is None or (time_ns != 0 and waited_ns < TELLS_WITHIN_NS):
        return None
    return codecs.metadata(codecs.BYTES)


def refuse_codec(sends: bytes, reads: bytes, source: str, session: int, position: int) -> str | None:
    """Why a message of another codec than the subscription's is left out. None: it is delivered all the same."""
    return (
        f"the publication at {source} (session {session}) sends {_text(sends)}, and this subscription reads {_text(reads)}: its message at"
        f" position {position} is left out. Use one codec, or another stream"
    )


def log_refusal(why: str) -> None:
    """Logs that a session cannot be received or joined: a wait that goes on must not hide it."""
    _logger.warning("%s", why)


def _text(metadata: bytes) -> str:
    return metadata.decode(errors="backslashreplace")
