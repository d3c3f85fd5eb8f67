"""The command `penstock`. A guest of the front door: parses, calls, prints.

An error is one line on standard error and a status: 1; 2 for arguments that the command does not have; 128 and
the signal's number for a signal. Knows no command's work.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import typer

from penstock import __version__
from penstock.cli import completion, ending, groups
from penstock.cli.terminal import output
from penstock.util.headers import get_cmake_prefix

app = typer.Typer(
    name="penstock",
    help="Messages between threads and processes at memory speed, recorded, and read by Spark as tables.",
    cls=groups.Commands,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version and end."),
    cmakedir: bool = typer.Option(False, "--cmakedir", help="Print the folder in which CMake finds the C++ headers."),
    verbose: bool = typer.Option(False, "--verbose", "-v", help="Log the library's work to standard error."),
) -> None:
    """Options before the command."""
    if version:
        print(__version__)
        raise typer.Exit
    if cmakedir:
        print(get_cmake_prefix())
        raise typer.Exit
    if verbose:
        ending.log_everything()
    if context.invoked_subcommand is None:
        print(context.get_help())


def run(arguments: Sequence[str]) -> int:
    """One call of the command, in this process; its status."""
    status = 0
    with output.streams(), ending.logged():
        try:
            with ending.signals():
                command = typer.main.get_command(app)
                with command.make_context("penstock", list(arguments)) as context:
                    command.invoke(context)
        except BaseException as error:
            status = ending.status(error)
        try:
            sys.stdout.flush()
        except output.Unwritable as error:
            status = status or ending.status(error)
    return status


def main() -> None:
    """The entry point."""
    output.open_descriptors()
    os.environ.setdefault(
        "GRPC_VERBOSITY", "NONE"
    )  # its own lines about a connection: the command's error has the reason
    if completion.answered(app):
        return
    ending.log_to_the_end()
    status = run(sys.argv[1:])
    output.forget_unwritten()
    # CPython notes Ctrl-C in a nested exec, as of a dataclass, for ever: `python -m` would end by SIGINT. The next exec forgets it.
    exec("")
    sys.exit(status)


__all__ = ["app", "main", "run"]
