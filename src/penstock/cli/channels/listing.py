"""The commands ls and rm: channels listed, and removed."""

from __future__ import annotations

from typing import Annotated

import typer

import penstock
from penstock.channels.status import ChannelStatus
from penstock.channels.uri.wildcards import is_pattern
from penstock.cli.channels import facts
from penstock.cli.channels.names import AsJson, missing, names
from penstock.cli.ending import reason
from penstock.cli.terminal import output

LEAVES = ("holds", "size", "refused", "codec", "bytes", "sent", "writers", "readers")  # where the terminal is narrow


def add_commands(app: typer.Typer) -> None:
    """Adds these commands to the app."""
    app.command("ls")(ls)
    app.command("rm")(rm)
    app.command("remove", hidden=True)(rm)


def ls(
    channels: Annotated[
        list[str] | None, typer.Argument(help="Only these: channels, and patterns such as 'robot/*'.")
    ] = None,
    json: AsJson = False,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Refresh the list in place, with rates: as `penstock top`.")
    ] = False,
) -> None:
    """Lists this user's channels: their members, messages, bytes and lag."""
    if watch:
        from penstock.cli.channels import top as live

        live.top(channels, json=json)
        return
    found = penstock.list_channels(channels or "*")
    for name in missing(channels or (), found) if found or json else ():
        output.note(f"warning: there is no channel {name}")
    if json:
        for status in found:
            print(output.as_json({**vars(status), "held_s": facts.held_seconds(status.channel)}))
        return
    if not found and channels:
        output.say(f"no channel is {' or '.join(channels)}")
        return
    if not found:
        output.say(
            "no channels. Make one: echo hello | penstock pub log:NAME, or in Python: penstock.publish('log:NAME')"
        )
        return
    right = ("size", "writers", "readers", "sent", "bytes", "holds", "lag", "refused", "lost")
    rows = output.table("channel", "codec", *right, right=right, leaves=LEAVES, name="channel")
    for status in found:
        t = status.totals
        rows.add_row(
            status.channel,
            facts.codec(status),
            output.size(status.size),
            str(status.writers),
            str(status.readers),
            output.count(t.messages_sent),
            output.size(t.bytes_sent),
            facts.holds(facts.held_seconds(status.channel)),
            output.size(status.lag),
            output.count(t.back_pressure),
            output.size_or_unknown(t.bytes_lost),
        )
    output.show(rows)


def rm(
    channels: Annotated[
        list[str] | None,
        typer.Argument(help="Channels such as log:imu, and patterns such as 'robot/*'.", autocompletion=names),
    ] = None,
    unused: Annotated[
        bool, typer.Option("--unused", help="Only channels that no process has open: of those named, or of all.")
    ] = False,
) -> None:
    """Removes channels, with their history, and lists them. Processes that have one open keep it until they close it."""
    if not channels and not unused:
        raise typer.BadParameter("name channels, or give --unused", param_hint="CHANNELS")
    asked = list(dict.fromkeys(channels or []))
    found = {one: penstock.list_channels(one) for one in asked or ["*"]}
    there = {status.channel: status for each in found.values() for status in each}
    failed: list[penstock.PenstockError] = [
        penstock.NotFound(f"no channel is {one}") for one in asked if is_pattern(one) and not found[one]
    ]
    # A named channel need not be among them: a file that is not a channel any more can be removed, too.
    named = [one for one in asked if not is_pattern(one) and not (unused and one in there)]
    chosen = [name for name, status in there.items() if not (unused and status.members)]
    for name in dict.fromkeys([*named, *chosen]):
        try:
            penstock.remove(name)
        except penstock.PenstockError as error:
            if not isinstance(error, penstock.NotFound) or name in named:
                failed.append(error)
        else:
            output.say(f"removed {name}{_open_in(there.get(name))}")
    if unused and not chosen and not failed:
        output.say("no unused channels")
    if failed:
        raise penstock.PenstockError("; ".join(map(reason, failed)))


def _open_in(status: ChannelStatus | None) -> str:
    pids = {member.pid for member in status.members} if status else set()
    return f", which {output.many(len(pids), 'process has', 'processes have')} open" if pids else ""
