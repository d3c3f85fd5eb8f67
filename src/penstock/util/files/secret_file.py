"""Files with secrets: only their owner may read them. Knows no format."""

from __future__ import annotations

import os
import stat

from penstock.errors import Invalid, NotFound, SystemFailure

FILE_MAX = 4096  # bytes


def read(path: str, what: str, missing: str) -> bytes:
    """The bytes of a secret's file. `NotFound` without it; `Invalid` if others can read or write it, or if it is too long.

    what: the file's name in errors, as "the key file". missing: what to do if it is not there.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise Invalid(f"{what} {path} is no file")
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise NotFound(f"{what} {path} is not there: {missing}") from None
    except ValueError as error:
        raise Invalid(f"{what} is {path!r}: {error}") from error
    except OSError as error:
        raise SystemFailure(error.errno, f"cannot read {what} {path}: {error.strerror}") from error
    with os.fdopen(fd, "rb") as file:
        about = os.fstat(fd)
        if about.st_uid not in (os.geteuid(), 0):
            raise Invalid(f"{what} {path} belongs to user {about.st_uid}: it must be yours, or root's")
        if about.st_mode & 0o077:
            raise Invalid(f"others can read or write {what} {path} (mode {about.st_mode & 0o777:03o}): `chmod 600` it")
        content = file.read(FILE_MAX + 1)
    if len(content) > FILE_MAX:
        raise Invalid(f"{what} {path} has more than {FILE_MAX} bytes")
    return content
