"""Valid requests whose values mean something to the broker that is fuzzed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from sharegroup.wire.codec.schema import EPOCH, MessageField, message_fields
from tests.fuzz.classic import ClassicMember
from tests.fuzz.honest import TOPICS, ShareMember
from tests.fuzz.numbers import interesting
from tests.fuzz.record_data import records

GROUPS = ("share", "share", "consumers", "classic", "other", "")
MEMBERS = ("m1", "m2", "m3", "AAAAAAAAAAAAAAAAAAAAAA", "")
STRANGE = ("", "a", "..", "a/b", "grün ✈", "x" * 249, "y" * 300, "\x1b[31m\n", "z" * 20_000, "\0")
CONFIGS = (
    "cleanup.policy", "retention.ms", "segment.bytes", "max.message.bytes", "compression.type",
    "message.timestamp.type", "share.auto.offset.reset", "share.record.lock.duration.ms",
    "share.isolation.level", "errors.deadletterqueue.topic.name", "group.share.max.size",
    "message.max.bytes", "log.retention.ms", "num.partitions", "delete.retention.ms",
    "share.delivery.count.limit", "share.partition.max.record.locks", "min.insync.replicas",
)  # fmt: skip
CONFIG_VALUES = (
    "compact", "delete", "compact,delete", "-1", "0", "1", "5", "1000", "100000", "2147483647",
    "9223372036854775807", "LogAppendTime", "earliest", "latest", "by_duration:PT1H", "gzip",
    "read_committed", "dlq.plain", "true", "x", "", "1e9", "-2", "by_duration:P9999999999D",
)  # fmt: skip
STRINGS: dict[str, tuple[str, ...]] = {
    "coordinator_keys": (*GROUPS, "share:AAAAAAAAAAAAAAAAAAAAAA:0", ":::", "g:x:y"),
    "configuration_keys": CONFIGS,
    "value": CONFIG_VALUES,
    "resource_name": (*TOPICS, *GROUPS, "1", "0"),
    "protocol_type": ("consumer", "consumer", "consumer", "connect", ""),
    "protocol_name": ("range", "range", "roundrobin", ""),
    "states_filter": ("Stable", "Empty", "Dead", "x"),
    "types_filter": ("share", "classic", "consumer", "x"),
    "feature": ("share.version", "transaction.version", "metadata.version"),
    "transactional_id": ("t1", "t2", ""),
    "client_software_name": ("fuzz", "-", "a b", "\n"),
    "group_instance_id": ("i1", "i2", ""),
    "cluster_id": ("c",),
}
STRINGS["key"] = STRINGS["coordinator_keys"]
GROUP_FIELDS = {"group_id", "group_ids", "groups", "groups_names"}
TOPIC_FIELDS = {"topic", "topic_name", "topic_names", "subscribed_topic_names"}
NAMES = (TOPICS, TOPICS, TOPICS, TOPICS, CONFIGS, ("range",))
SMALL = (0, 0, 0, 1, 1, 2, 3, -1)
NUMBERS: dict[str, tuple[int, ...]] = {
    "acks": (-1, -1, -1, 1, 1, 0),
    "session_id": (0, 0, 0, 0, 1),
    "session_epoch": (-1, -1, -1, 0, 0, 0, 1, 2),
    "share_session_epoch": (0, 0, 0, 1, -1),
    "current_leader_epoch": (-1, -1, -1, 0, 0, 1),
    "last_fetched_epoch": (-1, -1, -1, 0),
    "isolation_level": (0, 0, 1, 1, 2),
    "replica_id": (-1, -1, -1, -1, 0),
    "session_timeout": (6_000, 10_000, 45_000, 0),
    "rebalance_timeout": (0, 1, 5, 100),
    "producer_epoch": (0, 0, 0, -1, 1),
    "timestamp": (-1, -2, -3, -4, -5, 0, 1, 1_795_000_000_000, 2**63 - 1),
    "num_partitions": (1, 2, 5, -1, 0, 100, 2**31 - 1),
    "count": (2, 3, 5, 100, 2**31 - 1),
    "replication_factor": (1, -1, 2),
    "resource_type": (2, 2, 32, 4, 8, 16),
    "resource_types": (2, 32, 4, 16),
    "config_operation": (0, 1, 2, 3, 4),
    "partition_max_bytes": (0, 1, 1 << 20, 2**31 - 1),
    "max_bytes": (0, 1, 1 << 20, 2**31 - 1),
    "min_bytes": (0, 0, 1, 1 << 20, 2**31 - 1),
    "max_records": (1, 2, 500, 0, -1, 2**31 - 1),
    "batch_size": (1, 2, 500, 0, 2**31 - 1),
    "acknowledge_types": (0, 1, 2, 3, 4, 5),
    "delivery_state": (0, 1, 2, 3, 4),
    "transaction_timeout": (1, 1000, 2**31 - 1),
}
NULL_SHARES = {"transactional_id": 0.9, "group_instance_id": 0.7, "group_id": 0.03}
"""How often a field is null that may be; the others are 15 times in a hundred."""
ASKING_MAX = 1_000
WAITS_MS = (0, 0, 0, 1, 100, 5_000, -1, 2**31 - 1)


@dataclass
class Known:
    """What the broker has told: ids that later requests can name."""

    topic_ids: list[UUID] = field(default_factory=list)
    members: list[str] = field(default_factory=list)
    sessions: list[int] = field(default_factory=list)
    producers: list[int] = field(default_factory=list)
    waits_ms: tuple[int, ...] = WAITS_MS
    """Times for all fields that are times; with a real clock they have to be short."""

    asking: dict[int, ShareMember | ClassicMember] = field(default_factory=dict)
    """The honest members that wait for answers, by correlation id."""

    def learn(self, response: Any, correlation_id: int = 0) -> None:
        """Keep the ids of a response."""
        member = self.asking.pop(correlation_id, None)
        if member is not None:
            member.learn(response)
        elif len(self.asking) > ASKING_MAX:
            self.asking.clear()  # Their connections are closed.
        for name, values in (
            ("member_id", self.members),
            ("session_id", self.sessions),
            ("producer_id", self.producers),
        ):
            _keep(getattr(response, name, None), values)
        for topic in getattr(response, "topics", None) or ():
            if getattr(topic, "name", None) in TOPICS:
                _keep(getattr(topic, "topic_id", None), self.topic_ids)


def _keep(value: Any, values: list[Any]) -> None:
    if value and value not in values:
        values.append(value)
        del values[:-8]


def message(cls: type[Any], dice: random.Random, known: Known) -> Any:
    """A valid message of this class."""
    return cls(**{field.name: _value(field, dice, known) for field in message_fields(cls)})


def _value(field: MessageField, dice: random.Random, known: Known) -> Any:
    if field.tag is not None and dice.random() < 0.6:
        return field.default
    if field.nullable and field.tag is None and dice.random() < NULL_SHARES.get(field.name, 0.15):
        return None
    if not field.is_array:
        return _element(field, dice, known)
    return tuple(_element(field, dice, known) for _ in range(dice.choice((0, 1, 1, 1, 2, 3))))


def _element(field: MessageField, dice: random.Random, known: Known) -> Any:
    kind = field.kafka_type
    if field.entity is not None:
        return message(field.entity, dice, known)
    assert kind is not None
    if kind.startswith(("int", "uint")):
        return number(field.name, kind, dice, known)
    match kind:
        case "bool":
            return dice.random() < 0.3
        case "string":
            return _text(field.name, dice, known)
        case "records":
            return records(dice)
        case "bytes":
            return dice.choice((b"", b"\0\0\0\0\0\0", dice.randbytes(20), b"\0\1\0\0\0\1\0\5plain"))
        case "uuid":
            return dice.choice((*known.topic_ids * 4, None, UUID(int=7)))
        case "error_code":
            return ErrorCode.none
        case "datetime_i64":
            return EPOCH + timedelta(milliseconds=dice.choice((0, 1, 2**41)))
        case "timedelta_i32" | "timedelta_i64":
            return timedelta(milliseconds=dice.choice(NUMBERS.get(field.name, known.waits_ms)))
    return 1.0


def number(name: str, kind: str, dice: random.Random, known: Known) -> int:
    """A number for the field of this name and type, one time in ten any number."""
    bits = int(kind.removeprefix("u").removeprefix("int"))
    unsigned = kind.startswith("u")
    if dice.random() < 0.1:
        value = interesting(bits, dice)
        return abs(value) if unsigned else value
    if name == "session_id" and known.sessions and dice.random() < 0.7:
        return dice.choice(known.sessions)
    if name == "producer_id" and known.producers and dice.random() < 0.7:
        return dice.choice(known.producers)
    if "offset" in name:
        return dice.choice((0, 0, 1, 2, 5, 10, 100, -1))
    value = dice.choice(_fitting(name, bits))
    return abs(value) if unsigned else value


@cache
def _fitting(name: str, bits: int) -> list[int]:
    end = 1 << bits - 1
    return [value for value in NUMBERS.get(name, SMALL) if -end <= value < end]


def _text(name: str, dice: random.Random, known: Known) -> str:
    if dice.random() < 0.05:
        return dice.choice(STRANGE)
    if name in GROUP_FIELDS:
        return dice.choice(GROUPS)
    if name in TOPIC_FIELDS:
        return dice.choice(TOPICS)
    if name == "member_id":
        return dice.choice((*MEMBERS, *known.members))
    if name == "name":
        return dice.choice(dice.choice(NAMES))
    return dice.choice(STRINGS.get(name, STRANGE))
