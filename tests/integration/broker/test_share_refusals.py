"""Every refusal of a share request: Kafka's code, and a text that says whose and which offsets.

One table for acknowledgements, which are refused by partition and alike in both requests, and
one for what is wrong with a request as a whole.  Member 1 holds offsets 0 to 3 of `orders`
partition 0 but for 3, which it released; member 2 holds 4 to 7, which is the end of the log.
Partition 1 was never fetched from.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kio.schema.share_acknowledge.v1 import request as acknowledge_v1
from kio.schema.share_acknowledge.v2 import request as acknowledge_v2
from kio.schema.share_fetch.v1 import request as fetch_v1
from kio.schema.share_fetch.v2 import request as fetch_v2

from sharegroup.ids import TopicName
from sharegroup.protocol_enums import AcknowledgeType
from tests.faults.in_process import Broker, ShareMember
from tests.integration.broker.test_share_fetch import alter_group, produce, records, request, run

INVALID_REQUEST, UNKNOWN_PARTITION, UNKNOWN_TOPIC_ID, INVALID_STATE = 42, 3, 100, 121
NO_SESSION, WRONG_EPOCH = 122, 123
NOBODYS_TOPIC = UUID(int=5)

Batch = tuple[int, int, tuple[int, ...]]
"""First offset, last offset, types."""


@dataclass(frozen=True)
class Refused:
    """Acknowledgements of one partition, and what they come to."""

    what: str
    batches: tuple[Batch, ...]
    code: int
    text: str
    partition: int = 0
    topic_id: UUID | None = None
    renewing: bool = False
    version: int = 2
    lock_has_ended: bool = False
    settings: tuple[tuple[str, str], ...] = ()


REFUSED = [
    Refused(
        "last before first",
        ((3, 1, (1,)),),
        INVALID_REQUEST,
        "a batch ends at offset 1, before its first offset 3",
    ),
    Refused(
        "batches overlap",
        ((0, 2, (1,)), (1, 2, (1,))),
        INVALID_REQUEST,
        "acknowledged offsets 1 to 2 must not begin before acknowledged offsets 0 to 2 ends",
    ),
    Refused(
        "batches out of order",
        ((2, 2, (1,)), (0, 0, (1,))),
        INVALID_REQUEST,
        "acknowledged offsets 0 to 0 must not begin before acknowledged offsets 2 to 2 ends",
    ),
    Refused(
        "batches share an offset",
        ((0, 1, (1,)), (1, 2, (1,))),
        INVALID_STATE,
        "offset 1 is acknowledged twice in one request",
    ),
    Refused(
        "no type",
        ((0, 2, ()),),
        INVALID_REQUEST,
        "acknowledged offsets 0 to 2 need 1 type or 3, one for each; got 0",
    ),
    Refused(
        "too few types",
        ((0, 2, (1, 1)),),
        INVALID_REQUEST,
        "acknowledged offsets 0 to 2 need 1 type or 3, one for each; got 2",
    ),
    Refused(
        "too many types",
        ((0, 0, (1, 1)),),
        INVALID_REQUEST,
        "acknowledged offsets 0 to 0 need 1 type or 1, one for each; got 2",
    ),
    Refused(
        "negative type",
        ((0, 0, (-1,)),),
        INVALID_REQUEST,
        "acknowledged offsets 0 to 0 have type -1; known are 0 to 4",
    ),
    Refused(
        "unknown type",
        ((0, 1, (1, 5)),),
        INVALID_REQUEST,
        "acknowledged offsets 0 to 1 have type 5; known are 0 to 4",
    ),
    Refused(
        "renewal in version 1",
        ((0, 1, (4,)),),
        INVALID_REQUEST,
        "offsets 0 to 1 have type 4 (renew), which needs a request of version 2 with IsRenewAck",
        version=1,
    ),
    Refused(
        "renewal in a request that does not say so",
        ((0, 1, (4,)),),
        INVALID_REQUEST,
        "offsets 0 to 1 have type 4 (renew), which needs a request of version 2 with IsRenewAck",
    ),
    Refused(
        "renewal switched off",
        ((0, 1, (4,)),),
        INVALID_STATE,
        "the locks of offsets 0 to 1 cannot be renewed: share.renew.acknowledge.enable is false",
        renewing=True,
        settings=(("share.renew.acknowledge.enable", "false"),),
    ),
    Refused(
        "beyond the last offset acquired",
        ((4, 8, (1,)),),
        INVALID_REQUEST,
        "acknowledged offsets 4 to 8 reach past the last offset ever acquired, 7",
    ),
    Refused(
        "far beyond",
        ((0, 2**62, (1,)),),
        INVALID_REQUEST,
        f"acknowledged offsets 0 to {2**62} reach past the last offset ever acquired, 7",
    ),
    Refused(
        "another member's",
        ((2, 2, (1,)), (4, 7, (1,))),
        INVALID_STATE,
        "offsets 4 to 7 are not acquired by member 'member-1': member 'member-2' holds them",
    ),
    Refused(
        "given back before",
        ((2, 3, (1,)),),
        INVALID_STATE,
        "offsets 3 to 3 are not acquired by member 'member-1': they are AVAILABLE",
    ),
    Refused(
        "no such topic",
        ((0, 0, (1,)),),
        UNKNOWN_TOPIC_ID,
        "offsets 0 to 0 cannot be acknowledged: there is no topic with this id",
        topic_id=NOBODYS_TOPIC,
    ),
    Refused(
        "no such partition",
        ((0, 0, (1,)),),
        UNKNOWN_PARTITION,
        "offsets 0 to 0 cannot be acknowledged: the topic has partitions 0 to 1",
        partition=2,
    ),
    Refused(
        "nobody fetched there",
        ((0, 1, (1,)), (3, 4, (2,))),
        UNKNOWN_PARTITION,
        "offsets 0 to 4 cannot be acknowledged: the share partition has not been fetched since",
        partition=1,
    ),
    Refused(
        "lock ended",
        ((0, 0, (1,)),),
        INVALID_STATE,
        "offsets 0 to 0 are not acquired by member 'member-1': they are AVAILABLE",
        lock_has_ended=True,
    ),
]


async def set_the_scene(broker: Broker, member: ShareMember) -> None:
    """Two topics, a member with records of both, and a group with tight limits."""
    await broker.running.parts.topics.grow(TopicName("orders"), 2)
    await produce(broker, 8)
    wanted = {"share_acquire_mode": 1, "max_records": 4}
    assert records(await broker.ask(request(member, **wanted))) == [(0, 3, 1)]
    other = ShareMember("g", "member-2", "orders", 1, connection_id=2)
    assert await other.heartbeat(broker) == 0
    assert len((await other.fetch(broker, records_max=8))[0]) == 4
    member.session_epoch = 2
    assert await member.acknowledge(broker, {0: [(3, AcknowledgeType.RELEASE)]}) == {0: 0}


def acknowledgement(module: Any, verb: str, member: ShareMember, refused: Refused) -> Any:
    """The topics of a request of either kind, which names one partition of one topic."""
    batches = tuple(
        module.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
        for first, last, types in refused.batches
    )
    partition = getattr(module, f"{verb}Partition")(
        partition_index=refused.partition, acknowledgement_batches=batches
    )
    topic = getattr(module, f"{verb}Topic")
    return (topic(topic_id=refused.topic_id or member.topic_id, partitions=(partition,)),)


def share_acknowledge(member: ShareMember, refused: Refused) -> Any:
    module = (acknowledge_v1, acknowledge_v2)[refused.version - 1]
    return module.ShareAcknowledgeRequest(
        group_id="g",
        member_id="member-1",
        share_session_epoch=3,
        topics=acknowledgement(module, "Acknowledge", member, refused),
        **({"is_renew_ack": refused.renewing} if refused.version == 2 else {}),
    )


def share_fetch(member: ShareMember, refused: Refused) -> Any:
    """It forgets the partition, as whoever acknowledges without fetching does."""
    module = (fetch_v1, fetch_v2)[refused.version - 1]
    topics = acknowledgement(module, "Fetch", member, refused)
    forgotten = module.ForgottenTopic(
        topic_id=topics[0].topic_id, partitions=(topics[0].partitions[0].partition_index,)
    )
    return module.ShareFetchRequest(
        group_id="g",
        member_id="member-1",
        share_session_epoch=3,
        max_wait=timedelta(0),
        min_bytes=0,
        max_bytes=0,
        max_records=0,
        batch_size=0,
        topics=topics,
        forgotten_topics_data=(forgotten,),
        **({"is_renew_ack": refused.renewing} if refused.version == 2 else {}),
    )


def outcome(answer: Any) -> tuple[int, str]:
    """Code and text of the acknowledgements of the one partition."""
    assert answer.error_code == 0
    [topic] = answer.responses
    [partition] = topic.partitions
    if hasattr(partition, "acknowledge_error_code"):
        assert (partition.error_code, partition.acquired_records) == (0, ())
        return int(partition.acknowledge_error_code), partition.acknowledge_error_message
    return int(partition.error_code), partition.error_message


@pytest.mark.parametrize("message", [share_acknowledge, share_fetch])
def test_error_of_an_acknowledgement_names_found_and_expected_values(
    tmp_path: Path, message: Any
) -> None:
    """One session for the whole table: each refusal uses up an epoch and changes nothing else."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await set_the_scene(broker, member)
        for epoch, refused in enumerate(REFUSED, start=3):
            for name, value in refused.settings:
                await alter_group(broker, name, value)
            if refused.lock_has_ended:
                broker.clock.advance(31)
            before = delivery_state(broker)
            asked = replace(message(member, refused), share_session_epoch=epoch)
            code, text = outcome(await broker.ask(asked))
            assert (refused.what, code) == (refused.what, refused.code), text
            assert text == f"{whose(refused)}: {text.partition(': ')[2]}", refused.what
            assert refused.text in text, refused.what
            assert delivery_state(broker) == before, refused.what

    run(scenario, tmp_path)


