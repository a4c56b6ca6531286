"""A broker process that may have few descriptors: it stores, refuses connections, and restarts."""

from __future__ import annotations

import socket
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.attacks.batches import honest_batch
from tests.attacks.descriptor_attacks import create_request
from tests.attacks.target import Target, join_request, produce_request, produced
from tests.faults.raw_connection import RawConnection
from tests.support.processes import ServeProcess

DESCRIPTORS = 160
SEGMENTS = 200
PARTITIONS = 150
CONNECTIONS = 300


def store(connection: RawConnection, topic: str, partition: int = 0) -> None:
    """One batch that fills a segment of 1,024 bytes."""
    request = produce_request(topic, honest_batch(1, bytes(900)), partition)
    assert produced(connection.ask(request)) == 0


@pytest.mark.slow
def test_more_segments_than_descriptors_are_written_and_recovered(tmp_path: Path) -> None:
    """Each segment has two index files, which are not synced before a checkpoint."""
    settings = {"log.segment.bytes": "1024"}
    with ServeProcess(tmp_path / "data", settings=settings, descriptors_max=DESCRIPTORS) as broker:
        target = Target(broker.port)
        target.make_topic("segments")
        target.make_topic("partitions", PARTITIONS)
        with target.connect() as connection:
            for _ in range(SEGMENTS):
                store(connection, "segments")
            for partition in range(PARTITIONS):
                store(connection, "partitions", partition)
        broker.kill9()
        broker.start()
        with target.connect() as connection:
            store(connection, "segments")
            for partition in range(PARTITIONS):
                store(connection, "partitions", partition)
            answer = connection.ask(produce_request("segments", honest_batch(1, b"last")))
            assert answer.responses[0].partition_responses[0].base_offset == SEGMENTS + 1


def test_storage_works_beside_more_connections_than_descriptors(tmp_path: Path) -> None:
    with (
        ServeProcess(tmp_path / "data", descriptors_max=DESCRIPTORS) as broker,
        ExitStack() as all_,
    ):
        target = Target(broker.port)
        honest = all_.enter_context(target.connect())
        for _ in range(CONNECTIONS):
            peer = all_.enter_context(socket.socket())
            peer.settimeout(0.5)
            with suppress(OSError):  # Refused, or the backlog is full.
                peer.connect(("127.0.0.1", broker.port))
        for number in range(20):
            name = f"topic-{number}"
            honest.ask(create_request(name))
            store(honest, name)
            assert int(honest.ask(join_request(name, "member", [name])).error_code) == 0
        assert "event=connection_refused" in broker.log_path.read_text()
