"""Channel names: `kind:NAME`. Knows the grammar, and which kinds this version has; opens nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.errors import Invalid

NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")
KINDS = ("log", "ring", "frames", "sync", "pipe")
FAKE = "fake"  # a log within this process, stepped by a test
NETWORKS = ("zmq+tcp", "zmq+ipc")  # `zmq+tcp://HOST:PORT`, `zmq+ipc://PATH`
PLANNED = ("udp",)


@dataclass(frozen=True)
class Channel:
    """A parsed channel URI."""

    kind: str
    name: str
    fake: bool = False  # within this process only
    scheme: str = ""  # what it is called, where that is not its kind

    def __str__(self) -> str:
        return f"{self.scheme or self.kind}:{'//' if self.kind in NETWORKS else ''}{self.name}"

    @property
    def lossy(self) -> bool:
        """Whether a slow reader loses messages instead of making writers wait."""
        return self.kind in ("ring", "frames")

    @property
    def keeps(self) -> bool:
        """Whether it keeps messages that were read, so that somebody can begin in the past."""
        return self.kind in ("log", "sync")


def check_name(name: str) -> str:
    """`name`, or `Invalid` if it is not a channel's or recording's name."""
    if not NAME.fullmatch(name) or name in (".", ".."):
        raise Invalid(f"{name!r} is no channel name: use 1 to 128 of the characters A-Z a-z 0-9 . _ -")
    return name


def parse(uri: str) -> Channel:
    """The channel that a URI such as `log:imu` names. Of frames, several streams may share a name: `frames:cam/road`.

    Raises `Invalid` for a kind that does not exist or a name with other characters than `[A-Za-z0-9._-]`.
    """
    if not isinstance(uri, str):
        raise Invalid(f"a channel is named by a string such as 'log:imu', not by {type(uri).__name__}")
    kind, colon, name = uri.partition(":")
    if not colon:
        raise Invalid(f"{uri!r} names no kind of channel: write 'log:{uri}'")
    if kind == FAKE:
        return Channel("log", check_name(name), fake=True, scheme=FAKE)
    if kind in NETWORKS:
        if not name.startswith("//") or len(name) == 2:
            raise Invalid(f"{uri!r}: write {kind}://{'HOST:PORT' if kind == 'zmq+tcp' else 'PATH'}")
        return Channel(kind, name[2:])
    if kind in PLANNED:
        raise Invalid(
            f"{uri!r}: channels of kind {kind!r} are planned; this version has {', '.join((*KINDS, FAKE, *NETWORKS))}"
        )
    if kind not in KINDS:
        raise Invalid(f"{uri!r}: there is no kind {kind!r}; this version has {', '.join((*KINDS, FAKE, *NETWORKS))}")
    if kind == "frames":
        name, slash, stream = name.partition("/")
        return Channel(kind, check_name(name) + slash + (check_name(stream) if slash else ""))
    return Channel(kind, check_name(name))
