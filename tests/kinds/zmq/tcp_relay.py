"""A TCP relay of a test. It can stop forwarding without closing a connection, as a link does that is cut: a half-open connection."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading


class TcpRelay:
    """Connections to `port` of 127.0.0.1 go on to `target`. `freeze` silences those that exist; later ones are forwarded."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._wake, self._waker = socket.socketpair()
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._frozen: list[socket.socket] = []
        self._freeze = threading.Event()
        self._is_frozen = threading.Event()
        self._closing, self._accepts = False, True
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def freeze(self, *, accepts: bool = True) -> None:
        """From now on the connections that exist carry nothing, and stay open. accepts: whether new ones are made."""
        self._accepts = accepts
        self._freeze.set()
        self._waker.send(b"x")
        assert self._is_frozen.wait(60)

    def _run(self) -> None:
        while not self._closing:
            for key, _ in self._selector.select():
                if key.fileobj is self._listener:
                    self._connect()
                elif key.fileobj is self._wake:
                    self._wake.recv(1)
                elif key.data is not None:
                    self._forward(key.fileobj, key.data)
            if self._freeze.is_set():
                self._freeze.clear()
                if not self._accepts:
                    self._selector.unregister(self._listener)
                    self._listener.close()
                for key in list(self._selector.get_map().values()):
                    if key.data is not None:
                        self._selector.unregister(key.fileobj)
                        self._frozen.append(key.fileobj)
                self._is_frozen.set()

    def _connect(self) -> None:
        near, _ = self._listener.accept()
        try:
            far = socket.create_connection(("127.0.0.1", self._target), timeout=60)
        except OSError:
            near.close()
            return
        for one, other in ((near, far), (far, near)):
            self._selector.register(one, selectors.EVENT_READ, other)

    def _forward(self, one: socket.socket, other: socket.socket) -> None:
        try:
            data = one.recv(1 << 16)
            if data:
                other.sendall(data)
                return
        except OSError:
            pass
        for end in (one, other):
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(end)
            end.close()

    def close(self) -> None:
        """Ends the thread and closes everything."""
        self._closing = True
        self._waker.send(b"x")
        self._thread.join(60)
        ends = [key.fileobj for key in self._selector.get_map().values()]
        for end in (*ends, *self._frozen, self._waker):
            end.close()
        self._listener.close()
        self._selector.close()
