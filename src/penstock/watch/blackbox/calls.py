"""How a program asks the black boxes beside its channels for a snapshot: a datagram to each one's socket.

Knows no channel and no archive.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import socket
import stat
import time
from collections.abc import Iterator
from typing import Any

from penstock.channels.storage import access, files
from penstock.errors import Invalid, NotFound, SystemFailure, TimedOut, text_of

FOLDER = ".blackbox"
LONGEST = 8000  # bytes of a datagram
NAME_MAX = 64
SEND_SECONDS = 1.0


def trigger(name: str, note: str = "") -> int:
    """Asks every `penstock blackbox` beside this process's channels to take a snapshot now. Returns how many heard it: 0 if none is running.

    name: what the trigger is called in the snapshot; where a configuration names calls, only those it names begin one. note: a text of
    at most about 4,000 letters. Does not wait for the snapshot. `TimedOut` if a black box takes no call for a second. Safe in any thread.
    """
    check_texts(name, note)
    call = {"name": name, "note": note, "pid": os.getpid(), "time_ns": time.time_ns()}
    raw = json.dumps(call).encode(errors="backslashreplace")
    if len(raw) > LONGEST:
        raise Invalid(f"note has {len(note):,} letters: a call has room for {LONGEST:,} bytes in all")
    heard, late = 0, []
    with _folder() as at:
        for entry in [] if at is None else sorted(os.listdir(at)):
            try:
                heard += _send(f"/proc/self/fd/{at}/{entry}", raw)
            except TimeoutError:
                late.append(entry.partition("-")[0])
    if late:
        raise TimedOut(f"the black box of process {', '.join(late)} takes no calls: it is stopped, or very busy")
    return heard


def check_texts(name: Any, note: Any) -> None:
    """`Invalid` unless these are a trigger's name and its note."""
    for text, what in ((name, "name"), (note, "note")):
        if not isinstance(text, str):
            raise Invalid(f"{what} is {text_of(text, repr)}: it must be a text")
    if not name.strip() or len(name) > NAME_MAX:
        raise Invalid(f"name is {name!r}: it must have 1 to {NAME_MAX} letters")


def escape_surrogates(text: str) -> str:
    """The text as UTF-8 can have it. File names that are no UTF-8 have halves of characters, and so have errors that name them."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _send(path: str, raw: bytes) -> bool:
    """Whether a process has this socket and got the datagram."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as end:
        end.settimeout(SEND_SECONDS)
        try:
            end.connect(path)
            end.send(raw)
        except (ConnectionRefusedError, FileNotFoundError, ConnectionResetError):
            return False  # its process was killed
    return True


@contextlib.contextmanager
def _folder() -> Iterator[int | None]:
    """A descriptor of the folder of sockets; None if there is none. Sockets' paths are short, whatever the folder's is."""
    try:
        with files.opened_folder(create=False) as above:
            at = os.open(FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    except (FileNotFoundError, NotFound):
        yield None
        return
    try:
        yield at
    finally:
        os.close(at)


class CallSocket:
    """A black box's end: gets the calls of all programs of this user. A context manager."""

    def __init__(self) -> None:
        files.private_folder(FOLDER, create=True)
        self._name = (
            f"{os.getpid()}-{secrets.token_hex(4)}"  # PID namespaces that share the folder have the same numbers
        )
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            with _folder() as at:
                if at is None:
                    raise SystemFailure(errno.ENOENT, f"{files.folder() / FOLDER} was removed")
                _sweep(at)
                self._socket.bind(f"/proc/self/fd/{at}/{self._name}")
                os.chmod(self._name, access.file_mode(), dir_fd=at)
        except OSError as error:
            self._socket.close()
            raise SystemFailure(
                error.errno or 0, f"cannot listen in {files.folder() / FOLDER}: {error.strerror}"
            ) from error
        except BaseException:
            self._socket.close()
            raise

    def fileno(self) -> int:
        """The descriptor to wait for."""
        return self._socket.fileno()

    def calls(self) -> list[dict[str, Any]]:
        """The calls that have arrived. One that is not well-formed is left out: only programs of this user can send any."""
        found: list[dict[str, Any]] = []
        while True:
            try:
                raw = self._socket.recv(LONGEST + 1)
            except BlockingIOError:
                return found
            with contextlib.suppress(ValueError, KeyError, TypeError):
                call = json.loads(raw)
                texts = {name: escape_surrogates(str(call[name])) for name in ("name", "note")}
                found.append({**texts, "pid": int(call["pid"])})

    def close(self) -> None:
        """Ends listening. Safe to call twice."""
        self._socket.close()
        with contextlib.suppress(OSError, NotFound):
            os.unlink(files.folder() / FOLDER / self._name)

    def __enter__(self) -> CallSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _sweep(at: int) -> None:
    """Removes the sockets of processes that were killed, in whichever PID namespace."""
    for name in os.listdir(at):
        with contextlib.suppress(OSError):
            if not stat.S_ISSOCK(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
                continue
            if not _is_open(f"/proc/self/fd/{at}/{name}"):
                os.unlink(name, dir_fd=at)


def _is_open(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        try:
            end.connect(path)
        except ConnectionRefusedError:
            return False
    return True
