"""The command `penstock dataset`: an archive as a training set."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Annotated

import typer

import penstock
from penstock.cli import arguments
from penstock.cli.terminal import output
from penstock.util.extras import check_installed

if TYPE_CHECKING:
    from penstock.export.datasets.building import Built


def add_commands(app: typer.Typer) -> None:
    """Adds this command to the app."""
    app.command(
        "dataset",
    )(dataset)


def dataset(
    archive: arguments.ArchivePath,
    align: Annotated[str, typer.Option(help="The channel whose messages are the rows.", metavar="CHANNEL")],
    to: Annotated[str, typer.Option(help="A new folder.", parser=arguments.folder, metavar="DIR")],
    others: Annotated[
        list[str] | None,
        typer.Option(
            "--with", help="Channels with commas between them; may be given several times.", metavar="CHANNELS"
        ),
    ] = None,
    tolerance: Annotated[
        str | None, typer.Option(help="How far from a row a partner may be, as 20ms. Default: any.", metavar="<time>")
    ] = None,
    pick: Annotated[
        str, typer.Option(help="latest: the last message up to the row's time; nearest.", metavar="<latest|nearest>")
    ] = "latest",
    episodes: Annotated[
        str | None,
        typer.Option(
            help='A channel of markers, as {"event": "start", "episode": 3} and {"event": "end"}. Default: one episode.',
            metavar="CHANNEL",
        ),
    ] = None,
    images: Annotated[
        str, typer.Option(help="Frames as bytes in columns, or as PNG files.", metavar="<columns|png>")
    ] = "columns",
    drop_incomplete: Annotated[
        bool, typer.Option("--drop-incomplete", help="Leave out rows in which a channel has no partner.")
    ] = False,
    since: arguments.Since = None,
    until: arguments.Until = None,
    json: Annotated[bool, typer.Option("--json", help="JSON, for programs.")] = False,
) -> None:
    """Makes a training set of an archive: time-aligned rows in Parquet, with a certificate of where each is from and what was lost."""
    check_installed("pyarrow", what="a training set", extra="datasets")
    if images == "png":
        check_installed("PIL", what="a training set with PNG files", extra="datasets")
    from penstock.record import TIME_MAX, TIME_MIN

    begun = time.monotonic()
    with output.steps("planning", quiet=json) as report:
        done = penstock.dataset(
            archive,
            to,
            align=align,
            others=[name for text in others or [] for name in text.split(",")],
            tolerance=tolerance,
            pick=pick,
            episodes=episodes,
            images=images,
            drop_incomplete=drop_incomplete,
            since=arguments.moment(since, "--since", TIME_MIN),
            until=arguments.moment(until, "--until", TIME_MAX),
            on_skip=lambda text: None,
            progress=report,
        )
    for text in done.left_out:
        output.note(f"warning: {text}")
    for channel, lost in done.lost_bytes.items():
        if lost:
            output.note(
                f"warning: {channel}: {output.size(lost)} were lost before they were recorded; certificate.json has the positions"
            )
    if json:
        print(output.as_json(done))
    else:
        output.say(
            f"{output.many(done.rows, 'row')} in {output.many(done.episodes, 'episode')}, in {time.monotonic() - begun:.1f} s, in "
            f"{output.path(os.fspath(to))}"
        )
        _print_gaps(done, "" if tolerance is None else " within the tolerance")
    if done.damaged:
        raise penstock.Corrupt(
            f"{output.many(len(done.damaged), 'part')} of the archive damaged and left out; everything else is in {output.path(os.fspath(to))}"
        )


def _print_gaps(done: Built, within: str) -> None:
    """What rows lack, and which messages are in no row. within: how near a message had to be, for the text."""
    for channel, rows in done.rows_without.items():
        if rows:
            output.say(f"{output.many(rows, 'row')} had no message of {channel}{within}")
    if done.rows_dropped:
        output.say(f"{output.many(done.rows_dropped, 'row')} left out, by --drop-incomplete")
    if done.rows_outside:
        output.say(f"{output.many(done.rows_outside, 'message')} in no episode")
