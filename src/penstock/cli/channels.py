"""Commands on channels: ls, pub, sub."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

import penstock
from penstock.cli import output
from penstock.cli.output import console

Channel = Annotated[str, typer.Argument(help="A channel such as log:imu.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON value per line, for programs.")]


def add_commands(app: typer.Typer) -> None:
    """Puts this room's commands on the app."""
    app.command("ls")(ls)
    app.command("pub")(pub)
    app.command("sub")(sub)


def ls(json: AsJson = False) -> None:
    """Lists this user's channels: who is there, how much flowed, how far readers lag."""
    found = penstock.channels()
    if json:
        for status in found:
            print(output.as_json(status))
        return
    if not found:
        console.print("no channels. Make one: penstock.publish('log:NAME'), or: echo hello | penstock pub log:NAME")
        return
    right = ("size", "writers", "readers", "sent", "bytes", "lag", "refused", "lost")
    rows = output.table(None, "channel", "codec", *right, right=right)
    for status in found:
        only_read = sum(m.role in ("subscription", "pull") for m in status.members)
        only_write = sum(m.role in ("publication", "exclusive", "push") for m in status.members)
        both = len(status.members) - only_read - only_write  # peers that answer each other
        t = status.totals
        rows.add_row(
            status.channel,
            status.codec,
            output.size(status.size),
            str(only_write + both),
            str(only_read + both),
            output.count(t.messages_sent),
            output.size(t.bytes_sent),
            output.size(status.lag),
            output.count(t.back_pressure),
            output.size(t.bytes_lost),
        )
    console.print(rows)


