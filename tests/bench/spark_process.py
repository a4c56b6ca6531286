"""The two Sparks that are compared, each in a process of its own that stays warm.

Ours is the project's own PySpark with the source ``kafka-share``.  The rival is Spark 4.0.0
with its own Kafka source, the newest release whose source and everything that it needs can be
had from Maven; it gets an environment of its own in the cache of `tests.support.kafka_peer`, made
once.  Both get the same settings and the same Java.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from sharegroup.spark_python import COMMAND
from tests.bench import spark_job
from tests.bench.failure import BenchError
from tests.support.kafka_peer import cache_libs, fetch_jars
from tests.support.processes import readable

RIVAL_VERSION = "4.0.0"
INSTALL_SECONDS_MAX = 900.0
START_SECONDS_MAX = 90.0
QUERY_SECONDS_MAX = 300.0
CLOSE_SECONDS_MAX = 30.0
LOG_TAIL_BYTES = 4_000

# Alone, without what they depend on: all but these four comes with PySpark already.
_RIVAL_JARS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", RIVAL_VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", RIVAL_VERSION),
    ("org.apache.kafka", "kafka-clients", "3.9.0"),
    ("org.apache.commons", "commons-pool2", "2.12.0"),
)
RIVAL_POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>sharegroup.tests</groupId><artifactId>spark-kafka</artifactId><version>1</version>
  <dependencies>{
    "".join(
        f'''
    <dependency>
      <groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>'''
        for group, artifact, version in _RIVAL_JARS
    )
}
  </dependencies>
</project>
"""

SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
    "spark.python.unix.domain.socket.enabled": "true",
}


class SparkProcess:
    """One Spark session in a process of its own, started by its first query."""

    def __init__(
        self,
        folder: Path,
        python: Path,
        settings: Mapping[str, str],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = folder
        self._environment = dict(environment or {})
        self._python = python
        self._settings = {
            **SETTINGS,
            "spark.local.dir": str(folder / "local"),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            **settings,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, source: str, options: Mapping[str, str]) -> dict[str, Any]:
        """What `spark_job.run_query` answers, and the CPU time of all processes of Spark."""
        self.start()
        assert self._process is not None
        assert self._process.stdin is not None
        with tempfile.TemporaryDirectory(dir=self._folder, prefix="checkpoint-") as checkpoint:
            query = {"source": source, "options": dict(options), "checkpoint": checkpoint}
            before = tree_cpu_seconds(self._process.pid)
            self._process.stdin.write(json.dumps(query).encode() + b"\n")
            self._process.stdin.flush()
            result: dict[str, Any] = json.loads(self._answer(QUERY_SECONDS_MAX))
            result["client_cpu_s"] = tree_cpu_seconds(self._process.pid) - before
        return result

    def close(self) -> None:
        """End the session and all of its processes, by force when that takes too long."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        root = psutil.Process(self._process.pid)
        family = [root, *root.children(recursive=True)]
        self._process.stdin.close()
        _, left = psutil.wait_procs(family, CLOSE_SECONDS_MAX)
        for process in left:
            process.kill()
        psutil.wait_procs(left)
        self._process.stdout.close()
        self._process.wait()
        self._process = None

    @property
    def pid(self) -> int:
        """The process id of the driver's Python program."""
        assert self._process is not None, "the session has not been started"
        return self._process.pid

    def start(self) -> None:
        """Start the session if it is not running."""
        if self._process is not None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        # Whatever Spark lays into its working directory is laid where the benchmark's data go.
        environment = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
        command = self._python.with_name(COMMAND)  # As `sharegroup.spark.ensure_python` chooses.
        python = command if command.exists() else self._python
        environment |= {"PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}
        environment |= self._environment
        with open(self._log_path, "ab") as log:
            self._process = subprocess.Popen(
                [str(self._python), str(spark_job.__file__), json.dumps(self._settings)],
                cwd=self._folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        if (line := self._answer(START_SECONDS_MAX)) != "ready":
            raise BenchError(f"expected ready, got {line!r}: {self._log_tail()}")

    def _answer(self, seconds: float) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        limit = time.monotonic() + seconds
        if not readable([self._process.stdout.fileno()], limit - time.monotonic()):
            raise BenchError(f"Spark gave no answer in {seconds} s: {self._log_tail()}")
        line = self._process.stdout.readline().decode()
        if not line.endswith("\n"):
            raise BenchError(f"Spark ended: {self._log_tail()}")
        return line.rstrip("\n")

    @property
    def _log_path(self) -> Path:
        return self._folder / "spark.log"

    def _log_tail(self) -> str:
        return self._log_path.read_text(errors="replace")[-LOG_TAIL_BYTES:]


def our_spark(folder: Path, settings: Mapping[str, str] | None = None) -> SparkProcess:
    """The project's own PySpark, with further settings of Spark.

    Hypothesis is hidden from its Pythons.  kio imports it where it is installed, which takes 0.25 s
    of CPU time in each process: so it is in every development environment, and nowhere else.
    """
    hiding = folder.with_name(folder.name + "-path")
    hiding.mkdir(parents=True, exist_ok=True)
    (hiding / "hypothesis.py").write_text("raise ImportError('hidden by the benchmark')\n")
    path = os.pathsep.join([str(hiding), *filter(None, [os.environ.get("PYTHONPATH")])])
    return SparkProcess(folder, Path(sys.executable), settings or {}, {"PYTHONPATH": path})


def rival_spark(folder: Path) -> SparkProcess:
    """Spark 4.0.0 with its own Kafka source."""
    home = cache_libs().parent.parent / f"spark-{RIVAL_VERSION}"
    jars = fetch_jars(home / "libs", RIVAL_POM)
    python = _installed_python(home / "venv")
    return SparkProcess(
        folder, python, {"spark.jars": ",".join(str(jar) for jar in sorted(jars.glob("*.jar")))}
    )


def tree_cpu_seconds(pid: int) -> float:
    """CPU time of a process and its descendants, with those that have ended and were awaited."""
    total = 0.0
    root = psutil.Process(pid)
    for process in (root, *root.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue  # Ended since it was listed: counted with its parent from now on.
        total += times.user + times.system + times.children_user + times.children_system
    return total


def _installed_python(venv: Path) -> Path:
    """The interpreter of the rival's environment, which the first call on a machine makes.

    A file says when it is whole: an environment that broke half way is made anew.
    """
    python = venv / "bin" / "python"
    done = venv / f"pyspark-{RIVAL_VERSION}"
    if not done.exists():
        _call(sys.executable, "-m", "venv", "--clear", str(venv))
        _call(str(python), "-m", "pip", "install", "--quiet", f"pyspark=={RIVAL_VERSION}")
        done.touch()
    return python


def _call(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX)
    if done.returncode:
        raise BenchError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-2000:]}")
