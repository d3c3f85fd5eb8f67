"""The modules that `import penstock` brings into a process, and that everything is there when it is asked for."""

import subprocess
import sys

import pytest

import penstock

HEAVY = ("asyncio", "logging", "multiprocessing", "numpy", "pyarrow", "sqlite3", "ssl", "subprocess", "zmq")


def loaded(program, more=()):
    """The heavy modules that a program has loaded at its end."""
    code = f"{program}\nimport sys\nprint(*(name for name in {(*HEAVY, *more)!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_a_bare_import_loads_nothing_heavy():
    assert loaded("import penstock; penstock.Busy, dir(penstock)", ("dataclasses", "inspect", "re", "typing")) == []


def test_sending_and_receiving_loads_no_numpy_or_event_loop():
    program = """
import penstock
with penstock.publish("fake:log:a") as pub, penstock.subscribe("fake:log:a") as sub:
    pub.send(b"x")
    assert sub.recv(timeout=60) == b"x"
    assert penstock.wait([sub], 0) == []
"""
    assert set(loaded(program, ("msgspec",))) <= {"logging"}


COMMAND = """
import contextlib, io
from penstock.cli import run
with contextlib.redirect_stdout(io.StringIO()) as said:
    assert run({!r}) == 0
assert {!r} in said.getvalue()
"""
ODD = ("concurrent.futures", "msgspec", "psutil", "pydantic", "rich", "starlette", "penstock.channels.network")
LARGE = ("penstock.record", "penstock.spark", "penstock.tables", "penstock.util.files.storage", "penstock.watch")
ALLOWED = {"logging", "subprocess"}  # typer loads the latter


@pytest.fixture
def channels():
    """One with arrays and one with bytes."""
    for name, codec, message in (("arrays", penstock.array("f4"), [1, 2]), ("bytes", None, b"first")):
        with penstock.publish(f"log:start/{name}", codec=codec) as pub:
            pub.send(message)


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_ls_loads_nothing_that_it_does_not_need(options, channels):
    found = loaded(COMMAND.format(["ls", *options], "array"), (*ODD, *LARGE, "penstock.channels.handles"))
    assert set(found) <= ALLOWED


def test_sub_loads_nothing_that_bytes_do_not_need(channels):
    arguments = ["sub", "log:start/bytes", "--start", "earliest", "--limit", "1"]
    assert set(loaded(COMMAND.format(arguments, "first"), (*ODD, *LARGE))) <= ALLOWED


def test_the_data_source_loads_no_pandas():
    """Each of Spark's Python workers imports it."""
    pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'penstock[spark]'")
    assert set(loaded("import penstock.spark.source.data_source", ("pandas", "pyarrow.dataset"))) <= set(HEAVY)


def test_every_public_name_is_there_and_listed():
    for name in penstock.__all__:
        assert getattr(penstock, name) is getattr(penstock, name), name
    assert set(penstock.__all__) | {"testing", "threads", "types", "__version__"} <= set(dir(penstock))
    assert penstock.types.Codec


def test_a_name_that_is_not_there_is_said():
    code = "import penstock\npenstock.publsih"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "AttributeError: module 'penstock' has no attribute 'publsih'" in done.stderr
