"""The commands of the help, in their groups: for each the module that has it, its line of at most 80 columns, and an example.

A command's module is loaded when the command is called or its own help is shown. Knows no command's work.
"""

from __future__ import annotations

import gc
from collections import UserDict
from copy import copy
from functools import cache
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

GROUPS = {
    "Look at channels": {
        "ls": ("channels.listing", "List channels: members, messages, lag of readers", "penstock ls 'robot/*'"),
        "why": ("watching.why", "Show who waits, on what, and what keeps them waiting", "penstock why log:imu --stack"),
        "top": ("channels.top", "Show channels live: rates, lag, losses, members", "penstock top 'robot/*' --members"),
        "monitor": (
            "monitor",
            "Serve a page that shows channels, recordings and tables live",
            "penstock monitor --archive drive --open",
        ),
        "view": ("watching.viewing", "Serve channels live to Foxglove", "penstock view 'robot/*'"),
        "metrics": (
            "watching.serving",
            "Serve the counters of all channels for Prometheus",
            "penstock metrics --port 9464",
        ),
    },
    "Move messages": {
        "pub": (
            "channels.publishing",
            "Publish one message per line of standard input",
            "echo '{\"go\": 1}' | penstock pub log:command --codec json",
        ),
        "sub": (
            "channels.subscribing",
            "Print messages, or count them. No writer waits for it",
            "penstock sub log:imu --start earliest --limit 10",
        ),
        "bridge": (
            "channels.bridging",
            "Pass messages on to another channel, or to another machine",
            "penstock bridge log:imu udp://10.0.0.2:40123/1",
        ),
        "rm": ("channels.listing", "Remove channels with their history", "penstock rm log:imu 'robot/*'"),
    },
    "Record": {
        "record": (
            "recordings.archives",
            "Record channels into an archive",
            "penstock record drive 'robot/*' --seconds 60",
        ),
        "snapshot": (
            "watching.blackbox",
            "Record what memory still has, also if every program was killed",
            "penstock snapshot 'robot/*' --to drive --before 30s",
        ),
        "blackbox": (
            "watching.blackbox",
            "Watch, and take a snapshot when something happens",
            "penstock blackbox blackbox.toml --check",
        ),
        "recordings": ("recordings.archives", "List an archive's recordings", "penstock recordings drive"),
        "replay": (
            "recordings.playing",
            "Print a recording's messages, or publish them",
            "penstock replay drive log:imu --since '10m ago'",
        ),
        "play": (
            "recordings.playing",
            "Publish all recordings again, on one clock",
            "penstock play drive 'robot/*' --onto again/ --rate 2",
        ),
        "verify": ("recordings.archives", "Check every byte of an archive", "penstock verify drive"),
        "repair": (
            "recordings.archives",
            "Record damage as gaps of the recordings, and keep everything else",
            "penstock repair drive",
        ),
        "purge": (
            "recordings.archives",
            "Delete recordings, by number or by limits",
            "penstock purge drive --max-bytes 20GB --max-age 7d",
        ),
        "consumers": (
            "recordings.archives",
            "List the queries that read an archive step by step",
            "penstock consumers drive",
        ),
        "archive": (
            "recordings.archives",
            "Copy an archive onto an object storage: archive push",
            "penstock archive push drive s3://BUCKET/drive",
        ),
        "serve": (
            "recordings.sharing",
            "Serve an archive to other machines, over Arrow Flight",
            "penstock serve drive --listen 10.0.0.7:4860 --tls cert.pem key.pem --token-file token",
        ),
        "replicate": (
            "recordings.sharing",
            "Copy an archive of any place into a folder, and keep it so",
            "penstock replicate s3://BUCKET/drive copy --follow",
        ),
    },
    "Tables and files": {
        "pipeline": (
            "tables.pipeline",
            "Build Delta tables from an archive, with Spark or without",
            "penstock pipeline drive --out tables --engine local",
        ),
        "erase": (
            "tables.pipeline",
            "Delete rows from tables and from the disk, for good",
            "penstock erase tables log:imu --until '30 days ago'",
        ),
        "sql": ("tables.sql", "Ask the tables", "penstock sql \"select * from 'log:imu' limit 10\" --from drive"),
        "report": ("report", "Draw a page about an archive or tables", "penstock report drive report.html"),
        "dataset": (
            "recordings.datasets",
            "Make a training set: time-aligned rows in Parquet",
            "penstock dataset drive --align log:camera --with log:imu --tolerance 20ms --to set",
        ),
        "export": (
            "recordings.jobs",
            "Write messages as Parquet, Arrow, CSV, Delta or MCAP files",
            "penstock export drive files --parquet --since '10m ago'",
        ),
        "import": (
            "recordings.jobs",
            "Append the messages of an MCAP file to an archive",
            "penstock import drive bag.mcap",
        ),
    },
    "Try and check": {
        "demo": ("demo", "Run the main job end to end, on real data", "penstock demo --seconds 2"),
        "key": ("machine.key", "Make a key that encrypts udp: channels: key new", "penstock key new robot.key"),
        "doctor": ("machine.doctor", "Check this machine, and suggest fixes", "penstock doctor --before 30s"),
        "info": ("machine.info", "Show machine, versions, folders, limits, packages", "penstock info --json"),
        "bench": (
            "recordings.jobs",
            "Run a benchmark of the checkout in this folder",
            "penstock bench log_ipc --quick",
        ),
        "completion": (
            "completion",
            "Print a script that completes commands in your shell",
            "penstock completion bash",
        ),
    },
}
HIDDEN = {"remove": "channels.listing"}  # rm, as the library calls it
COMMANDS = {name: about for lines in GROUPS.values() for name, about in lines.items()}
MODULES = {name: module for name, (module, _, _) in COMMANDS.items()} | HIDDEN
EXAMPLES = {name: example for name, (_, _, example) in COMMANDS.items()} | {"remove": "penstock remove log:imu"}


