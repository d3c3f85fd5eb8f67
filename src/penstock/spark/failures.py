"""Spark's exceptions as errors of this library: one line, and a task's own words where they are in it. Knows the text of Spark's errors only."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator

from penstock import errors
from penstock.errors import PenstockError

OWN = re.compile(r"penstock\.errors\.([A-Z][A-Za-z]+): (.*)")
TELLING = re.compile(
    r"(Python worker[^.\n]*|No space left on device|java\.lang\.OutOfMemoryError[^\n]*|[^\n]*Connection refused[^\n]*)"
)

JAVAS = re.compile(r"^(?:Caused by: |: )?[\w.]+(?:Exception|Error): (.+)$", re.MULTILINE)


@contextlib.contextmanager
def unlogged() -> Iterator[None]:
    """Within it, PySpark and Py4J do not log errors of queries and of batches: the caller reports each."""
    names = ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "py4j.clientserver", "py4j.java_gateway")
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


def failure(error: BaseException) -> PenstockError:
    """An error of Spark's, of Py4J's or of a task. The whole of it stays with the new one as its cause, if it is raised `from` it."""
    text = str(error)
    found = OWN.findall(text)
    if found:
        name, words = found[-1]
        kind = getattr(errors, name, PenstockError)
        # Some of them are made of more than a text.
        own = issubclass(kind, PenstockError) and not issubclass(kind, errors.DecodeError | errors.SystemFailure)
        return (kind if own else PenstockError)(words.strip())
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = TELLING.search(text) or JAVAS.search(text)
    what = telling[1].strip() if telling else lines[0] if lines else type(error).__name__
    return PenstockError(f"Spark failed: {what[:300]}")
