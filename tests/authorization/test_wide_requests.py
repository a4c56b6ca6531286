"""Large requests are decided in steps; they check the same, and each topic once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from sharegroup.protocol_enums import AclOperation, AclPatternType, AclPermission, AclResourceType
from sharegroup.wire.codec.encoder import encode_request
from tests.authorization.data_probes import produce
from tests.authorization.group_probes import COMMITTED_OFFSET, FIRST_RECORD
from tests.authorization.in_process import MODEL, in_process
from tests.authorization.matrix import Acl
from tests.authorization.messages import message, outcome_of
from tests.authorization.probe import CLUSTER_FAILED, GROUP_FAILED, TOPIC_FAILED, errors
from tests.authorization.test_patterns import MEMBER, create

PARTITIONS = 700
GROUP, TOPIC = "billing", "orders"


def acl(resource_type: AclResourceType, name: str, operation: AclOperation) -> Acl:
    return Acl(
        resource_type,
        name,
        AclPatternType.LITERAL,
        "User:ann",
        "*",
        operation,
        AclPermission.ALLOW,
    )


READ_GROUP = acl(AclResourceType.GROUP, GROUP, AclOperation.READ)
DELETE_GROUP = acl(AclResourceType.GROUP, GROUP, AclOperation.DELETE)


def numbered(**fields: Any) -> list[dict[str, Any]]:
    """Return the partitions of a request."""
    return [{"partition_index": number, **fields} for number in range(PARTITIONS)]


def wide_produce(topic_id: UUID) -> Any:
    request = produce(topic_id)
    [topic] = request.topic_data
    [partition] = topic.partition_data
    partitions = tuple(replace(partition, index=number) for number in range(PARTITIONS))
    return replace(request, topic_data=(replace(topic, partition_data=partitions),))


def wide_fetch(topic_id: UUID) -> Any:
    partitions = [
        {"partition": number, "current_leader_epoch": -1, "partition_max_bytes": 10}
        for number in range(PARTITIONS)
    ]
    topics = [{"topic_id": topic_id, "partitions": partitions}]
    return message(1, max_bytes=1000, session_epoch=-1, topics=topics)


def wide_commit(topic_id: UUID) -> Any:
    partitions = [
        {**COMMITTED_OFFSET, "partition_index": number, "committed_metadata": "a"}
        for number in range(PARTITIONS)
    ]
    topics = [{"topic_id": topic_id, "partitions": partitions}]
    return message(8, group_id=GROUP, generation_id_or_member_epoch=-1, topics=topics)


def wide_delete(_: UUID) -> Any:
    # Each partition has four bytes and no tags.
    partitions = [{"partition_index": number} for number in range(2 * PARTITIONS)]
    return message(47, group_id=GROUP, topics=[{"name": TOPIC, "partitions": partitions}])


def share_fields(epoch: int, topic_id: UUID, *acks: dict[str, Any]) -> dict[str, Any]:
    return {
        "group_id": GROUP,
        "member_id": MEMBER,
        "share_session_epoch": epoch,
        "topics": [
            {"topic_id": topic_id, "partitions": numbered(acknowledgement_batches=list(acks))}
        ],
    }


def wide_share_fetch(topic_id: UUID) -> Any:
    return message(78, max_bytes=1000, max_records=10, **share_fields(0, topic_id))


def wide_acknowledging_fetch(topic_id: UUID) -> Any:
    fields = share_fields(1, topic_id, FIRST_RECORD)
    return message(78, max_bytes=1000, max_records=10, **fields)


def wide_acknowledge(topic_id: UUID) -> Any:
    return message(79, **share_fields(1, topic_id, FIRST_RECORD))


def wide_state(topic_id: UUID) -> Any:
    partitions = [{"partition": number} for number in range(2 * PARTITIONS)]
    topics = [{"topic_id": topic_id, "partitions": partitions}]
    return message(86, group_id=GROUP, topics=topics)


READ_TOPIC = (AclOperation.READ, AclResourceType.TOPIC, TOPIC)
WRITE_TOPIC = (AclOperation.WRITE, AclResourceType.TOPIC, TOPIC)


@pytest.mark.parametrize(
    ("request_of", "before", "given", "expected", "asked"),
    [
        (wide_produce, None, [], errors(TOPIC_FAILED), WRITE_TOPIC),
        (wide_fetch, None, [], errors(TOPIC_FAILED), READ_TOPIC),
        (wide_commit, None, [READ_GROUP], errors(TOPIC_FAILED), READ_TOPIC),
        (wide_delete, None, [DELETE_GROUP], errors(TOPIC_FAILED), READ_TOPIC),
        (wide_share_fetch, None, [READ_GROUP], errors(TOPIC_FAILED), READ_TOPIC),
        (
            wide_acknowledging_fetch,
            wide_share_fetch,
            [READ_GROUP],
            errors(TOPIC_FAILED, acknowledge_error_code=TOPIC_FAILED),
            READ_TOPIC,
        ),
        (wide_acknowledge, wide_share_fetch, [READ_GROUP], errors(TOPIC_FAILED), READ_TOPIC),
        (wide_share_fetch, None, [], errors(GROUP_FAILED), None),
        (wide_acknowledge, None, [], errors(GROUP_FAILED), None),
        (wide_commit, None, [], errors(GROUP_FAILED), None),
        (wide_state, None, [], errors(CLUSTER_FAILED), None),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_each_partition_is_refused_and_each_topic_checked_once(
    tmp_path: Path,
    request_of: Callable[[UUID], Any],
    before: Callable[[UUID], Any] | None,
    given: list[Acl],
    expected: frozenset[tuple[str, int]],
    asked: tuple[AclOperation, AclResourceType, str] | None,
) -> None:
    async def scenario() -> None:
        async with in_process(tmp_path / "data", **MODEL) as door:
            await door.create_acls(given)
            async with door.connect(None) as ask:
                [topic_id] = (await create(ask, TOPIC)).values()
                # Offsets can only be deleted from a group that exists.
                await ask(
                    message(
                        8,
                        group_id=GROUP,
                        generation_id_or_member_epoch=-1,
                        topics=[{"topic_id": topic_id, "partitions": [COMMITTED_OFFSET]}],
                    )
                )
            async with door.connect("ann") as ask:
                if before is not None:
                    await ask(before(topic_id))
                door.questions.clear()
                request = request_of(topic_id)
                assert len(b"".join(encode_request(1, "wide", request))) > 4096
                response = await ask(request)
        assert outcome_of(response).errors == expected
        if asked is not None:
            assert 1 <= door.questions[asked] <= 2  # Acknowledgements and fetch of one request.

    asyncio.run(scenario())
