"""Channels by their URI: `kind:NAME`, and `fake:KIND:NAME` for one within this process. Opens nothing."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from penstock.channels.kind import Kind
from penstock.channels.uri.registry import kind_of
from penstock.errors import Invalid, Unsupported

FAKE = "fake"
_WORLD = os.urandom(8)  # with the process id, it identifies this process: a forked child inherits the word


@dataclass(frozen=True)
class Channel:
    """A parsed URI. fake: within this process only. uri: the original text, if it differs from the kind's form."""

    kind: Kind
    name: str
    fake: bool = False
    uri: str = field(default="", compare=False)

    def __str__(self) -> str:
        return self.uri or f"{self.kind.name}:{self.kind.prefix}{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        if self.fake:
            return _fake, (self.kind, self.name, self.uri, os.getpid(), _WORLD)
        return Channel, (self.kind, self.name, False, self.uri)


def _fake(kind: Kind, name: str, uri: str, process: int, world: bytes) -> Channel:
    """A pickled channel of this process again. `Unsupported` in another one, which would find an empty channel of that name."""
    found = Channel(kind, name, True, uri)
    if (process, world) != (os.getpid(), _WORLD):
        raise Unsupported(
            f"{found}: a fake channel lives in one process, here process {process}, and this is process {os.getpid()}: "
            "use a channel in shared memory between processes"
        )
    return found


def named(uri: Any) -> str:
    """The URI of a channel, or of a value with one. `Invalid` for anything else."""
    uri = getattr(uri, "uri", uri)
    if not isinstance(uri, str):
        raise Invalid(f"a channel is named by a string such as 'log:imu', not by {type(uri).__name__}")
    return uri


def parse(uri: Any) -> Channel:
    """The channel that a URI, or a value with one, names: a URI such as `log:imu` names. Of frames, several streams may share a name: `frames:cam/road`.

    Raises `Invalid` for a kind that does not exist or a name that its kind does not have.
    """
    uri = named(uri)
    word, colon, rest = uri.partition(":")
    fake = word == FAKE and bool(colon)
    if fake:
        word, colon, rest = rest.partition(":")
        if not colon:
            raise Invalid(f"{uri!r}: write fake:KIND:NAME, such as {f'fake:log:{word}'!r}")
    if not colon:
        example = f"log:{uri or 'NAME'}"
        raise Invalid(f"{uri!r} names no kind of channel: write {example!r}")
    try:
        kind, foreign = kind_of(word)
        if foreign:
            assert kind.foreign is not None
            name = kind.foreign(rest)
        elif rest.startswith(kind.prefix):
            name = kind.named(rest.removeprefix(kind.prefix))
        else:
            raise Invalid(f"write {kind.written}")
    except Invalid as error:
        raise Invalid(f"{uri!r}: {error}") from None
    return Channel(kind, name, fake, uri if fake or foreign else "")
