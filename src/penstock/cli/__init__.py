"""The command `penstock`. A guest of the front door: parses, calls, prints. Errors become one line and status 1."""

from __future__ import annotations

import logging
import os
import sys

import typer

from penstock import PenstockError, __version__
from penstock.cli import archives, channels, doctor, jobs

app = typer.Typer(
    name="penstock",
    help="Messages between threads and processes at memory speed, recorded, and read by Spark as tables.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def options(
    version: bool = typer.Option(False, "--version", help="Print the version and end."),
    verbose: bool = typer.Option(False, "--verbose", "-v", help="Log what the library does to standard error."),
) -> None:
    """Options before the command."""
    if version:
        print(__version__)
        raise typer.Exit
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, format="%(levelname)s %(message)s")


for room in (channels, archives, jobs, doctor):
    room.add_commands(app)


def main() -> None:
    """The entry point."""
    try:
        app(standalone_mode=True)
    except PenstockError as error:
        print(f"penstock: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader of a pipe left; that is no error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
