"""Reports: one self-contained page about tables, and the command that makes it. `drawing` draws transport, `pictures` the data.

Knows tables and this machine; measures nothing.
"""

from __future__ import annotations

import datetime
import html
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

import penstock
from penstock.cli import arguments
from penstock.cli.machine import facts as machine
from penstock.cli.report.streams import Stream as Stream
from penstock.cli.terminal import output
from penstock.cli.terminal.output import count, duration, size
from penstock.util.extras import check_installed, explain_missing

PAGE = Path(__file__).with_name("page.html")
PERCENTILES = ((50.0, "p50"), (99.0, "p99"), (99.9, "p99.9"))


@dataclass(frozen=True)
class About:
    """The words of a page. latency: what was measured. own: tables to show beside the streams'."""

    title: str
    headline: str
    subtitle: str
    latency: str
    own: Sequence[str] = field(default_factory=tuple)


def add_commands(app: typer.Typer) -> None:
    """Adds this command to the app."""
    app.command("report")(report)


def report(
    out: Annotated[Path, typer.Argument(help="A folder of tables.", parser=arguments.folder, metavar="TABLES")],
    page: Annotated[
        Path | None, typer.Argument(help="The page to write. Default: report.html in that folder.", metavar="<file>")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="JSON, for programs.")] = False,
) -> None:
    """Draws a page about tables: rates, latency, silences, and each stream's own columns. One file, without links."""
    check_installed("pyarrow", "deltalake", "matplotlib", what="a report", extra="report")
    from penstock.tables import reading as found

    if not found.names(out) and found.names(out / "tables"):
        out = out / "tables"
    with output.working("reading"):
        streams = collect(out)
        made = write(page or out / "report.html", streams, out, about_tables(out))
    if json:
        print(output.as_json({"report": made, "streams": len(streams), "messages": sum(s.messages for s in streams)}))
    else:
        output.say(f"Report: {output.path(made)}")


def about_tables(out: Path) -> About:
    """The words for tables of which only they are known."""
    from penstock.tables.folder import STREAMS
    from penstock.tables.reading import BUILT_IN, names

    own = [name for name in names(out) if name not in BUILT_IN and not name.startswith(f"{STREAMS}/")]
    return About(
        title=out.resolve().name if out.name != "tables" else out.resolve().parent.name,
        headline="Recorded messages",
        subtitle=f"From the tables in {output.path(out)}.",
        latency="Latency is from the send's time stamp to the recorder's.",
        own=own,
    )


def collect(out: Path) -> list[Stream]:
    """The streams of the table *messages*, in the order of their names."""
    import numpy as np
    import pyarrow.compute as pc

    from penstock.tables.reading import read

    rows = read(out, "messages", columns=["stream", "timestamp_ns", "recorded_ns", "bytes"])
    losses = read(out, "losses", columns=["stream", "bytes"])
    found = []
    for channel in sorted({*pc.unique(rows["stream"]).to_pylist(), *pc.unique(losses["stream"]).to_pylist()}):
        of = rows.filter(pc.equal(rows["stream"], channel))
        times = of["timestamp_ns"].to_numpy()
        took = of["recorded_ns"].fill_null(-1).to_numpy() - times
        found.append(
            Stream(
                channel,
                times=np.sort(times),
                latencies=took[took >= 0],
                bytes=int(pc.sum(of["bytes"]).as_py() or 0),
                messages=len(times),
                lost=int(pc.sum(losses.filter(pc.equal(losses["stream"], channel))["bytes"]).as_py() or 0),
                lost_unit="bytes",
            )
        )
    return found