def whose(refused: Refused) -> str:
    if refused.topic_id is not None:
        return "group='g' topic_id=AAAAAAAAAAAAAAAAAAAABQ partition=0 member='member-1'"
    return f"group='g' topic='orders' partition={refused.partition} member='member-1'"


def delivery_state(broker: Broker) -> list[Any]:
    """Every run of every share partition."""
    return [list(live.state.runs()) for live in broker.running.parts.share_partitions]


WHOLE: list[tuple[str, dict[str, Any], int, str]] = [
    ("no group", {"group_id": None}, INVALID_REQUEST, "a share request needs a group id"),
    ("no member", {"member_id": None}, INVALID_REQUEST, "1 to 36 characters, not None"),
    ("empty member", {"member_id": ""}, INVALID_REQUEST, "1 to 36 characters, not ''"),
    ("long member", {"member_id": "m" * 37}, INVALID_REQUEST, "1 to 36 characters, not 'mmm"),
    ("no session", {"member_id": "m"}, NO_SESSION, "group 'g', member 'm': there is no such"),
    ("old epoch", {"share_session_epoch": 2}, WRONG_EPOCH, "expected epoch 3, got 2"),
    ("skipped epoch", {"share_session_epoch": 4}, WRONG_EPOCH, "expected epoch 3, got 4"),
    ("negative epoch", {"share_session_epoch": -2}, WRONG_EPOCH, "expected epoch 3, got -2"),
]


