"""What a subscription on `udp:` decides about codecs."""

from __future__ import annotations

from penstock import codecs
from penstock.kinds.udp import policy

BYTES, JSON = codecs.metadata(codecs.BYTES), codecs.metadata(codecs.resolve("json"))
SENT = 1_700_000_000_000_000_000


def test_first_session_that_tells_decides():
    assert policy.choose_codec([b"", JSON, BYTES], SENT, 0) == JSON


def test_penstock_message_waits_for_its_codec():
    assert policy.choose_codec([b""], SENT, 0) is None
    assert policy.choose_codec([b""], None, 0) is None


def test_message_of_stranger_is_bytes():
    assert policy.choose_codec([b""], 0, 0) == BYTES


def test_silent_session_is_bytes_after_some_seconds():
    assert policy.choose_codec([b""], SENT, policy.TELLS_WITHIN_NS - 1) is None
    assert policy.choose_codec([b""], SENT, policy.TELLS_WITHIN_NS) == BYTES


def test_refusal_names_session_and_both_codecs():
    why = policy.refuse_codec(JSON, BYTES, "127.0.0.1:4000", 7, 64)
    assert why is not None
    for part in ("127.0.0.1:4000", "session 7", JSON.decode(), BYTES.decode(), "position 64"):
        assert part in why
