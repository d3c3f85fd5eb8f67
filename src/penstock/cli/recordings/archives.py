"""Commands on archives: record, recordings, verify, repair, purge, consumers, archive push."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

import penstock
from penstock.channels.uri.channel import parse
from penstock.channels.uri.wildcards import is_pattern
from penstock.cli import arguments, ending
from penstock.cli.arguments import ArchivePath, LocalArchivePath
from penstock.cli.channels.names import is_awaited, names, nothing_yet
from penstock.cli.terminal import output
from penstock.record import Expired, Progress, RecordingInfo
from penstock.util.files.storage import where
from penstock.util.units import shown

LOOK_SECONDS = 0.1
AsJson = Annotated[bool, typer.Option("--json", help="JSON, for programs.")]


def add_commands(app: typer.Typer) -> None:
    """Adds these commands to the app."""
    app.command("record")(record)
    app.command("recordings")(recordings)
    app.command("verify")(verify)
    app.command("repair")(repair)
    app.command("purge")(purge)
    app.command("consumers")(consumers)
    group = typer.Typer(name="archive", help="Jobs on whole archives: push.")
    group.callback()(_archive)
    group.command("push")(push)
    app.add_typer(group)


def record(
    archive: LocalArchivePath,
    channels: Annotated[
        list[str] | None,
        typer.Argument(
            help="Channels such as log:imu, and patterns such as 'robot/*', which take later channels too.",
            autocompletion=names,
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All channels, also those that appear later.")] = False,
    seconds: Annotated[float | None, typer.Option(help="Stop after this long; default: until Ctrl-C.")] = None,
    start: Annotated[
        str,
        typer.Option(help="newest, earliest or a position. With --extend: of channels without a recording; a word."),
    ] = "newest",
    extend: Annotated[
        bool, typer.Option("--extend", help="Continue the channel's newest recording where it ended.")
    ] = False,
    drop_after: Annotated[
        float | None, typer.Option(help="Seconds that writers wait at most; then data are lost instead.")
    ] = None,
    sent: Annotated[
        bool, typer.Option("--sent", help="Record the publications of this machine on udp channels.")
    ] = False,
    no_pixels: Annotated[
        bool, typer.Option("--no-pixels", help="Of frames channels: only the notes of the frames.")
    ] = False,
    pixels: Annotated[
        str | None,
        typer.Option(
            help="Of frames channels: how frames are recorded: raw, zstd, png or jpeg, with a level or a quality as jpeg:80.",
            metavar="<raw|zstd|png|jpeg>",
        ),
    ] = None,
    when_slow: Annotated[
        str | None,
        typer.Option(
            help="wait: the writers of frames channels wait for this recorder; skip: none does.", metavar="<wait|skip>"
        ),
    ] = None,
    max_bytes: arguments.MaxBytes = None,
    max_age: arguments.MaxAge = None,
) -> None:
    """Records channels into an archive."""
    if bool(channels) == every:
        raise typer.BadParameter("name channels, or give --all", param_hint="CHANNELS")
    if no_pixels and pixels is not None:
        raise typer.BadParameter("--no-pixels records none: give one of them", param_hint="--pixels")
    asked = ["*"] if every else list(channels or [])
    place, length = arguments.start(start), arguments.seconds(seconds, "--seconds")
    with ending.defer_end() as wait, output.working("recording") as now:
        begun = time.monotonic()
        opened = _open_to_write(archive, create=True)
        with opened._files.removed_if_it_fails():
            recorder = opened.record(
                asked,
                start=place,
                extend=extend,
                drop_after=drop_after,
                sent=sent,
                pixels=not no_pixels if pixels is None else pixels,
                when_slow=when_slow,
                max_bytes=max_bytes,
                max_age=max_age,
            )
        for channel in asked:
            if not is_pattern(channel) and waits(channel):
                output.note(nothing_yet(channel))
        ended = wait(0)
        while not ended and recorder.error is None and (left := _seconds_left(length, begun)) > 0:
            ended = wait(min(left, LOOK_SECONDS))
            rows = recorder.progress()
            total, held = sum(row.messages for row in rows), sum(row.bytes for row in rows)
            many = output.many(len({row.channel for row in rows}), "channel")
            lost = f", {_lost_text(rows)} lost" if any(row.lost_bytes for row in rows) else ""
            now(f"recording {many}: {output.many(total, 'message')}, {output.size(held)}{lost}. Ctrl-C ends")
        done = recorder.stop()
    for row in done:
        lost = f", {_lost_text([row])} lost" if row.lost_bytes else ""
        output.say(
            f"recording {row.recording} of {row.channel}: {output.many(row.messages, 'message')} up to position {row.position:,}{lost}"
        )
    if left_out := [row.channel for row in done if parse(row.channel).kind.by_reference and no_pixels]:
        output.note(
            f"left out, by --no-pixels: the pixels of {', '.join(dict.fromkeys(left_out))}. Only the frames' notes are recorded"
        )
    if not any(row.messages or row.lost_bytes for row in done):
        output.note("no message arrived, so nothing was recorded")
    if ended not in (0, signal.SIGINT):  # Ctrl-C is how a recording ends
        raise ending.Signalled(ended)


def _lost_text(rows: Sequence[Progress | RecordingInfo]) -> str:
    """The losses of recordings: in frames where all of them are frames of one size, else in bytes."""
    counts = [row.lost_messages for row in rows if row.lost_bytes]
    if counts and all(counts):
        return output.many(sum(count or 0 for count in counts), "frame")
    return output.size(sum(row.lost_bytes for row in rows))


def _open_to_write(archive: Path, *, create: bool = False) -> penstock.Archive:
    """An archive that is to be changed. `Unsupported` on an object storage."""
    place = where(os.fspath(archive), "the archive")
    if not place.is_local:
        kind = "another machine" if place.is_served else "an object storage"
        raise penstock.Unsupported(f"{place.uri} is on {kind}, where recordings can only be read")
    return penstock.Archive(archive, create=create)


def waits(channel: str) -> bool:
    """Whether a recorder of this channel waits for the first publication."""
    if is_awaited(channel):
        return True
    try:
        return penstock.inspect(channel).state == "open"
    except penstock.PenstockError:
        return False


def _seconds_left(length: float | None, begun: float) -> float:
    return LOOK_SECONDS if length is None else begun + length - time.monotonic()


def recordings(archive: ArchivePath, json: AsJson = False) -> None:
    """Lists an archive's recordings: since when, how long, how much. All numbers: --json."""
    found = penstock.Archive(archive, create=False).list()
    if json:
        more = ("lost_messages", "encoding", "ratio")
        print(output.as_json([vars(info) | {name: getattr(info, name) for name in more} for info in found]))
        return
    right = ("id", "messages", "bytes", "seconds", "lost")
    leaves = ("state", "bytes", "from", "seconds", "lost", "pixels")
    encoded = any(info.encoding for info in found)
    rows = output.table(
        "id",
        "channel",
        "state",
        "from",
        "seconds",
        "messages",
        "bytes",
        "lost",
        *(["pixels"] if encoded else []),
        right=right,
        leaves=leaves,
        name="channel",
    )
    for info in found:
        rows.add_row(
            str(info.id),
            info.channel,
            info.state,
            shown(info.time_min if info.messages else info.created_ns),
            f"{info.seconds:.1f}",
            output.count(info.messages),
            output.size(info.bytes),
            _lost_text([info]),
            *([_pixels_text(info)] if encoded else []),
        )
    if found:
        output.show(rows)
    else:
        output.say(f"{output.path(archive)} holds no recordings")


