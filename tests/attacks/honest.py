"""What honest clients do beside an attack and behind it: they must get their work done."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from kio.schema.incremental_alter_configs.v1 import request as alter_configs
from kio.schema.share_acknowledge.v2 import request as share_acknowledge

from sharegroup.errors import CorruptMessage
from tests.attacks.batches import honest_batch
from tests.attacks.target import Target, produce_request, produced
from tests.faults.in_process import ACCEPT, REJECT, ShareMember
from tests.faults.raw_connection import RawConnection

HONEST = "honest"
REACHED_SECONDS_MAX = 10.0
CONFIG_RESOURCE_GROUP = 32


class Asking:
    """Sends the requests of a `ShareMember` on one connection."""

    def __init__(self, connection: RawConnection) -> None:
        self._connection = connection
        self.last_answer: Any = None

    async def ask(self, message: Any, connection_id: int = 1) -> Any:
        self.last_answer = self._connection.ask(message)
        return self.last_answer


def round_trip(target: Target, *, group: str = HONEST) -> str | None:
    """Produce records, consume them in a share group, acknowledge: what failed, or None."""
    try:
        return asyncio.run(_round_trip(target, group))
    except (OSError, AssertionError) as error:
        return f"honest round trip: {type(error).__name__}: {error}"


async def _round_trip(target: Target, group: str) -> str | None:
    target.make_topic(HONEST)
    member = ShareMember(group, f"member-{time.monotonic_ns()}", HONEST, 1, connection_id=1)
    limit = time.monotonic() + REACHED_SECONDS_MAX
    number = 0
    with target.connect() as connection:
        broker = Asking(connection)
        while time.monotonic() < limit:
            code = await member.heartbeat(broker)
            if code:
                return f"honest heartbeat: error code {code}"
            number += 1
            value = f"{member.member_id}-{number}".encode()
            code = produced(connection.ask(produce_request(HONEST, honest_batch(1, value))))
            if code:
                return f"honest produce: error code {code}"
            taken, _ = await member.fetch(broker, records_max=500, wait_ms=100)
            if taken:
                acks = {0: [(record.offset, ACCEPT) for record in taken]}
                outcomes = await member.acknowledge(broker, acks)
                if any(outcomes.values()):
                    return f"honest acknowledgement: error codes {outcomes}"
            if any(record.value == value for record in taken):
                member.member_epoch = -1
                await member.heartbeat(broker)
                return None
    return f"an honest record was not delivered in {REACHED_SECONDS_MAX} s"


def read_by_share_group(target: Target, topic: str, value: bytes, *, group: str) -> bool:
    """Whether a share group that reads from the beginning reaches a record in 10 s."""
    return asyncio.run(_read(target, topic, value, group))


async def _read(target: Target, topic: str, value: bytes, group: str) -> bool:
    member = ShareMember(group, f"member-{time.monotonic_ns()}", topic, 1, connection_id=1)
    limit = time.monotonic() + REACHED_SECONDS_MAX
    with target.connect() as connection:
        broker = Asking(connection)
        connection.ask(read_from_the_beginning(group))
        while time.monotonic() < limit:
            await member.heartbeat(broker)
            try:
                taken, _ = await member.fetch(broker, records_max=500, wait_ms=100)
            except (CorruptMessage, KeyError):
                await _reject(broker, member)
                continue
            if any(record.value == value for record in taken):
                return True
            if taken:
                acks = {0: [(record.offset, ACCEPT) for record in taken]}
                await member.acknowledge(broker, acks)
    return False


async def _reject(broker: Asking, member: ShareMember) -> None:
    """Reject what cannot be decoded, or has offsets without a record, as clients do."""
    topics = tuple(
        share_acknowledge.AcknowledgeTopic(
            topic_id=topic.topic_id,
            partitions=tuple(
                share_acknowledge.AcknowledgePartition(
                    partition_index=partition.partition_index,
                    acknowledgement_batches=tuple(
                        share_acknowledge.AcknowledgementBatch(
                            first_offset=acquired.first_offset,
                            last_offset=acquired.last_offset,
                            acknowledge_types=(REJECT,),
                        )
                        for acquired in partition.acquired_records
                    ),
                )
                for partition in topic.partitions
            ),
        )
        for topic in broker.last_answer.responses
    )
    request = share_acknowledge.ShareAcknowledgeRequest(
        group_id=member.group,
        member_id=member.member_id,
        share_session_epoch=member.session_epoch,
        topics=topics,
    )
    await broker.ask(request)
    member.session_epoch += 1


def read_from_the_beginning(group: str) -> Any:
    """The request that makes a share group begin with the earliest record."""
    setting = alter_configs.AlterableConfig(
        name="share.auto.offset.reset", config_operation=0, value="earliest"
    )
    resource = alter_configs.AlterConfigsResource(
        resource_type=CONFIG_RESOURCE_GROUP, resource_name=group, configs=(setting,)
    )
    return alter_configs.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
