"""The groups in which the help shows the commands, and each command in one line of 80 columns. Knows no command's work."""

from __future__ import annotations

from typing import Any

import typer

GROUPS = {
    "Look at channels": {
        "ls": "List channels: members, messages, lag of readers",
        "top": "Show channels live: rates, lag, losses, members",
        "monitor": "Serve a page that shows channels, recordings and tables live",
        "view": "Serve channels live to Foxglove",
        "metrics": "Serve the counters of all channels for Prometheus",
    },
    "Move messages": {
        "pub": "Publish one message per line of standard input",
        "sub": "Print messages, or count them. No writer waits for it",
        "rm": "Remove channels with their history",
    },
    "Record": {
        "record": "Record channels into an archive",
        "recordings": "List an archive's recordings",
        "replay": "Print a recording's messages, or publish them",
        "play": "Publish all recordings again, on one clock",
        "verify": "Check every byte of an archive",
        "repair": "Cut damaged recordings back to their longest valid prefix",
        "purge": "Delete recordings, by number or by limits",
        "consumers": "List the queries that read an archive step by step",
        "archive": "Copy an archive onto an object storage: archive push",
    },
    "Tables and files": {
        "pipeline": "Build Delta tables from an archive with Spark",
        "sql": "Ask the tables",
        "report": "Draw a page about tables",
        "export": "Write messages as Parquet, Arrow, CSV, Delta or MCAP files",
        "import": "Append the messages of an MCAP file to an archive",
    },
    "Try and check": {
        "demo": "Run the main job end to end, on real data",
        "doctor": "Check this machine, and say what to do",
        "info": "Show machine, versions, folders, limits, packages",
        "bench": "Run a benchmark of the checkout in this folder",
        "completion": "Print a script that completes commands in your shell",
    },
}


def plain(command: Any) -> Any:
    """The command, whose help names no type of options that take no value: `--json`, not `--json <bool>`."""
    for parameter in (*command.params, command.get_help_option(command.context_class(command))):
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    for one in getattr(command, "commands", {}).values():
        plain(one)
    return command


def grouped(app: typer.Typer) -> None:
    """Puts the app's commands into their groups, in their order."""
    order = [name for lines in GROUPS.values() for name in lines]
    for group, lines in GROUPS.items():
        for command in app.registered_commands:
            if command.name in lines:
                command.rich_help_panel, command.short_help = group, lines[command.name]
        for room in app.registered_groups:
            if room.typer_instance is not None and room.typer_instance.info.name in lines:
                room.rich_help_panel, room.short_help = group, lines[room.typer_instance.info.name]
    app.registered_commands.sort(key=lambda one: order.index(one.name) if one.name in order else len(order))
