"""The command doctor: what is wrong with this machine for Penstock, and what to do."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

import penstock
from penstock.cli import output
from penstock.cli.output import console
from penstock.status import ChannelStatus

MARKS = {"good": "[green]good[/]", "note": "[yellow]note[/]", "bad": "[red]bad[/] "}


@dataclass(frozen=True)
class Finding:
    """One thing looked at. level: good, note (works, but know this) or bad (will fail); advice: what to do."""

    level: str
    what: str
    advice: str = ""


def add_commands(app: typer.Typer) -> None:
    """Puts this room's command on the app."""
    app.command("doctor")(doctor)


def doctor(json: Annotated[bool, typer.Option("--json", help="JSON, for programs.")] = False) -> None:
    """Says what is wrong with this machine and what to do. Status 1 if something will fail."""
    checks: list[Callable[[], Finding]] = [
        _platform,
        _folder,
        _memory,
        _round_trip,
        _leftovers,
        _java,
        _pyspark,
        _clock,
    ]
    found = [_guarded(check) for check in checks]
    if json:
        print(output.as_json(found))
    else:
        for finding in found:
            console.print(f"{MARKS[finding.level]}  {finding.what}")
            if finding.advice:
                console.print(f"      → {finding.advice}")
    if any(finding.level == "bad" for finding in found):
        raise typer.Exit(1)


def _guarded(check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except (penstock.PenstockError, OSError) as error:
        return Finding("bad", str(error))


def _platform() -> Finding:
    system = f"Penstock {penstock.__version__}, Python {platform.python_version()}, {platform.system()} {platform.release()} {platform.machine()}"
    if platform.system() != "Linux":
        return Finding("bad", system, "Penstock needs Linux: futexes and open-file-description locks")
    return Finding("good", system)


def _shm() -> Path:
    chosen = os.environ.get("PENSTOCK_DIR")
    return Path(chosen).parent if chosen else Path("/dev/shm")


def _folder() -> Finding:
    folder = Path(os.environ.get("PENSTOCK_DIR") or f"/dev/shm/penstock-{os.getuid()}")
    if not folder.exists():
        if not os.access(folder.parent, os.W_OK):
            return Finding(
                "bad",
                f"cannot make the channel folder {folder}",
                "set PENSTOCK_DIR to a folder of yours on a memory file system",
            )
        return Finding("good", f"channel folder {folder}: not there yet, can be made")
    about = folder.stat()
    if about.st_uid != os.getuid() or about.st_mode & 0o077:
        return Finding(
            "bad",
            f"channel folder {folder}: owner {about.st_uid}, mode {about.st_mode & 0o777:o}",
            f"chmod 700 {folder}, or set PENSTOCK_DIR",
        )
    return Finding("good", f"channel folder {folder}")


def _memory() -> Finding:
    place = _shm()
    free, total = shutil.disk_usage(place).free, shutil.disk_usage(place).total
    what = f"shared memory at {place}: {output.size(free)} free of {output.size(total)}; a log takes 25 MB by default"
    kind = next(
        (line.split()[2] for line in Path("/proc/mounts").read_text().splitlines() if line.split()[1] == str(place)),
        "tmpfs",
    )
    if kind not in ("tmpfs", "ramfs", "hugetlbfs") and place == Path("/dev/shm"):
        return Finding(
            "note", f"{what}; it is {kind}, not memory", "mount a tmpfs there, else messages go through a disk's cache"
        )
    if free < 32 << 20:
        return Finding(
            "bad", what, "remove old channels, use a smaller term_length, or enlarge it (docker run --shm-size=1g)"
        )
    return Finding(
        "note" if free < 128 << 20 else "good",
        what,
        "for several channels enlarge it or use a smaller term_length" if free < 128 << 20 else "",
    )


def _round_trip() -> Finding:
    name = f"log:doctor-{os.getpid()}"
    try:
        with penstock.publish(name, term_length=1 << 16) as pub, penstock.subscribe(name) as sub:
            pub.send(b"ping")
            if sub.recv(timeout=5) != b"ping":
                return Finding(
                    "bad",
                    "a message did not come back as it was sent",
                    "please report this with the output of doctor --json",
                )
    finally:
        with contextlib.suppress(penstock.NotFound):
            penstock.remove(name)
    return Finding("good", "a message went through a channel and back")


def _leftovers() -> Finding:
    unused = [status for status in penstock.channels() if not _somebody(status)]
    if not unused:
        return Finding("good", "no leftover channels")
    total = sum(status.size for status in unused)
    names = ", ".join(status.channel for status in unused[:5]) + (" …" if len(unused) > 5 else "")
    return Finding(
        "note",
        f"{len(unused)} channels that nobody has open hold {output.size(total)}: {names}",
        "penstock.remove(CHANNEL) frees one; they keep their history until then",
    )


def _somebody(status: ChannelStatus) -> bool:
    return any(Path(f"/proc/{member.pid}").exists() for member in status.members)


def _java() -> Finding:
    from penstock.spark.jvm import find_java, java_version

    try:
        home, source = find_java()
    except penstock.NotFound as error:
        return Finding("note", "no Java: channels and archives work, the Spark parts do not", str(error))
    return Finding("good", f"Java {java_version(home / 'bin' / 'java')} from {source}: {home}")


def _pyspark() -> Finding:
    try:
        version = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        return Finding(
            "note",
            "no PySpark: channels and archives work, the Spark parts do not",
            f"{sys.executable} -m pip install 'penstock[spark]'",
        )
    fine = (4, 2) <= tuple(int(part) for part in version.split(".")[:2]) < (5, 0)
    return Finding("good" if fine else "bad", f"PySpark {version}", "" if fine else "pip install 'pyspark>=4.2,<5'")


def _clock() -> Finding:
    source = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    name = source.read_text().strip() if source.exists() else "unknown"
    if name == "tsc":
        return Finding("good", "clock source tsc: a time stamp costs about 10 ns")
    return Finding(
        "note",
        f"clock source {name}: time stamps cost a system clock reading each",
        "on bare metal and most clouds tsc is to be had",
    )
