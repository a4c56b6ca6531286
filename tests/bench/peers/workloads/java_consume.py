"""P4 and P5: Kafka's Java performance tool; and a log whose batches have one record each."""

from __future__ import annotations

from tests.bench.peers.brokers import FSYNC, KAFKA, OS, Peer
from tests.bench.peers.lines import Line, Measured, Scale, as_rate, with_kafka
from tests.bench.peers.workloads import java_tools
from tests.bench.peers.workloads.log import Log, new_group
from tests.bench.peers.workloads.share_consume import consume

SHAPES = ((1, 1), (4, 1), (1, 4), (4, 4))
"""Consumers and partitions."""


class JavaConsume:
    """P4: `ShareConsumerPerformance`, without the time to join."""

    name = "P4"
    title = "share consume, Java's perf tool, 100 B"
    headline = False
    peers: tuple[str, ...] = (FSYNC, OS, KAFKA)
    warms_up: tuple[str, ...] = (KAFKA,)
    lines = tuple(
        Line(
            what=f"ShareConsumerPerformance, {consumers} on {partitions} partition"
            + ("s" if partitions > 1 else ""),
            unit="records/s",
            higher_is_better=True,
            against=with_kafka(1.3, 1.3),
        )
        for consumers, partitions in SHAPES
    )

    def prepare(self, peer: Peer, scale: Scale) -> str:
        return "; ".join(self._log(scale, partitions).on(peer) for partitions in (1, 4))

    def measure(self, peer: Peer, scale: Scale) -> tuple[Measured | None, ...]:
        found = []
        for consumers, partitions in SHAPES:
            log = self._log(scale, partitions)
            with peer.awake() as broker:
                group = new_group(broker.bootstrap_servers)
                result = java_tools.share_consume(
                    broker, group, log.topic, log.records, consumers=consumers
                )
            found.append(as_rate(result, peer))
        return tuple(found)

    def _log(self, scale: Scale, partitions: int) -> Log:
        return Log(topic=f"perf-tool-{partitions}", records=scale.records, partitions=partitions)


class SingleRecordBatches:
    """P5: the worst that a producer can do to a log."""

    name = "P5"
    title = "a log of one-record batches, 100 B"
    headline = False
    peers: tuple[str, ...] = (FSYNC, OS, KAFKA)
    warms_up: tuple[str, ...] = (KAFKA,)
    lines = tuple(
        Line(
            what=f"one-record batches, {what}",
            unit="records/s",
            higher_is_better=True,
            against=with_kafka(1.0, 1.0),
        )
        for what in ("ShareConsumerPerformance", "confluent ShareConsumer, implicit")
    )

    def prepare(self, peer: Peer, scale: Scale) -> str:
        return self._log(scale).on(peer)

    def measure(self, peer: Peer, scale: Scale) -> tuple[Measured | None, ...]:
        log = self._log(scale)
        with peer.awake() as broker:
            group = new_group(broker.bootstrap_servers)
            result = java_tools.share_consume(broker, group, log.topic, log.records)
        return as_rate(result, peer), consume(peer, log, explicit=False)

    def _log(self, scale: Scale) -> Log:
        return Log(topic="single-records", records=scale.records // 20, batch_records=1)
