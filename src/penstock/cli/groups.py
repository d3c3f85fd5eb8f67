"""The commands of the help, in their groups: for each the module that has it, and its line of at most 80 columns.

A command's module is loaded when the command is called or its own help is shown. Knows no command's work.
"""

from __future__ import annotations

from collections import UserDict
from functools import cache
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

GROUPS = {
    "Look at channels": {
        "ls": ("channels.listing", "List channels: members, messages, lag of readers"),
        "top": ("channels.top", "Show channels live: rates, lag, losses, members"),
        "monitor": ("monitor", "Serve a page that shows channels, recordings and tables live"),
        "view": ("viewing", "Serve channels live to Foxglove"),
        "metrics": ("serving", "Serve the counters of all channels for Prometheus"),
    },
    "Move messages": {
        "pub": ("channels.publishing", "Publish one message per line of standard input"),
        "sub": ("channels.subscribing", "Print messages, or count them. No writer waits for it"),
        "rm": ("channels.listing", "Remove channels with their history"),
    },
    "Record": {
        "record": ("archives", "Record channels into an archive"),
        "recordings": ("archives", "List an archive's recordings"),
        "replay": ("archives", "Print a recording's messages, or publish them"),
        "play": ("playing", "Publish all recordings again, on one clock"),
        "verify": ("archives", "Check every byte of an archive"),
        "repair": ("archives", "Record damage as gaps of the recordings, and keep everything else"),
        "purge": ("archives", "Delete recordings, by number or by limits"),
        "consumers": ("archives", "List the queries that read an archive step by step"),
        "archive": ("archives", "Copy an archive onto an object storage: archive push"),
    },
    "Tables and files": {
        "pipeline": ("tables.pipeline", "Build Delta tables from an archive, with Spark or without"),
        "erase": ("tables.pipeline", "Delete rows from tables and from the disk, for good"),
        "sql": ("tables.sql", "Ask the tables"),
        "report": ("report", "Draw a page about tables"),
        "export": ("jobs", "Write messages as Parquet, Arrow, CSV, Delta or MCAP files"),
        "import": ("jobs", "Append the messages of an MCAP file to an archive"),
    },
    "Try and check": {
        "demo": ("demo", "Run the main job end to end, on real data"),
        "key": ("machine.key", "Make a key that encrypts udp: channels: key new"),
        "doctor": ("machine.doctor", "Check this machine, and suggest fixes"),
        "info": ("machine.info", "Show machine, versions, folders, limits, packages"),
        "bench": ("jobs", "Run a benchmark of the checkout in this folder"),
        "completion": ("completion", "Print a script that completes commands in your shell"),
    },
}
HIDDEN = {"remove": "channels.listing"}  # as the library calls it
MODULES = {name: module for lines in GROUPS.values() for name, (module, _) in lines.items()} | HIDDEN


class _Commands(UserDict[str, Any]):
    """Commands by name. A module's name is replaced by its command on first use."""

    def __getitem__(self, name: str) -> Any:
        found = self.data[name]
        if isinstance(found, str):
            found = self.data[name] = plain(typer.main.get_group(load(found)).commands[name])
        return found

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self.data else default


class Commands(TyperGroup):
    """The commands of all modules, and those that were added to the app itself."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Commands(MODULES | dict(self.commands))
        for parameter in (*self.params, self.get_help_option(self.context_class(self))):
            plain_parameter(parameter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The help's list of commands. Loads none of them."""
        widest = max(len(name) for lines in GROUPS.values() for name in lines)
        for group, lines in GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(name.ljust(widest), line) for name, (_, line) in lines.items()])


@cache
def load(module: str) -> typer.Typer:
    """The commands of a module of `penstock.cli`."""
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    import_module(f"penstock.cli.{module}").add_commands(app)
    return app


def plain_parameter(parameter: Any) -> None:
    """Its help names no type if it takes no value: `--json`, not `--json <bool>`."""
    if getattr(parameter, "is_flag", False):
        parameter.metavar = ""


def plain(command: Any) -> Any:
    """The command, with its help in this form."""
    for parameter in (*command.params, command.get_help_option(command.context_class(command))):
        plain_parameter(parameter)
    for one in getattr(command, "commands", {}).values():
        plain(one)
    return command