class _Commands(UserDict[str, Any]):
    """Commands by name. A module's name is replaced by its command on first use."""

    def __getitem__(self, name: str) -> Any:
        found = self.data[name]
        if isinstance(found, str):
            found = self.data[name] = plain(_command(found, name), EXAMPLES.get(name))
            if not gc.isenabled():  # by `penstock.__main__`: what was loaded is left out of later collections
                gc.freeze()
                gc.enable()
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
                formatter.write_dl([(name.ljust(widest), line) for name, (_, line, _) in lines.items()])


@cache
def load(module: str) -> typer.Typer:
    """The commands of a module of `penstock.cli`."""
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    import_module(f"penstock.cli.{module}").add_commands(app)
    return app


def _command(module: str, name: str) -> Any:
    """One command of a module. The module's other commands are not made: their parameters take longer than loading it."""
    app = copy(load(module))
    app.registered_commands = [one for one in app.registered_commands if one.name == name]
    return typer.main.get_group(app).commands[name]


def plain_parameter(parameter: Any) -> None:
    """Its help names no type if it takes no value: `--json`, not `--json <bool>`."""
    if getattr(parameter, "is_flag", False):
        parameter.metavar = ""


def plain(command: Any, example: str | None) -> Any:
    """The command, with its help in this form, which ends with the example."""
    if example is not None:
        command.format_epilog = lambda _, formatter: _write_example(formatter, example)
    for parameter in (*command.params, command.get_help_option(command.context_class(command))):
        plain_parameter(parameter)
    for one in getattr(command, "commands", {}).values():
        plain(one, example)
    return command


def _write_example(formatter: Any, example: str) -> None:
    """One line, however narrow the terminal is: a command that is wrapped cannot be copied."""
    with formatter.section("Example"):
        formatter.write(f"{'':{formatter.current_indent}}{example}\n")
