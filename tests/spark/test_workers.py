"""Spark's Python workers: which process is one, how errors are told there, and which traces are left out. No JVM."""

import os
import sys
import types

import pytest

from penstock.errors import NotFound
from penstock.spark.runtime import workers


@pytest.fixture
def program(monkeypatch):
    """Makes this process look like `python -m NAME`."""

    def name(text):
        main = types.ModuleType("__main__")
        main.__spec__ = types.SimpleNamespace(name=text)
        monkeypatch.setitem(sys.modules, "__main__", main)
        return main

    monkeypatch.delenv(workers.HIDE, raising=False)
    yield name
    os.environ.pop(workers.HIDE, None)


@workers.in_a_line
def fails(error):
    raise error


@workers.in_a_line
def yields(error):
    yield 1
    raise error


@pytest.mark.parametrize("name", ["pyspark.daemon", "pyspark.sql.worker.lookup_data_sources"])
def test_an_error_in_a_worker_goes_without_its_trace(program, name):
    program(name)
    with pytest.raises(ValueError, match="a fault"):
        fails(ValueError("a fault"))
    assert workers.HIDE not in os.environ, "other errors keep it"
    found = yields(NotFound("no archive"))
    assert next(found) == 1
    with pytest.raises(NotFound):
        next(found)
    assert os.environ.pop(workers.HIDE) == "1"
    with pytest.raises(NotFound):
        fails(NotFound("no archive"))
    assert os.environ[workers.HIDE] == "1"


@pytest.mark.parametrize("name", ["pytest.__main__", ""])
def test_no_other_process_changes(program, name):
    main = program(name)
    main.traceback = "its own"
    with pytest.raises(NotFound):
        fails(NotFound("no archive"))
    assert workers.HIDE not in os.environ
    workers.quieten()
    assert main.traceback == "its own"


class PySparkRuntimeError(Exception):
    """As PySpark's."""


PySparkRuntimeError.__module__ = "pyspark.errors.exceptions.base"


@pytest.mark.parametrize(
    "error",
    [
        BrokenPipeError(32, "Broken pipe"),
        ConnectionResetError(),
        EOFError(),
        PySparkRuntimeError("[CANNOT_OPEN_SOCKET] Can not open socket: tried to connect to /tmp/x.sock"),
        ValueError("a fault"),
        ValueError("[CANNOT_OPEN_SOCKET]"),
    ],
)
def test_a_worker_whose_jvm_has_gone_prints_nothing(program, capsys, error):
    import traceback

    main = program("pyspark.daemon")
    main.traceback = traceback
    workers.quieten()
    try:
        raise error
    except BaseException:
        main.traceback.print_exc()
    assert bool(capsys.readouterr().err) == isinstance(error, ValueError)
    assert main.traceback.format_exc is traceback.format_exc


def test_pyspark_has_what_this_changes():
    daemon = pytest.importorskip("pyspark.daemon", reason="PySpark is not installed: pip install 'penstock[spark]'")
    import inspect

    source = inspect.getsource(daemon.manager)
    assert "traceback.print_exc()" in source
    assert daemon.__dict__["traceback"].__name__ == "traceback"
    util = pytest.importorskip("pyspark.util")
    assert workers.HIDE in inspect.getsource(util.handle_worker_exception)
