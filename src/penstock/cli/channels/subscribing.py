"""The command sub: messages printed, or counted. `many` does it for several channels."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

import penstock
from penstock.channels.uri.opener import subscription_options
from penstock.channels.uri.wildcards import is_pattern
from penstock.cli import arguments
from penstock.cli.channels import log_lines, many
from penstock.cli.channels.names import AsJson, is_awaited, names, nothing_yet
from penstock.cli.terminal import output

LOOK_SECONDS = 0.5


def add_commands(app: typer.Typer) -> None:
    """Adds this command to the app."""
    app.command("sub")(sub)


def sub(
    channels: Annotated[
        list[str],
        typer.Argument(
            help="Channels such as log:imu, and patterns such as 'robot/*'.", metavar="CHANNEL", autocompletion=names
        ),
    ],
    start: Annotated[
        str | None,
        typer.Option(
            help="newest, which is the default; earliest or a position; last: first the newest message of each key, of a log that keeps them."
        ),
    ] = None,
    last: Annotated[
        int | None, typer.Option(help="Instead: begin with this many of the newest messages that are kept.", min=0)
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", help="End after this many messages.")] = None,
    timeout: Annotated[float | None, typer.Option(help="End when nothing arrived for this many seconds.")] = None,
    block: Annotated[
        bool,
        typer.Option(
            "--block",
            help="Let writers wait for this command, so that it prints every message: of channels where readers choose that.",
        ),
    ] = False,
    hz: Annotated[bool, typer.Option("--hz", help="Count instead of printing: one line a second.")] = False,
    logs: Annotated[bool, typer.Option("--logs", help="Print messages of penstock.LogHandler as a log.")] = False,
    json: AsJson = False,
) -> None:
    """Prints channels' messages, decoded by their codec, or counts them. No writer waits for it: it skips messages if it is too slow.

    Of several channels each line begins with the channel's name; a pattern also takes channels that appear later. Each message of a pipe goes to one reader: messages that this command prints do not reach a worker.
    """
    if last is not None:
        arguments.refuse_others("--last", "it sets where to begin", start=start)
    if logs:
        arguments.refuse_others("--logs", "it prints lines", hz=hz or None, json=json or None)
    place: Any = start if start == "last" else arguments.start(start or "newest")
    patience = arguments.seconds(timeout, "--timeout")
    arguments.limit(limit)
    for channel in channels:
        if last is not None and not is_pattern(channel) and "last" not in subscription_options(channel):
            raise penstock.Unsupported(
                f"{channel}: channels of this kind keep no messages that --last could begin with"
            )
        if isinstance(place, int) and is_pattern(channel):
            raise penstock.Unsupported(f"--start is {place}, a position of one channel: with {channel}, give a word")
    begin: dict[str, Any] = {"start": place} if last is None else {"start": place, "last": last}
    if len(channels) > 1 or is_pattern(channels[0]):
        many.sub(channels, begin, limit, patience, block, hz, json, logs)
        return
    channel = channels[0]
    if waited := is_awaited(channel):
        output.note(nothing_yet(channel))
        begin["connect_timeout"] = patience
    try:
        subscription = penstock.subscribe(channel, **begin, **many.options(channel, block))
    except penstock.NotFound:
        if not waited:
            raise
        output.note(f"{channel}: nothing arrived for {timeout:g} seconds")
        return
    with subscription:
        if subscription.codec is None:
            output.note(nothing_yet(channel))
        try:
            if hz:
                _count(subscription, limit, patience, json)
            else:
                _print(subscription, limit, patience, log_lines.say if logs else _say_json if json else _say)
        except TimeoutError:
            output.note(f"{channel}: nothing arrived for {timeout:g} seconds")


def _say(_: penstock.types.Subscription, message: Any) -> None:
    print(output.message(message), flush=True)


def _say_json(subscription: penstock.types.Subscription, message: Any) -> None:
    print(output.as_json({**many.about(subscription), "data": message}), flush=True)


def _print(
    subscription: penstock.types.Subscription,
    limit: int | None,
    timeout: float | None,
    say: Callable[[penstock.types.Subscription, Any], None],
) -> None:
    count, losses = 0, many.Losses(subscription)
    try:
        while limit is None or count < limit:
            try:
                message = _next(subscription, losses, timeout)
            except (penstock.DecodeError, penstock.TooSlow) as error:
                losses.warn(error)
                continue
            count += 1
            say(subscription, message)
            losses.look()
    finally:
        losses.look(last=True)


def _next(subscription: penstock.types.Subscription, losses: many.Losses, timeout: float | None) -> Any:
    """The next message. Checks now and then whether the output is still read."""
    since = time.monotonic()
    while True:
        left = LOOK_SECONDS if timeout is None else since + timeout - time.monotonic()
        try:
            return subscription.recv(max(0.0, min(left, LOOK_SECONDS)))
        except TimeoutError:
            if left <= LOOK_SECONDS and timeout is not None:
                raise
        losses.look()
        output.check_reader()


def _count(subscription: penstock.types.Subscription, limit: int | None, timeout: float | None, json: bool) -> None:
    total = 0
    quiet = time.monotonic()
    while limit is None or total < limit:
        messages = size = 0
        begun = time.monotonic()
        while time.monotonic() < begun + 1 and (limit is None or total < limit):
            try:
                batch = subscription.poll_arrow()
            except penstock.TooSlow:  # it is in `lost`
                continue
            if batch.num_rows:
                messages += batch.num_rows
                total += batch.num_rows
                size += many.payload_bytes(batch)
                quiet = time.monotonic()
            else:
                penstock.wait([subscription], 0.05)
        passed = time.monotonic() - begun
        row: dict[str, Any] = {
            "messages_per_s": messages / passed,
            "bytes_per_s": size / passed,
            "lag": many.known(lambda: subscription.lag),
            "lost": many.known(lambda: subscription.lost),
        }
        if json:
            print(output.as_json(row), flush=True)
        else:
            output.say(
                f"{messages / passed:>14,.0f} messages/s  {output.size(size / passed):>10}/s  "
                f"lag {output.size_or_unknown(row['lag'])}  lost {output.size_or_unknown(row['lost'])}"
            )
        if timeout is not None and time.monotonic() - quiet > timeout:
            raise TimeoutError
