"""Attacks that fill the disk with log lines: requests that each cause one, with long names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from kio.schema.alter_client_quotas.v1 import request as quotas
from kio.schema.create_topics.v7 import request as create_topics
from kio.schema.incremental_alter_configs.v1 import request as configs

from sharegroup.wire.codec.apis import request_class
from tests.attacks.target import Target, answers, frame, send_what_goes

WIDE = "\U000e0001" * 1_000
"""A name whose characters are ten each when they are escaped."""

REQUESTS = 1_500
AT_ONCE = 50


def _initialise(number: int) -> Any:
    return request_class(22, 4)(
        transactional_id=f"{number}{WIDE}",
        transaction_timeout=timedelta(seconds=60),
        producer_id=-1,
        producer_epoch=-1,
    )


def _delete_groups(number: int) -> Any:
    return request_class(42, 2)(groups_names=tuple(f"{number}-{n}{WIDE}" for n in range(5)))


def _set_group(number: int) -> Any:
    return _set(32, f"{number % 20}{WIDE[:100]}", "share.session.timeout.ms", "45000")


def _set_topic(number: int) -> Any:
    return _set(2, "flooded", "retention.ms", str(10_000_000 + number))


def _set(kind: int, name: str, key: str, value: str) -> Any:
    config = configs.AlterableConfig(name=key, config_operation=0, value=value)
    resource = configs.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=(config,)
    )
    return configs.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)


def _set_quota(number: int) -> Any:
    entity = quotas.EntityData(entity_type="client-id", entity_name=f"{number % 20}{WIDE[:100]}")
    operation = quotas.OpData(key="producer_byte_rate", value=1e9 + number, remove=False)
    entry = quotas.EntryData(entity=(entity,), ops=(operation,))
    return quotas.AlterClientQuotasRequest(entries=(entry,), validate_only=False)


def _make_topic(number: int) -> Any:
    topic = create_topics.CreatableTopic(
        name=f"made-{number // 2}", num_partitions=1, replication_factor=1, assignments=(),
        configs=(),
    )  # fmt: skip
    return create_topics.CreateTopicsRequest(topics=(topic,), timeout=timedelta(seconds=30))


FLOODS: tuple[Callable[[int], Any], ...] = (
    _initialise,
    _delete_groups,
    _set_group,
    _set_topic,
    _set_quota,
    _make_topic,
)


def prepare(target: Target) -> None:
    """Make the topic whose settings change."""
    target.make_topic("flooded")


def log_floods(target: Target) -> Iterator[None]:
    """Send each kind of request often, always some at once."""
    for made in FLOODS:
        answered = 0
        with target.connect() as connection:
            for first in range(0, REQUESTS, AT_ONCE):
                frames = b"".join(frame(made(first + number)) for number in range(AT_ONCE))
                send_what_goes(connection, frames)
                answered += answers(connection, AT_ONCE)
        target.note(**{made.__name__.lstrip("_"): answered})
    yield
