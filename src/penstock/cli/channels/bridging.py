"""The command bridge: the messages of channels onto other channels, here and on other machines."""

from __future__ import annotations

import signal
from typing import Annotated

import typer

import penstock
from penstock.cli import arguments, ending
from penstock.cli.channels.names import names
from penstock.cli.terminal import output
from penstock.front.bridge import Bridged

LOOK_SECONDS = 0.1


def add_commands(app: typer.Typer) -> None:
    """Adds the command to the app."""
    app.command("bridge")(bridge)


def bridge(
    source: Annotated[
        str,
        typer.Argument(
            help="A channel such as log:imu, a pattern such as 'robot/*', or udp://0.0.0.0:PORT: all that a bridge sends there.",
            metavar="SOURCE",
            autocompletion=names,
        ),
    ],
    target: Annotated[
        str,
        typer.Argument(
            help="A channel; of several, udp://HOST:PORT, or a channel for each: 'log:{name}', '{kind}:far/{name}'.",
            metavar="TARGET",
            autocompletion=names,
        ),
    ],
    both: Annotated[
        bool,
        typer.Option("--both", help="The other direction too. A udp:// target is heard at this machine's same port."),
    ] = False,
    back: Annotated[
        str | None, typer.Option(help="The other direction too, heard here instead.", metavar="<channel>")
    ] = None,
    start: Annotated[
        str | None, typer.Option(help="newest, earliest or a position. Default: where it stopped, or newest.")
    ] = None,
    codec: Annotated[
        str | None, typer.Option(help="Of messages that come without one, as by ZeroMQ: bytes, json or msgpack.")
    ] = None,
    drop_after: Annotated[
        float | None, typer.Option(help="Seconds that writers wait at most; then data are lost instead.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="At the end one JSON value per channel, for programs.")] = False,
) -> None:
    """Passes messages on until Ctrl-C, as they are, with their codec. Started again, it goes on where it stopped."""
    begin = None if start is None else arguments.start(start)
    with (
        ending.defer_end() as wait,
        output.working("bridging") as now,
        penstock.Bridge(
            source, target, both=both, back=back, start=begin, codec=codec, drop_after=drop_after
        ) as opened,
    ):
        if not json:
            output.say(f"bridging {source} to {target} until Ctrl-C")
        while not (ended := wait(0)):
            opened.step(LOOK_SECONDS)
            rows = opened.progress()
            total, lost = sum(row.messages for row in rows), sum(row.lost for row in rows)
            now(f"{output.many(total, 'message')} passed on, {output.size(lost)} lost. Ctrl-C ends")
        opened.close()
        rows = opened.progress()
    for row in rows:
        if json:
            print(output.as_json(row))
        else:
            output.say(_told(row))
    if ended != signal.SIGINT:  # Ctrl-C is how it ends
        raise ending.Signalled(ended)


def _told(row: Bridged) -> str:
    parts = [f"{row.source} to {row.target}: {output.many(row.messages, 'message')}"]
    if row.lost or row.lost_messages:
        parts.append(
            f"{output.size(row.lost)} lost"
            + f" in {output.many(row.lost_messages, 'message')}" * bool(row.lost_messages)
        )
    if row.refused:
        parts.append(f"{row.refused:,} refused")
    if row.resent:
        parts.append(f"{row.resent:,} sent again")
    if row.waiting:
        parts.append(f"{row.waiting:,} not read yet: sent again by the next bridge")
    return ", ".join(parts)
