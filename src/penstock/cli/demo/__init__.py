"""The command demo: the whole job on real data. `steps` runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import penstock
from penstock.cli import arguments

AsJson = Annotated[bool, typer.Option("--json", help="JSON, for programs.")]


def add_commands(app: typer.Typer) -> None:
    """Adds this command to the app."""
    app.command("demo")(demo)


def demo(
    seconds: Annotated[
        float | None, typer.Option(help="How long to publish this host's telemetry. Default: 5.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Publish this folder of .npz streams instead, in their own time order.")
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            help="The folder for archive, tables and report; replaced each time.",
            parser=arguments.folder,
            metavar="<path>",
        ),
    ] = Path("out/demo"),
    channels: Annotated[
        str,
        typer.Option(help="The kind of channel: log, or udp, over a link that loses datagrams."),
    ] = "log",
    tables: Annotated[
        list[Path] | None, typer.Option(help="A file that defines tables of your own; see pipeline.", metavar="<file>")
    ] = None,
    json: AsJson = False,
) -> None:
    """The main job end to end: publish, subscribe, record, Spark, report."""
    from penstock.cli.demo.steps import DEMOS, run

    if data is not None:
        arguments.refuse_others("--data", "it has its own length", seconds=seconds)
    seconds = arguments.positive(5.0 if seconds is None else seconds, "--seconds") or 5.0
    if channels not in DEMOS:
        raise penstock.Invalid(f"--channels {channels}: this version has log and udp")
    run(seconds=seconds, data=data, out=out, as_json=json, kind=channels, own=tables or [])
