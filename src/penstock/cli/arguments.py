"""Checks arguments of the command line: positions, seconds, archives' folders. Errors name the option."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import penstock
from penstock.channels.uri.channel import FAKE
from penstock.channels.uri.registry import kind_names
from penstock.cli.terminal import output
from penstock.util.files.uris import is_remote, is_uri
from penstock.util.units import nanoseconds

NUMBER = re.compile("-?[0-9]{1,20}", re.ASCII)
SECONDS_AT_MOST = 10**12  # a smaller number is meant as seconds: as nanoseconds it is a time in 1970


def folder(text: str) -> Path:
    """A folder of recordings or tables, from an argument: a path or a `file:` URI; not another URI, and not a channel."""
    from penstock.util.files import storage  # commands on channels do without

    return Path(_place(text, storage.local, "a folder"))


def file(text: str) -> Path:
    """A file, from an argument: as for `folder`."""
    from penstock.util.files import storage

    return Path(_place(text, storage.local, "a file"))


def place(text: str) -> Any:
    """A folder as for `folder`, or a URI of an object storage."""
    from penstock.util.files import storage

    def read(given: str, what: str) -> Any:
        return storage.where(given, what).uri if is_remote(given) else storage.local(given, what)

    return _place(text, read, "a folder")


def is_utf8(text: str) -> bool:
    """Whether an argument is: Python shows other bytes as lone surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _place(text: str, read: Callable[[str, str], Any], what: str) -> Any:
    text = str(text)  # a default is a path already
    if not is_utf8(text):
        raise typer.BadParameter(f"{output.path(text)} is not UTF-8: give {what} whose path is")
    if not text:
        raise typer.BadParameter(f"it is empty: give {what}")
    if text.partition(":")[0] in (FAKE, *kind_names()) and ":" in text:
        raise typer.BadParameter(f"{text!r} is a channel: give {what} (./{text} if it has that name)")
    try:
        if is_uri(text):
            return read(text, "the place")
        found = Path(text)
        # pathlib drops the "./" that distinguishes a folder from a URI or a channel
        return found.absolute() if ":" in str(found).partition("/")[0] else found
    except penstock.Invalid as error:
        raise typer.BadParameter(str(error)) from None


ArchivePath = Annotated[
    str,  # as a path, a URI would lose a slash
    typer.Argument(
        help="The archive's folder, s3://BUCKET/FOLDER, or grpc+tls://HOST:PORT.", parser=place, metavar="ARCHIVE"
    ),
]


LocalArchivePath = Annotated[
    Path,
    typer.Argument(help="The archive's folder.", parser=place, metavar="ARCHIVE"),
]


Since = Annotated[
    str | None,
    typer.Option(help="From this time on: '2026-01-31 12:00', '10m ago', yesterday, @SECONDS.", metavar="<time>"),
]
MaxBytes = Annotated[
    str | None,
    typer.Option(help="Keep at most this much of these channels, as 20GB; the oldest are purged.", metavar="<size>"),
]
MaxAge = Annotated[str | None, typer.Option(help="Keep no recording older than this, as 7d or 12h.", metavar="<time>")]
Until = Annotated[str | None, typer.Option(help="Up to this time.", metavar="<time>")]


def start(text: str) -> Literal["newest", "earliest"] | int:
    """Where to begin: newest, earliest or a position."""
    if text in ("newest", "earliest"):
        return "newest" if text == "newest" else "earliest"
    return position(text, "newest, earliest or a position")


def position(text: str, what: str = "a position") -> int:
    """A position from the option --start."""
    if not NUMBER.fullmatch(text) or not 0 <= int(text) < 1 << 63:
        raise penstock.Invalid(f"--start is {text!r}: it must be {what}, from 0 to below 2**63")
    return int(text)


def seconds(value: float | None, option: str) -> float | None:
    """Seconds from 0 on; None, and infinity, mean for ever."""
    if value is None or value == math.inf:
        return None
    if not value >= 0:
        raise penstock.Invalid(f"{option} is {value}: it must be seconds from 0 on")
    return value


def positive(value: float | None, option: str) -> float | None:
    """A finite number above 0, or None."""
    if value is not None and not 0 < value < math.inf:
        raise penstock.Invalid(f"{option} is {value}: it must be a number, more than 0")
    return value


def interval(text: str, option: str) -> float:
    """Seconds from a text as 5s, 500ms, 2m or 0.5."""
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?(ms|s|m|h|)", text, re.ASCII)
    if found is None:
        raise penstock.Invalid(f"{option} is {text!r}: it must be a time, as 5s, 500ms or 2m")
    return float(found[1]) * {"ms": 0.001, "s": 1, "": 1, "m": 60, "h": 3600}[found[2]]


def moment(text: str | None, option: str, default: int) -> int:
    """A time as nanoseconds since the epoch; see `penstock.util.units`."""
    if text is None:
        return default
    found = nanoseconds(text, option)
    if 0 < abs(found) < SECONDS_AT_MOST and text.strip().lstrip("-").isdigit():
        raise penstock.Invalid(f"{option} is {text!r}: write @{text.strip()} for seconds since the epoch")
    return found


def limit(value: int | None) -> int | None:
    """A number of messages from 0 on."""
    if value is not None and value < 0:
        raise penstock.Invalid(f"--limit is {value}: it must be a number of messages from 0 on")
    return value if value is None else min(value, sys.maxsize)


def recording(text: str) -> int | str:
    """A recording's number, or a channel."""
    return int(text) if NUMBER.fullmatch(text) and not text.startswith("-") else text


def refuse_others(option: str, why: str, **others: object) -> None:
    """`Invalid` if another option is given, which would have no effect with this one. others: values by the option's name."""
    for name, value in others.items():
        if value is not None and value is not False and value != []:
            raise penstock.Invalid(f"--{name.replace('_', '-')} has no effect with {option}: {why}")


def pairs(option: str, texts: list[str], form: str) -> dict[str, str]:
    """KEY=VALUE of an option that may be given several times, each key once."""
    found: dict[str, str] = {}
    for text in texts:
        if not is_utf8(text):
            raise penstock.Invalid(f"{option} is {output.path(text)}: it is not UTF-8")
        key, equals, value = text.partition("=")
        if not (key and equals and value):
            raise penstock.Invalid(f"{option} is {text!r}: write {form}")
        if key in found:
            raise penstock.Invalid(f"{option} names {key} twice: {key}={found[key]} and {text}")
        found[key] = value
    return found
