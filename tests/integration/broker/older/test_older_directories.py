"""A broker of today starts on the directories of earlier versions, with all that they had."""

from __future__ import annotations

import asyncio
import tarfile
from pathlib import Path

import pytest

from sharegroup.client import (
    AdminClient,
    ConfigResource,
    Consumer,
    Producer,
    ResourceType,
    ShareConsumer,
)
from sharegroup.client.records import TopicPartition
from sharegroup.testing import run_broker
from tests.integration.broker.older.filling import (
    ACCEPTED,
    COMMITTED,
    COMPACTED,
    GROUP,
    IN_TRANSACTIONS,
    MOVED,
    PLAIN,
    REJECTED,
    SHARE_GROUP,
    VALUES,
    WRITER,
)
from tests.integration.cli.piping import sharegroup

ARCHIVES = sorted(Path(__file__).parent.glob("*.tar.xz"))
WITHOUT_TRANSACTIONS = ("2026-11-21", "2026-11-26")
"""These versions refused transactions."""


@pytest.fixture(params=ARCHIVES, ids=[path.name.removesuffix(".tar.xz") for path in ARCHIVES])
def archive(request: pytest.FixtureRequest) -> Path:
    return request.param


@pytest.fixture
def data(archive: Path, tmp_path: Path) -> Path:
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path, filter="data")
    return tmp_path / "data"


async def values_of(bootstrap: str, topic: str, partition: int) -> list[bytes | None]:
    place = TopicPartition(topic, partition)
    async with Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign([place])
        consumer.seek(place, 0)
        end = (await consumer.end_offsets([place]))[place]
        values: list[bytes | None] = []
        while await consumer.position(place) < end:
            values += [record.value for record in await consumer.poll(100)]
        return values


async def look(bootstrap: str, *, transactions: bool) -> None:
    assert await values_of(bootstrap, PLAIN, 0) == VALUES
    assert await values_of(bootstrap, COMPACTED, 0) == [b"old", b"new"]
    async with AdminClient(bootstrap_servers=bootstrap) as admin:
        resources = [
            ConfigResource(ResourceType.TOPIC, COMPACTED),
            ConfigResource(ResourceType.GROUP, SHARE_GROUP),
        ]
        topic, group = (await admin.describe_configs(resources)).values()
        assert topic["cleanup.policy"].value == "compact"
        assert group["share.record.lock.duration.ms"].value == "15000"
    place = TopicPartition(PLAIN, 0)
    async with Consumer(bootstrap_servers=bootstrap, group_id=GROUP) as consumer:
        assert (await consumer.committed([place]))[place].offset == COMMITTED
    options = {"bootstrap_servers": bootstrap, "group_id": SHARE_GROUP}
    async with ShareConsumer(PLAIN, **options) as consumer:
        delivered: list[bytes | None] = []
        while len(delivered) < len(VALUES) - ACCEPTED - REJECTED:
            delivered += [record.value for record in await consumer.poll(1000)]
        assert delivered == VALUES[ACCEPTED + REJECTED :]
    if transactions:
        moved = [await values_of(bootstrap, MOVED, partition) for partition in (0, 1)]
        assert sorted(value or b"" for values in moved for value in values) == IN_TRANSACTIONS
        # The next producer with the id fences the one that wrote the directory.
        options = {"bootstrap_servers": bootstrap, "transactional_id": WRITER}
        async with Producer(**options) as producer, producer.transaction():
            await producer.send(MOVED, b"later", partition=0)
        assert (await values_of(bootstrap, MOVED, 0))[-1] == b"later"


def test_broker_has_what_an_earlier_version_wrote(archive: Path, data: Path) -> None:
    transactions = not archive.name.startswith(WITHOUT_TRANSACTIONS)
    with run_broker(data=str(data)) as broker:
        asyncio.run(look(broker.bootstrap_servers, transactions=transactions))
        asyncio.run(values_of(broker.bootstrap_servers, PLAIN, 0))


def test_after_a_start_check_has_nothing_to_say_about_it(data: Path) -> None:
    """The start adds the files of metadata that the oldest version did not write."""
    with run_broker(data=str(data)):
        pass
    done = sharegroup("data", "check", "--data", str(data))
    assert (done.code, done.out) == (0, b"No problems were found.\n")


def test_there_is_a_directory_of_a_stopped_and_of_a_killed_broker() -> None:
    assert {path.name.removesuffix(".tar.xz").rpartition("-")[2] for path in ARCHIVES} == {
        *("stopped", "killed")
    }
