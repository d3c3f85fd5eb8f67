"""Reports: one self-contained page about an archive or tables, and the command that makes it. `sources` reads them, `drawing` draws
transport, `pictures` the data. Measures nothing.
"""

from __future__ import annotations

import datetime
import html
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

import penstock
from penstock.cli import arguments
from penstock.cli.machine import facts as machine
from penstock.cli.report import sources
from penstock.cli.report.sources import collect as collect
from penstock.cli.report.streams import Stream as Stream
from penstock.cli.terminal import output
from penstock.cli.terminal.output import count, duration, size
from penstock.util.extras import check_installed, explain_missing
from penstock.util.files.uris import is_remote

PAGE = Path(__file__).with_name("page.html")
PERCENTILES = ((50.0, "p50"), (99.0, "p99"), (99.9, "p99.9"))


@dataclass(frozen=True)
class About:
    """The words of a page. latency: what was measured."""

    title: str
    headline: str
    subtitle: str
    latency: str


def add_commands(app: typer.Typer) -> None:
    """Adds this command to the app."""
    app.command("report")(report)


def report(
    source: Annotated[
        str,  # as a path, a URI would lose a slash
        typer.Argument(
            help="An archive, also s3://BUCKET/FOLDER or grpc+tls://HOST:PORT, or a folder of tables.",
            parser=arguments.place,
            metavar="SOURCE",
        ),
    ],
    page: Annotated[
        Path | None, typer.Argument(help="The page to write. Default: report.html in that folder.", metavar="<file>")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="JSON, for programs.")] = False,
) -> None:
    """Draws a page about an archive, or about tables: rates, latency, silences, and each stream's own columns. One file, without links."""
    check_installed("pyarrow", "matplotlib", what="a report", extra="report")
    damage: list[str] = []
    if is_remote(source) and page is None:
        raise penstock.Invalid(f"{source} is no folder of this machine: name the page to write, as report.html")
    archive = _archive(source)
    with output.working("reading"):
        if archive is not None:
            about = about_source(source, f"From the archive {output.path(source)}.")
            streams, columns = sources.recorded(archive, damage)
            made = write(page or Path(source, "report.html"), streams, columns, about)
        else:
            check_installed("deltalake", what="a report of tables", extra="report")
            out = _tables(Path(source))
            streams, about = collect(out), about_source(out, f"From the tables in {output.path(out)}.")
            columns_of = sources.parts(out, [stream.channel for stream in streams if len(stream.times)], _own(out))
            made = write(page or out / "report.html", streams, columns_of, about)
    if json:
        print(output.as_json({"report": made, "streams": len(streams), "messages": sum(s.messages for s in streams)}))
    else:
        output.say(f"Report: {output.path(made)}")
    if damage:
        what = output.many(len(damage), "part of the archive is", "parts of the archive are")
        raise penstock.Corrupt(f"{what} damaged and left out; everything else is in {output.path(made)}")


def _archive(folder: str | Path) -> penstock.Archive | None:
    """The archive in this folder, if it has a recording; or one elsewhere."""
    try:
        found = penstock.Archive(folder, create=False)
    except penstock.NotFound:
        if is_remote(folder):
            raise
        return None
    return found if found.list() or is_remote(folder) else None


def _tables(folder: Path) -> Path:
    from penstock.tables import reading

    shown = output.path(folder)
    if not folder.is_dir():
        raise penstock.NotFound(f"there is no folder {shown}: name an archive, or a folder of tables")
    if not reading.names(folder) and not reading.names(folder / "tables"):
        raise penstock.NotFound(
            f"{shown} holds no recordings and no tables: record channels with penstock record {shown} CHANNELS"
        )
    return folder / "tables" if not reading.names(folder) and reading.names(folder / "tables") else folder


def _own(out: Path) -> list[str]:
    """The user's own tables."""
    from penstock.tables.folder import STREAMS
    from penstock.tables.reading import BUILT_IN, names

    return [name for name in names(out) if name not in BUILT_IN and not name.startswith(f"{STREAMS}/")]


def about_source(source: str | Path, subtitle: str) -> About:
    """The words for an archive or tables of which nothing else is known."""
    if is_remote(source):
        title = str(source).rpartition("/")[2]
    else:
        folder = Path(source).resolve()
        title = (folder.parent if Path(source).name == "tables" else folder).name
    return About(
        title=title,
        headline="Recorded messages",
        subtitle=subtitle,
        latency="Latency is from the send's time stamp to the recorder's.",
    )


def write(path: Path, streams: Sequence[Stream], columns: Iterable[sources.Part], about: About) -> Path:
    """Writes the page. Returns its path. columns: its sections about data. `MissingPackage` without matplotlib."""
    import numpy as np

    with explain_missing("a report"):
        from penstock.cli.report import drawing, pictures
    with drawing.styled():
        plots = drawing.plots(streams)
        data = pictures.sections(columns)
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
    seconds = (max(int(times[-1]) for times in seen) - min(int(times[0]) for times in seen)) / 1e9 if seen else 0.0
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

    titles = [
        "stream",
        "kind",
        "messages",
        "rate/s",
        "bytes",
        "each",
        *(name for _, name in PERCENTILES),
        "max",
        "lost",
    ]
    head = "".join(f"<th>{title}</th>" for title in titles)
    body = []
    for stream, color in zip(streams, COLORS * (len(streams) // len(COLORS) + 1), strict=False):
        took = stream.latencies
        latency = [float(np.percentile(took, at)) for at, _ in PERCENTILES] + [float(took.max())] if len(took) else []
        cells = [
            stream.channel.partition(":")[0],
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
