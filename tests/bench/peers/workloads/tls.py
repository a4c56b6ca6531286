"""P20: P1 and P10 over TLS: what encryption costs here and in Apache Kafka.

Both brokers have a listener SSL with a certificate for P-256, and the client is the same library
with its defaults, so version and cipher suite are the same.  Logs are made, and ends of logs looked
up, through a listener without TLS.
"""

from __future__ import annotations

from typing import Any

from tests.bench.client_process import in_process
from tests.bench.peers.brokers import (
    FSYNC_TLS,
    KAFKA_TLS,
    OS_TLS,
    ApacheKafkaTls,
    OursTls,
    Peer,
)
from tests.bench.peers.lines import Against, Line, Measured, Scale, as_rate
from tests.bench.peers.workloads import produce, share_consume
from tests.bench.peers.workloads.log import new_group
from tests.bench.peers.workloads.share_consume import main_log

REACH_FSYNC, REACH_OS = 1.0, 1.3


class Tls:
    """Share consumption and producing, records of 100 bytes, one partition."""

    name = "P20"
    title = "share consume and produce over TLS"
    headline = False
    peers: tuple[str, ...] = (FSYNC_TLS, OS_TLS, KAFKA_TLS)
    warms_up: tuple[str, ...] = (KAFKA_TLS,)
    lines = tuple(
        Line(
            what=what,
            unit="records/s",
            higher_is_better=True,
            against=(
                Against(ours=FSYNC_TLS, rival=KAFKA_TLS, reach=REACH_FSYNC),
                Against(ours=OS_TLS, rival=KAFKA_TLS, reach=REACH_OS),
            ),
        )
        for what in (
            "confluent ShareConsumer over TLS, implicit, 100 B, batches of 500, 1 partition",
            "confluent Producer over TLS, 100 B, linger 5 ms, 1 partition",
        )
    )

    def prepare(self, peer: Peer, scale: Scale) -> str:
        return main_log(scale).on(peer)

    def measure(self, peer: Peer, scale: Scale) -> tuple[Measured | None, ...]:
        assert isinstance(peer, OursTls | ApacheKafkaTls)
        security = {"security_protocol": "SSL", "ssl_ca_location": str(peer.authority)}
        return (_consume(peer, scale, security), _produce(peer, scale, security))


def _consume(peer: OursTls | ApacheKafkaTls, scale: Scale, security: dict[str, Any]) -> Measured:
    log = main_log(scale)
    with peer.awake() as broker:
        result = in_process(
            share_consume.client,
            bootstrap=peer.tls_bootstrap,
            broker_pid=broker.pid,
            group=new_group(broker.bootstrap_servers),
            topic=log.topic,
            records=log.records,
            explicit=False,
            **security,
        )
    return as_rate(result, peer)


def _produce(peer: OursTls | ApacheKafkaTls, scale: Scale, security: dict[str, Any]) -> Measured:
    with peer.awake() as broker:
        topic = produce.new_topic(broker)
        result = in_process(
            produce.client,
            bootstrap=peer.tls_bootstrap,
            broker_pid=broker.pid,
            topic=topic,
            records=scale.records,
            record_bytes=scale.record_bytes,
            **security,
        )
        produce.check_and_delete(broker.bootstrap_servers, topic, scale.records)
    return as_rate(result, peer)
