"""The honest clients of the soak, in one process; a JSON line for every window of 10 s.

    python -m tests.soak.honest BOOTSTRAP SECONDS [AUTHORITY USER PASSWORD]

Every record has a number.  A record counts as confirmed when the producer has its offset, as
accepted when the broker confirmed its acknowledgement.  After its time the process stops to
produce, reads what is left, and prints the account as its last line.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from operator import ge
from typing import Any

import uvloop
from kio.schema.fetch.v12 import request as fetch

from sharegroup.client import AdminClient, OffsetSpec, Producer, ShareConsumer, TopicPartition
from sharegroup.client.admin.types import AlterConfig, ConfigResource, NewTopic
from sharegroup.errors import KafkaError
from sharegroup.protocol_enums import ConfigOperation, ResourceType
from sharegroup.wire.batches.records import decode_records
from tests.faults.login import Login, login_of
from tests.faults.raw_connection import RawConnection

WINDOW_SECONDS = 10.0
DRAIN_SECONDS_MAX = 90.0
WORK, PLAIN, GROUP = "soak-work", "soak-plain", "soak-workers"
PARTITIONS = 4
BATCH_RECORDS = 100
RECORD_BYTES = 100
BEHIND_MAX = 10_000
"""Records that may be confirmed and not consumed; then producing waits."""
ADMIN_PAUSE_SECONDS = 0.2
FETCH_BYTES_MAX = 1 << 20
RETRY_SECONDS = 0.5
Work = Callable[[], Awaitable[None]]
CONFIGS = {"segment.bytes": str(32 << 20), "retention.bytes": str(128 << 20)}


class Account:
    """What was confirmed, consumed and accepted, by record number."""

    def __init__(self) -> None:
        self.sent = 0
        self.confirmed = bytearray()
        self.accepted = bytearray()
        self.explained = bytearray()
        """1 where a record was delivered more than once, or its acknowledgement is in doubt."""
        self.accepted_count = 0
        self.confirmed_count = 0

    def next(self) -> int:
        number = self.sent
        self.sent += 1
        for counters in (self.confirmed, self.accepted, self.explained):
            counters.append(0)
        return number

    def confirm(self, number: int) -> None:
        self.confirmed[number] = 1
        self.confirmed_count += 1

    def accept(self, number: int) -> None:
        self.accepted_count += not self.accepted[number]
        self.accepted[number] = min(255, self.accepted[number] + 1)

    def behind(self) -> int:
        """Confirmed records that nobody has consumed yet."""
        return self.confirmed_count - self.accepted_count

    def is_done(self) -> bool:
        """Whether every confirmed record was accepted."""
        return all(map(ge, self.accepted, self.confirmed))

    def outcome(self) -> dict[str, int]:
        """The account at the end."""
        triples = list(zip(self.confirmed, self.accepted, self.explained, strict=True))
        return {
            "sent": self.sent,
            "confirmed": self.confirmed_count,
            "accepted": self.accepted_count,
            "lost": sum(1 for confirmed, accepted, _ in triples if confirmed and not accepted),
            "doubles": sum(1 for _, accepted, _ in triples if accepted > 1),
            "doubles_unexplained": sum(
                1 for _, accepted, explained in triples if accepted > 1 and not explained
            ),
        }


class Honest:
    """All honest clients."""

    def __init__(self, bootstrap: str, login: Login | None = None) -> None:
        self._bootstrap = bootstrap
        self._login = login
        self._options: dict[str, Any] = {"bootstrap_servers": bootstrap}
        if login is not None:
            self._options |= {
                "security_protocol": "SASL_SSL",
                "ssl_cafile": login.authority,
                "sasl_mechanism": "PLAIN",
                "sasl_plain_username": login.user,
                "sasl_plain_password": login.password,
            }
        self._work, self._plain = Account(), Account()
        self._counts: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._positions = dict.fromkeys(range(PARTITIONS), 0)
        self._producing = True

    async def run(self, seconds: float) -> None:
        await self._set_up()
        reading = [self._start(f"consume-{number}", self._consume) for number in range(2)]
        reading += [
            self._start(f"fetch-{partition}", partial(self._fetch, partition))
            for partition in range(PARTITIONS)
        ]
        producing = [
            self._start("produce-work", partial(self._produce, WORK, self._work)),
            self._start("produce-plain", partial(self._produce, PLAIN, self._plain)),
            self._start("admin", self._administrate),
        ]
        await self._report(seconds)
        self._producing = False
        limit = time.monotonic() + DRAIN_SECONDS_MAX
        await asyncio.wait(producing, timeout=DRAIN_SECONDS_MAX)
        while time.monotonic() < limit and not (self._work.is_done() and self._plain.is_done()):
            await asyncio.sleep(0.5)
        for task in (*reading, *producing):
            task.cancel()
        await asyncio.gather(*reading, *producing, return_exceptions=True)
        account = {"work": self._work.outcome(), "plain": self._plain.outcome()}
        print(json.dumps({"account": account, "errors": dict(self._errors)}), flush=True)

    def _start(self, name: str, work: Work) -> asyncio.Task[None]:
        return asyncio.create_task(self._forever(name, work), name=name)

    async def _forever(self, name: str, work: Work) -> None:
        """Run again what failed, as an honest application does, and count the failure."""
        while True:
            try:
                await work()
            except (KafkaError, OSError, TimeoutError) as error:
                self._errors[f"{name}: {type(error).__name__}: {str(error)[:120]}"] += 1
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    async def _report(self, seconds: float) -> None:
        """A line for every window: what was done in it."""
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            before = self._done()
            began = time.monotonic()
            await asyncio.sleep(min(WINDOW_SECONDS, max(0.0, limit - began)))
            done = {key: value - before.get(key, 0) for key, value in self._done().items()}
            print(json.dumps({"seconds": time.monotonic() - began, **done}), flush=True)

    def _done(self) -> dict[str, int]:
        return {
            "accepted": self._work.accepted_count,
            "fetched": self._plain.accepted_count,
            "admin": self._counts["admin"],
            "errors": self._errors.total(),
        }

    async def _set_up(self) -> None:
        async with AdminClient(**self._options) as admin:
            await admin.create_topics(
                [
                    NewTopic(name, num_partitions=PARTITIONS, configs=CONFIGS)
                    for name in (WORK, PLAIN)
                ]
            )
            earliest = AlterConfig("share.auto.offset.reset", "earliest", ConfigOperation.SET)
            group = ConfigResource(ResourceType.GROUP, GROUP)
            await admin.incremental_alter_configs({group: [earliest]})

    async def _produce(self, topic: str, account: Account) -> None:
        async with Producer(**self._options) as producer:
            while self._producing:
                if account.behind() > BEHIND_MAX:
                    await asyncio.sleep(0.005)
                    continue
                sent = []
                for _ in range(BATCH_RECORDS):
                    number = account.next()
                    value = struct.pack(">Q", number).ljust(RECORD_BYTES)
                    sent.append((number, await producer.send(topic, value)))
                for number, delivery in sent:
                    await delivery
                    account.confirm(number)

    async def _consume(self) -> None:
        """One member of the share group, until it is cancelled."""
        account = self._work
        async with ShareConsumer(
            WORK,
            group_id=GROUP,
            share_acknowledgement_mode="explicit",
            **self._options,
        ) as consumer:
            while True:
                taken: dict[TopicPartition, list[int]] = {}
                for record in await consumer.poll(timeout=1.0):
                    assert record.value is not None
                    (number,) = struct.unpack_from(">Q", record.value)
                    taken.setdefault(TopicPartition(WORK, record.partition), []).append(number)
                    if record.delivery_count > 1:
                        account.explained[number] = 1
                    record.accept()
                for where, error in (await consumer.commit()).items():
                    for number in taken.pop(where, ()):
                        if error is None:
                            account.accept(number)
                        else:
                            account.explained[number] = 1
                for numbers in taken.values():  # The commit does not tell: in doubt.
                    for number in numbers:
                        account.explained[number] = 1

    async def _fetch(self, partition: int) -> None:
        """Read one partition by plain Fetch, every record once and in order."""
        port = int(self._bootstrap.rpartition(":")[2])
        connection = await asyncio.to_thread(RawConnection, port, seconds=60.0, login=self._login)
        with connection:
            while True:
                request = fetch_from(partition, self._positions[partition])
                answer = await asyncio.to_thread(connection.ask, request)
                data = answer.responses[0].partitions[0]
                if int(data.error_code):
                    raise ConnectionError(f"fetch: error code {int(data.error_code)}")
                for record in decode_records(data.records or b""):
                    if record.offset < self._positions[partition]:
                        continue  # Of a batch that begins before the position.
                    assert record.value is not None
                    self._plain.accept(struct.unpack_from(">Q", record.value)[0])
                    self._positions[partition] = record.offset + 1

    async def _administrate(self) -> None:
        """Create, describe, list and delete, one request after the other."""
        async with AdminClient(**self._options) as admin:
            number = 0
            while self._producing:
                number += 1
                name = f"soak-{time.monotonic_ns()}"
                ends = {TopicPartition(WORK, at): OffsetSpec.LATEST for at in range(PARTITIONS)}
                for request in (
                    lambda name=name: admin.create_topics([NewTopic(name, num_partitions=2)]),
                    lambda: admin.describe_topics([WORK, PLAIN]),
                    lambda ends=ends: admin.list_offsets(ends),
                    lambda: admin.describe_share_groups([GROUP]),
                    lambda: admin.list_share_groups(),
                    lambda name=name: admin.delete_topics([name]),
                ):
                    await request()
                    self._counts["admin"] += 1
                await asyncio.sleep(ADMIN_PAUSE_SECONDS)


def fetch_from(partition: int, offset: int) -> fetch.FetchRequest:
    """A plain fetch that waits up to 500 ms for a record."""
    wanted = fetch.FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES_MAX
    )
    return fetch.FetchRequest(
        replica_id=-1,
        max_wait=timedelta(milliseconds=500),
        min_bytes=1,
        topics=(fetch.FetchTopic(topic=PLAIN, partitions=(wanted,)),),
        forgotten_topics_data=(),
    )


if __name__ == "__main__":
    uvloop.run(Honest(sys.argv[1], login_of(sys.argv[3:])).run(float(sys.argv[2])))
