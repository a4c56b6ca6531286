"""Where the time goes from subscribe to the first record of a new consumer group.

    python -m tests.bench.group_start [--rounds 11] [--timelines]

Clients join new groups on our broker and on Apache Kafka through a relay, which notes when requests
and their answers pass.  The tables say how long at least one request was under way, which is the
broker's part and the relay's, and how long the client needed by itself.  The figures are medians.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple
from uuid import uuid4

from tests.bench.group_clients import Join, clients
from tests.bench.peers.brokers import FSYNC, KAFKA, OS, KafkaNode
from tests.bench.peers.report import table
from tests.bench.request_relay import Passed, Relay
from tests.support.confluent_calls import create_topic, produce
from tests.support.kafka_peer import free_ports
from tests.support.processes import ServeProcess

TOPIC = "one-record"
SUBSCRIPTIONS = {"topic": TOPIC, "expression": f"^{TOPIC}$"}
PROTOCOLS = ("consumer", "classic")
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
"""Kafka's 3,000 ms and ours would be all that the classic protocol shows."""
COLUMNS = (
    *("client", "protocol", "subscription", "broker", "ms"),
    *("requests under way", "client alone", "requests"),
)


class Start(NamedTuple):
    """One start of a group, in nanoseconds."""

    subscribed_ns: int
    first_ns: int
    requests: tuple[Passed, ...]

    @property
    def total_ms(self) -> float:
        return (self.first_ns - self.subscribed_ns) / 1e6

    @property
    def requests_ms(self) -> float:
        """The time in which at least one request was under way."""
        covered, end = 0, self.subscribed_ns
        for _, sent, answered in sorted(self.requests, key=lambda passed: passed.sent_ns):
            last = min(answered, self.first_ns)
            covered += max(0, last - max(sent, end))
            end = max(end, last)
        return covered / 1e6

    @property
    def timeline(self) -> str:
        """The requests, each as the milliseconds until it was sent and until it was answered."""
        return ", ".join(
            f"{api} {(sent - self.subscribed_ns) / 1e6:.1f}+{(answered - sent) / 1e6:.1f}"
            for api, sent, answered in self.requests
        )


@contextmanager
def brokers(folder: Path) -> Iterator[Mapping[str, Relay]]:
    """All brokers, behind relays whose ports they advertise."""
    with ExitStack() as stack:
        relays = {}
        for name, durability in ((FSYNC, "fsync"), (OS, "os"), (KAFKA, None)):
            port, own = free_ports(2)
            settings = {**SETTINGS, "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
            if durability is None:
                own = stack.enter_context(KafkaNode(folder / "kafka", settings)).port
            else:
                data = folder / durability
                stack.enter_context(
                    ServeProcess(data, port=own, durability=durability, settings=settings)
                )
            relays[name] = stack.enter_context(Relay(port, own))
            create_topic(f"127.0.0.1:{port}", TOPIC)
            produce(f"127.0.0.1:{port}", TOPIC, [b"first"])
        yield relays


def started(relay: Relay, join: Join, topic: str, protocol: str) -> Start:
    relay.passed.clear()
    joined = join(f"group-{uuid4()}", topic, protocol)
    passed = [each for each in relay.passed if joined.subscribed_ns < each.answered_ns]
    in_time = [each for each in passed if each.sent_ns < joined.first_ns]
    return Start(*joined, tuple(sorted(in_time, key=lambda each: each.sent_ns)))


def measure(rounds: int, *, timelines: bool) -> Iterator[tuple[str, ...]]:
    """Each round starts one group on each broker, one after the other."""
    with TemporaryDirectory() as folder, brokers(Path(folder)) as relays, ExitStack() as stack:
        joins = {
            broker: stack.enter_context(clients(f"127.0.0.1:{relay.port}"))
            for broker, relay in relays.items()
        }
        for client in joins[FSYNC]:
            for protocol in PROTOCOLS:
                for subscription, topic in SUBSCRIPTIONS.items():
                    starts: dict[str, list[Start]] = {broker: [] for broker in relays}
                    for _ in range(rounds + 1):
                        for broker, relay in relays.items():
                            join = joins[broker][client]
                            starts[broker].append(started(relay, join, topic, protocol))
                    for broker, all_starts in starts.items():
                        figures = _figures(all_starts[1:], timelines=timelines)
                        yield client, protocol, subscription, broker, *figures


def _figures(starts: list[Start], *, timelines: bool) -> tuple[str, ...]:
    """The medians of all starts but the first, which loads classes and opens files."""
    middle = sorted(starts, key=lambda start: start.total_ms)[len(starts) // 2]
    return (
        f"{median(start.total_ms for start in starts):.1f}",
        f"{median(start.requests_ms for start in starts):.1f}",
        f"{median(start.total_ms - start.requests_ms for start in starts):.1f}",
        middle.timeline if timelines else f"{median(len(start.requests) for start in starts):.0f}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--timelines", action="store_true", help="show when each request passed")
    arguments = parser.parse_args()
    for line in table(COLUMNS, measure(arguments.rounds, timelines=arguments.timelines)):
        print(line, flush=True)


if __name__ == "__main__":
    main()
