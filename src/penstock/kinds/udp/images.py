"""The images of a `udp:` channel on this machine: what identifies the positions of each, and looks at their messages."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator

from penstock import codecs
from penstock._native import core as _native
from penstock.channels.kind import SessionLook
from penstock.channels.storage import files, opening
from penstock.channels.uri.channel import Channel
from penstock.codecs import Codec
from penstock.errors import Corrupt, NotFound


def epoch_of(path: str) -> int:
    """The epoch of an image's positions: the same for every recorder and every query. An image that is gone has one of its own."""
    with contextlib.suppress(FileNotFoundError, Corrupt), _opened(path) as fd:
        return _epoch(fd, path)
    return files.new_epoch()


def left(channel: Channel) -> Iterator[tuple[str, Codec]]:
    """The path of each image that an endpoint lists, and its codec: bytes if its session has not announced one."""
    fd = files.open_existing(channel)
    try:
        listed = _native.inspect_endpoint(fd, opening.place_of(channel))["images"]
    finally:
        os.close(fd)
    for image in listed:
        text = image["description"]
        yield image["path"], codecs.from_metadata(text, str(channel)) if text else codecs.BYTES


def first_position(path: str) -> int:
    """Where an image began; 0 if it is gone."""
    with contextlib.suppress(FileNotFoundError, Corrupt), _opened(path) as fd:
        return int(_native.inspect_log(fd, path)["start_position"])
    return 0


def _epoch(fd: int, path: str) -> int:
    about = _native.inspect_log(fd, path)
    made = [about[name] for name in ("boot_id", "created_ns", "creator_pid", "initial_term_id", "stream_id")]
    digest = hashlib.blake2b(repr([os.path.basename(path), made]).encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1


def looks(channel: Channel) -> list[SessionLook]:
    """Looks at the images whose codec is known. It comes with a session's first messages."""
    try:
        fd = files.open_existing(channel)
    except NotFound:
        return []
    try:
        images = _native.inspect_endpoint(fd, opening.place_of(channel))["images"]
    finally:
        os.close(fd)
    found = []
    for image in images:
        if image["description"]:
            path, codec = image["path"], codecs.from_metadata(image["description"], str(channel)).spec
            with contextlib.suppress(FileNotFoundError, Corrupt), _opened(path) as fd:  # it may end at any moment
                found.append(SessionLook(_native.log_look(fd, path), _epoch(fd, path), codec))
    return found


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        yield fd
    finally:
        os.close(fd)
