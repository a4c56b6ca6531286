"""Runs the matrix against a broker: what must exist, the ACLs of all cases, then each case.

A `Door` is a way into a broker: as the super user, and as the user of a case.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any, Protocol
from uuid import NAMESPACE_OID, UUID, uuid5

from sharegroup.client.metrics.client_metrics import ConnectionMetrics
from sharegroup.client.metrics.metric_types import Metrics
from sharegroup.client.net.connection import open_connection
from sharegroup.client.settings.client_config import ClientConfig
from tests.authorization.data_probes import SECOND, produce
from tests.authorization.group_probes import (
    OF_GROUP,
    OF_SHARE_PARTITION,
    OF_TRANSACTION,
    alter_offsets,
    consumer_heartbeat,
    find_coordinator,
    offset_commit,
    share_heartbeat,
)
from tests.authorization.matrix import TOPIC, Acl, Case, faults
from tests.authorization.messages import message, outcome_of
from tests.authorization.probe import Names

WAIT_SECONDS = 60.0
PAUSE_SECONDS = 0.05
AT_ONCE = 8
ACLS_OF_A_REQUEST = 500
LONG = timedelta(minutes=14)

Ask = Callable[[Any], Awaitable[Any]]
"""Sends a request on one connection and returns the response."""


class Door(Protocol):
    """A way into a broker."""

    is_ours: bool

    def connect(self, user: str | None) -> AbstractAsyncContextManager[Ask]:
        """Open a connection of a user; None is the super user."""

    async def create_acls(self, acls: Sequence[Acl]) -> None:
        """Create ACLs, and return when the broker applies them."""


class Sockets:
    """A broker with a plain listener for the super user, and one with SASL/PLAIN for the others."""

    def __init__(
        self, open_port: int, guarded_port: int, passwords: Mapping[str, str], *, is_ours: bool
    ) -> None:
        self.is_ours = is_ours
        self._open_port, self._guarded_port = open_port, guarded_port
        self._passwords = passwords
        self._metrics = ConnectionMetrics(Metrics("matrix"), "matrix")

    @asynccontextmanager
    async def connect(self, user: str | None) -> Any:
        """Open a connection of a user; None is the super user."""
        port = self._open_port if user is None else self._guarded_port
        login: dict[str, Any] = {}
        if user is not None:
            login = {
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "PLAIN",
                "sasl_plain_username": user,
                "sasl_plain_password": self._passwords[user],
            }
        config = ClientConfig(bootstrap_servers=f"127.0.0.1:{port}", **login)
        connection = await open_connection(("127.0.0.1", port), config, metrics=self._metrics)
        try:
            yield connection.request_as_is
        finally:
            connection.close()

    async def create_acls(self, acls: Sequence[Acl]) -> None:
        """Create ACLs, and return when the broker applies them."""
        async with self.connect(None) as ask:
            await create_acls(ask, acls)


async def run(door: Door, cases: Sequence[Case]) -> dict[str, list[str]]:
    """Run the cases; return the faults by case."""
    async with door.connect(None) as ask:
        topic_id = await _create_topics(ask, [TOPIC])
        own = [f"matrix{case.number}.own" for case in cases if case.probe.needs_own_topic]
        ids = {**topic_id, **await _create_topics(ask, own)}
        await _furnish(ask, ids[TOPIC])
        names = {
            case: case.names(ids[TOPIC], ids.get(f"matrix{case.number}.own")) for case in cases
        }
    await door.create_acls([acl for case in cases for acl in case.acls(names[case])])
    found: dict[str, list[str]] = {}
    room = asyncio.Semaphore(AT_ONCE)

    async def check(case: Case) -> None:
        async with room:
            if wrong := await _attempt(door, case, names[case]):
                found[case.title] = wrong

    async with asyncio.TaskGroup() as tasks:
        for case in cases:
            tasks.create_task(check(case))
    return found


async def _attempt(door: Door, case: Case, names: Names) -> list[str]:
    async with door.connect(case.user) as ask:
        for earlier in case.probe.before:
            await ask(earlier(names))
        request = case.probe.request(names)
        response = await ask(request)
    return list(
        faults(case, names, outcome_of(request), outcome_of(response), is_ours=door.is_ours)
    )


async def _create_topics(ask: Ask, names: Sequence[str]) -> dict[str, UUID]:
    topics = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names]
    created = await ask(message(19, topics=topics, timeout=SECOND * 30))
    assert not outcome_of(created).errors, created
    return {topic.name: topic.topic_id for topic in created.topics}


async def _furnish(ask: Ask, topic_id: UUID) -> None:
    """Create what the cases share: a record, groups with members, and an open transaction."""
    names = Names("furnish", TOPIC, topic_id, None)
    for key_type, key in (
        (OF_GROUP, names.classic),
        (OF_TRANSACTION, names.ledger),
        (OF_SHARE_PARTITION, f"{names.sharing}:AAAAAAAAAAAAAAAAAAAAAw:0"),
    ):
        await _until(ask, lambda key=(key_type, key): find_coordinator(*key), _has_no_error)
    await _until(ask, lambda: produce(topic_id), _has_no_error)
    await _until(ask, lambda: offset_commit(names.classic, topic_id), _has_no_error)
    await _until(ask, lambda: alter_offsets(names.idle, TOPIC), _has_no_error)
    member = str(uuid5(NAMESPACE_OID, "furnish"))
    epochs = [0]

    def has_partition(response: Any) -> bool:
        epochs[0] = response.member_epoch
        return bool(response.assignment and response.assignment.topic_partitions)

    await _until(ask, lambda: consumer_heartbeat(names.modern, member, TOPIC), has_partition)
    epochs[0] = 0
    await _until(
        ask, lambda: share_heartbeat(names.sharing, member, TOPIC, epoch=epochs[0]), has_partition
    )
    init = message(
        22,
        transactional_id=names.ledger,
        transaction_timeout=LONG,
        producer_id=-1,
        producer_epoch=-1,
    )
    producer = await _until(ask, lambda: init, _has_no_error)
    added = message(
        24,
        3,
        v3_and_below_transactional_id=names.ledger,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[{"name": TOPIC, "partitions": [0]}],
    )
    await _until(ask, lambda: added, _has_no_error)


def _has_no_error(response: Any) -> bool:
    return not outcome_of(response).errors


async def _until(ask: Ask, request: Callable[[], Any], is_good: Callable[[Any], bool]) -> Any:
    """Repeat a request until its response is good, and return that."""
    limit = time.monotonic() + WAIT_SECONDS
    while not is_good(response := await ask(request())):
        assert time.monotonic() < limit, f"not as expected after {WAIT_SECONDS} s: {response}"
        await asyncio.sleep(PAUSE_SECONDS)
    return response


async def create_acls(ask: Ask, acls: Sequence[Acl]) -> None:
    """Create ACLs, and wait until the broker applies them."""
    for few in _portions(acls):
        creations = [
            {
                "resource_type": acl.resource_type,
                "resource_name": acl.name,
                "resource_pattern_type": acl.pattern,
                "principal": acl.principal,
                "host": acl.host,
                "operation": acl.operation,
                "permission_type": acl.permission,
            }
            for acl in few
        ]
        created = await ask(message(30, creations=creations))
        assert _has_no_error(created), created
    everything = message(
        29,
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )

    def are_there(response: Any) -> bool:
        return sum(len(resource.acls) for resource in response.resources) >= len(set(acls))

    await _until(ask, lambda: everything, are_there)


def _portions(acls: Sequence[Acl]) -> Iterator[Iterable[Acl]]:
    for first in range(0, len(acls), ACLS_OF_A_REQUEST):
        yield acls[first : first + ACLS_OF_A_REQUEST]
