"""`python -m tests.interop`: all clients and tools that others wrote, against both brokers.

The suite runs the same tests against ours alone and skips what needs Java where there is none.
Here that is an error that says what is missing; what is needed is fetched by Maven first, and
what can be is then run against a real Apache Kafka as well, which shows that the tests state
Kafka's behaviour and not only ours.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from tests import kafka_peer, kafka_tools

ON_BOTH = ["tests/interop/test_java.py", "tests/interop/test_java_client.py"]
"""What Kafka's own tools and client show, which must be the same with Kafka."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.interop", description=__doc__)
    parser.add_argument(
        "--java", action="store_true", help="only Kafka's own Java tools and client"
    )
    arguments = parser.parse_args()
    missing = {why for why in (kafka_peer.why_missing(), kafka_tools.why_missing()) if why}
    if missing:
        for why in sorted(missing):
            print(f"missing: {why}", file=sys.stderr)
        print("Install a JDK (17 or newer) and Maven, and try again.", file=sys.stderr)
        return 1
    print(f"Apache Kafka {kafka_peer.KAFKA_VERSION}: {kafka_peer.kafka_libs()}")
    print(f"its tools {kafka_tools.TOOLS_VERSION}: {kafka_tools.tool_libs()}", flush=True)
    page = "tests/test_kafka_tools_page.py"
    ours = run("sharegroup", [*ON_BOTH, page] if arguments.java else ["tests/interop", page])
    theirs = run("kafka", ON_BOTH)
    return ours or theirs


def run(broker: str, paths: list[str]) -> int:
    """The exit code of the tests against a broker."""
    print(f"against {broker}:", flush=True)
    command = [sys.executable, "-m", "pytest", "-q", *paths]
    return subprocess.run(command, env={**os.environ, "SHAREGROUP_INTEROP": broker}).returncode


if __name__ == "__main__":
    sys.exit(main())
