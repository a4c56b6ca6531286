"""`make cluster`: a real cluster in the foreground, whose faults are typed in line by line.

Each line is a command and its nodes: ``kill 2``, ``isolate 1 3``; ``help`` lists them.  The end
of the input, or Ctrl-C, ends the cluster.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.support.cluster_security import SUPER_USER, Security
from tests.support.kafka_cluster import KafkaCluster, why_missing
from tests.support.kafka_peer import KAFKA_VERSION, KafkaPeerError

USERS = {"billing": "billing-secret"}

HELP = """\
kill N | stop N | start N | freeze N | thaw N
isolate N [OTHERS]          cut N from the other nodes, in both directions; clients reach it
isolate-out N [OTHERS]      what N sends does not arrive
isolate-in N [OTHERS]       what others send does not arrive at N
isolate-clients N           cut it from clients as well
heal                        everything passes again
leader TOPIC PARTITION | coordinator GROUP | view [N] | whole"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.kafka_cluster_shell")
    parser.add_argument("--version", default=KAFKA_VERSION)
    parser.add_argument("--secure", action="store_true", help="SASL_SSL and StandardAuthorizer")
    parser.add_argument("--separate-controllers", action="store_true")
    parser.add_argument("--folder", type=Path, help="an empty one; a temporary one otherwise")
    arguments = parser.parse_args()
    missing = why_missing()
    if missing:
        print(f"missing: {missing}", file=sys.stderr)
        return 1
    security = Security(users=dict(USERS)) if arguments.secure else None
    with (
        tempfile.TemporaryDirectory(prefix="cluster-") as temporary,
        KafkaCluster(
            arguments.folder or Path(temporary),
            arguments.version,
            security=security,
            separate_controllers=arguments.separate_controllers,
        ) as cluster,
    ):
        print(f"Apache Kafka {arguments.version}, logs in {cluster.folder}/node*/kafka.log")
        print(f"bootstrap {cluster.bootstrap_servers}")
        if security is not None:
            for key, value in security.kafka_properties(SUPER_USER).items():
                print(f"  {key}={value}")
            print(f"  other users and their passwords: {USERS}")
        print(HELP, flush=True)
        _obey(cluster)
    return 0


def _obey(cluster: KafkaCluster) -> None:
    """Carry out the commands of the standard input."""
    try:
        for line in sys.stdin:
            if line.split():
                try:
                    print(answer_to(cluster, *line.split()), flush=True)
                except (KafkaPeerError, AssertionError, ValueError, KeyError, TypeError) as error:
                    print(f"failed: {error!r}", flush=True)
    except KeyboardInterrupt:
        return


def answer_to(cluster: KafkaCluster, command: str, *words: str) -> str:
    """Carry out one command; what to print."""
    on_node: dict[str, Callable[..., None]] = {
        "kill": cluster.kill,
        "stop": cluster.stop,
        "start": cluster.start,
        "freeze": cluster.freeze,
        "thaw": cluster.thaw,
        "isolate": cluster.isolate,
        "isolate-out": lambda *nodes: cluster.isolate(*nodes, incoming=False),
        "isolate-in": lambda *nodes: cluster.isolate(*nodes, outgoing=False),
        "isolate-clients": lambda *nodes: cluster.isolate(*nodes, clients=True),
    }
    if command in on_node:
        on_node[command](*map(int, words))
        return "done"
    match command, *words:
        case ["heal"]:
            cluster.heal()
            return "done"
        case ["leader", topic, partition]:
            return f"node {cluster.leader_of(topic, int(partition))}"
        case ["coordinator", group]:
            return f"node {cluster.coordinator_of(group)}"
        case ["view"]:
            return str(cluster.view())
        case ["view", node]:
            return str(cluster.view(int(node)))
        case ["whole"]:
            cluster.wait_until_whole()
            return "done"
    return HELP


if __name__ == "__main__":
    sys.exit(main())
