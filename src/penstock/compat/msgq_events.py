"""The fake events of commaai/msgq: a test steps the sockets of another process, receive by receive.

The state of an endpoint's events is a small file in a hidden folder beside the channels, its two events are FIFOs. So
any process of this user finds them by the endpoint's name. `penstock.testing` steps channels within one process.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import secrets
import select
import time
import weakref
from pathlib import Path

from penstock.channels.storage import access, files
from penstock.channels.waiting.loops import POLL_MAX

_SWITCH, _PREFIX = "CEREAL_FAKE", "CEREAL_FAKE_PREFIX"
_FOLDER = ".msgq-events"
CALLED, READY = "called", "ready"
LOOK_AGAIN = 0.5  # seconds after which a receive that waits to be stepped checks whether its handle still exists


def text(name: str | bytes) -> str:
    """A name as text: the original takes bytes, too."""
    return os.fsdecode(name)


class _Fifo:
    """An open FIFO; closed with its last reference."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self.fd)


class Event:
    """A flag that several processes share. `fd` is -1 without an event."""

    def __init__(self, fifo: _Fifo | None = None) -> None:
        self._fifo = fifo

    @property
    def fd(self) -> int:
        """A descriptor that is readable while the flag is raised; -1 without one."""
        return -1 if self._fifo is None else self._fifo.fd

    def _descriptor(self) -> int:
        if self._fifo is None:
            raise RuntimeError("this event was not made: call fake_event_handle with override=True first")
        return self._fifo.fd

    def set(self) -> None:
        """Raises the flag."""
        with contextlib.suppress(BlockingIOError):  # the FIFO is full: it is raised
            os.write(self._descriptor(), b"\1")

    def clear(self) -> int:
        """Lowers it; how often it was raised."""
        fd, total = self._descriptor(), 0
        with contextlib.suppress(BlockingIOError):
            while count := len(os.read(fd, 4096)):
                total += count
        return total

    def wait(self, timeout: float = -1) -> None:
        """Waits until it is raised. RuntimeError after `timeout` seconds (below 0: never)."""
        if not _readable([self._descriptor()], timeout):
            raise RuntimeError(f"Event timed out after {timeout} seconds in process {os.getpid()}")

    def peek(self) -> bool:
        """Whether it is raised."""
        return bool(_readable([self._descriptor()], 0))


def _readable(fds: list[int], timeout: float) -> list[int]:
    """Those of these descriptors that are readable, after at most `timeout` seconds (below 0: for ever)."""
    poll = select.poll()
    for fd in fds:
        if fd >= 0:
            poll.register(fd, select.POLLIN)
    deadline = None if timeout < 0 else time.monotonic() + timeout
    while True:
        left = None if deadline is None else math.ceil(min(max(deadline - time.monotonic(), 0), POLL_MAX) * 1000)
        found = poll.poll(left)
        if found or (deadline is not None and time.monotonic() >= deadline):
            return [fd for fd, _ in found]


def wait_for_one_event(events: list[Event], timeout: float = -1) -> int:
    """The number of the first of these that is raised. RuntimeError after `timeout` seconds (below 0: never)."""
    ready = _readable([event.fd for event in events], timeout)
    for number, event in enumerate(events):
        if event.fd in ready:
            return number
    raise RuntimeError(f"Event timed out: none of {len(events)} was raised within {timeout} seconds")


class State:
    """The file that all processes share about an endpoint's events: whether receives are stepped, and which FIFOs are the newest."""

    def __init__(self, endpoint: str, identifier: str) -> None:
        named = "\x1f".join((os.environ.get("OPENPILOT_PREFIX", ""), identifier, endpoint))
        self.folder = files.private_folder(_FOLDER)
        self.key = hashlib.sha256(os.fsencode(named)).hexdigest()[:32]

    def read(self) -> tuple[bool, str]:
        """(enabled, token of the newest handle); (False, "") if none was created."""
        try:
            enabled, token = (self.folder / self.key).read_text().split()
        except FileNotFoundError:
            return False, ""
        return enabled == "1", token

    def write(self, enabled: bool, token: str) -> None:
        """Replaces the state at once, so that no process reads half of it."""
        new = self.folder / f"{self.key}.{secrets.token_hex(8)}.new"
        new.write_text(f"{int(enabled)} {token}\n")
        new.chmod(access.file_mode())
        new.replace(self.folder / self.key)

    def make(self) -> str:
        """New FIFOs, not yet raised; the token that names them."""
        token = secrets.token_hex(8)
        while True:
            files.private_folder(_FOLDER, create=True)
            try:
                for part in (CALLED, READY):
                    os.mkfifo(self.path(token, part), 0o600)
                    os.chmod(self.path(token, part), access.file_mode())
                break
            except FileNotFoundError:
                continue  # another process removed the folder because it was empty
        self.write(False, token)
        return token

    def path(self, token: str, part: str) -> Path:
        """The path of one of the two FIFOs."""
        return self.folder / f"{self.key}.{token}.{part}"

    def open(self, token: str, part: str) -> _Fifo | None:
        """One of the two, opened; None if it was removed."""
        try:
            return _Fifo(self.path(token, part)) if token else None
        except FileNotFoundError:
            return None


