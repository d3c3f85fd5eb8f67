"""The commands serve and replicate: an archive for other machines, and copies of it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Annotated, Any

import typer

import penstock
from penstock.cli import arguments, ending
from penstock.cli.terminal import output
from penstock.record import Pushed

LISTEN = "127.0.0.1:4860"
WAIT_SECONDS = 60.0
LOOK_SECONDS = 1.0  # between two looks at an archive that is followed


def add_commands(app: typer.Typer) -> None:
    """Adds these commands to the app."""
    app.command("serve")(serve)
    app.command("replicate")(replicate)


def serve(
    archive: Annotated[
        Path,
        typer.Argument(help="An archive's folder, or s3://BUCKET/FOLDER.", parser=arguments.place, metavar="ARCHIVE"),
    ],
    listen: Annotated[
        str, typer.Option(help="The address to serve at. Port 0 takes a free one.", metavar="<host:port>")
    ] = LISTEN,
    tls: Annotated[
        tuple[str, str] | None, typer.Option(help="The files of a certificate and of its key.", metavar="<cert> <key>")
    ] = None,
    token_file: Annotated[
        str | None, typer.Option(help="A file with the token that clients must have.", metavar="<file>")
    ] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Let everyone read who reaches the address.")] = False,
) -> None:
    """Serves an archive over Arrow Flight to other machines, which can only read it, until Ctrl-C."""
    opened = penstock.Archive(archive, create=False)
    with (
        ending.defer_end() as wait,
        opened.serve(listen, tls=tls, token_file=token_file, insecure=insecure) as server,
    ):
        output.say(f"serving {output.path(archive)} at {server.uri} until Ctrl-C")
        ended = wait(0)
        while not ended:
            ended = wait(WAIT_SECONDS)
    if ended != signal.SIGINT:  # Ctrl-C is how it ends
        raise ending.Signalled(ended)


def replicate(
    source: Annotated[
        Path,
        typer.Argument(
            help="An archive's folder, s3://BUCKET/FOLDER, or grpc+tls://HOST:PORT.",
            parser=arguments.place,
            metavar="SOURCE",
        ),
    ],
    target: Annotated[Path, typer.Argument(help="The folder of the copy.", parser=arguments.folder, metavar="TARGET")],
    recording: Annotated[
        str | None, typer.Option(help="Only this one: a recording's number, or a channel: its newest one.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on, each second, until Ctrl-C.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Delete in TARGET what was cut back or repaired in SOURCE.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="JSON, for programs.")] = False,
) -> None:
    """Copies an archive's recordings into a folder, or what is new since the last time. Each block is compared with its checksum."""
    which = None if recording is None else arguments.recording(recording)
    asked: dict[str, Any] = {"recording": which, "replace": replace}
    if not follow:
        with output.steps("copying", quiet=json) as report:
            done = penstock.Archive(os.fspath(source), create=False).replicate(target, progress=report, **asked)
        _show(done, json)
        if wrong := [row for row in done if row.error]:
            raise penstock.PenstockError(f"{output.many(len(wrong), 'recording')} of {len(done):,} could not be copied")
        return
    with ending.defer_end() as wait:
        ended = _follow(source, target, asked, wait, json=json)
    if ended != signal.SIGINT:
        raise ending.Signalled(ended)


def _follow(source: Path, target: Path, asked: dict[str, Any], wait: Any, *, json: bool) -> int:
    """Copies what is new until a signal arrives. A source that is away is tried again."""
    said: set[str] = set()
    opened = None
    ended = 0
    while not ended:
        try:
            opened = opened or penstock.Archive(os.fspath(source), create=False)
            done = opened.replicate(target, **asked)
            if new := [row for row in done if row.segments]:
                _show(new, json)
            now = {f"recording {row.recording} of {row.channel}: {row.error}" for row in done if row.error}
        except penstock.SystemFailure as error:
            now = {str(error)}
        for text in sorted(now - said):
            output.note(f"warning: {text}")
        said = now
        ended = wait(LOOK_SECONDS)
    return int(ended)


def _show(done: list[Pushed], json: bool) -> None:
    if json:
        print(output.as_json(done), flush=True)
        return
    for row in done:
        if row.error:
            output.note(f"warning: recording {row.recording} of {row.channel}: {row.error}")
        else:
            output.say(
                f"recording {row.recording} of {row.channel}: {output.many(row.segments, 'segment')} copied, "
                f"{output.size(row.bytes)}; {row.there:,} were there"
            )
