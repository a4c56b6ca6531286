"""Our own ShareConsumer beside confluent's: the same broker, the same log, each record accepted."""

from __future__ import annotations

from typing import Any

import uvloop

from sharegroup.client import ShareConsumer
from tests.bench.client_process import Span, in_process
from tests.bench.lines import BenchError, Line, Measured, Scale
from tests.bench.peers import Peer
from tests.bench.workloads import share_consume
from tests.bench.workloads.share_consume import IDLE_SECONDS_MAX, TOPIC, as_rate, new_group

OTHER = "confluent ShareConsumer in the same run, explicit acknowledge of each"


class OwnConsumer:
    """Both clients in each round, one after the other."""

    name = "own-consumer"
    warms_up = False
    lines = (
        Line(
            what="our ShareConsumer, explicit accept of each, 100 B, 500 records a batch",
            unit="records/s",
            higher_is_better=True,
            reach_fsync=0.3,
            reach_os=0.3,
            rival=OTHER,
        ),
        Line(what=OTHER, unit="records/s", higher_is_better=True, reach_fsync=0, reach_os=0),
    )

    def applies_to(self, peer: Peer) -> bool:
        return peer.ours

    def prepare(self, peer: Peer, scale: Scale) -> str:
        return share_consume.prepare_log(peer, scale)

    def measure(self, peer: Peer, scale: Scale) -> tuple[Measured, ...]:
        measured = []
        for function in (client, confluent_client):
            with peer.awake() as broker:
                result = in_process(
                    function,
                    bootstrap=broker.bootstrap,
                    broker_pid=broker.pid,
                    group=new_group(broker.bootstrap),
                    records=scale.records,
                )
            measured.append(as_rate(result, peer))
        return tuple(measured)


def confluent_client(**arguments: Any) -> dict[str, Any]:
    return share_consume.client(explicit=True, **arguments)


def client(*, bootstrap: str, broker_pid: int, group: str, records: int) -> dict[str, Any]:
    return uvloop.run(_consume(bootstrap, broker_pid, group, records))


async def _consume(bootstrap: str, broker_pid: int, group: str, records: int) -> dict[str, Any]:
    seen = first = 0
    span = None
    async with ShareConsumer(
        TOPIC,
        bootstrap_servers=bootstrap,
        group_id=group,
        share_acknowledgement_mode="explicit",
    ) as consumer:
        while seen < records:
            batch = await consumer.poll(timeout=IDLE_SECONDS_MAX)
            if not batch:
                raise BenchError(f"no record in {IDLE_SECONDS_MAX} s after {seen}")
            for record in batch:
                if record.offset != seen:
                    raise BenchError(f"expected offset {seen}, got {record.offset}")
                seen += 1
                record.accept()
            if span is None:
                span, first = Span(broker_pid), seen
        await consumer.commit()
        assert span is not None
        result = span.end()
    return {"counted": records - first, **result}
