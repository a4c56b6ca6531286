"""P12: one call of a handler and one acknowledgement for each record, in asyncio, 100 B.

Ours twice: the bare client, and the worker framework on top of it.  The others with the Python
client that people use with them, as somebody who knows it writes it: RabbitMQ by pika's asyncio
connection (prefetch 500, a callback where the others have a coroutine, an ack for each that
nobody waits for), NATS JetStream by nats-py (pulls of 500, the next one on its way while this one
is handled, an ack for each), Redis by redis-py with hiredis (reads of 500, one XACK for the 500,
as a stream allows, in one round trip with the next read).  Each server is durable as its package
is.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from tests.bench import worker
from tests.bench.client_process import in_process
from tests.bench.peers.brokers import FSYNC, NATS, OS, RABBITMQ, REDIS, Peer
from tests.bench.peers.lines import Against, Line, Measured, Scale, as_rate, measured
from tests.bench.peers.workloads import clients, other_queues
from tests.bench.peers.workloads.log import Log, new_group
from tests.support.processes import cpu_seconds

REACH = {RABBITMQ: 4.0, NATS: 2.5, REDIS: 0.9}
BARE = "handler call and accept of each record, 100 B: our ShareConsumer"
WORKER = "handler call and accept of each record, 100 B: our worker framework"
FRACTION = {RABBITMQ: 40, NATS: 40, REDIS: 10}
"""Of the records of our log, for some seconds of work with each."""
_queues = count(1)


class AcknowledgeEach:
    """Our log is read by a new group each time; a rival's queue is filled anew before the clock."""

    name = "P12"
    title = "acknowledge each, other queues"
    headline = True
    peers: tuple[str, ...] = (FSYNC, OS, RABBITMQ, NATS, REDIS)
    warms_up: tuple[str, ...] = ()
    lines = (
        Line(
            what=BARE,
            unit="records/s",
            higher_is_better=True,
            against=tuple(
                Against(ours=ours, rival=rival, reach=reach)
                for rival, reach in REACH.items()
                for ours in (FSYNC, OS)
            ),
        ),
        Line(
            what=WORKER,
            unit="records/s",
            higher_is_better=True,
            against=tuple(Against(ours=FSYNC, rival=rival, line=BARE) for rival in REACH),
        ),
    )

    def prepare(self, peer: Peer, scale: Scale) -> str:
        if not peer.ours:
            return ""
        return "; ".join((self._log(scale).on(peer), self._work(scale).on(peer)))

    def measure(self, peer: Peer, scale: Scale) -> tuple[Measured | None, ...]:
        if not peer.ours:
            return self._of_rival(peer, scale.records // FRACTION[peer.name]), None
        log = self._log(scale)
        with peer.awake() as broker:
            result = in_process(
                clients.handled,
                bootstrap=broker.bootstrap_servers,
                broker_pid=broker.pid,
                group=new_group(broker.bootstrap_servers),
                topic=log.topic,
                records=log.records,
            )
        return as_rate(result, peer), self._of_worker(peer, scale)

    def _of_rival(self, peer: Peer, records: int) -> Measured:
        consume = {
            RABBITMQ: other_queues.rabbitmq,
            NATS: other_queues.nats,
            REDIS: other_queues.redis,
        }[peer.name]
        with peer.awake() as broker:
            result = in_process(
                consume,
                port=broker.port,
                broker_pid=broker.pid,
                queue=f"bench-{next(_queues)}",
                records=records,
            )
        return as_rate(result, peer)

    def _of_worker(self, peer: Peer, scale: Scale) -> Measured:
        work = self._work(scale)
        with peer.awake() as broker:
            broker_cpu_s = cpu_seconds(broker.pid)
            result: dict[str, Any] = in_process(
                worker.worker,
                bootstrap=broker.bootstrap_servers,
                group=new_group(broker.bootstrap_servers),
                records=work.records,
                wait=False,
            )
            broker_cpu_s = cpu_seconds(broker.pid) - broker_cpu_s
        client_cpu_s = result["cpu_us"] * work.records / 1e6
        cpu = {"broker_cpu_s": broker_cpu_s, "client_cpu_s": client_cpu_s}
        return measured(result["per_second"], cpu, peer)

    def _log(self, scale: Scale) -> Log:
        return Log(topic="to-acknowledge", records=scale.records // 4)

    def _work(self, scale: Scale) -> Log:
        return Log(topic=worker.TOPIC, records=scale.records // 8)
