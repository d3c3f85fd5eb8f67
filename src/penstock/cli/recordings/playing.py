"""The commands play and replay: an archive's recordings onto channels again, on one clock, and the messages of one recording."""

from __future__ import annotations

import contextlib
import itertools
import time
from typing import Annotated, Any

import typer

import penstock
from penstock.channels.uri.channel import parse
from penstock.cli import arguments, ending
from penstock.cli.arguments import ArchivePath
from penstock.cli.channels.names import AsJson
from penstock.cli.recordings import pacing
from penstock.cli.terminal import output
from penstock.record import TIME_MAX, TIME_MIN, Pace
from penstock.record.read import player

REPORT_SECONDS = 0.1
RATE = "--speed (--rate)"  # an option with two names, in errors


def add_commands(app: typer.Typer) -> None:
    """Adds these commands to the app."""
    app.command("play")(play)
    app.command("replay")(replay)


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
    speed: Annotated[
        float | None,
        typer.Option(
            "--speed", "--rate", help="1 for the original speed, the default; 2 twice as fast.", metavar="<float>"
        ),
    ] = None,
    fast: Annotated[bool, typer.Option("--fast", help="As fast as possible.")] = False,
    start: Annotated[
        str | None, typer.Option(help="Begin this recorded time behind the first message: 30s, 5m or 1.5.")
    ] = None,
    loop: Annotated[bool, typer.Option("--loop", help="Begin again at the end, until q or Ctrl-C.")] = False,
    pause: Annotated[bool, typer.Option("--pause", help="Begin with a pause: space goes on.")] = False,
    control: Annotated[
        str | None,
        typer.Option(help=f"A channel for commands in JSON: {pacing.COMMANDS}.", metavar="<channel>"),
    ] = None,
    clock: Annotated[
        str | None,
        typer.Option(help="A channel for the recorded time, as ROS's /clock in JSON.", metavar="<channel>"),
    ] = None,
    recorded_times: Annotated[
        bool, typer.Option("--recorded-times", help="Messages have their recorded times, and not those of now.")
    ] = False,
    since: arguments.Since = None,
    until: arguments.Until = None,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds that a message waits for room. Default: for ever.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="JSON, for programs.")] = False,
) -> None:
    """Replays all recordings, in the order of their times, in their original rhythm. Keys: space pauses, . plays one message, + and -
    change the rate, q ends. Example: penstock play drive 'robot/*' --loop --rate 2 --clock log:clock"""
    if onto is not None and renamed:
        raise penstock.Invalid("--onto and --map cannot both be given")
    if fast:
        arguments.refuse_others("--fast", "it is as fast as possible", **{RATE[2:]: speed})
    begun = last = time.monotonic()
    reached = 0, 0
    rate = None if fast else arguments.positive(1.0 if speed is None else speed, RATE)
    names = arguments.pairs("--map", renamed, "FROM=TO, such as log:imu=ring:imu2") if renamed else {}
    source = penstock.Archive(archive, create=False)
    if control is not None:
        _check_control(control, clock, names or onto, source, channels or "*")
    with contextlib.ExitStack() as opened:
        bar = opened.enter_context(output.steps("planning", quiet=json))

        def report(what: str, done: int, total: int) -> None:
            nonlocal last, reached
            reached = done, total
            if done == total or time.monotonic() - last > REPORT_SECONDS:
                last = time.monotonic()
                bar(what, done, total)

        def changed(pace: Pace) -> None:
            bar("paused" if pace.paused else "playing", *reached)

        pace = opened.enter_context(pacing.pace(rate, pause, control, json, changed))
        played = source.play(
            channels or "*",
            onto=names or onto,
            pace=pace,
            start=0.0 if start is None else arguments.interval(start, "--start"),
            loop=loop,
            clock=clock,
            recorded_times=recorded_times,
            since=arguments.moment(since, "--since", TIME_MIN),
            until=arguments.moment(until, "--until", TIME_MAX),
            timeout=arguments.seconds(timeout, "--timeout"),
            progress=report,
        )
    ending.check_received({str(player.renamed(one, names or onto)) for one in played.messages})
    for text in played.left_out:
        output.note(f"warning: {text}")
    if json:
        print(output.as_json(played))
        return
    many = output.many(len(played.messages), "channel")
    output.say(f"{output.many(played.total, 'message')} of {many} in {time.monotonic() - begun:.1f} s")


def _check_control(
    control: str, clock: str | None, onto: dict[str, str] | str | None, source: penstock.Archive, channels: Any
) -> None:
    """`Invalid` for a control channel that the playing publishes to. It is opened before the playing is planned."""
    if clock is not None and str(parse(clock)) == str(parse(control)):
        raise penstock.Invalid(f"--control and --clock are both {control}: give each a channel of its own")
    asked = player.check_patterns(channels)
    played = player.chosen(source.channels(asked), asked)
    player.check_onto(onto, played)
    player.check_not_played("control", control, onto, played)


def replay(
    archive: ArchivePath,
    recording: Annotated[str, typer.Argument(help="A recording's number, or a channel: its newest one.")],
    onto: Annotated[str | None, typer.Option(help="Publish onto this channel instead of printing.")] = None,
    speed: Annotated[
        float | None, typer.Option(help="1 as it was sent, 2 twice as fast; default: as fast as possible.")
    ] = None,
    start: Annotated[str, typer.Option(help="A position, or last: last values first.")] = "0",
    since: arguments.Since = None,
    until: arguments.Until = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", help="End after this many messages.")] = None,
    json: AsJson = False,
) -> None:
    """Prints a recording's messages, or publishes them onto a channel. Status 1 if some are damaged."""
    skipped: list[str] = []
    options: dict[str, Any] = {"start": start if start == "last" else arguments.position(start)}
    options["on_skip"] = skipped.append
    options["since"] = arguments.moment(since, "--since", TIME_MIN)
    options["until"] = arguments.moment(until, "--until", TIME_MAX)
    options["speed"], which = arguments.positive(speed, "--speed"), arguments.recording(recording)
    left = arguments.limit(limit)
    opened = penstock.Archive(archive, create=False)
    if onto is not None:
        count = opened.replay_onto(which, onto, limit=left, **options)
        ending.check_received([onto])
        if json:
            print(output.as_json({"messages": count, "onto": onto}))
        else:
            output.say(f"{output.many(count, 'message')} onto {onto}")
        _tell_skipped(skipped)
        return
    unreadable: list[penstock.DecodeError] = []
    for message in itertools.islice(ending.readable(opened.replay(which, **options), unreadable.append), left):
        if json:
            print(output.as_json({**message._asdict()}))
        else:
            print(output.message(message.data))
    if unreadable:
        output.note(f"penstock: {output.many(len(unreadable), 'message')} could not be decoded")
    _tell_skipped(skipped)
    if unreadable:
        raise typer.Exit(1)


def _tell_skipped(skipped: list[str]) -> None:
    """Ends the call with status 1 if damaged parts were left out. Each has been told in the log."""
    if skipped:
        output.note(f"penstock: {output.many(len(skipped), 'damaged part')} of the recording left out")
        raise typer.Exit(1)
