"""`python -m tests.interop`: what others wrote against our broker, and what we wrote against Kafka.

Without an option: all clients and tools that others wrote, against our broker, and Kafka's own
against Apache Kafka as well, which shows that the tests state Kafka's behaviour and not only ours.
With ``--kafka``: our client, Spark source and command line, whose tests `make test` runs against
our broker, against a real Apache Kafka.

The suite skips what needs Java where there is none.  Here that is an error that says what is
missing; what is needed is fetched by Maven first.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support import kafka_applications, kafka_peer, kafka_tools
from tests.support.chosen_broker import KAFKA, OURS

ON_BOTH = [
    *("tests/interop/test_java.py", "tests/interop/test_java_client.py"),
    *("tests/interop/test_transaction_tools.py", "tests/interop/test_foreign_transactions.py"),
    *("tests/interop/test_streams.py", "tests/interop/test_connect.py"),
    *("tests/interop/test_mirror_maker.py", "tests/interop/test_kip_848_clients.py"),
    *("tests/interop/test_quotas.py", "tests/interop/test_acl_tools.py"),
]
"""What Kafka's own tools and client show, which must be the same with Kafka."""
PAGE = "tests/docs/test_kafka_tools_page.py"
LONG = [
    *("tests/integration/spark", "tests/integration/flights"),
    *("tests/docs/test_testing_examples.py", "tests/authorization/test_matrix.py"),
    "tests/integration/worker/test_rights.py",
    *("tests/integration/worker/test_retry_security.py", "tests/docs/test_clusters_page.py"),
    *("tests/docs/test_kubernetes.py", "tests/packaging/test_other_libraries.py"),
]
"""What `make test` leaves out because it takes long."""


def using(folder: str, *fixtures: str) -> list[str]:
    """The tests of a folder that speak of one of these; the others need no broker."""
    texts = {str(path): path.read_text() for path in sorted(Path(folder).glob("test_*.py"))}
    return [path for path, text in texts.items() if any(fixture in text for fixture in fixtures)]


def our_clients() -> list[list[str]]:
    """The suites of `make interop-kafka`; each has a node of its own, one at a time."""
    return [
        using("tests/integration/client", "group_on_a_broker", "chosen()"),
        using("tests/integration/cli", "bootstrap: str", "run: Run"),
        ["tests/interop", "tests/docs/test_clusters_page.py", "tests/docs/test_kubernetes.py"],
        ["tests/integration/spark"],
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.interop", description=__doc__)
    parser.add_argument(
        "--java", action="store_true", help="only Kafka's own Java tools and client"
    )
    parser.add_argument(
        "--kafka", action="store_true", help="what we wrote, against a real Apache Kafka"
    )
    arguments = parser.parse_args()
    programs = (kafka_peer, kafka_tools, kafka_applications)
    missing = {why for why in (program.why_missing() for program in programs) if why}
    if missing:
        for why in sorted(missing):
            print(f"missing: {why}", file=sys.stderr)
        print("Install a JDK (17 or newer) and Maven, and try again.", file=sys.stderr)
        return 1
    print(f"Apache Kafka {kafka_peer.KAFKA_VERSION}: {kafka_peer.kafka_libs()}")
    print(f"its tools {kafka_tools.TOOLS_VERSION}: {kafka_tools.tool_libs()}")
    applications = kafka_applications.application_libs()
    print(
        f"Streams and Connect {kafka_applications.APPLICATIONS_VERSION}: {applications}", flush=True
    )
    if arguments.kafka:
        return max([run(KAFKA, suite) for suite in our_clients()])
    ours = run(OURS, [*ON_BOTH, PAGE] if arguments.java else ["tests/interop", PAGE, *LONG])
    theirs = run(KAFKA, ON_BOTH)
    return ours or theirs


def run(broker: str, paths: Sequence[str]) -> int:
    """The exit code of the tests against a broker."""
    print(f"{' '.join(paths)} against {broker}:", flush=True)
    command = [sys.executable, "-m", "pytest", "-q", *paths]
    return subprocess.run(command, env={**os.environ, "SHAREGROUP_INTEROP": broker}).returncode


if __name__ == "__main__":
    sys.exit(main())
