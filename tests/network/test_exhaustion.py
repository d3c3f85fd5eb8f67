"""A machine that has no more memory, or a process that has no more descriptors: one session suffers, it is said once, and it goes on
when there is room again."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import resource
import socket
from collections.abc import Iterator

import pytest
from ports import free_port

import penstock

PATIENCE = 60


@contextlib.contextmanager
def limited(what: int, most: int) -> Iterator[None]:
    """A lower limit of this process, for a while."""
    before = resource.getrlimit(what)
    resource.setrlimit(what, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(what, before)


@pytest.fixture
def uri() -> str:
    """A channel of its own."""
    return f"udp://127.0.0.1:{free_port()}/7"


def refusals(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The log's lines about sessions that cannot be received."""
    return [text for record in caplog.records if "cannot be received" in (text := record.getMessage())]


def test_a_session_waits_for_room_for_its_image(uri, caplog):
    with (
        caplog.at_level(logging.WARNING, "penstock"),
        penstock.publish(uri, term_length=1 << 16) as small,
        penstock.publish(uri, term_length=8 << 20) as large,
    ):
        small.send(b"small")
        large.send(b"large")
        with limited(resource.RLIMIT_FSIZE, 4 << 20), penstock.subscribe(uri) as sub:
            assert sub.recv(timeout=PATIENCE) == b"small"
            for _ in range(3):  # refused again after a second, told of once
                before = sub.statistics().details["sessions_refused"]
                while sub.statistics().details["sessions_refused"] == before:
                    with contextlib.suppress(penstock.TimedOut):
                        sub.recv(timeout=0.2)
                small.send(b"more")
                assert sub.recv(timeout=PATIENCE) == b"more"
            resource.setrlimit(
                resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
            )
            assert sub.recv(timeout=PATIENCE) == b"large"
    assert len(refusals(caplog)) == 1
    assert re.search(
        r"session -?\d+ from 127\.0\.0\.1:\d+ cannot be received: .*cannot allocate \d+ bytes", refusals(caplog)[0]
    )


def test_a_session_without_a_descriptor_comes_when_there_is_one(uri, caplog):
    with caplog.at_level(logging.WARNING, "penstock"), penstock.subscribe(uri) as sub:
        elsewhere = f"udp://127.0.0.1:{free_port()}/7"
        with (
            penstock.publish(uri, term_length=1 << 16) as first,
            penstock.publish(elsewhere, term_length=1 << 16, destinations=[]) as second,
        ):
            first.send(b"first")
            assert sub.recv(timeout=PATIENCE) == b"first"
            with limited(resource.RLIMIT_NOFILE, 64), contextlib.ExitStack() as stack:
                with contextlib.suppress(OSError):
                    while True:
                        stack.callback(os.close, os.open("/dev/null", os.O_RDONLY))
                second.add_destination(uri[6:].partition("/")[0])
                second.send(b"second")
                while not refusals(caplog):
                    with contextlib.suppress(penstock.TimedOut):
                        sub.recv(timeout=0.2)
                first.send(b"more")
                assert sub.recv(timeout=PATIENCE) == b"more"
                with pytest.raises(OSError, match="Too many open files") as raised:
                    penstock.publish(uri)
                assert raised.value.errno == errno.EMFILE
            assert sub.recv(timeout=PATIENCE) == b"second"
    assert "Too many open files" in refusals(caplog)[0]


def test_a_port_that_is_taken_names_its_holder(uri):
    host, port = uri[6:].partition("/")[0].split(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind((host, int(port)))
        with pytest.raises(OSError, match=rf"Address already in use; process {os.getpid()} \(.+\) has the port"):
            penstock.subscribe(uri)
