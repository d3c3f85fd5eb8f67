"""Spark's exceptions as errors of this library: one line, and a task's own words where they are in it. Knows the text of Spark's errors only."""

from __future__ import annotations

import contextlib
import logging
import re
import subprocess
import sys
from collections.abc import Iterator

from penstock.errors import PenstockError
from penstock.util import errors_in_text

TELLING = re.compile(
    r"(Python worker [^.\n]*|No space left on device|java\.lang\.OutOfMemoryError[^\n]*|[^\n]*Connection refused[^\n]*)"
)

# Py4J's words where a JVM answers no more, and Spark's where a master does not.
LOST = re.compile(
    r"Py4JNetworkError|ConnectionRefused|ConnectionReset|Connection refused|Answer from Java side is empty|does not exist in the JVM"
)
UNREACHABLE = re.compile(
    r"All masters are unresponsive|stopped SparkContext|Connection refused|UnknownHost|ExitCode|UNAVAILABLE"
)

JAVAS = re.compile(r"^(?:Caused by: |: )?[\w.]+(?:Exception|Error): (.+)$", re.MULTILINE)


@contextlib.contextmanager
def unlogged() -> Iterator[None]:
    """Within it, PySpark, Py4J and sqlglot do not log errors of queries and of batches: the caller reports each."""
    names = (
        "sqlglot",
        "SQLQueryContextLogger",
        "DataFrameQueryContextLogger",
        "py4j.clientserver",
        "py4j.java_gateway",
    )
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    # Py4J says that a JVM has gone to the root logger, by a function that gives a root without handlers one.
    root = logging.getLogger()
    last = logging.lastResort if not root.handlers else None
    if last is not None:
        root.addHandler(last)
    quiet = _NotOfPy4J()
    root.addFilter(quiet)
    try:
        yield
    finally:
        root.removeFilter(quiet)
        if last is not None:
            root.removeHandler(last)
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


class _NotOfPy4J(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return record.module != "java_gateway"


def failure(error: BaseException, master: str | None = None) -> PenstockError:
    """An error of Spark's, of Py4J's or of a task. The whole of it stays with the new one as its cause, if it is raised `from` it.

    master: that a session was to be begun with.
    """
    if isinstance(error, PenstockError):
        return error
    text = str(error)
    if (own := errors_in_text.find(text)) is not None:
        return own
    if ended := how_jvm_ended(wait_s=2.0 if LOST.search(f"{type(error).__name__} {text}") else 0.0):
        return PenstockError(f"Spark's JVM {ended}")
    if "JAVA_GATEWAY_EXITED" in text:  # PySpark forgets the process, and with it how it ended
        return PenstockError("Spark's JVM ended while it started: it was killed, or lines of its own say why")
    if master is not None and UNREACHABLE.search(text):
        return PenstockError(f"the Spark master {master} cannot be reached")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = TELLING.search(text) or JAVAS.search(text)
    what = telling[1].strip() if telling else lines[0] if lines else type(error).__name__
    return PenstockError(f"Spark failed: {what[:300]}")


def how_jvm_ended(wait_s: float = 0.0) -> str:
    """How the JVM that this process began has ended; empty if it has not, or if there is none. wait_s: how long to wait for its end, in seconds."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    process = getattr(getattr(context, "_gateway", None), "proc", None)
    if process is None:
        return ""
    try:
        status = process.wait(wait_s) if wait_s else process.poll()
    except subprocess.TimeoutExpired:
        return ""
    if status is None:
        return ""
    return f"ended with signal {-status}" if status < 0 else f"ended with status {status}"
