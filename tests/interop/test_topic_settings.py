"""Settings of topics that Kafka accepts and refuses, beside ours: the same, but for a few."""

from __future__ import annotations

import pytest

from sharegroup.broker.configuration.config import TopicConfig
from sharegroup.broker.configuration.config_values import entries, parse_part
from sharegroup.broker.configuration.topic_config import check_topic_config
from sharegroup.errors import InvalidConfig
from tests.support import kafka_peer
from tests.support.java_shell import NO_COMPILER, javac, printed_by

WHY_NO_JAVA = kafka_peer.why_missing() or (None if javac() else NO_COMPILER)

TEXTS = (
    "",
    *(
        "-131073",
        "-131072",
        "-3",
        "-2",
        "-1",
        "0",
        "1",
        "3",
        "4",
        "9",
        "10",
        "17",
        "18",
        "22",
        "23",
    ),
    *("1024", "1048576", "2147483639", "2147483647", "2147483648", "9223372036854775807"),
    *(
        "9223372036854775808",
        "0.5",
        "1.0",
        "1.1",
        "-0.1",
        "1e-2",
        ".5",
        "5.",
        "1_000",
        "0x10",
        "+7",
    ),
    *(" 7 ", "true", "TRUE", "false", " true ", "yes", "delete", "compact", "compact,delete"),
    *(
        "delete, compact",
        "delete,",
        "Delete",
        "archive",
        "producer",
        "gzip",
        "GZIP",
        "uncompressed",
    ),
    *("none", "snappy", "lz4", "zstd", "CreateTime", "LogAppendTime", "createtime", "*", "0:1"),
    *("0:1,1:1", "0:1, 1:1", "0", "0:a", ":", "*,0:1"),
)

PAIRS = (
    {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
    {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"},
    {"cleanup.policy": "compact", "compression.type": "gzip", "compression.gzip.level": "9"},
    {"local.retention.ms": "10", "retention.ms": "5"},
    {"no.such.key": "1"},
)

OTHERS = {
    ("segment.bytes", "1024"): "from 1 KiB, Kafka from 1 MiB",
    ("remote.storage.enable", "true"): "refused, as by a Kafka broker without remote storage",
    ("remote.storage.enable", "TRUE"): "the same",
    ("remote.storage.enable", " true "): "the same",
    ("cleanup.policy", "delete,"): "an empty entry of a list is left out",
}
"""Settings of which only one side accepts the value, on purpose."""

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(WHY_NO_JAVA is not None, reason=str(WHY_NO_JAVA)),
]


def test_settings_that_kafka_accepts_are_accepted() -> None:
    # The internal key of Kafka's tests has any range there, and that of `segment.bytes` here.
    names = [
        entry.metadata["name"] for entry in entries(TopicConfig) if not entry.metadata["internal"]
    ]
    asked = [{name: text} for name in names for text in TEXTS]
    asked += PAIRS
    lines = ["\t".join(f"{name}={text}" for name, text in pairs.items()) for pairs in asked]
    answers = printed_by(kafka_peer.kafka_libs(), "TopicSettings", lines)
    assert len(answers) == len(asked)
    differing = [
        (pairs, theirs)
        for pairs, theirs in zip(asked, answers, strict=True)
        if (theirs == "valid") != is_valid(pairs)
    ]
    assert [found for found in differing if next(iter(found[0].items())) not in OTHERS] == []
    assert len(differing) == len(OTHERS)


def is_valid(settings: dict[str, str]) -> bool:
    try:
        check_topic_config(parse_part(TopicConfig, settings))
    except InvalidConfig:
        return False
    return True
