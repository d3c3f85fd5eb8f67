"""Key files of `udp:` channels: a key of 32 bytes in base64 on each line, which only its owner can read. docs/design/network_key.md."""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path

from penstock.errors import Invalid, SystemFailure
from penstock.util.files import secret_file

VARIABLE = "PENSTOCK_KEY_FILE"
LENGTH = 32  # bytes
KEYS_MAX = 2


def read(key_file: str | os.PathLike[str] | None) -> list[bytes]:
    """The keys of a file, or of the one that PENSTOCK_KEY_FILE names; without either, none. The first one seals, each one opens.

    `NotFound` without the file; `Invalid` if others can read it, or if it holds no key.
    """
    what, path = ("key_file", key_file) if key_file is not None else (VARIABLE, os.environ.get(VARIABLE))
    if path is None:
        return []
    if not os.fspath(path):  # an empty variable of a shell must not mean clear datagrams
        raise Invalid(f"{what} is empty: it must name a file with a key; leave it out for datagrams in the clear")
    return _keys(os.fspath(path))


def create(key_file: str | os.PathLike[str]) -> Path:
    """Makes a file with a new key, which only its owner can read. `Invalid` if there is one already."""
    if not os.fspath(key_file):
        raise Invalid("the file of the key has no name")
    path = Path(key_file)
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        raise Invalid(f"{path} is there already: a key that is lost is lost; choose another name") from None
    except OSError as error:
        raise SystemFailure(error.errno, f"cannot make {path}: {error.strerror}") from error
    with os.fdopen(fd, "w") as file:
        os.fchmod(fd, 0o600)  # whatever the umask is
        file.write(base64.b64encode(os.urandom(LENGTH)).decode() + "\n")
        file.flush()
        os.fsync(fd)
    return path


def _keys(path: str) -> list[bytes]:
    missing = "copy it from another machine of the channel, or `penstock key new FILE` makes the first one"
    content = secret_file.read(path, "the key file", missing)
    lines = [line.strip() for line in content.splitlines()]
    found = [_key(line, path) for line in lines if line and not line.startswith(b"#")]
    if not 1 <= len(found) <= KEYS_MAX:
        raise Invalid(f"the key file {path} has {len(found)} keys: it must have one, or two while keys are exchanged")
    return found


def _key(line: bytes, path: str) -> bytes:
    try:
        found = base64.b64decode(line, validate=True)
    except binascii.Error:
        found = b""
    if len(found) != LENGTH:
        raise Invalid(
            f"the key file {path} has a line that is no key: a key is {LENGTH} bytes in base64, as `penstock key new` makes it"
        )
    return found