def write(path: Path, streams: Sequence[Stream], tables: Path, about: About) -> Path:
    """Writes the page. Returns its path. `Unsupported` without matplotlib."""
    import numpy as np

    with explain_missing("a report"):
        from penstock.cli.report import drawing, pictures
    own = [stream.channel for stream in streams if len(stream.times)]
    with drawing.styled():
        plots = drawing.plots(streams)
        data = pictures.sections(tables, own, about.own)
    every = np.concatenate([stream.latencies for stream in streams]) if streams else np.zeros(0)
    text = PAGE.read_text(encoding="utf-8").format(
        title=html.escape(about.title),
        headline=html.escape(about.headline),
        subtitle=html.escape(about.subtitle),
        cards="".join(
            f'<div class="card"><b>{html.escape(value)}</b><span>{html.escape(name)}</span></div>'
            for value, name in _cards(streams, every)
        ),
        table=_table(streams),
        latency_text=html.escape(about.latency),
        silence_text=html.escape(_silence(streams)),
        own=data,
        footer=html.escape(_draw_all()),
        **plots,
    )
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise penstock.SystemFailure(error.errno, f"cannot write {output.path(path)}: {error.strerror}") from error
    return path


def _cards(streams: Sequence[Stream], every: Any) -> list[tuple[str, str]]:
    import numpy as np

    seen = [stream.times for stream in streams if len(stream.times)]
    seconds = (max(times[-1] for times in seen) - min(times[0] for times in seen)) / 1e9 if seen else 0.0
    lost = sum(stream.lost for stream in streams)
    in_bytes = any(stream.lost_unit == "bytes" for stream in streams)
    return [
        (count(sum(stream.messages for stream in streams)), "messages"),
        (str(len(streams)), "streams" if len(streams) != 1 else "stream"),
        (size(sum(stream.bytes for stream in streams)), "payload"),
        (f"{seconds:,.1f} s" if seconds >= 10 else duration(seconds * 1e9), "of traffic"),
        (duration(float(np.median(every))) if len(every) else "–", "median latency"),
        (duration(float(np.percentile(every, 99.9))) if len(every) else "–", "p99.9 latency"),
        (size(lost) if in_bytes else count(lost), "lost"),
    ]


def _silence(streams: Sequence[Stream]) -> str:
    text = "The longest silence of each stream, when it was, and the usual time between two messages. "
    lost = [stream for stream in streams if stream.lost]
    if not lost:
        return text + "Nothing was lost."
    return text + "Lost: " + ", ".join(f"{stream.missing} of {stream.name}" for stream in lost) + "."


def _table(streams: Sequence[Stream]) -> str:
    import numpy as np

    from penstock.cli.report.drawing import COLORS

    titles = ["stream", "messages", "rate/s", "bytes", "each", *(name for _, name in PERCENTILES), "max", "lost"]
    head = "".join(f"<th>{title}</th>" for title in titles)
    body = []
    for stream, color in zip(streams, COLORS * (len(streams) // len(COLORS) + 1), strict=False):
        took = stream.latencies
        latency = [float(np.percentile(took, at)) for at, _ in PERCENTILES] + [float(took.max())] if len(took) else []
        cells = [
            count(stream.messages),
            "–" if stream.rate is None else count(stream.rate) if stream.rate >= 10 else f"{stream.rate:.2g}",
            size(stream.bytes),
            size(stream.bytes / max(stream.messages, 1)),
            *(map(duration, latency) if latency else ["–"] * (len(PERCENTILES) + 1)),
            stream.missing,
        ]
        name = f'<span class="dot" style="background:{color}"></span>{html.escape(stream.name)}'
        body.append(f"<tr><td>{name}</td>{''.join(f'<td>{html.escape(cell)}</td>' for cell in cells)}</tr>")
    return f'<div class="wide-table"><table><tr>{head}</tr>{"".join(body)}</table></div>'


def _draw_all() -> str:
    about, now = machine.machine(), datetime.datetime.now().astimezone()
    load = " ".join(f"{value:g}" for value in about["load"])
    return (
        f"Drawn {now:%Y-%m-%d %H:%M %Z} on {about['processor']}, {about['cores']} cores, "
        f"{size(about['memory_bytes'])}, {about['system']}, load {load}. "
        f"Penstock {penstock.__version__}, Python {platform.python_version()}."
    )
