"""Our configuration keys beside those of Apache Kafka: names, types, defaults, kinds of changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import Field
from typing import Any, NamedTuple

import pytest

from sharegroup.broker.configuration.config import Config, TopicConfig
from sharegroup.broker.configuration.config_values import default_text, entries, kind_of
from sharegroup.broker.configuration.kafka_keys import kafka_keys
from sharegroup.broker.configuration.live_config import change_of
from tests.support import kafka_peer
from tests.support.java_shell import NO_COMPILER, javac, printed_by

WHY_NO_JAVA = kafka_peer.why_missing() or (None if javac() else NO_COMPILER)

OTHER_DEFAULT = {
    "group.initial.rebalance.delay.ms",
    "group.max.size",
    "group.min.session.timeout.ms",
    "group.share.max.partition.max.record.locks",
    "fetch.max.bytes",
    "listeners",
    "log.dir",
    "log.dirs",
    "max.connections",
    "node.id",
    "queued.max.request.bytes",
}
"""Keys whose default differs on purpose; docs/differences.md has the reasons."""

FIXED_HERE = {
    "listener.security.protocol.map",
    "listeners",
    "max.connections",
    "max.connections.per.ip.overrides",
    "sasl.enabled.mechanisms",
    "sasl.jaas.config",
    "share.coordinator.cached.buffer.max.bytes",
    "transaction.partition.verification.enable",
}
"""Keys that Kafka changes while it runs, and this broker does not."""


class Key(NamedTuple):
    name: str
    kind: str
    default: str | None
    is_internal: bool


@pytest.fixture(scope="module")
def kafka_rows() -> list[list[str]]:
    printed = printed_by(kafka_peer.kafka_libs(), "BrokerKeys")
    return [line.split("\t") for line in printed]


def theirs(rows: list[list[str]], resource: str) -> dict[str, Key]:
    return {
        name: Key(name, kind, default[1:] if default != "-" else None, listed == "internal")
        for which, name, kind, default, listed, _ in rows
        if which == resource
    }


def ours() -> Iterator[Field[Any]]:
    served = {entry.metadata["name"]: entry for part in Config().parts for entry in entries(part)}
    yield from served.values()
    yield from (found.entry for name, found in kafka_keys().items() if name not in served)


def key_of(entry: Field[Any]) -> Key:
    facts = entry.metadata
    return Key(facts["name"], kind_of(entry).name, default_text(entry), facts["internal"])


def plain(key: Key) -> Key:
    """A key as both sides write its default: numbers in one form, an empty list as no value."""
    default = key.default or None
    if key.kind == "DOUBLE" and default is not None:
        default = str(float(default))
    return key._replace(default=default)


pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(WHY_NO_JAVA is not None, reason=str(WHY_NO_JAVA)),
]


def test_every_key_of_kafkas_broker_is_known_with_its_type_and_default(
    kafka_rows: list[list[str]],
) -> None:
    known = {entry.metadata["name"]: plain(key_of(entry)) for entry in ours()}
    for name, key in theirs(kafka_rows, "broker").items():
        assert name in known
        expected = plain(key)
        found = known[name]
        if name in OTHER_DEFAULT:
            assert found.default != expected.default
            found = found._replace(default=expected.default)
        assert found == expected


def test_keys_change_when_kafkas_do(kafka_rows: list[list[str]]) -> None:
    """Keys of share groups change here, though Kafka fixes them: that harms nobody."""
    served = {entry.metadata["name"] for part in Config().parts for entry in entries(part)}
    for which, name, _, _, _, mode in kafka_rows:
        if which != "broker":
            continue
        found = change_of(name).value
        if name in FIXED_HERE:
            assert (found, mode) == ("read-only", mode)
        elif name not in served or mode == "per-broker":
            assert (name, found) == (name, mode)
        elif mode != "read-only":
            assert (name, found) == (name, "cluster-wide")


def test_topics_have_kafkas_keys(kafka_rows: list[list[str]]) -> None:
    broker = {entry.metadata["name"]: entry for entry in ours()}
    known = {}
    for entry in entries(TopicConfig):
        name, facts = entry.metadata["name"], entry.metadata
        key = key_of(entry)
        if facts["synonym"]:
            key = key._replace(default=default_of(broker, facts["synonym"]))
        known[name] = plain(key)
    assert known == {name: plain(key) for name, key in theirs(kafka_rows, "topic").items()}


def default_of(broker: dict[str, Field[Any]], name: str) -> str | None:
    """The default of a broker's key, or of the key with another unit that it falls back to."""
    entry = broker[name]
    if entry.default is None:
        other, units = entry.metadata["fallbacks"][-1]
        return str(broker[other].default * units)
    return default_text(entry)
