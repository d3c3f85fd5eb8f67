"""Commands on channels: ls, rm, pub, sub."""

from __future__ import annotations

import contextlib
import difflib
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Annotated, Any

import typer

import penstock
from penstock.channels.opener import subscription_options
from penstock.channels.status import ChannelStatus
from penstock.channels.wildcards import is_pattern
from penstock.cli import arguments, many, output
from penstock.cli import top as live
from penstock.cli.ending import reason


def names(incomplete: str) -> list[str]:
    """Names of channels that a shell offers while a user types. Never an error: it could not be shown."""
    try:
        return [status.channel for status in penstock.list_channels() if status.channel.startswith(incomplete)]
    except Exception:
        return []


Channel = Annotated[str, typer.Argument(help="A channel such as log:imu.", autocompletion=names)]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON value per line, for programs.")]

LONG_SLEEP = 3600.0
LOOK_SECONDS = 0.5


def add_commands(app: typer.Typer) -> None:
    """Adds these commands to the app."""
    app.command("ls")(ls)
    app.command("rm")(rm)
    app.command("remove", hidden=True)(rm)
    app.command("pub")(pub)
    app.command("sub")(sub)


def ls(
    channels: Annotated[
        list[str] | None, typer.Argument(help="Only these: channels, and patterns such as 'robot/*'.")
    ] = None,
    json: AsJson = False,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Refresh the list in place, with rates: as `penstock top`.")
    ] = False,
) -> None:
    """Lists this user's channels: their members, how much flowed, how far readers lag."""
    if watch:
        live.top(channels, json=json)
        return
    found = penstock.list_channels(channels or "*")
    if json:
        for status in found:
            print(output.as_json(status))
        return
    if not found and channels:
        output.say(f"no channel is {' or '.join(channels)}")
        return
    if not found:
        output.say(
            "no channels. Make one: echo hello | penstock pub log:NAME, or in Python: penstock.publish('log:NAME')"
        )
        return
    right = ("size", "writers", "readers", "sent", "bytes", "lag", "refused", "lost")
    rows = output.table("channel", "codec", *right, right=right)
    for status in found:
        t = status.totals
        rows.add_row(
            status.channel,
            status.codec or "(open)",
            output.size(status.size),
            str(status.writers),
            str(status.readers),
            output.count(t.messages_sent),
            output.size(t.bytes_sent),
            output.size(status.lag),
            output.count(t.back_pressure),
            _size(t.bytes_lost),
        )
    output.show(rows)


def is_in_use(status: ChannelStatus) -> bool:
    """Whether a process has the channel open."""
    return bool(status.members)


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
    chosen = [name for name, status in there.items() if not (unused and is_in_use(status))]
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


