"""*stats*, a view: SQL over *messages* and *losses*, window by window, for Spark and for DuckDB. Nothing is stored, so nothing grows stale.

The time between two messages is a window function in it. Spark's percentiles are approximate, so memory is bounded whatever a window holds; DuckDB's are exact.
"""

from __future__ import annotations

from penstock.errors import Invalid

NAME = "stats"
SECOND = 1_000_000_000
MESSAGES = ["stream", "epoch", "position", "timestamp_ns", "recorded_ns", "bytes", "decode_error"]
LOSSES = ["stream", "noted_ns", "bytes"]
ACCURACY = 10_000  # of Spark's percentile_approx: a rank is wrong by 1/10,000 of a window's messages at most

# The difference of two times of the years 1823 to 2116 has 64 bits: others have no latency and no interval, rather than an error.
NEAR = "case when {0} between -4611686018427387904 and 4611686018427387903 then {0} end"
# Windows are counted from 1970, also backwards: a division rounds towards zero.
_SQL = """
with spaced as (
  select stream, timestamp_ns, bytes, decode_error, received - sent as latency_ns,
         sent - lag(sent) over (partition by stream, epoch order by position) as interval_ns
  from (select *, {sent} as sent, {received} as received from {messages})
), found as (
  select stream, {number_of_messages} as number, count(*) as messages, sum(bytes) as bytes,
         {interval_p50} as interval_p50_ns, {interval_p99} as interval_p99_ns,
         {latency_p50} as latency_p50_ns, {latency_p99} as latency_p99_ns,
         count(decode_error) as decode_errors
  from spaced group by 1, 2
), missed as (
  select stream, {number_of_losses} as number, sum(bytes) as lost_bytes from {losses} group by 1, 2
)
select coalesce(f.stream, m.stream) as stream, {start} as window_start, {end} as window_end,
       coalesce(messages, 0) as messages, coalesce(bytes, 0) as bytes, coalesce(messages, 0) / {seconds} as messages_per_second,
       interval_p50_ns, interval_p99_ns, latency_p50_ns, latency_p99_ns,
       coalesce(lost_bytes, 0) as lost_bytes, coalesce(decode_errors, 0) as decode_errors
from found f full join missed m on f.stream = m.stream and f.number = m.number
"""


def width_ns(window: float, name: str = "window") -> int:
    """The width of a row in nanoseconds. `Invalid` unless it makes sense. window: seconds."""
    if not 1e-6 <= window < 4e9:
        raise Invalid(f"{name} is {window}: it must be a number of seconds, at least 1e-6 and less than 4e9")
    return int(window * 1e6) * 1000


def of_spark(width: int) -> str:
    """The query in Spark's SQL, over DataFrames that are given as `messages` and `losses`."""
    number, micros = "{0} div {1}L - int({0} % {1}L < 0)", width // 1000
    parts = {
        "{start}": f"timestamp_micros(coalesce(f.number, m.number) * {micros}L)",
        "{end}": f"timestamp_micros((coalesce(f.number, m.number) + 1) * {micros}L)",
        "{number_of_messages}": number.format("timestamp_ns", width),
        "{number_of_losses}": number.format("noted_ns", width),
        "{seconds}": f"{width / SECOND!r}D",
    }
    for values in ("interval", "latency"):
        for share in (50, 99):
            parts[f"{{{values}_p{share}}}"] = f"percentile_approx({values}_ns, {share / 100}, {ACCURACY})"
    return _fill_template(parts)


def of_duckdb(width: int, messages: str, losses: str) -> str:
    """The query in DuckDB's SQL. messages, losses: names of views."""
    number, micros = "({0} // {1} - cast({0} % {1} < 0 as int))", width // 1000
    parts = {
        "{messages}": messages,
        "{losses}": losses,
        "{start}": f"make_timestamptz(coalesce(f.number, m.number) * {micros})",
        "{end}": f"make_timestamptz((coalesce(f.number, m.number) + 1) * {micros})",
        "{number_of_messages}": number.format("timestamp_ns", width),
        "{number_of_losses}": number.format("noted_ns", width),
        "{seconds}": f"{width / SECOND!r}::double",
    }
    for values in ("interval", "latency"):
        for share in (50, 99):
            parts[f"{{{values}_p{share}}}"] = f"quantile_disc({values}_ns, {share / 100})"
    return _fill_template(parts)


def _fill_template(parts: dict[str, str]) -> str:
    made = _SQL
    near = {
        f"{{{name}}}": NEAR.format(column) for name, column in (("sent", "timestamp_ns"), ("received", "recorded_ns"))
    }
    for name, text in (parts | near).items():
        made = made.replace(name, text)
    return made
