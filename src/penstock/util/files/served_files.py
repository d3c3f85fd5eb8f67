"""Files that another machine serves over Arrow Flight, by their names and ranges of their bytes: as much of a pyarrow file system as
readers need. Read-only.

A file is asked for by an action whose body is JSON; its first result is JSON, too: `{}`, or an error's number and text. The results
behind it are bytes. docs/archives/serving.md has the actions. Knows files. It must never know recordings.
"""

from __future__ import annotations

import errno
import functools
import ipaddress
import json
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import Invalid, SystemFailure
from penstock.util.extras import explain_missing
from penstock.util.files import secret_file, user_files
from penstock.util.files import served_answers as answers
from penstock.util.files.served_answers import Entry
from penstock.util.files.uris import TLS_ROOTS, TOKEN_FILE
from penstock.util.patient_calls import PatientCalls

PIECE = 1 << 20  # bytes of one result at most
CALL_SECONDS = 20.0  # that one call may take
READ_BYTES = 16 << 20  # that one call may ask for
ANSWER_BYTES = 256 << 20  # of an answer whose length was not asked for
OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.keepalive_time_ms", 20_000),  # a connection that was cut in silence is noticed
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.max_receive_message_length", 4 * PIECE),
]


@dataclass(frozen=True)
class Seen:
    """A recording's folder as a look found it. tags: of what was found, for the next look. older: files that have a successor; newer: the
    others; by name, with their bytes and when they changed. raws: the bytes of small ones of those."""

    path: str
    live: bool
    tags: tuple[str, str]
    older: dict[str, tuple[int, int]]
    newer: dict[str, tuple[int, int]]
    raws: dict[str, bytes]

    @functools.cached_property
    def files(self) -> dict[str, tuple[int, int]]:
        """All files."""
        return {**self.older, **self.newer}

    @functools.cached_property
    def infos(self) -> list[Any]:
        """All files as `pyarrow.fs.FileInfo`."""
        return [_info((f"{self.path}/{name}", "file", *about)) for name, about in self.files.items()]


@dataclass
class ServedFile:
    """A file's bytes, by ranges. Any thread may call. length: of the file when it was opened."""

    files: ServedFiles
    path: str
    length: int

    def __enter__(self) -> ServedFile:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def size(self) -> int:
        """How many bytes there were when it was opened."""
        return self.length

    def read(self) -> bytes:
        """All of them."""
        return self.read_at(self.size(), 0)

    def read_at(self, length: int, offset: int) -> bytes:
        """Up to `length` bytes from `offset` on."""
        found = bytearray()
        while len(found) < length:
            wanted = min(length - len(found), READ_BYTES)
            piece = b"".join(self.files.call("read", path=self.path, offset=offset + len(found), length=wanted))
            found += piece
            if len(piece) < wanted:
                break
        return bytes(found)