def pub(
    channel: Channel,
    file: Annotated[Path | None, typer.Option(help="Read lines from here instead of standard input.")] = None,
    npz: Annotated[
        Path | None, typer.Option(help="A NumPy .npz: its arrays become the fields of one message per row.")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Messages per second at most.")] = None,
    realtime: Annotated[
        bool, typer.Option("--realtime", help="With --npz: in the rhythm of its time column `t`.")
    ] = False,
    codec: Annotated[
        str | None,
        typer.Option(help="bytes, json or msgpack, when the channel is made now; with json, lines are JSON."),
    ] = None,
    capacity: Annotated[int | None, typer.Option(help="Bytes of room, when the channel is made now.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for a subscription before the first message.")] = False,
) -> None:
    """Publishes one message per line of standard input, or per row of an .npz file."""
    rate = arguments.positive(rate, "--rate")
    if npz is not None:
        arguments.alone("--npz", "its arrays are the messages, and their codec", file=file, codec=codec)
    if realtime:
        arguments.alone("--realtime", "the column `t` gives the rhythm", rate=rate)
    if realtime and npz is None:
        raise penstock.Invalid("--realtime needs --npz: its column `t` gives the rhythm")
    options: dict[str, Any] = {} if capacity is None else {"capacity": capacity}
    times: Any = None
    count = 0
    with contextlib.ExitStack() as opened:  # the input first: a wrong one leaves no channel behind
        if npz is not None:
            records, times = npz_records(npz)
            if realtime and (times is None or times.ndim != 1 or times.dtype.kind not in "iuf"):
                raise penstock.Invalid(f"{output.path(npz)} has no array `t` of seconds: --realtime needs one")
            publication = opened.enter_context(_publish(channel, codec=records.dtype, **options))
            messages: Iterable[Any] = records
        else:
            source = opened.enter_context(_input(file))
            publication = opened.enter_context(_publish(channel, codec=codec, **options))
            messages = _messages(source, publication.codec.kind)
        while wait and not publication.connected:
            time.sleep(0.01)
        begun = time.monotonic()
        for number, message in enumerate(messages):
            due = float(times[number] - times[0]) if realtime else number / rate if rate else 0.0
            while (ahead := begun + due - time.monotonic()) > 0:
                time.sleep(min(ahead, LONG_SLEEP))
            publication.send(message)
            count += 1
    output.note(f"{output.many(count, 'message')} to {channel}")


def _publish(channel: str, **options: Any) -> Any:
    try:
        return penstock.publish(channel, **options)
    except TypeError as error:  # an option that this kind of channel does not have
        raise penstock.Invalid(str(error)) from error


def npz_records(path: Path) -> tuple[Any, Any]:
    """(structured array of one record per row, times in seconds or None) from an .npz file."""
    import numpy as np

    try:
        with open(path, "rb") as source, np.load(source, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
            lengths = {len(array) if array.ndim else -1 for array in arrays.values()}
            if len(lengths) != 1 or -1 in lengths:
                shapes = ", ".join(f"{name}: {array.shape}" for name, array in arrays.items())
                raise penstock.Invalid(
                    f"{output.path(path)}: its arrays have different lengths ({shapes or 'there are none'})"
                )
            fields = [
                (name, array.dtype, array.shape[1:]) if array.ndim > 1 else (name, array.dtype)
                for name, array in arrays.items()
            ]
            records = np.empty(lengths.pop(), dtype=fields)
            for name, array in arrays.items():
                records[name] = array
    except FileNotFoundError as error:
        raise penstock.NotFound(f"there is no file {output.path(path)}") from error
    except penstock.Invalid:
        raise
    except Exception as error:  # zip, zlib and NumPy raise a dozen error types for a file that is not theirs
        raise penstock.Invalid(f"{output.path(path)} is not an .npz of plain arrays: {error}") from error
    return records, arrays.get("t")


def _input(file: Path | None) -> contextlib.AbstractContextManager[IO[bytes]]:
    if file is None and sys.stdin is None:
        raise penstock.Invalid("standard input is closed: pipe lines into this command, or give --file")
    try:
        return contextlib.nullcontext(sys.stdin.buffer) if file is None else open(file, "rb")
    except OSError as error:
        raise penstock.NotFound(f"cannot read {output.path(str(file))}: {error.strerror}") from error


def _messages(source: IO[bytes], kind: str) -> Iterator[Any]:
    """The input's lines, as messages of a channel whose codec is of that kind."""
    import msgspec

    sent = 0
    for number, line in enumerate(source, 1):
        ending = 2 if line.endswith(b"\r\n") else 1 if line.endswith(b"\n") else 0
        data = line[: len(line) - ending]  # other CRs are the message's own
        if kind == "bytes":
            yield data
            continue
        if not data.strip():  # NDJSON's readers skip empty lines
            continue
        if kind not in ("json", "msgpack"):
            raise penstock.Invalid(f"this channel carries {kind}; lines of text fit bytes, json and msgpack. Use --npz")
        try:
            message = msgspec.json.decode(data)
        except (ValueError, RecursionError) as error:
            raise penstock.Invalid(
                f"line {number} is not JSON: {error}. The messages of the lines before it were sent: {sent}"
            ) from error
        yield message
        sent += 1


def sub(
    channels: Annotated[
        list[str],
        typer.Argument(
            help="Channels such as log:imu, and patterns such as 'robot/*'.", metavar="CHANNEL", autocompletion=names
        ),
    ],
    start: Annotated[str | None, typer.Option(help="newest, which is the default; earliest or a position.")] = None,
    last: Annotated[
        int | None, typer.Option(help="Instead: begin with this many of the newest messages that are kept.", min=0)
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", help="End after this many messages.")] = None,
    timeout: Annotated[float | None, typer.Option(help="End when nothing arrived for this many seconds.")] = None,
    block: Annotated[
        bool, typer.Option("--block", help="Let writers wait for this command, so that it prints every message.")
    ] = False,
    hz: Annotated[bool, typer.Option("--hz", help="Count instead of printing: one line a second.")] = False,
    json: AsJson = False,
) -> None:
    """Prints channels' messages, decoded by their codec, or counts them. No writer waits for it: what it is too slow for, it misses.

    Of several channels each line begins with the channel's name; a pattern also takes channels that appear later. Each message of a pipe goes to one reader: what this command prints, no worker gets.
    """
    if last is not None:
        arguments.alone("--last", "it sets where to begin", start=start)
    place, patience = arguments.start(start or "newest"), arguments.seconds(timeout, "--timeout")
    arguments.limit(limit)
    for channel in channels:
        if last is not None and not is_pattern(channel) and "last" not in subscription_options(channel):
            raise penstock.Unsupported(
                f"{channel}: channels of this kind keep no messages that --last could begin with"
            )
    begin: dict[str, Any] = {"start": place} if last is None else {"start": place, "last": last}
    if len(channels) > 1 or is_pattern(channels[0]):
        many.sub(channels, begin, limit, patience, block, hz, json)
        return
    channel = channels[0]
    if waited := many.is_awaited(channel):
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
                _print(subscription, limit, patience, json)
        except TimeoutError:
            output.note(f"{channel}: nothing arrived for {timeout:g} seconds")


def nothing_yet(channel: str) -> str:
    """The text for a command that waits for a channel's first publication. It names a channel that is written almost the same."""
    own = channel
    with contextlib.suppress(penstock.PenstockError):  # a channel may be written in several ways
        own = penstock.inspect(channel).channel
    others = [
        status.channel for status in penstock.list_channels() if status.state == "ready" and status.channel != own
    ]
    close = difflib.get_close_matches(channel, others, 1, 0.75)
    return f"{channel}: nothing was published yet; waiting for its first publication" + (
        f". Did you mean {close[0]}?" if close else ""
    )


def _print(subscription: penstock.types.Subscription, limit: int | None, timeout: float | None, json: bool) -> None:
    count = 0
    while limit is None or count < limit:
        try:
            message = _next(subscription, timeout)
        except (penstock.DecodeError, penstock.TooSlow) as error:
            output.note(f"warning: {reason(error)}")
            continue
        count += 1
        if json:
            print(output.as_json({**many.about(subscription), "data": message}), flush=True)
        else:
            print(output.message(message), flush=True)


def _next(subscription: penstock.types.Subscription, timeout: float | None) -> Any:
    """The next message. Checks now and then whether the output is still read."""
    since = time.monotonic()
    while True:
        left = LOOK_SECONDS if timeout is None else since + timeout - time.monotonic()
        try:
            return subscription.recv(max(0.0, min(left, LOOK_SECONDS)))
        except TimeoutError:
            if left <= LOOK_SECONDS and timeout is not None:
                raise
        output.check_reader()


def _size(value: int | None) -> str:
    return "unknown" if value is None else output.size(value)


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
                f"lag {_size(row['lag'])}  lost {_size(row['lost'])}"
            )
        if timeout is not None and time.monotonic() - quiet > timeout:
            raise TimeoutError
