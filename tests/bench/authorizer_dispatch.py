"""What an authorizer adds to a request: the processor time of dispatch, with a thousand ACLs.

    python -m tests.bench.authorizer_dispatch [--rounds N]

One broker in this process answers the same requests of two peers in turn: one whose rights are
unlimited, and one whose rights come from ACLs.  Only processor time counts, so a busy machine
disturbs it little.  `tests.bench.authorizer` measures whole workloads.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from statistics import median

import click
from kio.schema.fetch.v12 import request as fetch
from kio.schema.produce.v12 import request as produce

from sharegroup.broker.access.peer import Peer
from sharegroup.broker.access.rights import UNLIMITED
from sharegroup.broker.configuration.authorizer_settings import STANDARD_AUTHORIZER
from sharegroup.broker.server.dispatch import dispatch
from sharegroup.broker.server.handler_table import handler_of
from sharegroup.client import AclBinding
from sharegroup.core.security.acls import Acl
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from sharegroup.wire.codec.encoder import encode_request
from tests.bench.authorizer import acls
from tests.faults.in_process import SECOND, Broker

REQUESTS = 400
"""Number of requests of one measurement, about 50 ms."""


def fetch_request() -> fetch.FetchRequest:
    partition = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return fetch.FetchRequest(
        replica_id=-1,
        max_wait=timedelta(0),
        min_bytes=0,
        topics=(fetch.FetchTopic(topic="orders", partitions=(partition,)),),
        forgotten_topics_data=(),
    )


def produce_request() -> produce.ProduceRequest:
    batch = encode_batch([SimpleRecord(None, b"x" * 100, 1) for _ in range(10)])
    partition = produce.PartitionProduceData(index=0, records=bytes(batch))
    return produce.ProduceRequest(
        transactional_id=None,
        acks=1,
        timeout=SECOND,
        topic_data=(produce.TopicProduceData(name="orders", partition_data=(partition,)),),
    )


async def spent(broker: Broker, frame: bytes, peer: Peer) -> float:
    """The processor seconds of one measurement."""
    parts = broker.running.parts
    began = time.process_time()
    for _ in range(REQUESTS):
        reply = dispatch(parts, handler_of, memoryview(frame), connection_id=1, peer=peer)
        if isinstance(reply, asyncio.Future):
            await reply
    return time.process_time() - began


async def compare(rounds: int, say: Callable[[str], None]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        broker = await Broker.start(
            None,
            f"{folder}/data",
            sharegroup_durability="os",
            authorizer_class_name=STANDARD_AUTHORIZER,
            allow_everyone_if_no_acl_found="true",
        )
        entries = broker.running.parts.topics.catalog.acls
        assert await broker.create_topic("orders", 1) == 0
        for acl in acls():
            entries.acls.add(stored(acl))
        entries.version += 1
        free, by_acls = Peer("127.0.0.1", rights=UNLIMITED), Peer("127.0.0.1")
        by_acls.rights = broker.running.parts.rights_of(by_acls)
        assert not by_acls.rights.is_unlimited
        for request in (produce_request(), fetch_request()):
            frame = b"".join(encode_request(1, "bench", request))[4:]
            (answered,) = (await broker.ask(request, peer=by_acls)).responses
            assert "error_code=<ErrorCode.none" in str(answered), answered
            pairs = []
            for number in range(rounds):
                peers = (free, by_acls) if number % 2 == 0 else (by_acls, free)
                found = {id(peer): await spent(broker, frame, peer) for peer in peers}
                pairs.append((found[id(free)], found[id(by_acls)]))
            ratio = median(without / with_ for without, with_ in pairs)
            without, with_ = (median(pair[side] for pair in pairs) for side in (0, 1))
            say(
                f"{ratio:5.3f}  {without / REQUESTS * 1e6:.1f} -> {with_ / REQUESTS * 1e6:.1f} us "
                f"{type(request).__name__}"
            )
        await broker.stop()


def stored(acl: AclBinding) -> Acl:
    """The ACL as the broker keeps it."""
    return Acl(
        acl.resource_type,
        acl.pattern_type,
        acl.name,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission,
    )


@click.command()
@click.option("--rounds", type=click.IntRange(2), default=40, show_default=True)
def main(*, rounds: int) -> None:
    """Compare the processor time of requests without and with rights by ACLs."""
    asyncio.run(compare(rounds, click.echo))


if __name__ == "__main__":
    main()
