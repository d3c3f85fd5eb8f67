"""Memory file systems of every size from 1 to 256 pages: what fits works, what does not is refused, nothing is torn."""

from __future__ import annotations

import ctypes
import logging
import os
import shutil
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import penstock
from evidence.report import Row
from evidence.system import MESSAGES

_libc = ctypes.CDLL(None, use_errno=True)


def _mount(folder: Path, pages: int) -> None:
    if _libc.mount(b"none", str(folder).encode(), b"tmpfs", 0, f"size={pages * 4096},mode=0700".encode()) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _unmount(folder: Path) -> None:
    _libc.umount2(str(folder).encode(), 2)


def _channel(small: Path, _: Path) -> None:
    """A channel in it is made whole or not at all."""
    os.environ["PENSTOCK_DIR"] = str(small)
    try:
        with (
            penstock.publish("log:small", term_length=1 << 16, max_members=4) as pub,
            penstock.subscribe("log:small") as sub,
        ):
            for _turn in range(400):  # every page of it is touched
                pub.send(b"x" * 1000)
                assert sub.recv(timeout=1) == b"x" * 1000
    except penstock.SystemFailure:
        assert [p.name for p in small.iterdir()] == [], "a channel that could not be made left something behind"


def _archive(small: Path, roomy: Path) -> None:
    """An archive in it holds a valid prefix when it is full."""
    os.environ["PENSTOCK_DIR"] = str(roomy)
    source = f"log:source{os.getpid()}"  # channels outlive their users
    with penstock.publish(source, term_length=1 << 20, max_members=4) as pub:
        for _ in range(20):
            for message in MESSAGES:
                pub.send(message)
        try:
            archive = penstock.Archive(small / "archive")
            archive.record(source, start="earliest", sync_interval=0.01).stop()
        except (penstock.PenstockError, OSError):
            pass
    penstock.remove(source)
    try:
        archive = penstock.Archive(small / "archive", create=False)
        recorded = archive.list()
    except (penstock.PenstockError, OSError):
        return  # not even the catalog found room
    for info in recorded:
        got = [m.data for m in archive.replay(info.id)]
        assert got == (MESSAGES * 20)[: len(got)], "a full disk made other messages of them"


def _in_a_child(act: Callable[[Path, Path], None], small: Path, roomy: Path) -> bool:
    pid = os.fork()
    if pid == 0:
        status = 1
        logging.disable(logging.CRITICAL)  # a full disk is no news here
        try:
            act(small, roomy)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def sizes(*, long: bool) -> Row:
    """Both with every size; every fourth in the short mode."""
    begun = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="penstock-tmpfs-"))
    small, roomy = folder / "small", folder / "roomy"
    small.mkdir()
    roomy.mkdir(mode=0o700)
    failed: list[str] = []
    count = 0
    try:
        for pages in range(1, 257, 1 if long else 4):
            for act in (_channel, _archive):
                try:
                    _mount(small, pages)
                except OSError as error:
                    return Row("system", "tmpfs sizes", 0, skipped=f"a tmpfs cannot be mounted here: {error}")
                try:
                    count += 1
                    if not _in_a_child(act, small, roomy):
                        failed.append(f"{act.__name__} in {pages} pages")
                finally:
                    _unmount(small)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    row = Row("system", "full memory file systems, by size", count, len(failed), time.monotonic() - begun)
    row.failure = f"python -m evidence system   # {failed[0]}" if failed else ""
    return row
