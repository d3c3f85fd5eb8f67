"""Places of archives and tables: a folder of this machine, a prefix of an object storage, or another machine's server, as one pyarrow
file system.

Credentials are read from the environment, as the AWS tools take them (AWS_ACCESS_KEY_ID, AWS_PROFILE, AWS_ENDPOINT_URL, AWS_REGION), or
from the machine's role; never from a URI, which is logged. Knows file systems. It must never know recordings or tables.
"""

from __future__ import annotations

import difflib
import functools
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar
from urllib.parse import unquote

from penstock.errors import Invalid, PenstockError, SystemFailure
from penstock.util.extras import explain_missing
from penstock.util.files.uris import SCHEMES, SERVED, TLS_ROOTS, TOKEN_FILE, URI, is_remote, is_uri

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

RETRIES = 5
_FORMS = {"file": "///ABSOLUTE/PATH", "s3": "//BUCKET/FOLDER"}  # else HOST:PORT


@dataclass(frozen=True)
class Place:
    """A folder: of this machine, or a prefix of an object storage. uri: as text, a path if it is local."""

    uri: str
    path: str

    @property
    def is_local(self) -> bool:
        """Whether it is a folder of this machine."""
        return not is_remote(self.uri)

    @property
    def fs(self) -> Any:
        """Its `pyarrow.fs.FileSystem`, or as much of one as readers need. One per process and storage."""
        if self.is_served:
            from penstock.util.files import served_files  # it loads msgspec, and few programs read from a server

            return served_files.files_at("/".join(self.uri.split("/")[:3]))
        scheme = _scheme(self.uri)
        return _file_system(scheme, os.getpid(), () if scheme == "file" else _environment())

    @property
    def is_served(self) -> bool:
        """Whether another process serves it: it can only be read."""
        return _scheme(self.uri) in SERVED

    def __truediv__(self, name: str) -> Place:
        return Place(f"{self.uri.rstrip('/')}/{name}", f"{self.path.rstrip('/')}/{name}")

    def __str__(self) -> str:
        return self.uri


def text_of(given: str | os.PathLike[str], what: str) -> str:
    """The text of a path or a URI; `Invalid` for anything else."""
    try:
        text = os.fsdecode(given)
        os.fsencode(text)
    except TypeError:
        raise Invalid(f"{what} is {given!r}: it must be a path or a URI") from None
    except UnicodeEncodeError:
        raise Invalid(f"{what} is {given!r}: it has half of a character, which no path can hold") from None
    return text


def where(given: str | os.PathLike[str], what: str = "the place", *, to_write: bool = False) -> Place:
    """The place that a path, a `file:` URI or a URI of an object storage or a server names. `Invalid` for any other URI, and for one
    with credentials in it. what: for the error. to_write: not a server."""
    text = text_of(given, what)
    if "\0" in text:
        raise Invalid(f"{what} is {text!r}: a path cannot contain a NUL")
    if not is_uri(text):
        absolute = str(Path(text).absolute())
        return Place(absolute, absolute)
    found = URI.match(text)
    if found is None:
        word = text.partition(":")[0].lower()
        raise Invalid(
            f"{what} is {text}: write {word}:{_FORMS.get(word, '//HOST:PORT')}, or ./{text} for a folder of that name"
        )
    scheme, rest = found[1].lower(), text[found.end() :]
    if scheme == "file":
        local = _of_file_uri(text, what)
        return Place(local, local)
    if scheme not in SCHEMES:
        close = difflib.get_close_matches(scheme, SCHEMES, 1)
        meant = f"did you mean {close[0]}:? " if close else ""
        raise Invalid(
            f"{what} is a URI of {scheme}, {text}: {meant}there are paths, file: and "
            f"{', '.join(f'{one}:' for one in SCHEMES)}. A folder of that name is ./{text}"
        )
    served = scheme in SERVED
    if "@" in rest.partition("/")[0]:
        names = TOKEN_FILE if served else "AWS_ACCESS_KEY_ID …"
        raise Invalid(f"{what} is a URI with credentials in it: put them into the environment ({names})")
    if "?" in rest or "#" in rest:
        names = f"{TOKEN_FILE}, {TLS_ROOTS}" if served else "AWS_REGION, AWS_ENDPOINT_URL …"
        raise Invalid(f"{what} is a URI with options in it: put them into the environment ({names})")
    if served:
        return _of_server(scheme, rest, text, what, to_write=to_write)
    path = re.sub("/+", "/", rest).rstrip("/")
    if not path or ".." in path.split("/"):
        raise Invalid(f"{what} is {text}: name a bucket, as in {scheme}://BUCKET/FOLDER")
    return Place(f"{scheme}://{path}", path)


