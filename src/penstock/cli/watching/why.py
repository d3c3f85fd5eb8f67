"""The command why: who waits on channels, and what keeps them waiting."""

from __future__ import annotations

import json
from typing import Annotated

import typer

import penstock
from penstock.channels.waiting.why.graph import Why
from penstock.cli.channels.names import names
from penstock.cli.terminal import output
from penstock.cli.terminal.fitting import wrap


def add_commands(app: typer.Typer) -> None:
    """Adds this command to the app."""
    app.command("why")(why)


def why(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[CHANNEL | PID]",
            help="A channel such as log:imu, or a process by its number.",
            autocompletion=names,
        ),
    ] = None,
    stack: Annotated[
        bool, typer.Option("--stack", help="Show the Python stacks of those that keep others waiting.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")] = False,
) -> None:
    """Shows who waits on channels, since when, and what the processes do that are waited for: as chains, with deadlocks named."""
    found = penstock.why(int(target) if target is not None and target.isdecimal() else target)
    stacks = _stacks(found) if stack else {}
    if as_json:
        shown = {**found.to_dict(), **({"stacks": {str(pid): text for pid, text in stacks.items()}} if stack else {})}
        print(json.dumps(shown))
        return
    _print(str(found))
    for pid, text in stacks.items():
        print(f"\nstack of {found.process(pid).name}:")
        _print(text)


def _print(text: str) -> None:
    width = output.width()
    for line in text.splitlines():
        for part in wrap(output.printable(line), width):
            print(part)


def _stacks(found: Why) -> dict[int, str]:
    """The stacks of the culprits, and of the processes of deadlocks."""
    from penstock.front.stacks import stack_of

    pids = [one.pid for one in found.culprits] + [pid for cycle in found.deadlocks for pid in cycle]
    if isinstance(found.target, int) and not pids:
        pids = [found.target]
    return {pid: stack_of(found.process(pid)) for pid in dict.fromkeys(pids)}
