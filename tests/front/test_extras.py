"""Without optional packages: channels and recorders work, and everything else names its extra in one sentence."""

import functools
import subprocess
import sys
import tomllib
from pathlib import Path

import forks
import pytest

from penstock.util.extras import EXTRAS

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BASE = {"msgspec", "numpy"}
# In front of a program: as if no package but the base's own, and those named in its first argument, were installed.
BLOCK = f"""
import sys
class Missing:
    names = {{name.partition(".")[0] for name in {[*EXTRAS]!r}}} - set(sys.argv[1].split(","))
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
import penstock
"""
EVERY_KIND = """
import msgspec, numpy as np
class Pose(msgspec.Struct):
    x: float
def through(uri, message, **options):
    with penstock.subscribe(uri) as sub, penstock.publish(uri, **options) as pub:
        pub.send(message)
        return sub.recv(timeout=60)
for kind in ("log", "ring", "sync", "pipe"):
    assert through(f"{kind}:thin/a", b"x") == b"x", kind
    assert through(f"{kind}:thin/json", {"a": 1}, codec="json") == {"a": 1}, kind
    assert through(f"fake:{kind}:thin/a", b"x") == b"x", kind
assert through("log:thin/msgpack", {"a": 1}, codec="msgpack") == {"a": 1}
assert through("log:thin/struct", Pose(1.5), codec=Pose) == {"x": 1.5}
assert through("log:thin/array", np.arange(3.0), codec=penstock.array("f8", (3,))).tolist() == [0, 1, 2]
with penstock.publish("udp://224.20.30.39:40456/7", interface="127.0.0.0/8") as pub:
    assert pub.channel
with penstock.publish("frames:thin", shape=(2, 3), dtype="u1") as pub, penstock.subscribe("frames:thin") as sub:
    pub.send(np.full((2, 3), 7, "u1"))
    with sub.recv(timeout=60) as frame:
        assert frame.array.sum() == 42
with penstock.join("sync:thin/lab", name="a") as one, penstock.join("sync:thin/lab", name="b") as two:
    one.send(b"x")
    assert two.recv(timeout=60).text == "x"
with penstock.join("pipe:thin/ask", role="reply") as server, penstock.join("pipe:thin/ask", role="request") as client:
    asked = client.submit(b"x")
    server.serve(lambda data: data + b"y", count=1)
    assert asked.result(timeout=60) == b"xy"
assert penstock.list_channels()
heavy = ("penstock.record", "penstock.export", "penstock.spark", "penstock.cli", "penstock.watch", "penstock.columns")
print([name for name in sys.modules if name.startswith(heavy)])
"""
RECORDER = """
archive = penstock.Archive(sys.argv[2])
with penstock.publish("log:thin/kept") as pub, archive.record("log:thin/kept"):
    for _ in range(10):
        pub.send(b"x")
(found,) = archive.list()
assert found.messages == 10
assert archive.verify() == []
archive.repair()
archive.purge(found.id)
print([info.id for info in archive.list()])
"""
ERRORS = {
    "pyarrow": ("record", "with penstock.subscribe('log:thin/a') as sub: sub.poll_arrow()"),
    "an archive": ("record", "next(penstock.Archive('here').replay('log:thin/e'))"),
    "an object storage": ("record", "penstock.Archive('s3://bucket/archive')"),
    "export": ("record", "from penstock.export import export"),
    "frames in zstd": ("record", "penstock.Archive('here').record('frames:thin/f', pixels='zstd')"),
    "frames in PNG": ("frames", "penstock.Archive('here').record('frames:thin/f', pixels='png')", "pyarrow"),
    "a training set": ("datasets", "penstock.dataset('here', 'set', align='log:thin/e')"),
    "its rows": ("datasets", "penstock.open_dataset('set')"),
    "a name of the front door": ("datasets", "from penstock import dataset as made; made()"),
    "deltalake": ("tables", "from penstock.export.delta import needed; needed()", "pyarrow"),
    "Arrow for Spark": ("spark", "import penstock.spark"),
    "Spark": ("spark", "from penstock.spark import session; session()", "pyarrow"),
    "ZeroMQ": ("zmq", "penstock.publish('zmq+tcp://127.0.0.1:*')"),
    "protobuf": (
        "protobuf",
        "from penstock.codecs import protobufs; protobufs.reader({'message': 'a.B', 'files': ''})",
    ),
    "ROS 2": ("ros2", "penstock.ros2msg('geometry_msgs/msg/Point')"),
    "MCAP in": ("mcap", "from penstock.export.mcap_import import needed; needed()", "pyarrow"),
    "MCAP out": ("mcap", "from penstock.export.mcap import _package; _package()", "pyarrow"),
    "metrics": ("metrics", "import penstock.watch.metrics"),
    "the view": ("foxglove", "from penstock.export.live import Viewed; Viewed(['*'])", "pyarrow"),
    "the monitor": ("cli", "import penstock.cli.monitor.serving", "pyarrow,typer,rich,psutil"),
    "a report": (
        "report",
        "from penstock.cli import report; report.write(None, [], None, None)",
        "pyarrow,typer,rich,psutil",
    ),
}
COMMANDS = {
    "export": ("record", "export", "a", "out", "--parquet"),
    "pipeline": ("spark", "pipeline", "a", "--out", "out"),
    "pipeline without Spark": ("tables", "pipeline", "a", "--out", "out", "--engine", "local"),
    "erase": ("tables", "erase", "out", "log:x"),
    "optimize": ("tables", "pipeline", "--out", "out", "--optimize"),
    "sql": ("spark", "sql", "out", "select 1"),
    "metrics": ("metrics", "metrics", "--once"),
    "import": ("mcap", "import", "x.mcap", "a"),
    "dataset": ("datasets", "dataset", "a", "--align", "log:x", "--to", "out"),
    "export --mcap": ("mcap", "export", "a", "out", "--mcap"),
    "export --delta": ("tables", "export", "a", "out", "--delta"),
    "report": ("report", "report", "."),
    "sql by DuckDB": ("tables", "sql", ".", "select 1", "--engine", "duckdb"),
    "view": ("foxglove", "view"),
}


