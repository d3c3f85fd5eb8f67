"""Machines in a test: network namespaces with a wire between them, and programs that run there. Needs root."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_numbers = itertools.count()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Machine:
    """A namespace with one interface, `wire`. Its programs have channels of their own, and the names in its file of hosts."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.hosts = folder / "hosts"
        self.hosts.write_text("127.0.0.1 localhost\n")

    def ip(self, *words: str) -> None:
        """Runs the command `ip` there."""
        _ip("-n", self.name, *words)

    def move(self, before: str, after: str) -> None:
        """Its interface has another address."""
        self.ip("addr", "del", f"{before}/24", "dev", "wire")
        self.ip("addr", "add", f"{after}/24", "dev", "wire")

    @contextlib.contextmanager
    def run(self, program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """A Python program there, with pipes to its input and its output."""
        inside = ["unshare", "-m", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', str(self.hosts)]
        command = ["ip", "netns", "exec", self.name, *inside, sys.executable, "-c", program, *arguments]
        environment = {**os.environ, "PENSTOCK_DIR": str(self.folder / "channels")}
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        ) as process:
            try:
                yield process
            finally:
                process.kill()


@contextlib.contextmanager
def machines(folder: Path, *addresses: str) -> Iterator[list[Machine]]:
    """Machines with these IPv4 addresses of one /24 network, on one wire."""
    prefix = f"pnst{os.getpid()}x{next(_numbers)}"
    names = [f"{prefix}m{number}" for number in range(len(addresses))]
    wire = f"{prefix}w"
    made: list[str] = []
    try:
        try:
            for name in (wire, *names):
                _ip("netns", "add", name)
                made.append(name)
            _ip("-n", wire, "link", "add", "bridge", "type", "bridge")
            _ip("-n", wire, "link", "set", "bridge", "up")
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no network namespaces to be had: {getattr(error, 'stderr', error)!r}")
        found = []
        for number, (name, address) in enumerate(zip(names, addresses, strict=True)):
            port = f"port{number}"
            _ip("-n", wire, "link", "add", port, "type", "veth", "peer", "name", "wire", "netns", name)
            _ip("-n", wire, "link", "set", port, "master", "bridge", "up")
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "link", "set", "wire", "up")
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", "wire")
            (folder / f"m{number}").mkdir()
            found.append(Machine(name, folder / f"m{number}"))
        yield found
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
