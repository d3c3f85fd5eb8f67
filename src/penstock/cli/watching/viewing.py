"""The command view: serves channels to Foxglove."""

from __future__ import annotations

import logging
import resource
import signal
from typing import Annotated

import typer

from penstock.cli import ending
from penstock.cli.channels.names import names
from penstock.cli.terminal import output
from penstock.util.extras import check_installed

FILES = 65_536  # more connections than can be made between two checks


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
    check_installed("foxglove", what="the view")
    from penstock.export.live import Viewed

    _allow_files()
    logging.getLogger("foxglove.websocket.server").addFilter(_is_not_per_client)
    with ending.defer_end() as wait, Viewed(channels or ["*"], port) as viewed:
        output.say(f"serving ws://127.0.0.1:{viewed.port} until Ctrl-C: open it in Foxglove as a Foxglove WebSocket")
        while not (ended := wait(0)):
            viewed.step()
        left_out, lost = viewed.left_out, viewed.lost
    for channel, count in left_out.items():
        output.say(f"{channel}: {count:,} messages arrived faster than a view shows them, and were left out")
    for channel, count in lost.items():
        output.say(f"{channel}: {count:,} bytes were overwritten before the view could read them")
    if ended != signal.SIGINT:  # Ctrl-C is how it ends
        raise ending.Signalled(ended)


def _allow_files() -> None:
    """As many open files as this user may have: the SDK ends its server where a flood of connections uses all of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _is_not_per_client(record: logging.LogRecord) -> bool:
    """Whether a record of the SDK is about more than one client that did not behave: there would be a line for each."""
    return not record.getMessage().startswith(("Dropping client", "Error receiving", "Failed to send"))