def _pixels_text(info: RecordingInfo) -> str:
    """How the frames of a recording are stored, and how much of a raw recording that is."""
    if info.encoding is None:
        return "raw" if info.codec.get("pixels") else ""
    if info.ratio is None:
        return info.encoding
    return f"{info.encoding}, {info.ratio:.{0 if info.ratio >= 0.1 else 1}%}"


def verify(archive: ArchivePath, json: AsJson = False) -> None:
    """Checks every byte of an archive. Status 1 if something is damaged."""
    opened = penstock.Archive(archive, create=False)
    place = output.path(archive)
    with output.working(f"checking {place}"):
        found = opened.verify()
    try:
        _print_damage(opened, place, found, json)
    finally:
        if found:  # also if the output's reader has closed it
            raise typer.Exit(1)


def _print_damage(opened: penstock.Archive, place: str, found: list[Any], json: bool) -> None:
    if json:
        print(output.as_json(found))
    elif not found:
        total, many = sum(info.bytes for info in opened.list()), output.many(len(opened.folders()), "recording")
        output.say(f"{place}: {many}, {output.size(total)}: every byte is as it was written")
    else:
        for damage in found:
            output.say(f"{output.path(damage.path)}: byte {damage.offset}, {damage.length} long: {damage.what}")
        unread = [damage for damage in found if damage.is_unread]
        if damaged := len(found) - len(unread):
            many = output.many(damaged, "problem")
            where = (
                f"penstock repair {place}"
                if isinstance(opened.path, Path)
                else "penstock repair, where the archive is,"
            )
            output.say(f"{many}. {where} records damage as gaps and keeps everything else")
        if unread:
            many = output.many(len(unread), "recording")
            output.say(f"{many} cannot be read, which is not damage: change the permissions, or verify as their owner")


