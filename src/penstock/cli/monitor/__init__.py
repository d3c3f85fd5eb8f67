"""The command monitor: a page on this machine's loopback that shows channels, recordings and tables live. It only snapshots.

`snapshots` takes one snapshot per interval for all browsers, `stored` adds archives and tables, `serving` answers requests, `assets` is the page.
"""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path
from typing import Annotated

import typer

import penstock
from penstock.cli import arguments, ending
from penstock.cli.terminal import output
from penstock.util.files.uris import is_remote

FASTEST, SLOWEST = 0.2, 60.0
WAIT_SECONDS = 60.0


def add_commands(app: typer.Typer) -> None:
    """Adds this command to the app."""
    app.command("monitor")(monitor)


def monitor(
    archive: Annotated[
        list[str] | None,
        typer.Option(help="Show this archive's recordings too. May be given several times.", parser=arguments.place),
    ] = None,
    tables: Annotated[
        list[str] | None,
        typer.Option(help="Show the tables in this folder too. May be given several times.", parser=arguments.place),
    ] = None,
    port: Annotated[
        int, typer.Option(help="The port on this machine's loopback; 0 takes a free one.", min=0, max=65535)
    ] = 9465,
    every: Annotated[float, typer.Option("--every", "-d", help="Seconds between two snapshots, from 0.2 to 60.")] = 1.0,
    opens: Annotated[bool, typer.Option("--open", help="Open the page in your browser.")] = False,
) -> None:
    """Serves a page that shows channels, members, recordings and tables live, on this machine only, until Ctrl-C."""
    if not FASTEST <= every <= SLOWEST:
        raise penstock.Invalid(f"--every is {every}: it must be from {FASTEST:g} to {SLOWEST:g} seconds")
    for one in archive or ():
        penstock.Archive(one, create=False)  # a wrong folder is reported now, and not on the page
    for one in tables or ():
        if not is_remote(one) and not Path(one).is_dir():
            raise penstock.NotFound(f"there is no folder of tables at {output.path(one)}")
    from penstock.cli.monitor.serving import Server
    from penstock.cli.monitor.snapshots import Snapshots

    with ending.defer_end() as wait, Server(Snapshots(archive or (), tables or (), every=every), port) as server:
        output.say(f"serving {server.url} until Ctrl-C")
        if opens:
            _open(server.url)
        ended = wait(0)
        while not ended:
            ended = wait(WAIT_SECONDS)
    if ended != signal.SIGINT:  # Ctrl-C is how it ends
        raise ending.Signalled(ended)


def _open(url: str) -> None:
    import webbrowser

    with contextlib.suppress(webbrowser.Error):
        webbrowser.open(url)
