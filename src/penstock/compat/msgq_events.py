"""The fake events of commaai/msgq: a test steps the sockets of another process, receive by receive.

State is inherited by forked children, as the original's events are; `penstock.testing` steps channels within one process.
"""

from __future__ import annotations

import mmap
import os
import select

_SWITCH, _PREFIX = "CEREAL_FAKE", "CEREAL_FAKE_PREFIX"


class Event:
    """A flag that several processes share. `fd` is 0 where nobody made one."""

    def __init__(self, fd: int = 0) -> None:
        self.fd = fd

    def _descriptor(self) -> int:
        if self.fd == 0:
            raise RuntimeError("this event was not made: call fake_event_handle with override=True first")
        return self.fd

    def set(self) -> None:
        """Raises the flag."""
        os.eventfd_write(self._descriptor(), 1)

    def clear(self) -> int:
        """Lowers it; how often it was raised."""
        return os.eventfd_read(self._descriptor()) if self.peek() else 0

    def wait(self, timeout: int = -1) -> None:
        """Until it is raised; RuntimeError after `timeout` milliseconds (below 0: never)."""
        if not select.select([self._descriptor()], [], [], None if timeout < 0 else timeout / 1000)[0]:
            raise RuntimeError("Event wait failed: timed out")

    def peek(self) -> bool:
        """Whether it is raised."""
        return bool(select.select([self._descriptor()], [], [], 0)[0])


def wait_for_one_event(events: list[Event], timeout: int = -1) -> int:
    """The number of the first of these that is raised; RuntimeError after `timeout` milliseconds."""
    by_fd = {event._descriptor(): index for index, event in reversed(list(enumerate(events)))}
    ready = select.select(list(by_fd), [], [], None if timeout < 0 else timeout / 1000)[0]
    if not ready:
        raise RuntimeError("Event wait failed: timed out")
    return min(by_fd[fd] for fd in ready)


class SocketEventHandle:
    """What steps the sockets of one endpoint: `recv_called_event` is raised by a receive, which then waits for
    `recv_ready_event`, while `enabled`.
    """

    def __init__(self, endpoint: str, identifier: str = "", override: bool = True) -> None:
        key = (identifier, endpoint)
        if key not in _states:
            _states[key] = _State()
        self._state = _states[key]
        if override:
            self._state.make()

    @property
    def enabled(self) -> bool:
        """Whether receives wait to be stepped; also in processes forked since this was made."""
        return self._state.flag[0] == 1

    @enabled.setter
    def enabled(self, value: bool) -> None:
        """Switches stepping on or off."""
        self._state.flag[0] = int(value)

    @property
    def recv_called_event(self) -> Event:
        """Raised when a receive begins."""
        return self._state.called

    @property
    def recv_ready_event(self) -> Event:
        """Raised by the test when that receive may go on."""
        return self._state.ready


class _State:
    def __init__(self) -> None:
        self.flag = mmap.mmap(-1, mmap.PAGESIZE)  # shared with forked children
        self.called, self.ready = Event(), Event()

    def make(self) -> None:
        for event in (self.called, self.ready):
            if event.fd == 0:
                event.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)


_states: dict[tuple[str, str], _State] = {}


def step(endpoint: str) -> None:
    """What a socket does before it receives: waits for the test, if there is one."""
    if not using_fake_events():
        return
    state = _states.get((get_fake_prefix(), endpoint))
    if state is not None and state.flag[0] == 1:
        state.called.set()
        state.ready.wait()
        state.ready.clear()


def using_fake_events() -> bool:
    """Whether sockets look for events."""
    return os.environ.get(_SWITCH) == "1"


def toggle_fake_events(enabled: bool) -> None:
    """Switches fake events on or off for this process and its children."""
    if enabled:
        os.environ[_SWITCH] = "1"
    else:
        os.environ.pop(_SWITCH, None)


def set_fake_prefix(prefix: str) -> None:
    """Events of this name are meant where none is given."""
    if prefix:
        os.environ[_PREFIX] = prefix
    else:
        delete_fake_prefix()


def get_fake_prefix() -> str:
    """The name set last, or nothing."""
    return os.environ.get(_PREFIX, "")


def delete_fake_prefix() -> None:
    """Forgets it."""
    os.environ.pop(_PREFIX, None)


def fake_event_handle(
    endpoint: str, identifier: str | None = None, override: bool = True, enable: bool = False
) -> SocketEventHandle:
    """The handle on an endpoint's events; with `override` they are made, and `enable` says whether they work at once."""
    handle = SocketEventHandle(endpoint, identifier or get_fake_prefix(), override)
    if override:
        handle.enabled = enable
    return handle
