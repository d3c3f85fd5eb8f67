"""The table *stats*: SQL over *messages*, and over the losses that no message tells yet. Only windows that changed are computed again.

Which those are follows from the files that came to *messages* and went since the version that *stats* has seen. A killed run leaves
nothing to remember.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.columns.parts import Writer
from penstock.errors import NotFound
from penstock.spark import tables
from penstock.spark.own_tables import isolated, sweep
from penstock.tables.delta import Table
from penstock.tables.delta_files import Added, File, written
from penstock.tables.places import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APP = "penstock/stats"
STATS = pa.schema(
    [
        ("stream", pa.string()),
        ("window_start", pa.timestamp("us", "UTC")),
        ("messages", pa.int64()),
        ("bytes", pa.int64()),
        ("rate", pa.float64()),
        ("interval_p50_ns", pa.float64()),
        ("interval_p99_ns", pa.float64()),
        ("latency_p50_ns", pa.float64()),
        ("latency_p99_ns", pa.float64()),
        ("lost_bytes", pa.int64()),
        ("decode_errors", pa.int64()),
    ]
)
# Windows are counted from the epoch, also backwards: `div` rounds towards zero.
NUMBER = "{0} div {width} - int({0} % {width} < 0)"
MESSAGES = f"""
  select m.stream, {NUMBER.format("m.timestamp_ns", width="{width}")} as number, 1 as message, m.bytes, m.interval_ns,
         try_subtract(m.recorded_ns, m.timestamp_ns) as latency_ns, m.lost, m.decode_error
  from penstock_messages m {{of_messages}}"""
WAITING = f"""
  union all
  select l.stream, {NUMBER.format("l.noted_ns", width="{width}")}, 0, 0, null, null, l.lost, null
  from penstock_waiting l {{of_waiting}}"""
QUERY = """
with found as ({rows}
), summed as (
  select stream, number, sum(message) as messages, sum(bytes) as bytes,
         sort_array(collect_list(interval_ns)) as interval_ns, sort_array(collect_list(latency_ns)) as latency_ns,
         sum(lost) as lost_bytes, count(decode_error) as decode_errors
  from found group by stream, number
)
select stream, timestamp_micros({start_us}) as window_start, messages, bytes, messages / {seconds}D as rate,
       {interval_p50} as interval_p50_ns, {interval_p99} as interval_p99_ns,
       {latency_p50} as latency_p50_ns, {latency_p99} as latency_p99_ns, lost_bytes, decode_errors