@pytest.mark.parametrize("message", [share_acknowledge, share_fetch])
def test_error_of_a_request_names_its_reason_and_the_session_continues(
    tmp_path: Path, message: Any
) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await set_the_scene(broker, member)
        accept = Refused("", ((0, 0, (AcknowledgeType.ACCEPT,)),), 0, "")
        for what, fields, code, text in WHOLE:
            answer = await broker.ask(replace(message(member, accept), **fields))
            assert (what, int(answer.error_code), answer.responses) == (what, code, ())
            assert text in answer.error_message, what
            assert answer.acquisition_lock_timeout == timedelta(0)
        assert outcome(await broker.ask(message(member, accept))) == (0, None)

    run(scenario, tmp_path)


def test_acknowledgement_cannot_open_a_session(tmp_path: Path) -> None:
    """By ShareAcknowledge it is the epoch that is wrong, by ShareFetch the request."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await set_the_scene(broker, member)
        accept = Refused("", ((0, 0, (AcknowledgeType.ACCEPT,)),), 0, "")
        for message, code in ((share_acknowledge, WRONG_EPOCH), (share_fetch, INVALID_REQUEST)):
            opening = replace(message(member, accept), share_session_epoch=0)
            answer = await broker.ask(opening)
            assert int(answer.error_code) == code
            assert "group 'g', member 'member-1'" in answer.error_message
            assert "epoch 0" in answer.error_message
        assert outcome(await broker.ask(share_fetch(member, accept))) == (0, None)

    run(scenario, tmp_path)


def test_refused_partition_leaves_the_others_alone(tmp_path: Path) -> None:
    """Of three partitions in one request, the member holds records only of the first."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await set_the_scene(broker, member)
        acks = {
            0: [(0, AcknowledgeType.ACCEPT)],
            1: [(0, AcknowledgeType.ACCEPT)],
            2: [(0, AcknowledgeType.ACCEPT)],
        }
        assert await member.acknowledge(broker, acks) == {0: 0, 1: 3, 2: 3}
        [live] = broker.running.parts.share_partitions
        assert live.state.start_offset == 1

    run(scenario, tmp_path)
