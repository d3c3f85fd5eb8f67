"""Shared by all tests: a channel folder of their own, the drive's data, seeds that are printed when a test fails."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import json
import logging
import multiprocessing.util
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock
from penstock.channels.storage import discovery, files

with (
    warnings.catch_warnings(),
    contextlib.suppress(ImportError),
):  # it warns while it is imported, and is then half there
    warnings.simplefilter("ignore")
    import pandas  # noqa: F401


def reset_process() -> None:
    """Resets the state that the parent of the tests may have changed and that each child would inherit. A shell's background job, for
    example, ignores SIGINT."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in ("SIGTERM", "SIGHUP", "SIGQUIT", "SIGCHLD", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGWINCH"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.umask(0o022)
    said = ("LANG", "LANGUAGE", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "PENSTOCK_FAKE")
    for name in [name for name in os.environ if name in said or name.startswith("LC_")]:
        del os.environ[name]
    os.environ["LANG"] = "C.UTF-8"


def quicken_java() -> None:
    """JVMs live for seconds here: they compile quickly, and take the classes of `make setup`'s archive, which halves their CPU time. Spark's
    launchers read these variables. A JVM that the archive does not fit ignores it. Huge pages halve its page faults."""
    options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UseTransparentHugePages -Xlog:disable"
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", options)
    os.environ.setdefault("SPARK_SUBMIT_OPTS", f'{options} "-XX:SharedArchiveFile={Path(sys.prefix) / "spark.jsa"}"')


def quicken_python() -> None:
    """Processes that live for moments start no threads of BLAS, which would spin first."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def keep_files_in_memory() -> None:
    """Temporary files are in memory, where there is room: on ext4 a sixth of the tests' CPU time is the kernel's search among files that were
    deleted. The folder, with what killed processes left in it, goes with the process that started the workers."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    parent = memory_folder()
    if parent is not None:
        for left in Path(parent).glob(f"{TEMPORARY}*"):
            remove_unless_used(left)
        if shutil.disk_usage(parent).free < MEMORY_FOR_FILES:
            parent = None
    multiprocessing.util.get_temp_dir()  # beside it: multiprocessing looks for its own at exit
    folder = tempfile.mkdtemp(prefix=TEMPORARY, dir=parent)
    fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_SH)  # as long as this process lives
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    os.environ["SPARK_SUBMIT_OPTS"] += f' "-Djava.io.tmpdir={folder}"'
    atexit.register(lambda: keeps_files or shutil.rmtree(folder, ignore_errors=True))


def remove_unless_used(folder: Path) -> None:
    """Removes what a run left that failed or was killed."""
    try:
        used = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        fcntl.flock(used, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        pass
    finally:
        os.close(used)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """The files of failed tests stay until the next run."""
    global keeps_files
    keeps_files = exitstatus == pytest.ExitCode.TESTS_FAILED and not hasattr(session.config, "workerinput")


def memory_folder() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


MEMORY_FOR_FILES = 4 << 30  # bytes that must be free
TEMPORARY = "penstock-tmp-"
keeps_files = False
reset_process()
quicken_java()
quicken_python()
keep_files_in_memory()
LONG = bool(os.environ.get("PENSTOCK_LONG"))
CI = any(os.environ.get(name) for name in ("CI", "PENSTOCK_PLANT", "PENSTOCK_TALLY"))  # the evidence counts as CI does
multiprocessing.set_forkserver_preload(  # what its children import; without pandas they would at their first Arrow array
    [
        "asyncio",
        "deltalake.transaction",
        "pandas",
        "penstock.tables",
        "pyarrow.json",
        "pyarrow.parquet",
        "unittest.mock",
    ]
)


# Groups of tests that one worker runs one after the other, by the beginning of their names. A later line of a longer name counts more.
# As many JVMs are there at a time as there are groups of them: Spark gives up a Python worker that takes 10 s to start. Programs of pages
# have fixed ports. Tests of the last groups share a fixture that is costly.
GROUPS = {
    "tests/spark/": "jvm-1",
    **dict.fromkeys(
        [f"tests/spark/test_{name}.py" for name in ("connect", "kill_stream", "query", "stream", "writing")], "jvm-2"
    ),
    **dict.fromkeys([f"tests/cli/test_cli.py::test_{name}" for name in ("pipeline", "the_demo_o")], "jvm-2"),
    "tests/kinds/udp/test_network_log.py": "native",
    "tests/cpp/": "cpp",
    "tests/docs/": "pages",
    "tests/storage/": "storage",
    "tests/cli/test_any_arguments.py": "arguments",
    "tests/front/test_extras.py": "extras",
    "tests/cli/test_monitor_page.py": "browser",
    "tests/typing/": "types",
    "tests/tidy/test_orders.py": "orders",
}


def sized(few: int, ci: int, long: int) -> int:
    """How much a test tries that is random or kills: `make test` draws a new seed and tries a few, CI more, and PENSTOCK_LONG=1 the full count."""
    return long if LONG else ci if CI else few


def group_of(name: str) -> str | None:
    """The group of a test, by its name."""
    found = [beginning for beginning in GROUPS if name.startswith(beginning)]
    return GROUPS[max(found, key=len)] if found else None


def pytest_xdist_auto_num_workers() -> int:
    """Workers of `make test`: three for each core, because most tests wait for other processes."""
    return 3 * len(os.sched_getaffinity(0))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Keeps a group in one worker. xdist's own marks of groups have no effect with pytest 9.2, whose names of tests are fixed."""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid) or nodeid

        def mark_test_complete(self, node: object, item_index: int, duration: float = 0) -> None:
            super().mark_test_complete(node, item_index, duration)
            scope = self._split_scope(self.registered_collections[node][item_index])
            if all(self.assigned_work[node][scope].values()):  # else it is counted with each test that follows
                del self.assigned_work[node][scope]

    if config.getvalue("dist") != "loadgroup":
        return None
    config.option.loadscopereorder = False  # groups begin in the order of the tests, not the largest first
    return ByGroup(config, log)


# `make test` plays one slice of the slow tests, those that take a second of CPU time or more, and all others. The seed chooses it.
SLICES = 8
SLICE = "PENSTOCK_SLICE"  # for the workers: which one; all of them without


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Chooses the slice, if nobody asked for certain tests, or for all."""
    if hasattr(config, "workerinput"):
        return
    os.environ.pop(SLICE, None)
    options = ("keyword", "markexpr", "lf", "failedfirst", "newfirst", "stepwise")
    is_asked = config.args_source is not pytest.Config.ArgsSource.TESTPATHS or any(
        config.getoption(option, default=False) for option in options
    )
    if not (CI or LONG or is_asked):
        seed = os.environ.get("PENSTOCK_SEED")
        os.environ[SLICE] = str(int(seed) % SLICES if seed else random.SystemRandom().randrange(SLICES))


def is_in_slice(item: pytest.Item) -> bool:
    """Whether a test is to run."""
    if SLICE not in os.environ or item.get_closest_marker("slow") is None:
        return True
    return zlib.crc32(item.nodeid.partition("[")[0].encode()) % SLICES == int(os.environ[SLICE])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if SLICE in os.environ:
        terminalreporter.write_line(
            f"Of the slow tests this was slice {os.environ[SLICE]} of {SLICES}: PENSTOCK_SEED chooses it, and `make test CI=1` runs all of them."
        )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Groups go first, so that none of them is the last to run."""
    left = [item for item in items if not is_in_slice(item)]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if is_in_slice(item)]
    order = list(dict.fromkeys(GROUPS.values()))
    items.sort(key=lambda item: order.index(group) if (group := group_of(item.nodeid)) else len(order))