def repair(archive: LocalArchivePath, json: AsJson = False) -> None:
    """Records damage as gaps of the recordings, which keep everything else. Deletes nothing."""
    done = _open_to_write(archive).repair()
    if json:
        print(output.as_json(done))
        return
    for row in done:
        output.say(f"{output.path(row.path)}: {row.what}")
    output.say(output.many(len(done), "repair") if done else "nothing to repair")


def purge(
    archive: LocalArchivePath,
    which: Annotated[
        list[str] | None,
        typer.Argument(
            help="Recordings: numbers, or channels (their newest one). With limits: channels and patterns; default: all.",
            metavar="WHICH",
        ),
    ] = None,
    max_bytes: arguments.MaxBytes = None,
    max_age: arguments.MaxAge = None,
    force: Annotated[bool, typer.Option("--force", help="Also recordings that a consumer has yet to read.")] = False,
    json: AsJson = False,
) -> None:
    """Deletes recordings: those that are named, or the oldest ones, until limits are kept. Recordings that a consumer has yet to read stay: status 1."""
    opened = _open_to_write(archive)
    if max_bytes is None and max_age is None:
        if not which:
            raise typer.BadParameter("name recordings, or give --max-bytes or --max-age", param_hint="WHICH")
        found = list({info.id: info for info in (opened.find(arguments.recording(name)) for name in which)}.values())
        for info in found:
            opened.purge(info.id, force=force)
        done = Expired(tuple(found), ())
    else:
        done = opened.expire(which or "*", max_bytes=max_bytes, max_age=max_age, force=force)
    for text in done.kept:
        output.note(f"warning: {text}")
    try:
        _print_purged(done, json)
    finally:
        if done.kept:  # also if the output's reader has closed it
            raise typer.Exit(1)


def _print_purged(done: Expired, json: bool) -> None:
    if json:
        print(output.as_json(done))
        return
    for info in done.purged:
        output.say(
            f"purged recording {info.id} of {info.channel}: {output.many(info.messages, 'message')}, {output.size(info.bytes)}"
        )
    if not done.purged and not done.kept:
        output.say("nothing to purge")


def consumers(
    archive: ArchivePath,
    forget: Annotated[str | None, typer.Option(help="Remove this consumer, which no longer exists.")] = None,
    json: AsJson = False,
) -> None:
    """Lists the queries that read an archive step by step. A purge keeps the messages that they have yet to read."""
    opened = penstock.Archive(archive, create=False)
    if forget is not None:
        arguments.refuse_others("--forget", "it lists nothing", json=json)
        opened.forget_consumer(forget)
        output.say(f"{forget} is forgotten")
        return
    found = opened.consumers()
    if json:
        print(
            output.as_json(
                [{"name": one.name, "channels": one.channels, "updated_ns": one.updated_ns} for one in found]
            )
        )
        return
    rows = output.table("consumer", "channels", "last read", right=("last read",))
    for one in found:
        rows.add_row(one.name, ", ".join(one.channels or ("all",)), shown(one.updated_ns))
    if found:
        output.show(rows)
    else:
        output.say(f"no query reads {output.path(archive)} step by step")


def _archive() -> None:
    """Jobs on whole archives: push, onto an object storage."""


def push(
    archive: LocalArchivePath,
    target: Annotated[
        str, typer.Argument(help="Where to: s3://BUCKET/FOLDER.", parser=arguments.place, metavar="TARGET")
    ],
    recording: Annotated[
        str | None, typer.Option(help="Only this one: a recording's number, or a channel: its newest one.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Delete objects there of recordings that were cut back here.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Copies an archive's sealed segments to an object storage, or only those that are new since the last push."""
    which = None if recording is None else arguments.recording(recording)
    with output.steps("pushing", quiet=json) as report:
        done = _open_to_write(archive).push(str(target), recording=which, replace=replace, progress=report)
    if json:
        print(output.as_json(done))
    else:
        for row in done:
            waiting = f"; {output.size(row.waiting)} are not sealed yet" if row.waiting else ""
            output.say(
                f"recording {row.recording} of {row.channel}: {output.many(row.segments, 'segment')} pushed, "
                f"{output.size(row.bytes)}; {row.there:,} were there{waiting}"
            )
    wrong = [row for row in done if row.error]
    for row in wrong:
        output.note(f"warning: recording {row.recording} of {row.channel}: {row.error}")
    if wrong:
        raise penstock.PenstockError(f"{output.many(len(wrong), 'recording')} of {len(done):,} could not be pushed")
