"""Changes of a Spark worker that runs Penstock's code: it reports errors in one line, and ends without a trace.

Does nothing in any other process. Knows PySpark's daemon, which forks Spark's Python workers; knows no recording.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

from penstock.errors import PenstockError

DAEMON = "pyspark.daemon"
RUNNERS = "pyspark.sql.streaming."  # programs that plan a streaming query's batches
HIDE = "SPARK_HIDE_TRACEBACK"  # PySpark sends the last line of a trace alone where this is set

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class _Traces:
    """The module `traceback` for PySpark's daemon. It prints nothing for a worker whose JVM has closed the socket: that is how each
    worker of a session ends that is stopped, and how a query does that has enough rows."""

    def __getattr__(self, name: str) -> Any:
        return getattr(traceback, name)

    def print_exc(self, *given: Any, **named: Any) -> None:
        """The error that ends a worker, unless that is no error."""
        if not is_left(sys.exc_info()[1]):
            traceback.print_exc(*given, **named)


def quieten(daemon: Any = None) -> None:
    """Workers end without a trace when their JVM has gone. daemon: PySpark's; by default, the program of this process, if it is that."""
    if daemon is None and _program() == DAEMON:
        daemon = sys.modules["__main__"]
    if daemon is not None:
        daemon.traceback = _Traces()
    if _program().startswith(RUNNERS):
        sys.excepthook = report_unless_closed


def report_unless_closed(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """`sys.excepthook` of a query's own Python process: it prints nothing where its JVM has gone, as at the end of each query."""
    if not is_left(error):
        sys.__excepthook__(kind, error, trace)


def is_left(error: BaseException | None) -> bool:
    """Whether an error of a worker says that its JVM has gone, or does not wait for it any more."""
    left = "[CANNOT_OPEN_SOCKET]" in str(error) and type(error).__module__.startswith("pyspark.")
    return left or isinstance(error, ConnectionError | EOFError)


def is_one() -> bool:
    """Whether this process is one of Spark's Python workers."""
    return _program().startswith("pyspark.")


def _program() -> str:
    """The module that `python -m` runs here."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return str(getattr(spec, "name", ""))


@contextlib.contextmanager
def errors_in_one_line() -> Iterator[None]:
    """Within it, an error of this library goes to the user as one line, without the trace of a worker's Python code."""
    try:
        yield
    except PenstockError:
        if is_one():  # an error ends the worker: no later one loses its trace
            os.environ[HIDE] = "1"
        raise


def in_a_line(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """A function, or a generator function, of which `errors_in_one_line` holds."""
    if _is_generator(function):

        @functools.wraps(function)
        def generating(*given: Arguments.args, **named: Arguments.kwargs) -> Any:
            with errors_in_one_line():
                yield from function(*given, **named)  # type: ignore[misc]

        return generating

    @functools.wraps(function)
    def calling(*given: Arguments.args, **named: Arguments.kwargs) -> Result:
        with errors_in_one_line():
            return function(*given, **named)

    return calling


def _is_generator(function: Callable[..., Any]) -> bool:
    import inspect

    return inspect.isgeneratorfunction(function)


quieten()  # as soon as a worker has imported any of the data sources
