"""The command pub: lines, or the rows of an .npz file, as messages of a channel."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Annotated, Any

import typer

import penstock
from penstock.cli import arguments, ending
from penstock.cli.channels.names import Channel
from penstock.cli.terminal import output
from penstock.util.files import user_files

LONG_SLEEP = 3600.0


def add_commands(app: typer.Typer) -> None:
    """Adds this command to the app."""
    app.command("pub")(pub)


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
        arguments.refuse_others("--npz", "its arrays are the messages, and their codec", file=file, codec=codec)
    if realtime:
        arguments.refuse_others("--realtime", "the column `t` gives the rhythm", rate=rate)
    if realtime and npz is None:
        raise penstock.Invalid("--realtime needs --npz: its column `t` gives the rhythm")
    options: dict[str, Any] = {} if capacity is None else {"capacity": capacity}
    times: Any = None
    count = 0
    with contextlib.ExitStack() as opened:  # the input first: a wrong input must create no channel
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
    ending.check_received([channel])
    output.note(f"{output.many(count, 'message')} to {channel}")


def _publish(channel: str, **options: Any) -> Any:
    try:
        return penstock.publish(channel, **options)
    except TypeError as error:  # an option that this kind of channel does not have
        raise penstock.Invalid(str(error)) from error


def npz_records(path: Path) -> tuple[Any, Any]:
    """(structured array of one record per row, times in seconds or None) from an .npz file."""
    import numpy as np

    user_files.check(path)
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
    """The input's lines, as messages for a codec of that kind."""
    if kind != "bytes":
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