class ServedFiles:
    """The files of one server. Any thread may call; a call that fails may be tried again."""

    def __init__(self, uri: str, token: str, roots: bytes | None) -> None:
        with explain_missing("an archive of another machine"):
            from pyarrow import flight

        self._flight, self._uri, self._roots = flight, uri, roots
        headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
        self._options = flight.FlightCallOptions(timeout=CALL_SECONDS, headers=headers)
        self._calls = PatientCalls(uri)
        self._client = self._connected()

    def _connected(self) -> Any:
        """A client with connections of its own. gRPC waits ever longer before it tries a server again that was away."""
        return self._flight.FlightClient(self._uri, tls_root_certs=self._roots, generic_options=OPTIONS)

    def get_file_info(self, asked: Any) -> Any:
        """`pyarrow.fs.FileInfo` of a path, of each of several, or of the entries of a `pyarrow.fs.FileSelector`."""
        from pyarrow import fs

        if isinstance(asked, fs.FileSelector):
            raw, folder = b"".join(self.call("list", path=asked.base_dir)), asked.base_dir
            return [_info(entry) for entry in self._checked(lambda: answers.entries(raw, None, folder))]
        paths = [asked] if isinstance(asked, str) else list(asked)
        raw = b"".join(self.call("stat", paths=paths))
        found = [_info(entry) for entry in self._checked(lambda: answers.entries(raw, paths))]
        return found[0] if isinstance(asked, str) else found

    def open_input_file(self, path: str) -> ServedFile:
        """A file that is there. FileNotFoundError if it is not."""
        found = self.get_file_info(path)
        if not found.is_file:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{self._uri}{path}")
        return ServedFile(self, path, found.size)

    def open_sized(self, path: str, length: int) -> ServedFile:
        """A file whose length is known."""
        return ServedFile(self, path, length)

    def read_bytes(self, path: str) -> bytes:
        """All bytes of a file. FileNotFoundError if there is none."""
        found = bytearray()
        while True:
            piece = b"".join(self.call("read", path=path, offset=len(found), length=READ_BYTES))
            found += piece
            if len(piece) < READ_BYTES:
                return bytes(found)

    def look(self, known: Mapping[str, Seen], names: Collection[str] | None) -> dict[str, Seen]:
        """The folders of recordings, by their names. known: what earlier looks found. names: only these."""
        tags = {name: seen.tags for name, seen in known.items() if names is None or name in names}
        results = self.call("look", recordings=None if names is None else list(names), known=tags)
        found = dict[str, Seen]()
        for name, (about, raws) in self._checked(lambda: answers.look(results, set(tags))).items():
            was = known.get(name)
            older = was.older if about.older is None and was else _named(about.older)
            newer, raws = (was.newer, was.raws) if about.newer is None and was else (_named(about.newer), raws)
            found[name] = Seen(f"/recordings/{name}", about.live, about.tags, older, newer, raws)
        return found

    def is_live(self, path: str) -> bool:
        """Whether a recorder writes the folder at this moment."""
        raw = b"".join(self.call("live", path=path))
        return bool(self._checked(lambda: answers.decoded(raw, bool)))

    def _checked(self, check: Callable[[], Any]) -> Any:
        try:
            return check()
        except answers.Wrong as error:
            raise self._wrong(error) from None

    def _wrong(self, why: object) -> SystemFailure:
        return SystemFailure(
            errno.EPROTO, f"{self._uri} answers what is no answer of penstock serve: {' '.join(str(why).split())[:200]}"
        )

    def call(self, action: str, **asked: Any) -> list[bytes]:
        """The results of an action behind the first one. `SystemFailure` if the server says so, or does not answer."""
        flight, body = self._flight, json.dumps(asked).encode()
        most = asked["length"] if action == "read" else ANSWER_BYTES
        try:
            first, *found = self._calls.run((action, body), lambda: self._try_twice(action, body, most)) or [b""]
        except (flight.FlightUnauthenticatedError, flight.FlightUnauthorizedError):
            text = f"{self._uri} wants a token: put it into a file, and name that by {TOKEN_FILE}"
            if named := os.environ.get(TOKEN_FILE):
                text = f"{self._uri} wants another token than the one in {named}, which {TOKEN_FILE} names"
            raise SystemFailure(errno.EACCES, text) from None
        except flight.FlightTimedOutError:
            raise SystemFailure(errno.ETIMEDOUT, f"{self._uri} does not answer within {CALL_SECONDS:.0f} s") from None
        except answers.Wrong as error:
            raise self._wrong(error) from None
        except SystemFailure:  # of a call that goes on
            raise
        except (flight.FlightError, OSError, ValueError) as error:
            raise SystemFailure(errno.ECONNREFUSED, f"{self._uri} is not to be had: {_why(self._uri, error)}") from None
        head = self._checked(lambda: answers.decoded(first, answers.Head))
        if head.errno == errno.ENOENT:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{self._uri}{asked.get('path', '')}")
        if head.errno:
            raise SystemFailure(head.errno, f"{self._uri}: {head.text}")
        return found

    def _try_twice(self, action: str, body: bytes, most: int) -> list[bytes]:
        try:
            return self._answer(action, body, most)
        except self._flight.FlightUnavailableError:
            self._client = self._connected()
            return self._answer(action, body, most)

    def _answer(self, action: str, body: bytes, most: int) -> list[bytes]:
        """The results. `Wrong` if all but the first have more than `most` bytes."""
        found, size = list[bytes](), 0
        for result in self._client.do_action((action, body), self._options):
            piece = result.body.to_pybytes()
            size += len(piece) if found else 0
            if size > most or len(found) > most:
                raise answers.Wrong(f"more than the {most:,} bytes that were asked for")
            found.append(piece)
        return found


