"""Apache Kafka's own command-line tools, run as they are against any broker or file.

They come by Maven into the cache of `tests.support.kafka_peer`, in a folder of their own: the
newest published release of the tools is older than the broker's, and the two don't mix in one
process.  All runs of a test session share one virtual machine (`tests.support.java_shell`).
"""

from __future__ import annotations

import json
import queue
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.java_shell import NO_COMPILER, QUICK, SOURCES, JavaShell, javac
from tests.support.kafka_peer import KafkaPeerError, cache_libs, fetch_jars, java, kafka_libs

TOOLS_VERSION = "4.3.1"
TOOL_SECONDS_MAX = 60.0
IDLE_MS = 3_000
"""A console consumer that has come to the end waits this long for more."""
POM = SOURCES / "pom.xml"
SCRIPTS = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-share-consumer-perf-test": "org.apache.kafka.tools.ShareConsumerPerformance",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-streams-application-reset": "org.apache.kafka.tools.StreamsResetter",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
}
"""The scripts of Kafka's distribution that make sense with our broker, and their classes."""
WRAPPER = """\
#!/bin/sh
exec "${{JAVA_HOME:+$JAVA_HOME/bin/}}java" -cp "{libs}/*" {main_class} "$@"
"""


def why_missing() -> str | None:
    """Why there can be no tools here, or None when there can."""
    if java() is None:
        return "no Java: neither JAVA_HOME nor a java on the PATH"
    if not _libs().is_dir() and shutil.which("mvn") is None:
        return "no Maven on the PATH to fetch Kafka's tools"
    if javac() is None:
        return NO_COMPILER
    return None


def tool_libs() -> Path:
    """The folder of the tools' jars; the first call on a machine fetches them by Maven."""
    return fetch_jars(_libs(), POM.read_text())


def newest_client() -> Path:
    """The jar of the newest client, to be put before the tools' jars.

    Their own client stays behind it, for the classes that the newest one does not have any more.
    Not every tool runs so: some use parts of the client that are not its interface.
    """
    return next(kafka_libs().glob("kafka-clients-*.jar"))


@cache
def tools() -> JavaShell:
    """The virtual machine in which the tools of this test session run."""
    return JavaShell(tool_libs())


def run_tool(main_class: str, *arguments: str, stdin: bytes = b"") -> str:
    """What a tool printed; it must end with exit code 0."""
    done = tools().run(main_class, *arguments, stdin=stdin)
    if done.code:
        raise KafkaPeerError(f"{main_class} ended with {done.code}: {done.out}{done.err}")
    return done.out


def formatted(
    bootstrap: str, topic: str, formatter: str, *, partition: int
) -> list[dict[str, Any]]:
    """The records of an internal topic's partition as one of Kafka's formatters prints them: JSON,
    one document after the other without a line's end.
    """
    printed = run_tool(
        SCRIPTS["kafka-console-consumer"],
        *("--bootstrap-server", bootstrap, "--topic", topic, "--partition", str(partition)),
        *("--offset", "earliest", "--timeout-ms", str(IDLE_MS)),
        *("--formatter", f"org.apache.kafka.tools.consumer.{formatter}"),
    ).strip()
    decoder, documents, position = json.JSONDecoder(), [], 0
    while position < len(printed):
        document, position = decoder.raw_decode(printed, position)
        documents.append(document)
    return documents


def run_tool_alone(main_class: str, *arguments: str, first_jar: Path | None = None) -> str:
    """Run a tool in a process of its own, as its users do, and return what it printed.

    The classes of ``first_jar`` replace those of the tools' jars.
    """
    done = subprocess.run(
        _command(main_class, *arguments, first_jar=first_jar),
        capture_output=True,
        text=True,
        timeout=TOOL_SECONDS_MAX,
    )
    if done.returncode:
        raise KafkaPeerError(
            f"{main_class} ended with {done.returncode}: {done.stdout}{done.stderr}"
        )
    return done.stdout


class RunningTool:
    """A tool that prints while the test goes on."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def line(self) -> bytes:
        """The next line that it prints."""
        return self._lines.get(timeout=TOOL_SECONDS_MAX)

    def wait(self) -> None:
        """It must end by itself, with exit code 0."""
        code = self._process.wait(TOOL_SECONDS_MAX)
        if code:
            raise KafkaPeerError(f"{self._process.args!r} ended with {code}")

    def end(self) -> None:
        """Stop it as Ctrl-C does, and wait until it has left its groups."""
        self._process.terminate()
        self._process.wait(TOOL_SECONDS_MAX)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip(b"\n"))


@contextmanager
def tool_in_background(main_class: str, *arguments: str) -> Iterator[RunningTool]:
    """A tool that is killed at the end if it still runs."""
    with subprocess.Popen(
        _command(main_class, *arguments), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield RunningTool(process)
        finally:
            process.kill()


def _command(main_class: str, *arguments: str, first_jar: Path | None = None) -> list[str]:
    executable = java()
    if executable is None:
        raise KafkaPeerError(str(why_missing()))
    return [
        executable,
        *QUICK,
        *("-cp", f"{first_jar}:{tool_libs()}/*" if first_jar else f"{tool_libs()}/*"),
        main_class,
        *arguments,
    ]


def _libs() -> Path:
    return cache_libs().parent.parent / f"kafka-tools-{TOOLS_VERSION}" / "libs"


def write_scripts(folder: Path) -> None:
    """Make the scripts of Kafka's distribution, over the jars in the cache."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, main_class in SCRIPTS.items():
        script = folder / f"{name}.sh"
        script.write_text(WRAPPER.format(libs=tool_libs(), main_class=main_class))
        script.chmod(0o755)


def main(arguments: list[str]) -> int:
    """Fetch the tools and write their scripts: ``python -m tests.support.kafka_tools FOLDER``."""
    missing = why_missing()
    if missing is not None:
        print(f"Kafka's tools cannot be had here: {missing}", file=sys.stderr)
        return 1
    write_scripts(Path(arguments[0]))
    print(f"{len(SCRIPTS)} tools of Apache Kafka {TOOLS_VERSION} in {arguments[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
