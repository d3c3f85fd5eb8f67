"""The commands snapshot and blackbox: recordings of what memory still has, on request and when something happens."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Annotated

import typer

import penstock
from penstock.cli import arguments, ending
from penstock.cli.channels.names import names
from penstock.cli.terminal import output
from penstock.record import Snapshot
from penstock.record.write.snapshot import check_wish
from penstock.watch.blackbox.box import BlackBox
from penstock.watch.blackbox.config import load
from penstock.watch.blackbox.diary import Firing


def add_commands(app: typer.Typer) -> None:
    """Adds these commands to the app."""
    app.command("snapshot")(snapshot)
    app.command("blackbox")(blackbox)


def snapshot(
    channels: Annotated[
        list[str],
        typer.Argument(
            help="Channels such as log:imu, and patterns such as 'robot/*'.", metavar="CHANNELS", autocompletion=names
        ),
    ],
    to: Annotated[Path, typer.Option("--to", help="The archive's folder.", parser=arguments.folder, metavar="ARCHIVE")],
    before: Annotated[str, typer.Option(help="How far back, as 30s or 5m.", metavar="<time>")] = "30s",
    after: Annotated[str, typer.Option(help="How long to go on.", metavar="<time>")] = "0s",
    note: Annotated[str, typer.Option(help="A text that the recordings keep.")] = "",
    drop_after: Annotated[
        float | None, typer.Option(help="Seconds that writers wait at most; then data are lost instead.")
    ] = None,
    no_pixels: Annotated[
        bool, typer.Option("--no-pixels", help="Of frames channels: only the notes of the frames.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="JSON, for programs.")] = False,
) -> None:
    """Writes what shared memory still has of channels into an archive, also if every program was killed.

    Status 1 if memory had less than --before, or if a channel was left out: everything else is written. Ctrl-C ends it early, with what has come.
    """
    time_ns = time.time_ns()
    wish = check_wish(channels, before, after, note, "command", drop_after, not no_pixels)
    archive = penstock.Archive(to)
    with (
        ending.defer_end() as wait,
        output.working("taking a snapshot"),
        archive._files.removed_if_it_fails(),
    ):
        done = archive._take_snapshot(wish, time_ns, lambda: 0 if wait(0) else time_ns + wish.after_ns)
        ended = wait(0)
    if not done.parts:
        archive._files.remove_made()
    if json:
        print(output.as_json(done))
    else:
        show(done)
    lacks = shortages(done, before)
    for text in lacks:
        output.note(f"warning: {text}")
    if ended:
        output.note(f"{signal.Signals(ended).name} has ended the snapshot early")
        raise ending.Signalled(ended)
    if lacks:
        raise penstock.PenstockError(f"{output.many(len(lacks), 'channel')} could not be recorded as asked")


def show(done: Snapshot) -> None:
    """The recordings of a snapshot, one line each."""
    for part in done.parts:
        lost = f", {output.size(part.lost_bytes)} lost" if part.lost_bytes else ""
        kept = f", {output.many(part.last_values, 'last value')} from before" if part.last_values else ""
        claims = f", {output.many(part.open_claims, 'open claim')} passed" if part.open_claims else ""
        output.say(
            f"recording {part.recording} of {part.channel}: {output.many(part.messages, 'message')} from the last "
            f"{part.held:.1f} s, {output.size(part.bytes)}{lost}{kept}{claims}"
        )
    if not done.parts:
        output.say("memory has no message of these channels from that time: nothing is recorded")


def shortages(done: Snapshot, before: str) -> list[str]:
    """A text for each thing that a snapshot does not have."""
    found = [
        f"{part.channel}: memory had {part.held:.1f} s of the {before} asked for, and that is written. A larger capacity keeps more"
        for part in done.short
    ]
    return found + list(done.left_out)


WAIT_SECONDS = 3600.0
LINE_NS = 10**9  # between two lines of one trigger


class _FiringLines:
    """Says each firing in a line; of a trigger that fires often one a second, and then the number of the others."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, str], tuple[int, int]] = {}  # the time of a line, and the firings since

    def say(self, firing: Firing) -> None:
        does = "The snapshot goes on for it" if firing.extends else "No snapshot so soon after the last one"
        does = "Taking a snapshot" if firing.snapshot else does
        key = (firing.trigger, does)
        last_ns, more = self._said.get(key, (0, 0))
        if firing.time_ns - last_ns < LINE_NS:
            self._said[key] = last_ns, more + firing.count
            return
        self.say_rest()
        self._said[key] = firing.time_ns, 0
        output.say(f"{firing.trigger}: {firing.note or 'fired'}. {does}")

    def say_rest(self) -> None:
        """The firings without a line."""
        for (trigger, does), (last_ns, more) in self._said.items():
            if more:
                output.say(f"{trigger}: {output.many(more, 'time')} more. {does}")
                self._said[trigger, does] = last_ns, 0


def blackbox(
    config: Annotated[
        Path, typer.Argument(help="A TOML file: what to watch, and where snapshots go.", metavar="CONFIG")
    ],
    check: Annotated[bool, typer.Option("--check", help="Only check the file.")] = False,
    json: Annotated[bool, typer.Option("--json", help="JSON, for programs: one line for each event.")] = False,
) -> None:
    """Keeps watch, and takes a snapshot when a trigger fires, until Ctrl-C. SIGUSR1 is a trigger, too."""
    found = load(config)
    many = output.many(len(found.trigger), "trigger")

    def say(event: str, text: str) -> None:
        if json:
            print(output.as_json({"event": event, "triggers": len(found.trigger)}), flush=True)
        else:
            output.say(text)

    if check:
        say("checked", f"{output.path(config)}: {many}, all well")
        return

    lines = _FiringLines()

    def tell_firing(firing: Firing) -> None:
        if json:
            print(output.as_json({"event": "firing", **vars(firing)}), flush=True)
        else:
            lines.say(firing)

    def tell_snapshot(done: Snapshot | penstock.PenstockError) -> None:
        lines.say_rest()
        if isinstance(done, penstock.PenstockError):
            if json:
                print(output.as_json({"event": "failure", "error": str(done)}), flush=True)
            return  # it is in the log
        if json:
            print(output.as_json({"event": "snapshot", "snapshot": done}), flush=True)
        else:
            show(done)
        for text in shortages(done, f"{found.seconds('before'):g} s"):
            output.note(f"warning: {text}")

    with ending.defer_end() as wait, BlackBox(found, on_firing=tell_firing, on_snapshot=tell_snapshot) as box:
        before = signal.signal(signal.SIGUSR1, lambda *_: box.fire("SIGUSR1")) if found.signal else None
        try:
            say("watching", f"watching {', '.join(found.channels)} with {many}. Ctrl-C ends")
            ended = wait(0)
            while not ended:
                ended = wait(WAIT_SECONDS)
        finally:
            if found.signal:
                signal.signal(signal.SIGUSR1, before)
    lines.say_rest()
    if ended != signal.SIGINT:
        raise ending.Signalled(ended)
