"""`penstock serve`: an archive over Arrow Flight. Its recordings are flights, and its files are there for `penstock.Archive`.

Loopback unless told otherwise; read-only always. Knows Flight. It must never write.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import re
import socket
from collections.abc import Iterator
from typing import Any

from penstock.channels.checks import flag
from penstock.errors import Invalid, PenstockError, SystemFailure
from penstock.record.format.archive_folder import DIGITS
from penstock.record.read.archive_reader import ArchiveReader
from penstock.record.serve.files import ServedArchive
from penstock.util.extras import explain_missing
from penstock.util.files import secret_file, user_files
from penstock.util.files.served_files import is_loopback, read_token
from penstock.util.strict import Strict

with explain_missing("serving an archive"):
    import pyarrow as pa
    from pyarrow import flight

LISTEN = "127.0.0.1:4860"
TICKET_BYTES = 4096
TICKET = ("recording", "start", "end", "since", "until", "columns", "decode")
_LISTEN = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^:\[\]/\s]+):(?P<port>[0-9]{1,5})", re.ASCII)


class Server(Strict):
    """Serves an archive until it is closed. uri: where `penstock.Archive` finds it. A context manager; any thread may close it."""

    uri: str

    def __init__(
        self,
        archive: ArchiveReader,
        listen: str = LISTEN,
        *,
        tls: tuple[str, str] | None = None,
        token_file: str | os.PathLike[str] | None = None,
        insecure: bool = False,
    ) -> None:
        found = _LISTEN.fullmatch(listen) if isinstance(listen, str) else None
        if found is None or int(found["port"]) >= 1 << 16:
            raise Invalid(f"the address is {listen}: it must be HOST:PORT, as {LISTEN}; port 0 takes a free one")
        if insecure and (token_file is not None or is_loopback(found["host"])):
            why = "there is a token" if token_file is not None else f"only this machine reaches {listen}"
            raise Invalid(f"insecure (--insecure) has no effect, since {why}: leave it out")
        token = None if token_file is None else read_token(os.fspath(token_file))
        if not is_loopback(found["host"]) and (tls is None or token is None) and not insecure:
            raise Invalid(
                f"{listen} can be reached from other machines: give tls and token_file (--tls, --token-file), or insecure "
                "(--insecure) to show the archive to everyone who reaches that address"
            )
        certificates = (
            None
            if tls is None
            else [(_certificate(tls[0]), secret_file.read(tls[1], "the key of the certificate", "name it"))]
        )
        scheme = "grpc" if tls is None else "grpc+tls"
        try:
            self._server = _Flights(
                ServedArchive(archive._files),
                archive,
                f"{'grpc+tcp' if tls is None else scheme}://{listen}",
                tls_certificates=certificates,
                middleware=None if token is None else {"token": _Tokens(token)},
            )
        except (pa.ArrowException, OSError, ValueError) as error:
            _check_address(listen, found["host"].strip("[]"), int(found["port"]))
            if tls is not None:
                _check_pair(*tls)
            raise SystemFailure(getattr(error, "errno", 0) or 0, f"cannot serve at {listen}: {_line(error)}") from None
        self.uri = f"{scheme}://{found['host']}:{self._server.port}"

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Server {self.uri}>"

    def close(self) -> None:
        """Ends the server, once its calls have ended."""
        self._server.shutdown()


class _Tokens(flight.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow has no types
    """Refuses calls without the token."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._expected = f"Bearer {token}"

    def start_call(self, info: Any, headers: dict[str, list[str]]) -> None:
        given = headers.get("authorization", [""])[0]
        if not hmac.compare_digest(given.encode(errors="replace"), self._expected.encode()):
            raise flight.FlightUnauthenticatedError("a token is wanted")