def _forget(state: State, token: str, pid: int) -> None:
    """Removes a handle's files, and the state if no newer handle has replaced it."""
    if os.getpid() != pid:
        return  # a forked child's copy: the handle lives on in its parent
    for part in (CALLED, READY):
        state.path(token, part).unlink(missing_ok=True)
    if state.read()[1] == token:
        (state.folder / state.key).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # it has events of other handles
        state.folder.rmdir()


class SocketEventHandle:
    """The events that step the sockets of one endpoint: a receive raises `recv_called_event` and then waits for
    `recv_ready_event`, while `enabled`.

    With `override` new events are made: they begin lowered, and sockets use them from now on. They are removed with the handle.
    """

    def __init__(self, endpoint: str | bytes, identifier: str | bytes = "", override: bool = True) -> None:
        self._state = State(text(endpoint), text(identifier))
        if override:
            token = self._state.make()
            weakref.finalize(self, _forget, self._state, token, os.getpid())
        else:
            _, token = self._state.read()
        self._called, self._ready = (Event(self._state.open(token, part)) for part in (CALLED, READY))

    @property
    def enabled(self) -> bool:
        """Whether receives wait to be stepped, in whichever process they are."""
        return self._state.read()[0]

    @enabled.setter
    def enabled(self, value: bool) -> None:
        """Switches stepping on or off."""
        _, token = self._state.read()
        if not token:
            raise RuntimeError("these events were not made: call fake_event_handle with override=True first")
        self._state.write(bool(value), token)

    @property
    def recv_called_event(self) -> Event:
        """Raised when a receive begins."""
        return self._called

    @property
    def recv_ready_event(self) -> Event:
        """Raised by the test when that receive may continue."""
        return self._ready


class Stepped:
    """A socket's side of its endpoint's events. The prefix that is set now names them."""

    def __init__(self, endpoint: str) -> None:
        self._state, self._token = State(endpoint, text(get_fake_prefix())), ""
        self._called, self._ready = Event(), Event()

    def step(self) -> None:
        """Waits for the test, if one steps this endpoint."""
        enabled, token = self._state.read()
        if not enabled:
            return
        if token != self._token:  # a newer handle
            self._called, self._ready = (Event(self._state.open(token, part)) for part in (CALLED, READY))
            self._token = token
        if self._called.fd < 0 or self._ready.fd < 0:
            return  # the handle was just removed
        self._called.set()
        while not _readable([self._ready.fd], LOOK_AGAIN):
            if self._state.read()[1] != token:
                return  # the handle was removed: no test will step this receive
        self._ready.clear()


def using_fake_events() -> bool:
    """Whether sockets and pollers made from now on are fake ones."""
    return _SWITCH in os.environ


def toggle_fake_events(enabled: bool) -> None:
    """Switches fake events on or off for the sockets and pollers that this process and its children make from now on."""
    if enabled:
        os.environ[_SWITCH] = "1"
    else:
        os.environ.pop(_SWITCH, None)


def set_fake_prefix(prefix: str | bytes) -> None:
    """The default name of events."""
    if prefix:
        os.environ[_PREFIX] = text(prefix)
    else:
        delete_fake_prefix()


def get_fake_prefix() -> bytes:
    """The name set last, or nothing. Bytes, as in the original."""
    return os.fsencode(os.environ.get(_PREFIX, ""))


def delete_fake_prefix() -> None:
    """Forgets it."""
    os.environ.pop(_PREFIX, None)


def fake_event_handle(
    endpoint: str, identifier: str | bytes | None = None, override: bool = True, enable: bool = False
) -> SocketEventHandle:
    """The handle on an endpoint's events; with `override` they are created again, and `enable` sets whether they work immediately."""
    handle = SocketEventHandle(endpoint, get_fake_prefix() if identifier is None else identifier, override)
    if override:
        handle.enabled = enable
    return handle