def pub(
    channel: Channel,
    file: Annotated[Path | None, typer.Option(help="Read lines from here instead of standard input.")] = None,
    npz: Annotated[
        Path | None, typer.Option(help="A NumPy .npz: its arrays become the fields of one message per row.")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Messages per second at most.")] = None,
    realtime: Annotated[bool, typer.Option(help="With --npz: in the rhythm of its time column `t`.")] = False,
    codec: Annotated[
        str | None,
        typer.Option(help="bytes, json or msgpack, when the channel is made now; with json, lines are JSON."),
    ] = None,
    term_length: Annotated[int | None, typer.Option(help="Bytes of a term, when the channel is made now.")] = None,
    wait: Annotated[bool, typer.Option(help="Wait until somebody subscribes before the first message.")] = False,
) -> None:
    """Publishes one message per line of standard input, or per row of an .npz file."""
    if rate is not None and rate <= 0:
        raise penstock.Invalid(f"--rate is {rate}: it must be more than 0")
    options: dict[str, Any] = {} if term_length is None else {"term_length": term_length}
    times: Any = None
    if npz is not None:
        records, times = npz_records(npz)
        if realtime and times is None:
            raise penstock.Invalid(f"{npz} has no array `t`: --realtime needs a time column")
        publication = penstock.publish(channel, codec=records.dtype, **options)
        messages: Iterable[Any] = records
    else:
        publication = penstock.publish(channel, codec=codec, **options)
        messages = _lines(file, publication.codec.kind)
    count = 0
    with publication:
        while wait and not publication.connected:
            time.sleep(0.01)
        begun = time.monotonic()
        for number, message in enumerate(messages):
            due = float(times[number] - times[0]) if realtime else number / rate if rate else 0.0
            ahead = begun + due - time.monotonic()
            if ahead > 0:
                time.sleep(ahead)
            publication.send(message)
            count += 1
    output.errors.print(f"{count:,} messages to {channel}")


def npz_records(path: Path) -> tuple[Any, Any]:
    """(structured array of one record per row, times in seconds or None) from an .npz file."""
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except FileNotFoundError as error:
        raise penstock.NotFound(f"there is no file {path}") from error
    except (ValueError, OSError) as error:
        raise penstock.Invalid(f"{path} is not an .npz of plain arrays: {error}") from error
    lengths = {len(array) if array.ndim else -1 for array in arrays.values()}
    if len(lengths) != 1 or -1 in lengths:
        raise penstock.Invalid(
            f"{path}: its arrays have different lengths ({', '.join(f'{n}: {a.shape}' for n, a in arrays.items())})"
        )
    fields = [
        (name, array.dtype, array.shape[1:]) if array.ndim > 1 else (name, array.dtype)
        for name, array in arrays.items()
    ]
    records = np.empty(lengths.pop(), dtype=fields)
    for name, array in arrays.items():
        records[name] = array
    return records, arrays.get("t")


def _lines(file: Path | None, kind: str) -> Iterator[Any]:
    import msgspec

    try:
        source = sys.stdin.buffer if file is None else open(file, "rb")  # noqa: SIM115
    except OSError as error:
        raise penstock.NotFound(f"cannot read {file}: {error.strerror}") from error
    with source:
        for number, line in enumerate(source, 1):
            data = line.rstrip(b"\r\n")
            if kind == "bytes":
                yield data
                continue
            if kind not in ("json", "msgpack"):
                raise penstock.Invalid(
                    f"this channel carries {kind}; lines of text fit bytes, json and msgpack. Use --npz"
                )
            try:
                yield msgspec.json.decode(data)
            except msgspec.DecodeError as error:
                raise penstock.Invalid(f"line {number} is not JSON: {error}") from error


def sub(
    channel: Channel,
    start: Annotated[str, typer.Option(help="newest, earliest or a position.")] = "newest",
    limit: Annotated[int | None, typer.Option("--limit", "-n", help="End after this many messages.")] = None,
    timeout: Annotated[float | None, typer.Option(help="End when nothing came for this many seconds.")] = None,
    hz: Annotated[bool, typer.Option("--hz", help="Count instead of printing: one line a second.")] = False,
    json: AsJson = False,
) -> None:
    """Prints a channel's messages, decoded by its codec, or counts them."""
    place: str | int = int(start) if start.lstrip("-").isdigit() else start
    with penstock.subscribe(channel, start=place) as subscription:
        try:
            if hz:
                _count(subscription, limit, timeout, json)
            else:
                _print(subscription, limit, timeout, json)
        except TimeoutError:
            output.errors.print(f"{channel}: nothing came for {timeout} seconds")


def _print(subscription: penstock.Subscription, limit: int | None, timeout: float | None, json: bool) -> None:
    count = 0
    while limit is None or count < limit:
        message = subscription.recv(timeout)
        count += 1
        if json:
            last = subscription.last
            print(
                output.as_json(
                    {"position": last.position, "time_ns": last.time_ns, "session": last.session, "data": message}
                ),
                flush=True,
            )
        elif isinstance(message, bytes):
            print(message.decode("utf-8", "backslashreplace"), flush=True)
        else:
            print(message if hasattr(message, "dtype") else output.as_json(message), flush=True)


def _size(value: int | None) -> str:
    return "unknown" if value is None else output.size(value)


def _count(subscription: penstock.Subscription, limit: int | None, timeout: float | None, json: bool) -> None:
    total = 0
    quiet = time.monotonic()
    while limit is None or total < limit:
        messages = size = 0
        begun = time.monotonic()
        while time.monotonic() < begun + 1 and (limit is None or total < limit):
            batch = subscription.poll_arrow()
            if batch.num_rows:
                messages += batch.num_rows
                total += batch.num_rows
                size += batch.column("payload").nbytes - 4 * (batch.num_rows + 1)
                quiet = time.monotonic()
            else:
                penstock.wait([subscription], 0.05)
        passed = time.monotonic() - begun
        row = {
            "messages_per_s": messages / passed,
            "bytes_per_s": size / passed,
            "lag": subscription.lag,
            "lost": subscription.lost,
        }
        if json:
            print(output.as_json(row), flush=True)
        else:
            console.print(
                f"{messages / passed:>14,.0f} messages/s  {output.size(size / passed):>10}/s  "
                f"lag {_size(subscription.lag)}  lost {_size(subscription.lost)}"
            )
        if timeout is not None and time.monotonic() - quiet > timeout:
            raise TimeoutError
