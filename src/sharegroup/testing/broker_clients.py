"""What a test asks of its broker: topics, records and lags.

The requests have the client id `EXEMPT_CLIENT_ID`, so the broker's faults do not affect them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from sharegroup.broker.app import Running
from sharegroup.client import (
    AdminClient,
    AlterConfig,
    ConfigResource,
    GroupType,
    NewTopic,
    OffsetSpec,
    Producer,
    RecordMetadata,
    ResourceType,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from sharegroup.client.fetch.record_reading import partition_ranges, read_records
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.records import TopicPartition
from sharegroup.client.settings.client_config import ReadingConfig, config_from
from sharegroup.errors import KafkaError
from sharegroup.faults.script import EXEMPT_CLIENT_ID
from sharegroup.testing.security import Security
from sharegroup.testing.stored_record import StoredRecord

T = TypeVar("T")

CHECK_SECONDS = 0.02
"""The pause between two checks of `BrokerClients.wait_until`."""


class BrokerClients:
    """Clients of one running broker; `close` must be called before it stops."""

    def __init__(self, running: Running, internal: str | None) -> None:
        """``internal`` is the address of a listener without logins; None: the first one is."""
        self._running = running
        self._open = AsyncExitStack()
        self._address = address = internal or running.bootstrap_servers
        self._cluster = Cluster(
            config_from(
                ReadingConfig, {"bootstrap_servers": address, "client_id": EXEMPT_CLIENT_ID}
            )
        )
        self._admin = AdminClient(bootstrap_servers=address, client_id=EXEMPT_CLIENT_ID)
        self._producer: Producer | None = None

    async def close(self) -> None:
        """Close all connections."""
        await self._open.aclose()
        await self._admin.close()
        self._cluster.close()

    async def let_in(self, security: Security) -> None:
        """Create the users of a secured broker, and their permissions."""
        results: dict[Any, KafkaError | None] = {}
        # One request for each mechanism, because a request may name a user once.
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            results |= await self._admin.alter_user_scram_credentials(
                UserScramCredentialUpsertion(name, password, mechanism)
                for name, password in security.users.items()
            )
            _raise_first(results)
        if security.acls:
            _raise_first(await self._admin.create_acls(security.acls))

    async def create_topic(
        self, name: str, partitions: int, settings: Mapping[str, str] | None
    ) -> None:
        """Create a topic; raise a KafkaError such as TopicAlreadyExists."""
        topic = NewTopic(name, num_partitions=partitions, configs=dict(settings or {}))
        error = (await self._admin.create_topics([topic]))[name]
        if error is not None:
            raise error

    async def configure_group(self, group: str, settings: Mapping[str, str]) -> None:
        """Change settings of a group, which need not exist yet; raise a KafkaError."""
        resource = ConfigResource(ResourceType.GROUP, group)
        changes = [AlterConfig(name, value) for name, value in settings.items()]
        error = (await self._admin.incremental_alter_configs({resource: changes}))[resource]
        if error is not None:
            raise error

    async def produce(
        self,
        topic: str,
        values: Sequence[bytes | str | None],
        *,
        key: bytes | str | None,
        headers: Sequence[tuple[str, bytes | None]],
        partition: int | None,
    ) -> list[RecordMetadata]:
        """Send records, wait until they are stored, and return their places in order."""
        if self._producer is None:
            self._producer = await self._open.enter_async_context(
                Producer(bootstrap_servers=self._address, client_id=EXEMPT_CLIENT_ID)
            )
        # The broker's clock, which the test may have advanced: retention compares with it.
        wall_ms = self._running.parts.clock.wall_ms()
        # Together and not one by one, so the records share a batch and a sync.
        sent = [
            await self._producer.send(
                topic,
                _bytes(value),
                key=_bytes(key),
                headers=headers,
                partition=partition,
                timestamp_ms=wall_ms,
            )
            for value in values
        ]
        return [await future for future in sent]

    async def records(self, topic: str, partition: int | None) -> list[StoredRecord]:
        """Return the records of a topic now, by partition and offset; nothing is acquired."""
        stored = []
        for log_range in await partition_ranges(self._cluster, topic):
            if partition not in (None, log_range.where.partition):
                continue
            async for records in read_records(self._cluster, log_range):
                stored += [
                    StoredRecord(
                        topic,
                        log_range.where.partition,
                        record.offset,
                        record.timestamp,
                        record.key,
                        record.value,
                        tuple(record.headers),
                    )
                    for record in records
                ]
        return stored

    # Waiting

    async def wait_until(
        self,
        *,
        lag: int | None,
        group: str | None,
        records: int | None,
        topic: str | None,
        timeout_s: float,
    ) -> None:
        """Wait until a group has at most this lag, or a topic at least so many records."""
        if (lag is None) == (records is None):
            raise TypeError("wait_until needs either lag=... or records=... with topic=...")
        if records is not None and topic is None:
            raise TypeError("wait_until(records=...) needs topic=...")
        reason: str | None = "nothing was answered yet"
        try:
            async with asyncio.timeout(timeout_s):
                while reason is not None:
                    if lag is not None:
                        reason = await self._excess_lag(lag, group, topic)
                    else:
                        reason = await self._missing_records(records or 0, topic or "")
                    # Kafka's protocol has no request that waits for a lag or for a count.
                    await asyncio.sleep(0 if reason is None else CHECK_SECONDS)
        except TimeoutError as error:
            raise TimeoutError(f"after {timeout_s} s: {reason}") from error

    async def _missing_records(self, count: int, topic: str) -> str | None:
        """Return how many records a topic lacks; None if it has ``count``."""
        # Counted, not computed from offsets: compaction and markers leave holes.
        present = len(await self.records(topic, None))
        return (
            None if present >= count else f"expected {count} records in {topic!r}, found {present}"
        )

    async def _excess_lag(self, limit: int, group: str | None, topic: str | None) -> str | None:
        """Return why a lag is not reached; None if it is."""
        admin = self._admin
        types = {listing.group_id: listing.type for listing in await admin.list_groups()}
        groups = list(types) if group is None else [group]
        if not groups:
            return f"expected groups with a lag of {limit}, found no group"
        for name in groups:
            if name not in types:
                return f"group {name!r} does not exist yet; there are {sorted(types)}"
            is_share = types[name] == GroupType.SHARE
            lags = await (self._share_lags(name) if is_share else self._consumer_lags(name))
            found = {
                where: lag for where, lag in lags.items() if topic is None or where.topic == topic
            }
            if not found:
                return f"group {name!r} has read no partition yet"
            if None in found.values():
                return f"the lag of group {name!r} is not known yet"
            total = sum(lag or 0 for lag in found.values())
            if total > limit:
                return f"expected a lag of {limit} for group {name!r}, found {total}"
        return None

    async def _share_lags(self, group: str) -> dict[TopicPartition, int | None]:
        listed = _unless_error((await self._admin.list_share_group_offsets({group: None}))[group])
        return {where: _unless_error(found).lag for where, found in listed.items()}

    async def _consumer_lags(self, group: str) -> dict[TopicPartition, int | None]:
        admin = self._admin
        listed = _unless_error((await admin.list_consumer_group_offsets({group: None}))[group])
        ends = await admin.list_offsets(dict.fromkeys(listed, OffsetSpec.LATEST))
        return {
            where: _unless_error(ends[where]).offset - (_unless_error(committed).offset or 0)
            for where, committed in listed.items()
        }


def _bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _raise_first(results: Mapping[Any, KafkaError | None]) -> None:
    for error in results.values():
        if error is not None:
            raise error


def _unless_error(result: T | KafkaError) -> T:
    """Return a result, or raise it if it is an error."""
    if isinstance(result, KafkaError):
        raise result
    return result