def _of_server(scheme: str, rest: str, text: str, what: str, *, to_write: bool) -> Place:
    server, _, path = rest.rstrip("/").partition("/")
    host, _, port = server.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16 or (":" in host and not host.startswith("[")):
        raise Invalid(f"{what} is {text}: name a server and its port, as in {scheme}://HOST:PORT")
    if to_write:
        raise Invalid(
            f"{what} is {text}, which shows an archive alone, to be read: name a folder, or s3://BUCKET/FOLDER"
        )
    return Place(f"{scheme}://{server}" + (f"/{path}" if path else ""), f"/{path}" if path else "")


def _of_file_uri(text: str, what: str) -> str:
    """The path that a `file:` URI names on this machine. `Invalid` if it names another machine, or is not a `file:` URI."""
    rest = text[len("file:") :]
    if rest.startswith("//"):
        host, _, path = rest[2:].partition("/")
        if host.lower() not in ("", "localhost"):
            raise Invalid(f"{what} is {text}, on the machine {host}: give a folder of this machine, as file:///PATH")
        rest = f"/{path}"
    if "?" in rest or "#" in rest or re.search("%(?![0-9A-Fa-f]{2})", rest):
        raise Invalid(f"{what} is {text}: in a file: URI, write %3F for ?, %23 for # and %25 for %")
    path = re.sub("^/+", "/", unquote(rest, errors="surrogateescape"))
    if "\0" in path:
        raise Invalid(f"{what} is {text}: a path cannot contain a NUL")
    return path


def path_of(given: str | os.PathLike[str], what: str) -> Path:
    """As `local`, for folders and files; a relative path stays one."""
    text = text_of(given, what)
    return local(text, what) if is_uri(text) or "\0" in text else Path(text)


def local(given: str | os.PathLike[str], what: str) -> Path:
    """The folder of this machine that a path or a `file:` URI names. `Invalid` for an object storage. what: for the error."""
    place = where(given, what)
    if not place.is_local:
        raise Invalid(f"{what} is {given}: it must be a folder of this machine")
    return Path(place.path)


def delta_options(place: Place) -> dict[str, str]:
    """The options that deltalake needs to reach a place, beyond the environment, which it reads."""
    if place.is_local:
        return {}
    endpoint = _endpoint()
    found = {"AWS_REGION": _region(), "AWS_CONDITIONAL_PUT": "etag"}
    if endpoint:
        found |= {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": str(endpoint.startswith("http:")).lower()}
    return found


def reached(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """A function that raises this library's errors where a file system of pyarrow fails."""

    @functools.wraps(function)
    def careful(*given: Arguments.args, **named: Arguments.kwargs) -> Result:
        with reaching():
            return function(*given, **named)

    return careful


@contextmanager
def reaching() -> Iterator[None]:
    """Within it, errors of pyarrow's file systems are this library's `SystemFailure`, in one line."""
    try:
        yield
    except (PenstockError, FileNotFoundError):
        raise
    except OSError as error:
        text = " ".join(str(error.strerror or error).split())
        raise SystemFailure(error.errno or 0, text[:400]) from error


def _scheme(uri: str) -> str:
    found = URI.match(uri)
    return found[1].lower() if found else "file"


def _environment() -> tuple[tuple[str, str], ...]:
    """The settings that a file system is made with: when they change, another one is made."""
    return tuple(sorted((name, value) for name, value in os.environ.items() if name.startswith("AWS_")))


def _endpoint() -> str:
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""


def _region() -> str:
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"


@functools.lru_cache(maxsize=16)
def _file_system(scheme: str, process: int, environment: tuple[tuple[str, str], ...]) -> Any:
    with explain_missing("an object storage" if scheme != "file" else "writing files of tables"):
        from pyarrow import fs

    if scheme == "file":
        return fs.LocalFileSystem()
    given: dict[str, Any] = {"region": _region(), "retry_strategy": fs.AwsStandardS3RetryStrategy(RETRIES)}
    if endpoint := _endpoint():
        given |= {"endpoint_override": endpoint.partition("://")[2] or endpoint}
        given |= {"scheme": "http" if endpoint.startswith("http:") else "https"}
    return fs.S3FileSystem(**given)