def pytest_collection_finish() -> None:
    """The garbage collector leaves alone what was collected: it would visit thousands of tests again and again."""
    gc.collect()
    gc.freeze()


def heed_interrupts() -> None:
    """For a child before it runs: Ctrl-C works even where this process was started in the background, which ignores it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def fixtures_channel_folder() -> Iterator[None]:
    """Fixtures of a session or a module run before a test has its folder: they have this one, not the user's."""
    with (
        tempfile.TemporaryDirectory(prefix="penstock-tests-", dir=memory_folder()) as folder,
        pytest.MonkeyPatch.context() as patched,
    ):
        patched.setenv("PENSTOCK_DIR", folder)
        yield


@pytest.fixture(autouse=True)
def channel_folder(monkeypatch: pytest.MonkeyPatch):
    """Every test has its own folder of channels, removed afterwards."""
    folder = tempfile.mkdtemp(prefix="penstock-test-", dir=memory_folder())
    monkeypatch.setenv("PENSTOCK_DIR", folder)
    yield Path(folder)
    for left in discovery.in_process():
        files.unlink(left)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Random numbers; the seed is PENSTOCK_SEED or new, and shown when the test fails."""
    seed = int(os.environ.get("PENSTOCK_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"PENSTOCK_SEED={seed}")
    return random.Random(seed)


@pytest.fixture
def tally() -> Callable[[str, int], None]:
    """`tally(what, count)`: says how much of what a test tried, for the table of `make evidence`."""

    def count(what: str, number: int) -> None:
        path = os.environ.get("PENSTOCK_TALLY")
        if path:
            with open(path, "a") as file:
                file.write(json.dumps([what, number]) + "\n")

    return count


@pytest.fixture
def pair():
    """A publication and a subscription on a small log."""
    with penstock.publish("log:test", term_length=1 << 16) as pub, penstock.subscribe("log:test") as sub:
        yield pub, sub


@pytest.fixture(scope="session")
def drive() -> Path:
    """The folder of one minute of real sensor streams."""
    chosen = os.environ.get("PENSTOCK_DRIVE")
    folder = Path(chosen) if chosen else Path(__file__).parents[2] / "shared" / "data" / "drive"
    if not (folder / "can.npz").is_file():
        pytest.skip(f"no drive data at {folder}: set PENSTOCK_DRIVE to its folder")
    return folder


@pytest.fixture
def archive(tmp_path: Path) -> penstock.Archive:
    """An empty archive."""
    return penstock.Archive(tmp_path / "archive")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], capture_output=True).returncode != 0:
        pytest.skip("mounting a tmpfs needs root")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture(scope="session")
def object_storage():
    """A server of an object storage in this process: its URL."""
    server = pytest.importorskip("moto.server", reason="moto is not installed: pip install 'moto[s3,server]'")
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    # S3 alone: before each request, moto's own server looks among its two hundred services for the one that is meant.
    made = make_server("127.0.0.1", 0, server.create_backend_app("s3"), threaded=True)
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{made.server_port}"
    made.shutdown()
    thread.join()
    made.server_close()


def storage_environment(url: str) -> dict[str, str]:
    """The environment with which the server is reached."""
    return {
        "AWS_ACCESS_KEY_ID": "tester",
        "AWS_SECRET_ACCESS_KEY": "not-to-be-logged",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": url,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@pytest.fixture
def bucket(object_storage: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """An empty bucket's URI, and an environment with which it is reached."""
    for name, value in storage_environment(object_storage).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    import pyarrow.fs

    name = f"test-{secrets.token_hex(6)}"
    host = object_storage.removeprefix("http://")
    fs = pyarrow.fs.S3FileSystem(endpoint_override=host, scheme="http", region="us-east-1", allow_bucket_creation=True)
    fs.create_dir(name)
    return f"s3://{name}"
