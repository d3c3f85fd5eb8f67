"""Aeron's frames as bytes, written by hand from its protocol and not by the library: for tests that speak to a real socket."""

from __future__ import annotations

import random
import struct

PAD, DATA, NAK, STATUS, ERROR, SETUP, RTT, EXTENSION = 0, 1, 2, 3, 4, 5, 6, 0xFFFF
BEGIN, END, END_OF_STREAM = 0x80, 0x40, 0x20
WHOLE = BEGIN | END
SEND_SETUP, LEAVING, REPLY = 0x80, 0x40, 0x80


def data(
    session: int, stream: int, term: int, offset: int, payload: bytes, flags: int = WHOLE, reserved: int = 0
) -> bytes:
    """One data frame, with its padding to 32."""
    head = struct.pack("<iBBHiiiiq", 32 + len(payload), 0, flags, DATA, offset, session, stream, term, reserved)
    return head + payload + bytes(-len(payload) % 32)


def heartbeat(session: int, stream: int, term: int, offset: int, flags: int = WHOLE) -> bytes:
    """Where a sender is; with END_OF_STREAM, that it sends no more."""
    return struct.pack("<iBBHiiiiq", 0, 0, flags, DATA, offset, session, stream, term, 0)


def pad(session: int, stream: int, term: int, offset: int, length: int) -> bytes:
    """The rest of a term."""
    return struct.pack("<iBBHiiiiq", length, 0, WHOLE, PAD, offset, session, stream, term, 0)


def setup(
    session: int, stream: int, initial: int, active: int, offset: int, term_length: int, mtu: int = 1408, ttl: int = 0
) -> bytes:
    """A sender announces its session."""
    return struct.pack(
        "<iBBHiiiiiiii", 40, 0, 0, SETUP, offset, session, stream, initial, active, term_length, mtu, ttl
    )


def status(session: int, stream: int, term: int, offset: int, window: int, receiver: int, flags: int = 0) -> bytes:
    """A receiver's position and window."""
    return struct.pack("<iBBHiiiiiq", 36, 0, flags, STATUS, session, stream, term, offset, window, receiver)


def nak(session: int, stream: int, term: int, offset: int, length: int) -> bytes:
    """A receiver misses a range."""
    return struct.pack("<iBBHiiiii", 28, 0, 0, NAK, session, stream, term, offset, length)


def rtt(session: int, stream: int, echo: int, delta: int, receiver: int, flags: int = REPLY) -> bytes:
    """A round trip is measured."""
    return struct.pack("<iBBHiiqqq", 40, 0, flags, RTT, session, stream, echo, delta, receiver)


def error(session: int, stream: int, receiver: int, text: bytes) -> bytes:
    """A receiver rejects a session."""
    head = struct.pack("<iBBHiiqqii", 40 + len(text), 0, 0, ERROR, session, stream, receiver, 0, 1, len(text))
    return head + text


def kind(datagram: bytes) -> int:
    """The type of a datagram's first frame."""
    found: int = struct.unpack_from("<H", datagram, 6)[0]
    return found


class Forger:
    """Datagrams of every type about one session, whole and changed, from a seed."""

    EXTREMES = (0, 1, -1, 31, 32, 33, 1 << 16, (1 << 31) - 1, -(1 << 31), 0x7FFFFFE0, 65504)

    def __init__(self, seed: int, session: int, stream: int, term_length: int) -> None:
        self.random = random.Random(seed)
        self.session, self.stream, self.term_length = session, stream, term_length

    def one(self) -> bytes:
        """The next datagram."""
        pick, r = self.random.random, self.random
        session = self.session if pick() < 0.8 else r.randrange(-(1 << 31), 1 << 31)
        stream = self.stream if pick() < 0.95 else r.randrange(-(1 << 31), 1 << 31)
        term, offset = r.randrange(-2, 40), r.randrange(0, self.term_length, 32)
        made = r.choice(
            (
                lambda: data(session, stream, term, offset, r.randbytes(r.randrange(0, 1400))),
                lambda: b"".join(
                    data(session, stream, term, offset + 64 * i, r.randbytes(32)) for i in range(r.randrange(1, 20))
                ),
                lambda: heartbeat(session, stream, term, offset, WHOLE | r.choice((0, END_OF_STREAM))),
                lambda: pad(
                    session, stream, term, offset, r.choice((32, 64, self.term_length - offset, self.term_length))
                ),
                lambda: setup(self.session, stream, 0, term, offset, self.term_length),
                lambda: status(
                    session,
                    stream,
                    term,
                    offset,
                    r.choice((0, 1024, 1 << 17, -1)),
                    r.getrandbits(62),
                    r.choice((0, 0x80, 0x40)),
                ),
                lambda: nak(session, stream, term, offset, r.choice((32, 1408, self.term_length, -32, 1 << 30))),
                lambda: rtt(
                    session, stream, r.getrandbits(62), r.getrandbits(62), r.getrandbits(62), r.choice((0, 0x80))
                ),
                lambda: error(session, stream, r.getrandbits(62), r.randbytes(r.randrange(0, 900))),
                lambda: (
                    struct.pack("<iBBHii4sHH", 24 + 8, 0, 0, EXTENSION, session, stream, b"PNST", r.randrange(4), 8)
                    + r.randbytes(8)
                ),
                lambda: r.randbytes(r.randrange(0, 200)),
            )
        )()
        return self._changed(made) if pick() < 0.7 else made

    def _changed(self, made: bytes) -> bytes:
        r, found = self.random, bytearray(made)
        for _ in range(r.randrange(1, 4)):
            what = r.randrange(4)
            if not found:
                break
            if what == 0:
                found[r.randrange(len(found))] = r.randrange(256)
            elif what == 1 and len(found) >= 4:
                struct.pack_into("<i", found, r.randrange(0, min(len(found) - 3, 40)), r.choice(self.EXTREMES))
            elif what == 2:
                del found[r.randrange(len(found)) :]
            else:
                found += r.randbytes(r.randrange(1, 64))
        return bytes(found[:65000])