class _Flights(flight.FlightServerBase):  # type: ignore[misc]
    """An archive's answers. A client's mistake is its error; nothing that it sends ends the server."""

    def __init__(self, files: ServedArchive, archive: ArchiveReader, location: str, **options: Any) -> None:
        super().__init__(location, **options)
        self._files, self._archive = files, archive

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        return [(name, f"{one.about}: {one.form}") for name, one in self._files.actions.items()]

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        return (flight.Result(piece) for piece in self._files.answer(action.type, action.body.to_pybytes()))

    def list_flights(self, context: Any, criteria: bytes) -> Iterator[Any]:
        return (self._flight(info) for info in self._archive.list() if not info.damage)

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        with self._told():
            path = [part.decode() for part in descriptor.path or []]
            if len(path) != 1:
                raise Invalid("a flight's path is one part: a recording's number, or a channel")
            return self._flight(self._archive.find(_recording(path[0])))

    def do_get(self, context: Any, ticket: Any) -> Any:
        with self._told():
            if len(ticket.ticket) > TICKET_BYTES:
                raise Invalid(f"the ticket has {len(ticket.ticket):,} bytes, and {TICKET_BYTES:,} at most")
            try:
                asked = json.loads(ticket.ticket)
            except ValueError:
                asked = ticket.ticket.decode(errors="replace")
            asked = asked if isinstance(asked, dict) else {"recording": asked}
            if unknown := [name for name in asked if name not in TICKET] or ["no recording"] * (
                "recording" not in asked
            ):
                raise Invalid(
                    f"the ticket has {unknown[0]}: it is JSON with recording, and if need be with {', '.join(TICKET[1:])}"
                )
            recording = _recording(asked.pop("recording"))
            if flag(asked.pop("decode", False), "decode"):
                return flight.RecordBatchStream(self._archive.read(recording, decode=True, **asked))
            scanner = self._archive.scan(recording, **asked)
            return flight.GeneratorStream(scanner.empty().schema, iter(scanner))

    def get_schema(self, context: Any, descriptor: Any) -> Any:
        return flight.SchemaResult(self.get_flight_info(context, descriptor).schema)

    def do_put(self, *_: Any) -> None:
        raise flight.FlightUnauthorizedError("the archive can only be read")

    def do_exchange(self, *_: Any) -> None:
        raise flight.FlightUnauthorizedError("the archive can only be read")

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Within it, this library's errors become Flight's, in one line, without the path of the archive."""
        try:
            yield
        except (PenstockError, TypeError, ValueError, RecursionError) as error:
            raise flight.FlightServerError(_line(error).replace(str(self._archive.path), "the archive")) from None

    def _flight(self, info: Any) -> Any:
        schema = self._archive.scan(info.id, end=0).empty().schema
        ticket = flight.Ticket(json.dumps({"recording": info.id}).encode())
        return flight.FlightInfo(
            schema,
            flight.FlightDescriptor.for_path(str(info.id)),
            [flight.FlightEndpoint(ticket, [])],
            info.messages,
            info.bytes,
        )


def _recording(given: Any) -> int | str:
    if isinstance(given, bool) or not isinstance(given, int | str):
        raise Invalid(f"the recording is {given!r}: it is a recording's number, or a channel")
    if not str(given).isdecimal():
        return given
    if len(str(given)) > DIGITS:
        raise Invalid(f"the recording is a number of {len(str(given)):,} digits, and the archive's have {DIGITS}")
    return int(given)


def _certificate(path: str) -> bytes:
    try:
        return user_files.read_bytes(path)
    except OSError as error:
        raise SystemFailure(error.errno or 0, f"cannot read the certificate {path}: {error.strerror}") from error


def _check_address(listen: str, host: str, port: int) -> None:
    """Flight does not say why it cannot listen; the system does."""
    try:
        family, *_, at = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.create_server(at, family=family):
            pass
    except OSError as error:
        raise SystemFailure(error.errno or 0, f"cannot serve at {listen}: {error.strerror or error}") from None


def _check_pair(certificate: str, key: str) -> None:
    import ssl

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except OSError as error:  # also ssl's own
        why = getattr(error, "reason", None) or error.strerror or error
        raise Invalid(
            f"{certificate} and {key} are no certificate and its key, both as PEM, in this order: {why}"
        ) from None


def _line(error: BaseException) -> str:
    return " ".join(str(error).split("Detail:")[0].split())[:300]