def files_at(uri: str) -> ServedFiles:
    """The files at `grpc+tls://HOST:PORT`. One client per process, server and settings."""
    return _client(uri, os.getpid(), os.environ.get(TOKEN_FILE), os.environ.get(TLS_ROOTS))


def read_token(path: str) -> str:
    """The token in a file that only its owner can read."""
    if not path:
        raise Invalid("the token file has no name: leave the variable or the option out, or name a file")
    token = secret_file.read(path, "the token file", "the server's operator has it").strip()
    if not 16 <= len(token) <= 1024 or not all(33 <= byte < 127 for byte in token):
        raise Invalid(
            f"the token file {path} has no token: one line of 16 to 1,024 visible ASCII letters, as `openssl rand -hex 32` makes it"
        )
    return token.decode()


def is_loopback(host: str) -> bool:
    """Whether a host of a URI is this machine's loopback. Of names, only localhost is."""
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@functools.lru_cache(maxsize=16)
def _client(uri: str, process: int, token_file: str | None, roots: str | None) -> ServedFiles:
    scheme, _, server = uri.partition("://")
    token = "" if token_file is None else read_token(token_file)
    if token and scheme != "grpc+tls" and not is_loopback(server.rpartition(":")[0]):
        raise Invalid(f"{uri}: a token goes only over grpc+tls, or to this machine; anyone on the way could read it")
    return ServedFiles(uri, token, None if roots is None else _read_roots(roots))


def _read_roots(path: str) -> bytes:
    """The certificates in a file. gRPC would trust the system's if there were none."""
    try:
        found = user_files.read_bytes(path)
    except OSError as error:
        raise SystemFailure(
            error.errno or 0, f"cannot read the certificates that {TLS_ROOTS} names, {path}: {error.strerror}"
        ) from error
    if b"-----BEGIN CERTIFICATE-----" not in found:
        raise Invalid(f"{path}, which {TLS_ROOTS} names, has no certificate: it is a file of the form PEM")
    return found


def _why(uri: str, error: Exception) -> str:
    """What kept a call from its server, and what to do."""
    why = " ".join(str(error).split("Detail:")[0].split())
    scheme, _, server = uri.partition("://")
    if scheme != "grpc+tls" and "Socket closed" in why:
        return f"it closes the connection; if it has TLS, write grpc+tls://{server}"
    if "wrong version number" in why:
        return f"it has no TLS: write grpc://{server}, or give it a certificate"
    if "certificate has expired" in why:
        return "its certificate has expired: it needs a new one, or this machine's clock is wrong"
    if "certificate is not yet valid" in why:
        return "its certificate is not valid yet, or this machine's clock is wrong"
    if "certificate verify failed" in why:
        return (
            f"its certificate is of nobody that this machine trusts: name a file with that authority's by {TLS_ROOTS}"
        )
    return why.rpartition("last error: ")[2][:300]


def _named(entries: Any) -> dict[str, tuple[int, int]]:
    return {name: (int(size), int(changed)) for name, size, changed in entries}


def _info(entry: Entry) -> Any:
    from pyarrow import fs

    path, kind, size, changed_ns = entry
    kinds = {"file": fs.FileType.File, "folder": fs.FileType.Directory, "none": fs.FileType.NotFound}
    return fs.FileInfo(path, kinds[kind], mtime_ns=changed_ns, size=size if kind == "file" else None)
