"""The programs of the room: a publisher, a reader, a recorder. Each writes what it does into a file, line by line, as it does it.

They use the library as any program does. A file `stop` beside the lines asks one to end well.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any

import penstock
from penstock.record.write.writer import RecordingWriter

# Rounds of a tenth of a second and more, without news, after which a reader gets no more; and one that waits for something. They are counted
# in the reader's own turns, so that a busy machine only makes them longer. A wait of a tenth is explained in its error, for a millisecond of
# CPU; a shorter one is not.
QUIET, PATIENT = 10, 60
LONG, SHORT = 0.1, 0.099


class Told:
    """Where a program says what it does: lines of JSON, each with the time, that a kill does not take back."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def say(self, what: str, *facts: Any) -> None:
        """One line."""
        if facts and type(facts[0]) is not int:
            os.write(self._fd, json.dumps([time.time(), what, *facts]).encode() + b"\n")
        else:  # the many lines about messages
            os.write(self._fd, f'[{time.time()!r}, "{what}"{"".join([f", {fact}" for fact in facts])}]\n'.encode())


def body(publisher: int, number: int, longest: int) -> bytes:
    """A message: whose it is, its number, and bytes that follow from both."""
    head = b"%d %d %d " % (publisher, number, longest)
    size = (number * 7919 + publisher * 31) % longest + 1
    return (head + b"%x" % (number * 2654435761 % (1 << 32)) * (size // 8 + 1))[: len(head) + size]


def whose(data: bytes) -> tuple[int, int]:
    """The publisher and the number of a message; (-1, -1) if one of its bytes is another."""
    try:
        publisher, number, longest = map(int, data.split(b" ", 3)[:3])
    except ValueError:
        return -1, -1
    return (publisher, number) if data == body(publisher, number, longest) else (-1, -1)


def _opened(uri: str, options: Any) -> Any:
    """The publication, once the machine has a network: its address may change at this moment."""
    until = time.monotonic() + 5
    while True:
        try:
            return penstock.publish(uri, **options)
        except penstock.SystemFailure:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def publish(
    told: Told,
    stop: Path,
    uri: str,
    number: int,
    count: int,
    burst: int,
    pause: float,
    longest: int,
    waits: int,
    options: Any,
) -> None:
    """Sends its messages, says how far they were received, and closes when it is asked to."""
    with _opened(uri, options) as pub:
        told.say("open", pub.session)
        with contextlib.suppress(penstock.TimedOut):
            pub.wait_for_readers(waits, timeout=5)
            if waits:
                told.say("ready")
        for n in range(count):
            while True:
                with contextlib.suppress(penstock.TimedOut):
                    position = pub.send(body(number, n, longest), timeout=1)
                    break
            told.say("sent", n, position)
            if n % 8 == 0:
                told.say("acked", pub.progress()[0])
            if n % burst == 0:
                time.sleep(pause)
        told.say("done")
        acked = -1
        while not stop.exists():
            if acked != (acked := pub.progress()[0]):
                told.say("acked", acked)
            time.sleep(0.05)
        told.say("closing")
    told.say("closed")


def read(told: Told, stop: Path, uri: str, archive: str) -> None:
    """Reads until it is asked to stop, and says at each message how much was lost so far; and when an end is told."""
    while True:
        try:
            options: dict[str, Any] = {"archive": archive, "start": "earliest"} if archive else {}
            sub = penstock.subscribe(uri, until_end=True, codec="bytes", **options)
            break
        except (penstock.NotFound, penstock.SystemFailure):  # its archive is away
            if not archive:
                raise
            time.sleep(0.05)
    with sub:
        told.say("open")
        state, known, heard, rounds, now = "", set[int](), set[int](), 0, ""
        while not now or not stop.exists():
            now = ""
            try:
                data = sub.recv(timeout=LONG if rounds % QUIET == QUIET - 1 else SHORT)
            except penstock.TimedOut as error:
                if state in ("end", "silent") and "waits for its archive" in str(error):
                    continue  # it asks again, after each end that it has told, whether there is more
                now = "idle"
            except penstock.EndOfStream:
                now = "end"
            except penstock.Disconnected:
                now = "silent"
            for one in sub.sessions if now and (now != state or rounds % 3 == 0) else ():
                if one.session not in known:
                    known.add(one.session)
                    told.say("session", one.session, one.joined)
                if one.end > one.joined and one.session not in heard:
                    heard.add(one.session)
                    told.say("heard", one.session)
            if not now:
                told.say("got", *whose(data), sub.last.session, sub.last.position, sub.lost)
            elif now != state:
                told.say(now, sub.lost)
            rounds = rounds + 1 if now and now == state else 0
            if rounds in (QUIET, PATIENT):
                told.say("quiet", rounds)
            if now in ("end", "silent"):
                time.sleep(0.1)
            state = now
        told.say("stopped", sub.lost)


def record(told: Told, stop: Path, uri: str, folder: Path, sent: bool, serve: str) -> None:
    """Records, and says what is durable. sent: what is sent on this machine, from its beginning on."""
    _tell_syncs(told)
    archive = penstock.Archive(folder)
    options: dict[str, Any] = {"sent": True, "start": "earliest"} if sent else {}
    with contextlib.ExitStack() as stack:
        if serve:
            stack.enter_context(archive.serve(serve, insecure=True))
        recorder = archive.record(uri, sync_interval=0.05, segment_length=1 << 16, **options)
        told.say("open")
        durable: dict[int, int] = {}
        while not stop.exists():
            if recorder.error is not None:
                raise recorder.error
            for one in recorder.progress():
                if durable.get(one.recording) != one.synced:
                    durable[one.recording] = one.synced
                    told.say("synced", one.recording, one.synced)
            time.sleep(0.05)
        recorder.stop()
        told.say("stopped")


class _Segment:
    """A segment that says, after each sync, which bytes of its files are durable: the others may be lost with the power."""

    def __init__(self, real: Any, say: Any, paths: tuple[Path, ...]) -> None:
        self._real, self._say, self._paths = real, say, paths
        self._tell()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def sync(self) -> None:
        self._real.sync()
        self._tell()

    def _tell(self) -> None:
        self._say("durable", {str(path): path.stat().st_size for path in self._paths if path.exists()})


def _tell_syncs(told: Told) -> None:
    """Each segment of this process says what is durable."""
    plain = RecordingWriter._new_segment

    def new_segment(writer: RecordingWriter, base: int, messages: int) -> Any:
        paths = writer.folder.segment_paths(base)
        return _Segment(plain(writer, base, messages), told.say, (paths.data, paths.index))

    RecordingWriter._new_segment = new_segment  # type: ignore[method-assign]
