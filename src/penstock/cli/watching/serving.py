"""The command metrics: serves the counters of all channels for Prometheus."""

from __future__ import annotations

import signal
from typing import Annotated

import typer

from penstock.cli import arguments, ending
from penstock.cli.terminal import output

LOOK_SECONDS = 60.0
PORT = 9464


def add_commands(app: typer.Typer) -> None:
    """Adds this command to the app."""
    app.command("metrics")(metrics)


def metrics(
    port: Annotated[
        int | None,
        typer.Option(
            help=f"The port on this machine's loopback; 0 takes a free one. Default: {PORT}.", min=0, max=65535
        ),
    ] = None,
    members: Annotated[bool, typer.Option("--members", help="A series for each member too, with its pid.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Print the counters once instead.")] = False,
) -> None:
    """Serves the counters of all channels for Prometheus, at /metrics, until Ctrl-C."""
    from penstock.watch.metrics import Server, text

    if once:
        arguments.refuse_others("--once", "it serves nothing", port=port)
        print(text(members=members), end="")
        return
    with ending.defer_end() as wait, Server(PORT if port is None else port, members=members) as server:
        output.say(f"serving {server.url} until Ctrl-C")
        ended = wait(0)
        while not ended:
            ended = wait(LOOK_SECONDS)
    if ended != signal.SIGINT:  # Ctrl-C is how it ends
        raise ending.Signalled(ended)
