"""Lists of CURVE clients: the answers to libzmq's questions who may connect, by ZeroMQ's authentication protocol (RFC 27, ZAP).

One thread for each process, which begins with the first list and ends with the context. Knows keys, and no handle.
"""

from __future__ import annotations

import itertools
import threading
from typing import Any

ADDRESS = "inproc://zeromq.zap.01"  # where libzmq asks
VERSION, YES, NO = b"1.0", (b"200", b"OK"), (b"400", b"this key is not in the list")

_allowed: dict[bytes, frozenset[bytes]] = {}  # public keys of 32 bytes, by ZAP domain
_numbers = itertools.count()
_starting = threading.Lock()
_socket: Any = None  # of the thread


def allow(module: Any, context: Any, server: Any, keys: frozenset[bytes]) -> bytes:
    """Lets only clients with these keys connect to a socket. Returns its domain. Starts the thread that answers, if there is none."""
    global _socket
    with _starting:
        if _socket is None:
            _socket = _start(module, context)
    domain = b"penstock-%d" % next(_numbers)
    _allowed[domain] = keys
    server.setsockopt(module.ZAP_DOMAIN, domain)
    server.setsockopt(module.ZAP_ENFORCE_DOMAIN, 1)  # nobody is let in while nobody answers
    return domain


def _start(module: Any, context: Any) -> Any:
    socket = context.socket(module.REP)
    try:
        socket.setsockopt(module.LINGER, 0)
        socket.bind(ADDRESS)
        threading.Thread(target=_answer_all, args=(module, socket), name="penstock-zap", daemon=True).start()
    except BaseException:
        socket.close(0)
        raise
    return socket


def forget(domain: bytes) -> None:
    """The end of a domain: from now on nobody is let in."""
    _allowed.pop(domain, None)


def abandon() -> Any:
    """In a forked child: the thread and its socket are the parent's. Returns what must never end."""
    global _socket, _starting
    abandoned, _socket, _starting = _socket, None, threading.Lock()
    _allowed.clear()
    return abandoned


def _answer_all(module: Any, socket: Any) -> None:
    """Until the context ends."""
    with socket:
        while True:
            try:
                parts = socket.recv_multipart()
                socket.send_multipart([VERSION, parts[1], *_answer(parts), b"", b""])
            except module.ContextTerminated:
                return


def _answer(parts: list[bytes]) -> tuple[bytes, bytes]:
    """Whether a client may connect. parts: version, request, domain, address, identity, mechanism, key.

    Sockets without a domain have no list: libzmq asks for all that have CURVE.
    """
    domain = parts[2]
    return YES if not domain or parts[6] in _allowed.get(domain, ()) else NO
