"""The command view: serves channels to Foxglove."""

from __future__ import annotations

import signal
from typing import Annotated

import typer

from penstock.cli import ending, output
from penstock.cli.channels import names


def add_commands(app: typer.Typer) -> None:
    """Adds this command to the app."""
    app.command("view")(view)


def view(
    channels: Annotated[
        list[str] | None,
        typer.Argument(
            help="Channels such as log:imu, and patterns such as 'robot/*'. Without any: all.", autocompletion=names
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(help="The port on this machine's loopback; 0 takes a free one.", min=0, max=65535)
    ] = 8765,
) -> None:
    """Serves channels live to Foxglove, on this machine only, until Ctrl-C. No writer waits for it. Pipes are left out."""
    from penstock.export.live import Viewed

    with ending.noted() as wait, Viewed(channels or ["*"], port) as viewed:
        output.say(f"serving ws://127.0.0.1:{viewed.port} until Ctrl-C: open it in Foxglove as a Foxglove WebSocket")
        while not (ended := wait(0)):
            viewed.step()
    if ended != signal.SIGINT:  # Ctrl-C is how it ends
        raise ending.Signalled(ended)
