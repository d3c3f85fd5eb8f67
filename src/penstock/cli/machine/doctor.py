"""The command doctor: finds problems of this machine with Penstock, and suggests fixes."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

import penstock
from penstock.channels.storage import files
from penstock.channels.storage.discovery import survey
from penstock.channels.storage.holding import held, measured_rate
from penstock.channels.uri.opener import parse
from penstock.cli.ending import reason
from penstock.cli.machine import containers
from penstock.cli.machine.facts import existing
from penstock.cli.machine.findings import Finding
from penstock.cli.terminal import output
from penstock.kinds.log import advise_retention
from penstock.util.units import seconds

STYLES = {"good": "green", "note": "yellow", "bad": "red"}


def add_commands(app: typer.Typer) -> None:
    """Adds this command to the app."""
    app.command("doctor")(doctor)


def doctor(
    json: Annotated[bool, typer.Option("--json", help="JSON, for programs.")] = False,
    before: Annotated[
        str | None,
        typer.Option(help="Also say which channels keep less than this of their past, as 30s.", metavar="<time>"),
    ] = None,
) -> None:
    """Checks this machine and suggests fixes. Status 1 if something will fail."""
    span = None if before is None else seconds(before, "--before")
    checks: list[Callable[[], Finding]] = [
        _platform,
        _folder,
        _foreign_files,
        _memory,
        containers.check_container,
        containers.check_elsewhere,
        containers.check_users,
        _round_trip,
        _leftovers,
        _java,
        _pyspark,
        _clock,
        *([] if span is None else [lambda: _retention(span)]),
    ]
    found = list(
        {finding.what: finding for finding in map(_run_check, checks)}.values()
    )  # one problem may stop several checks
    if json:
        print(output.as_json(found))
    else:
        for finding in found:
            output.say((f"{finding.level:4}", STYLES[finding.level]), f"  {finding.what}")
            if finding.advice:
                output.say(f"      → {finding.advice}")
    if any(finding.level == "bad" for finding in found):
        raise typer.Exit(1)


def _run_check(check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except (penstock.PenstockError, OSError) as error:
        return Finding("bad", reason(error))
    except Exception as error:  # the other checks still run
        return Finding("bad", f"{check.__name__.strip('_')} could not be checked: {error!r}", "please report this")


def _platform() -> Finding:
    system = f"Penstock {penstock.__version__}, Python {platform.python_version()}, {platform.system()} {platform.release()} {platform.machine()}"
    if platform.system() != "Linux":
        return Finding("bad", system, "Penstock needs Linux: futexes and open-file-description locks")
    return Finding("good", system)


def _folder() -> Finding:
    place = files.folder()
    shown = output.path(place)
    if os.path.lexists(place):
        survey()  # checks owner and mode as every use does, and suggests a fix
        return Finding("good", f"channel folder {shown}")
    if not os.access(place.parent, os.W_OK, effective_ids=True):
        return Finding(
            "bad",
            f"cannot make the channel folder {shown}",
            "set PENSTOCK_DIR to a folder of yours on a memory file system",
        )
    return Finding("good", f"channel folder {shown}: not there yet, can be made")


def _foreign_files() -> Finding:
    strange = survey()[1]
    if not strange:
        return Finding("good", "all files in the channel folder that look like channels are channels")
    shown = "; ".join(f"{stranger.path} ({stranger.why})" for stranger in strange[:5])
    return Finding(
        "note",
        f"{output.many(len(strange), 'file')} in the channel folder {'is not a channel' if len(strange) == 1 else 'are not channels'}: "
        f"{shown}{'; …' if len(strange) > 5 else ''}",
        "remove them if they are not yours to keep; penstock ls leaves them out",
    )


def _memory() -> Finding:
    place = existing(files.folder())
    free, total = shutil.disk_usage(place).free, shutil.disk_usage(place).total
    what = f"shared memory at {output.path(place)}: {output.size(free)} free of {output.size(total)}; a log takes 25 MB by default"
    kind = containers.mounted_at(place)[1]
    if kind not in ("tmpfs", "ramfs", "hugetlbfs"):
        return Finding(
            "note",
            f"{what}; it is {kind}, not memory",
            "set PENSTOCK_DIR to a folder on a tmpfs, else messages pass through a disk's cache",
        )
    if free < 32 << 20:
        return Finding(
            "bad",
            what,
            f"remove channels that no process has open (penstock rm --unused), use a smaller capacity, or enlarge it: {containers.LARGER}",
        )
    if containers.is_container_size(total):
        return Finding(
            "note", f"{what}; it has the size that a container gets by default", f"enlarge it: {containers.LARGER}"
        )
    return Finding(
        "note" if free < 128 << 20 else "good",
        what,
        "for several channels enlarge it or use a smaller capacity" if free < 128 << 20 else "",
    )


def _round_trip() -> Finding:
    name = f"log:doctor-{os.getpid()}"
    try:
        with penstock.publish(name, term_length=1 << 16) as pub, penstock.subscribe(name) as sub:
            pub.send(b"ping")
            if sub.recv(timeout=5) != b"ping":
                return Finding(
                    "bad",
                    "a message arrived changed",
                    "please report this with the output of doctor --json",
                )
    finally:
        with contextlib.suppress(penstock.NotFound):
            penstock.remove(name)
    return Finding("good", "a message went through a channel and back")


def _leftovers() -> Finding:
    unused = [status for status in survey()[0] if not status.members]
    if not unused:
        return Finding("good", "no leftover channels")
    total = sum(status.size for status in unused)
    names = ", ".join(status.channel for status in unused[:5]) + (" …" if len(unused) > 5 else "")
    return Finding(
        "note",
        f"channels that no process has open hold {output.size(total)}: {names}",
        "penstock rm CHANNEL removes one with its history, penstock rm --unused all of them",
    )


def _retention(before: float) -> Finding:
    """Whether a snapshot that goes back so far would have all of it."""
    short = []
    for status in survey()[0]:
        found = held(parse(status.channel), time.time_ns())
        if found is not None and not found.is_all and found.seconds < before:
            short.append((status.channel, found.seconds))
    if not short:
        return Finding("good", f"no channel has overwritten messages of the last {before:g} s")
    texts = [f"{channel} ({seconds:.1f} s)" for channel, seconds in short]
    logs = [(measured_rate(parse(channel)), channel) for channel, _ in short if parse(channel).kind.name == "log"]
    advice = []
    if logs:
        rate, channel = max(logs)
        advice.append(f"logs: publish with {advise_retention(before, int(rate * 1.25) + 1)}, here for {channel}")
    if len(logs) < len(short):
        advice.append("rings, frames and queues: a larger capacity, or more buffers")
    return Finding(
        "note",
        f"a snapshot of the last {before:g} s would lack a part of {', '.join(texts[:5])}{', …' if len(texts) > 5 else ''}",
        "; ".join(advice),
    )


WITHOUT = "channels, recordings, replay, export, pipeline --engine local and sql --engine duckdb work; demo, and pipeline and sql by Spark do not"


def _java() -> Finding:
    try:
        from penstock.spark.runtime.jvm import find_java, java_version

        home, source = find_java()
    except penstock.MissingPackage as error:
        return Finding(
            "note", "no Arrow: channels and recorders work; reading recordings, tables and Spark do not", str(error)
        )
    except penstock.NotFound as error:
        return Finding("note", f"no Java: {WITHOUT}", str(error))
    return Finding("good", f"Java {java_version(home / 'bin' / 'java')} from {source}: {home}")


def _pyspark() -> Finding:
    try:
        version = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        return Finding(
            "note",
            f"no PySpark: {WITHOUT}",
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
        "bare metal and most clouds have the faster clock source tsc",
    )