def run(program, *arguments, there="", folder):
    return subprocess.run(
        [sys.executable, "-c", BLOCK + program, there, *map(str, arguments)], capture_output=True, text=True, cwd=folder
    )


def run_all(programs, loaded, *, there="", folder):
    """The (status, stdout, stderr) of each of some programs, by its name. They begin with the same modules, and in folders of their own."""
    folders = [folder / str(number) for number in range(len(programs))]
    for one in folders:
        one.mkdir()
    done = forks.run_each(list(zip(folders, programs.values(), strict=True)), BLOCK + loaded, there)
    return dict(zip(programs, done, strict=True))


@functools.cache
def packages(extra):
    """The packages that an extra brings, as the Makefile reads them."""
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "packages.py", extra], capture_output=True, text=True, check=True
    )
    return {line.partition(">")[0] for line in done.stdout.split()}


def test_the_base_is_msgspec_and_numpy():
    assert packages("needed") == BASE


@pytest.mark.parametrize("module", EXTRAS)
def test_an_error_names_an_extra_that_has_the_package(module):
    package, extra = EXTRAS[module]
    comes_along = {"lz4", "zstandard"}  # with the package mcap
    assert not extra or package in packages(extra) | comes_along


def test_all_brings_every_extra_of_users():
    users = set(PROJECT["optional-dependencies"]) - {"all", "bench", "dev", "docs"}
    assert packages("all") == set().union(*map(packages, users))


def test_every_kind_works_without_optional_packages(tmp_path):
    done = run(EVERY_KIND, folder=tmp_path)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_recorder_works_without_optional_packages(tmp_path):
    """Also listing, verifying, repairing and purging. Nothing is logged: no step gives up what it would do with pyarrow."""
    done = run(RECORDER, tmp_path / "archive", folder=tmp_path)
    assert (done.stdout, done.stderr) == ("[]\n", "")


@pytest.fixture(scope="module")
def errors(tmp_path_factory):
    """What each error's program says. Programs that have the same packages share what `import penstock` and an archive load."""
    setting = """
archive = penstock.Archive("here")
with penstock.publish("log:thin/e") as pub, archive.record("log:thin/e"):
    pub.send(b"x")
"""
    said = {}
    for there in {(*error, "")[2] for error in ERRORS.values()}:
        programs = {}
        for what, (_, code, *packages) in ERRORS.items():
            if packages == [there] * bool(there):
                tried = f"try:\n    {code}\nexcept penstock.MissingPackage as error:\n    print(error)"
                programs[what] = f"{setting if 'here' in code else ''}\n{tried}"
        loaded = f"import penstock.record, {there or 'sys'}"
        said |= run_all(programs, loaded, there=there, folder=tmp_path_factory.mktemp("errors"))
    return said


@pytest.mark.slow
@pytest.mark.parametrize("what", ERRORS)
def test_a_missing_package_is_one_sentence_with_its_extra(what, errors):
    _, said, warned = errors[what]
    assert warned == ""
    assert said.count("\n") == 1
    assert said.endswith(f": pip install 'penstock[{ERRORS[what][0]}]'\n")


def test_names_that_need_a_package_can_be_looked_at_without_it(tmp_path):
    program = "import inspect, penstock; print(len(inspect.getmembers(penstock)) > 40, penstock.lake.__doc__)"
    done = run(program, folder=tmp_path)
    told = "True penstock.tables needs pyarrow: pip install 'penstock[tables]'\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, told, "")


def test_the_command_without_its_extra_says_what_to_install(tmp_path):
    done = run("from penstock.__main__ import main; main()", folder=tmp_path)
    told = "penstock: the command penstock needs typer: pip install 'penstock[cli]'\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", told)


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    """What each command says. They share what every command loads."""
    code = "penstock.Archive('a'); sys.exit(run({!r}))"
    programs = {name: code.format(arguments) for name, (_, *arguments) in COMMANDS.items()}
    loaded = "penstock.Archive; from penstock.cli import run"
    return run_all(programs, loaded, there="typer,rich,psutil", folder=tmp_path_factory.mktemp("commands"))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_without_its_extra_says_what_to_install(name, commands):
    status, _, said = commands[name]
    assert status == 1
    assert said.count("\n") == 1
    assert said.endswith(f": pip install 'penstock[{COMMANDS[name][0]}]'\n")
