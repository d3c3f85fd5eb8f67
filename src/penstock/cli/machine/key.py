"""The command key: key files of `udp:` channels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.terminal import output
from penstock.kinds.udp import keys


def add_commands(app: typer.Typer) -> None:
    """Adds this command to the app."""
    key = typer.Typer(help="Make key files, which encrypt and authenticate udp: channels.")
    key.command("new")(new)
    app.add_typer(key, name="key")


def new(file: Annotated[Path, typer.Argument(help="Where the key is written. It must not be there yet.")]) -> None:
    """Makes a file with a new key, which only you can read. Copy it to all machines of the channel, and name it with key_file=."""
    output.note(f"a new key is in {output.path(keys.create(file))}: copy it to the other machines over a safe way")
