"""Commands on archives: record, replay, recordings, verify, repair."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

import penstock
from penstock.cli import output
from penstock.cli.output import console

ArchivePath = Annotated[Path, typer.Argument(help="The archive's folder.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON, for programs.")]


def add_commands(app: typer.Typer) -> None:
    """Puts this room's commands on the app."""
    app.command("record")(record)
    app.command("recordings")(recordings)
    app.command("replay")(replay)
    app.command("verify")(verify)
    app.command("repair")(repair)


def record(
    archive: ArchivePath,
    channels: Annotated[list[str], typer.Argument(help="Channels such as log:imu.")],
    seconds: Annotated[float | None, typer.Option(help="Stop after this long; default: until Ctrl-C.")] = None,
    start: Annotated[str, typer.Option(help="newest, earliest or a position.")] = "newest",
    extend: Annotated[bool, typer.Option(help="Go on with the channel's newest recording.")] = False,
    drop_after: Annotated[
        float | None, typer.Option(help="Lose data rather than make writers wait longer than this.")
    ] = None,
) -> None:
    """Records channels into an archive."""
    place: str | int = int(start) if start.lstrip("-").isdigit() else start
    begun = time.monotonic()
    opened = penstock.Archive(archive)
    recorder = opened.record(channels, start=place, extend=extend, drop_after=drop_after)
    try:
        with console.status("recording") as status:
            while recorder.error is None and (seconds is None or time.monotonic() - begun < seconds):
                time.sleep(0.1)
                rows = recorder.progress()
                total = sum(row.messages for row in rows)
                status.update(
                    f"recording {len(rows)} channels: {total:,} messages, {output.size(sum(r.bytes for r in rows))}. Ctrl-C ends"
                )
    except KeyboardInterrupt:
        pass
    for row in recorder.stop():
        console.print(
            f"recording {row.recording} of {row.channel}: {row.messages:,} messages up to position {row.position:,}"
        )


def recordings(archive: ArchivePath, json: AsJson = False) -> None:
    """Lists an archive's recordings."""
    found = penstock.Archive(archive, create=False).list()
    if json:
        print(output.as_json(found))
        return
    right = ("id", "messages", "bytes", "seconds", "end", "synced", "lost")
    rows = output.table(
        None, "id", "channel", "state", "messages", "bytes", "seconds", "end", "synced", "lost", right=right
    )
    for info in found:
        rows.add_row(
            str(info.id),
            info.channel,
            info.state,
            output.count(info.messages),
            output.size(info.bytes),
            f"{info.seconds:.1f}",
            output.count(info.end_position),
            output.count(info.synced_position),
            output.size(info.lost_bytes),
        )
    console.print(rows if found else f"{archive} holds no recordings")


def _which(recording: str) -> int | str:
    return int(recording) if recording.isdigit() else recording


def replay(
    archive: ArchivePath,
    recording: Annotated[str, typer.Argument(help="A recording's number, or a channel: its newest one.")],
    onto: Annotated[str | None, typer.Option(help="Publish onto this channel instead of printing.")] = None,
    speed: Annotated[
        float | None, typer.Option(help="1 as it was sent, 2 twice as fast; default: as fast as possible.")
    ] = None,
    start: Annotated[int, typer.Option(help="From this position on.")] = 0,
    since: Annotated[float | None, typer.Option(help="From this time on, in seconds since the epoch.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", help="End after this many messages.")] = None,
    json: AsJson = False,
) -> None:
    """Prints a recording's messages, or publishes them onto a channel."""
    opened = penstock.Archive(archive, create=False)
    options: dict[str, Any] = {"start": start} if since is None else {"start": start, "since": int(since * 1e9)}
    if onto is not None:
        count = opened.replay_onto(onto, _which(recording), speed=speed, **options)
        console.print(f"{count:,} messages onto {onto}")
        return
    for number, message in enumerate(opened.replay(_which(recording), speed=speed, **options)):
        if limit is not None and number >= limit:
            break
        if json:
            print(output.as_json({**message._asdict()}))
        elif isinstance(message.data, bytes):
            print(message.data.decode("utf-8", "backslashreplace"))
        else:
            print(message.data if hasattr(message.data, "dtype") else output.as_json(message.data))


def verify(archive: ArchivePath, json: AsJson = False) -> None:
    """Checks every byte of an archive. Status 1 if something is not as it was written."""
    opened = penstock.Archive(archive, create=False)
    with console.status(f"checking {archive}"):
        found = opened.verify()
    if json:
        print(output.as_json(found))
    elif not found:
        total = sum(info.bytes for info in opened.list())
        console.print(
            f"{archive}: {len(opened.folders())} recordings, {output.size(total)}: every byte is as it was written"
        )
    else:
        for damage in found:
            console.print(f"{damage.path}: byte {damage.offset}, {damage.length} long: {damage.what}")
        console.print(
            f"{len(found)} problems. penstock repair {archive} keeps the longest valid part of each recording"
        )
    if found:
        raise typer.Exit(1)


def repair(archive: ArchivePath, json: AsJson = False) -> None:
    """Cuts damaged recordings back to their longest valid prefix; what is cut off is kept aside."""
    done = penstock.Archive(archive, create=False).repair()
    if json:
        print(output.as_json(done))
        return
    for row in done:
        console.print(f"{row.path}: {row.what}")
    console.print("nothing to repair" if not done else f"{len(done)} repairs")
