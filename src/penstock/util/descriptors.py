"""Descriptors that several threads and signal handlers use until they are closed. Knows nothing of what they name."""

from __future__ import annotations

import os


class SharedDescriptor:
    """A descriptor that is closed with the last reference to this object.

    Its user takes a reference first. While that lasts, no other file of the process gets the number, whoever closes the owner meanwhile.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)
