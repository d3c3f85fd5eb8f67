"""The command play: an archive's recordings onto channels again, on one clock."""

from __future__ import annotations

import time
from typing import Annotated

import typer

import penstock
from penstock.cli import arguments
from penstock.cli.arguments import ArchivePath
from penstock.cli.terminal import output
from penstock.record import TIME_MAX, TIME_MIN

REPORT_SECONDS = 0.1


def add_commands(app: typer.Typer) -> None:
    """Adds the command to the app."""
    app.command("play")(play)


def play(
    archive: ArchivePath,
    channels: Annotated[
        list[str] | None,
        typer.Argument(help="Only these: channels such as log:imu, and patterns such as 'robot/*'. Default: all."),
    ] = None,
    onto: Annotated[
        str | None, typer.Option(help="A prefix for the names: with again/, log:imu is played to log:again/imu.")
    ] = None,
    renamed: Annotated[
        list[str] | None,
        typer.Option("--map", help="FROM=TO, such as log:imu=ring:imu2. May be given several times.", metavar="<map>"),
    ] = None,
    speed: Annotated[float | None, typer.Option(help="1 for the original speed, the default; 2 twice as fast.")] = None,
    fast: Annotated[bool, typer.Option("--fast", help="As fast as possible.")] = False,
    since: arguments.Since = None,
    until: arguments.Until = None,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds that a message waits for room. Default: for ever.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="JSON, for programs.")] = False,
) -> None:
    """Replays all recordings, in the order of their times, in their original rhythm."""
    if onto is not None and renamed:
        raise penstock.Invalid("--onto and --map cannot both be given")
    if fast:
        arguments.refuse_others("--fast", "it is as fast as possible", speed=speed)
    begun = last = time.monotonic()
    with output.steps("planning", quiet=json) as bar:

        def report(what: str, done: int, total: int) -> None:
            nonlocal last
            if done == total or time.monotonic() - last > REPORT_SECONDS:
                last = time.monotonic()
                bar(what, done, total)

        played = penstock.Archive(archive, create=False).play(
            channels or "*",
            onto=arguments.pairs("--map", renamed, "FROM=TO, such as log:imu=ring:imu2") if renamed else onto,
            speed=None if fast else arguments.positive(1.0 if speed is None else speed, "--speed"),
            since=arguments.moment(since, "--since", TIME_MIN),
            until=arguments.moment(until, "--until", TIME_MAX),
            timeout=arguments.seconds(timeout, "--timeout"),
            progress=report,
        )
    for text in played.left_out:
        output.note(f"warning: {text}")
    if json:
        print(output.as_json(played))
        return
    many = output.many(len(played.messages), "channel")
    output.say(f"{output.many(played.total, 'message')} of {many} in {time.monotonic() - begun:.1f} s")