from summed
"""
# Of a sorted list of n values, that at (n - 1) * share; between two values, interpolated. It is the number that Spark's `percentile`
# gives, which counts values in a table of hashes: that takes five times as long where most of a window's values differ.
PERCENTILE = """if(floor({at}) = ceil({at}) or get({list}, floor({at})) = get({list}, ceil({at})),
          double(get({list}, floor({at}))),
          (ceil({at}) - {at}) * get({list}, floor({at})) + ({at} - floor({at})) * get({list}, ceil({at})))"""
FILES_MAX = 64  # when there are more, the next commit writes them as one
DRIVER_ROWS = 100_000  # so many windows at most are collected and written here, which is faster than by tasks
FEW_ROWS = 200_000  # so many rows at most are read by one task, without a shuffle
FEW_SPANS = 32  # so many spans at most are conditions in the query's text: no table of windows is sent to tasks
# Of a query that one task runs at once: to compile code for it would take longer than the query.
AT_ONCE = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
Spans = dict[str, list[tuple[int, int]]]


def query(
    width: int, windows: Sequence[tuple[str, int, int]] | None, *, waiting: bool, by_one_task: bool = False
) -> str:
    """The SQL of *stats* for windows of so many nanoseconds, over the views penstock_messages and, if losses wait, penstock_waiting.

    windows: (stream, since, until). None: they are the view penstock_windows. by_one_task: there are so few rows that one task reads
    them.
    """
    rows = MESSAGES + (WAITING if waiting else "")
    if by_one_task:
        rows = f"select /*+ COALESCE(1) */ * from ({rows})"
    if width % 1000 == 0:
        start = f"number * {width // 1000}"
    else:
        start = f"try_multiply(number, {width}) div 1000 - int(try_multiply(number, {width}) % 1000 < 0)"
    parts = {"{rows}": rows, "{start_us}": start, "{seconds}": repr(width / 1e9), "{width}": f"{width}L"}
    for values in ("interval", "latency"):
        for share in (50, 99):
            at = f"((size({values}_ns) - 1) * {share / 100}D)"
            parts[f"{{{values}_p{share}}}"] = PERCENTILE.replace("{at}", at).replace("{list}", f"{values}_ns")
    parts |= {"{of_messages}": _chosen("m", "timestamp_ns", windows), "{of_waiting}": _chosen("l", "noted_ns", windows)}
    made = QUERY
    for name, text in parts.items():  # those with names of streams come last
        made = made.replace(name, text)
    return made


def _chosen(view: str, time: str, windows: Sequence[tuple[str, int, int]] | None) -> str:
    """The part of a query that takes the rows of some windows."""
    if windows is None:
        return f"join penstock_windows w on {view}.stream = w.stream and {view}.{time} between w.since and w.until"
    spans = (
        f"({view}.stream = {_literal(name)} and {view}.{time} between {low}L and {high}L)"
        for name, low, high in windows
    )
    return f"where {' or '.join(spans)}"


def bring(session: Callable[[], SparkSession], out: Place, width: int, *, compression: str, retain: float) -> int:
    """Brings *stats* up to date with *messages*. width: of a window, in nanoseconds. session: called if there is anything to
    compute. How many windows were computed."""
    messages, there = Table.open(out / "messages"), Table.open(out / "stats")
    assert messages is not None
    state = there.state() if there is not None else {}
    waiting = [tuple(row) for row in messages.state().get("waiting", [])]
    wanted = {"of": messages.id, "messages": messages.version, "window": width, "waiting": waiting}
    if there is not None and all(state.get(name) == wanted[name] for name in ("of", "messages", "window")):
        return 0
    spans = _touched(messages, state, waiting, width) if there is not None else None
    whole = spans is None
    spans = _all(messages, waiting, width) if spans is None else spans
    adds, removes, count = list[Added](), list[str](), 0
    if there is not None:
        files = there.files()
        joined = len(files) > FILES_MAX
        touched = [file for file in files if whole or joined or _overlaps(file, spans)]
        removes = [file.path for file in touched]
        adds += [] if whole else _kept(there, touched, spans, compression)
    if spans:
        fresh = _computed(session(), out, messages, waiting, spans, width, compression)
        adds, count = adds + fresh, sum(added.rows for added in fresh)
    now = time.time()
    old = [*state.get("old", []), *([path, now] for path in removes)]
    gone = {path for path, when in old if now >= when + retain}
    remembered = {**wanted, "old": [row for row in old if row[0] not in gone]}
    if there is None:
        there = Table.create(out / "stats", STATS, adds, state=remembered, marks={APP: 1})
    else:
        there.commit(adds, removes, state=remembered, marks={APP: (there.mark(APP) or 0) + 1})
    sweep(there, {row[0] for row in old} - gone, now - retain, gone)
    return count


# ---- windows that changed ----


def _touched(messages: Table, state: Mapping[str, Any], waiting: list[tuple[Any, ...]], width: int) -> Spans | None:
    """Windows that must be computed; None for all of them."""
    if state.get("window") != width or state.get("of") != messages.id:  # `messages` was removed and made again
        return None
    try:
        came, went = messages.changes(state["messages"])
    except NotFound:
        return None
    before = {tuple(row) for row in state["waiting"]}
    return _spans([*came, *went], before ^ set(waiting), width)


def _all(messages: Table, waiting: list[tuple[Any, ...]], width: int) -> Spans:
    found = _spans(messages.files(), waiting, width)
    if found is None:  # the log does not say which streams a file has
        names = pc.unique(tables.read_files(messages, ["stream"])["stream"]).to_pylist()
        found = {name: [(LOWEST, HIGHEST)] for name in {*names, *(row[0] for row in waiting)}}
    return found


def _spans(files: Iterable[File], waiting: Iterable[tuple[Any, ...]], width: int) -> Spans | None:
    """Times of whole windows, both ends inclusive, per stream. None if the log does not say which streams a file has."""
    found: Spans = {}
    for file in files:
        if "stream" not in file.low or file.low["stream"] != file.high.get("stream"):
            return None
        found.setdefault(file.low["stream"], []).append((file.low["timestamp_ns"], file.high["timestamp_ns"]))
    for stream, noted, _ in waiting:
        found.setdefault(stream, []).append((noted, noted))
    return {stream: _joined(times, width) for stream, times in found.items()}


def _joined(times: list[tuple[int, int]], width: int) -> list[tuple[int, int]]:
    made: list[tuple[int, int]] = []
    for low, high in sorted((low // width, high // width) for low, high in times):
        if made and low <= made[-1][1] + 1:
            made[-1] = made[-1][0], max(high, made[-1][1])
        else:
            made.append((low, high))
    return [(max(low * width, LOWEST), min(high * width + width - 1, HIGHEST)) for low, high in made]


def _overlaps(file: File, spans: Spans) -> bool:
    """Whether a file may have a window that is computed again."""
    if "window_start" not in file.low or "stream" not in file.low:
        return True
    low, high = (_micros(side["window_start"]) for side in (file.low, file.high))
    return any(
        file.low["stream"] <= stream <= file.high["stream"]
        and any(since // 1000 <= high and until // 1000 >= low for since, until in times)
        for stream, times in spans.items()
    )


def _micros(moment: Any) -> int:
    return int(pa.scalar(moment, pa.timestamp("us", "UTC")).value)


def _kept(there: Table, files: Sequence[File], spans: Spans, compression: str) -> list[Added]:
    """The other windows of files that are replaced, in a file of their own: it is not touched again as long as they are not."""
    found = []
    for file in files:
        with there.place.fs.open_input_file(there.place.file(file.path)) as source:
            rows = pq.read_table(source, partitioning=None)
        starts = rows["window_start"].cast(pa.int64()).to_pylist()
        streams = rows["stream"].to_pylist()
        keep = [
            not any(since // 1000 <= start <= until // 1000 for since, until in spans.get(stream, ()))
            for stream, start in zip(streams, starts, strict=True)
        ]
        found.append(rows.filter(pa.array(keep, pa.bool_())))
    return _write(there.place, pa.concat_tables(found), compression) if found else []


def _write(place: Place, rows: pa.Table, compression: str) -> list[Added]:
    if not rows.num_rows:
        return []
    writer = Writer(place, f"part-{secrets.token_hex(8)}-{secrets.token_hex(8)}", "parquet", compression)
    for batch in rows.cast(STATS).to_batches():
        writer.write(batch)
    part = writer.close()
    assert part is not None
    return [written(place, part.path)]


# ---- the query ----


def _computed(
    spark: SparkSession,
    out: Place,
    messages: Table,
    waiting: list[tuple[Any, ...]],
    spans: Spans,
    width: int,
    compression: str,
) -> list[Added]:
    from penstock.spark.failures import failure
    from penstock.spark.sink import save

    files = [file for file in messages.files() if _has_rows(file, spans)]
    windows = [(stream, *span) for stream, times in spans.items() for span in times]
    named = windows if len(windows) <= FEW_SPANS else None
    few = named is not None and sum(file.rows for file in files) <= FEW_ROWS
    session = isolated(spark, AT_ONCE if few else None)
    names = ["stream", "timestamp_ns", "interval_ns", "recorded_ns", "lost", "bytes", "decode_error"]
    tables.frame(session, messages, files, names).createOrReplaceTempView("penstock_messages")
    if named is None:
        _values(session, "penstock_windows", "stream STRING, since BIGINT, until BIGINT", windows)
    if waiting:
        _values(session, "penstock_waiting", "stream STRING, noted_ns BIGINT, lost BIGINT", waiting)
    try:
        frame = session.sql(query(width, named, waiting=bool(waiting), by_one_task=few))
        if sum((until - since) // width + 1 for _, since, until in windows) <= DRIVER_ROWS:
            return _write(out / "stats", frame.toArrow(), compression)
        return save(frame, out / "stats", f"part-{secrets.token_hex(8)}", compression)[0]
    except Exception as error:  # PySpark's, Py4J's, or a socket's
        raise failure(error) from error


def _has_rows(file: File, spans: Spans) -> bool:
    """Whether a file may have rows of these times."""
    if "stream" not in file.low or file.low["stream"] != file.high.get("stream"):
        return True
    low, high = file.low["timestamp_ns"], file.high["timestamp_ns"]
    return any(since <= high and until >= low for since, until in spans.get(file.low["stream"], ()))


def _values(session: SparkSession, name: str, schema: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """A small table as a part of the plan, which Spark can send to all tasks."""
    columns = [part.split() for part in schema.split(", ")]
    chosen = ", ".join(f"cast(col{at} as {kind}) as {column}" for at, (column, kind) in enumerate(columns, 1))
    values = ", ".join(f"({', '.join(map(_literal, row))})" for row in rows)
    session.sql(f"select {chosen} from values {values}").createOrReplaceTempView(name)


def _literal(value: Any) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    return "null" if value is None else f"{value}L"
