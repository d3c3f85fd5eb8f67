"""A standalone Spark cluster on this machine, from the pip package alone: a master and workers as processes, for trying a job.

python deploy/cluster.py ARCHIVE OUT            runs deploy/job.py on two workers, and kills one in the middle
"""

import os
import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Self

import psutil
import pyspark

from penstock.spark.runtime.jvm import java_environment

HERE = Path(__file__).parent


class Cluster:
    """A master, and workers of one core and `memory` each. A context manager."""

    def __init__(self, memory: str = "640m") -> None:
        self.memory, self.workers, self._all = memory, [], []
        self.folder = tempfile.TemporaryDirectory(prefix="penstock-cluster-")
        self.url = ""

    def __enter__(self) -> Self:
        self.url = self._await(self._launch("master.Master", []), r"Starting Spark master at (spark://\S+)")
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._all:
            _kill_all(process.pid)
            process.wait()
            process.stdout.close()
        self.folder.cleanup()

    def add_workers(self, count: int = 1) -> None:
        """Starts workers; returns once the master knows them."""
        options = ["--cores", "1", "--memory", self.memory, "--work-dir", self.folder.name]
        started = [self._launch("worker.Worker", [*options, self.url]) for _ in range(count)]
        for process in started:
            self._await(process, r"Successfully registered with (master)")
            self.workers.append(process)

    def kill(self, number: int) -> int:
        """Kills a worker and what it started, as a machine that fails. How many processes."""
        process = self.workers[number - 1]
        count = _kill_all(process.pid)
        process.wait()
        return count

    def _launch(self, name: str, arguments: list[str]) -> subprocess.Popen[str]:
        java = java_environment()
        spark = Path(pyspark.__file__).parent
        environment = {**os.environ, **java, "SPARK_HOME": str(spark), "SPARK_LOCAL_IP": "127.0.0.1"}
        scala = next((spark / "jars").glob("spark-core_*.jar")).name.split("_")[1].split("-")[0]
        environment |= {"SPARK_SCALA_VERSION": scala, "PYSPARK_PYTHON": sys.executable}
        command = [
            f"{java['JAVA_HOME']}/bin/java",
            "-Xmx256m",
            "-cp",
            f"{spark}/jars/*",
            f"org.apache.spark.deploy.{name}",
        ]
        command += ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0", *arguments]
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.folder.name
        )
        self._all.append(process)
        return process

    def _await(self, process: subprocess.Popen[str], ready: str) -> str:
        """The word that `ready` finds in its output, once it is there."""
        said = []
        for line in process.stdout:
            said.append(line)
            if found := re.search(ready, line):
                # Reads on, so that the process never waits for a reader.
                threading.Thread(target=lambda: [None for _ in process.stdout], daemon=True).start()
                return found[1]
        raise RuntimeError(f"it ended: {''.join(said[-5:])}")


def _kill_all(pid: int) -> int:
    try:
        process = psutil.Process(pid)
        found = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    count = 0
    for one in found:
        try:
            one.kill()
            count += 1
        except psutil.NoSuchProcess:
            pass
    return count


def run(archive: str, out: str, *, steps: tuple[str, ...] = ("writing",), range_bytes: int = 1 << 20, say=print) -> int:
    """Runs the job on two workers, and kills one in the middle of each of these steps (counting, writing). The job's status."""
    with Cluster() as cluster:
        cluster.add_workers(2)
        say(f"two workers are at {cluster.url}")
        settings = ["spark.executor.memory=512m", "spark.driver.host=127.0.0.1"]
        command = [sys.executable, HERE / "job.py", archive, out, "--master", cluster.url, "--steps"]
        command += ["--range-bytes", str(range_bytes), *(word for one in settings for word in ("--conf", one))]
        job = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for line in job.stdout:
            say(line.rstrip())
            if line.startswith("progress: "):
                if line.split()[1] in steps:
                    number = len(cluster.workers) - 1
                    say(f"worker {number} is killed: {cluster.kill(number)} processes")
                    if line.split()[1] != steps[-1]:
                        cluster.add_workers()
                        say(f"worker {len(cluster.workers)} is there")
                job.stdin.write("go on\n")
                job.stdin.flush()
        job.stdin.close()
        return job.wait()


if __name__ == "__main__":
    sys.exit(run(*sys.argv[1:3], steps=tuple(sys.argv[3:]) or ("writing",)))
