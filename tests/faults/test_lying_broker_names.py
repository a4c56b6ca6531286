"""Names from a hostile broker reach a terminal without raw escapes, through client and CLI."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from sharegroup.cli.main import main
from sharegroup.wire.batches.records import encode_batch
from tests.faults.lying_broker import (
    DESCRIBE_CONFIGS,
    LIST_OFFSETS,
    METADATA,
    TOPIC_ID,
    Lie,
    LyingBroker,
    answer,
    honest_but,
    made,
)
from tests.support.limits import HANGING_SECONDS

FETCH, DESCRIBE_GROUPS, LIST_GROUPS, SHARE_GROUP_DESCRIBE = 1, 15, 16, 77
HOSTILE = "owned\x1b]0;owned\x07\x1b[2J\r\nforged\x9b31m\u202e\u2028"
TOPIC_RESOURCE, STRING = 2, 2
EARLIEST = -2


def hostile_topics(_: Any, honest: Any) -> Any:
    (topic,) = honest.topics
    return honest_but(honest, topics=(topic, honest_but(topic, name=HOSTILE)))


def asked_topics(request: Any, honest: Any) -> Any:
    """Of the topics that are asked for there is only ``t``."""
    (topic,) = honest.topics
    asked = [topic.name for topic in request.message.topics]
    answers = {"t": topic}
    unknown = {name: honest_but(topic, name=name, error_code=3, partitions=()) for name in asked}
    return honest_but(honest, topics=tuple({**unknown, **answers}[name] for name in asked))


def offsets_0_to_12(request: Any, honest: Any) -> Any:
    (topic,) = request.message.topics
    (part,) = topic.partitions
    (told,) = honest.topics
    (offset,) = told.partitions
    first = honest_but(offset, offset=0 if part.timestamp == EARLIEST else 12)
    return honest_but(honest, topics=(honest_but(told, partitions=(first,)),))


def hostile_groups(_: Any, __: Any) -> Any:
    values = dict.fromkeys(("group_id", "protocol_type", "group_state", "group_type"), HOSTILE)
    group = made(LIST_GROUPS, "ListedGroup", **values)
    return answer(LIST_GROUPS, error_code=0, groups=(group,))


def hostile_group(*, error_code: int = 0) -> Lie:
    def lie(_: Any, __: Any) -> Any:
        part = made(
            SHARE_GROUP_DESCRIBE, "TopicPartitions",
            topic_id=TOPIC_ID, topic_name=HOSTILE, partitions=(0,),
        )  # fmt: skip
        member = made(
            SHARE_GROUP_DESCRIBE, "Member",
            member_id=HOSTILE, rack_id=HOSTILE, member_epoch=1, client_id=HOSTILE,
            client_host=HOSTILE, subscribed_topic_names=(HOSTILE,),
            assignment=made(SHARE_GROUP_DESCRIBE, "Assignment", topic_partitions=(part,)),
        )  # fmt: skip
        group = made(
            SHARE_GROUP_DESCRIBE, "DescribedGroup",
            error_code=error_code, error_message=HOSTILE, group_id="g", group_state=HOSTILE,
            group_epoch=1, assignment_epoch=1, assignor_name=HOSTILE, members=(member,),
        )  # fmt: skip
        return answer(SHARE_GROUP_DESCRIBE, groups=(group,))

    return lie


def hostile_config(*, error_code: int = 0) -> Lie:
    def lie(_: Any, __: Any) -> Any:
        config = made(
            DESCRIBE_CONFIGS, "DescribeConfigsResourceResult",
            name=HOSTILE, value=HOSTILE, read_only=False, config_source=1, is_sensitive=False,
            synonyms=(), config_type=STRING, documentation=HOSTILE,
        )  # fmt: skip
        result = made(
            DESCRIBE_CONFIGS, "DescribeConfigsResult",
            error_code=error_code, error_message=HOSTILE, resource_type=TOPIC_RESOURCE,
            resource_name="t", configs=(config,),
        )  # fmt: skip
        return answer(DESCRIBE_CONFIGS, results=(result,))

    return lie


def hostile_letters(_: Any, __: Any) -> Any:
    text = HOSTILE.encode()
    dead = ("group", "handler", "reason", "error.class", "error.message", "topic", "member")
    headers = tuple((f"__sharegroup.dead.{name}", text) for name in dead)
    batch = encode_batch([(text, text, 0, ((HOSTILE, text), *headers))] * 12)
    leader = made(FETCH, "LeaderIdAndEpoch", leader_id=1, leader_epoch=0)
    part = made(
        FETCH, "PartitionData",
        partition_index=0, error_code=0, high_watermark=12, log_start_offset=0,
        current_leader=leader, aborted_transactions=(), records=bytes(batch),
    )  # fmt: skip
    topic = made(FETCH, "FetchableTopicResponse", topic_id=TOPIC_ID, partitions=(part,))
    return answer(FETCH, error_code=0, session_id=0, responses=(topic,), node_endpoints=())


DEAD = {FETCH: hostile_letters, METADATA: asked_topics, LIST_OFFSETS: offsets_0_to_12}

COMMANDS: dict[str, Mapping[int, Lie]] = {
    "topics list": {METADATA: hostile_topics},
    "topics describe": {METADATA: hostile_topics},
    "groups list": {LIST_GROUPS: hostile_groups},
    "groups describe g --members": {SHARE_GROUP_DESCRIBE: hostile_group()},
    "groups describe --members g": {SHARE_GROUP_DESCRIBE: hostile_group(error_code=30)},
    "configs describe --topic t": {DESCRIBE_CONFIGS: hostile_config()},
    "configs describe --topic  t": {DESCRIBE_CONFIGS: hostile_config(error_code=29)},
    "dlq list t": DEAD,
    "dlq show t": DEAD,
}


@contextmanager
def lying(lies: Mapping[int, Lie]) -> Iterator[str]:
    """The address of a lying broker that runs on a thread of its own."""
    started, address, stop = threading.Event(), [""], asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with LyingBroker() as broker:
            broker.lies.update(lies)
            address[0] = broker.bootstrap_servers
            started.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert started.wait(HANGING_SECONDS)
        yield address[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


@pytest.mark.parametrize("form", ["", "--json"])
@pytest.mark.parametrize("command", COMMANDS)
def test_names_reach_the_terminal_escaped(
    command: str, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with lying(COMMANDS[command]) as address, pytest.raises(SystemExit):
        main([*command.split(), *form.split(), "--bootstrap", address, "--timeout", "2000"])
    printed = capsys.readouterr()
    said = printed.out + printed.err
    assert "owned" in said, "the name is shown"
    raw = {character for character in said if not character.isprintable()} - {"\n"}
    assert raw == set()
    assert not any(line.startswith("forged") for line in said.split("\n"))
