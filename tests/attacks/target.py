"""The broker that is attacked, and the requests that attacks are made of."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from kio.schema.create_topics.v7 import request as create_topics
from kio.schema.fetch.v12 import request as fetch
from kio.schema.list_offsets.v9 import request as list_offsets
from kio.schema.produce.v12 import request as produce
from kio.schema.share_group_heartbeat.v1 import request as heartbeat

from sharegroup.wire.codec.encoder import encode_request
from tests.attacks.batches import honest_batch
from tests.faults.login import Login
from tests.faults.raw_connection import RawConnection

ANSWER_SECONDS_MAX = 60.0
EXISTS_ALREADY = 36
BIG_PARTITIONS = 19_000
MIB = 1 << 20
STUCK_SECONDS = 1.0


@dataclass
class Target:
    """A broker under attack; ``found`` has what an attack saw that must not be."""

    port: int
    data: str = ""
    """The data directory; empty where the attacker runs elsewhere."""
    metrics_port: int = -1
    login: Login | None = None
    """How its connections come in; None at a listener without TLS and users."""
    found: list[str] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)
    """Figures for the report."""

    def connect(self) -> RawConnection:
        """A connection whose answers may be slow."""
        return RawConnection(self.port, seconds=ANSWER_SECONDS_MAX, login=self.login)

    def seen_by(self, login: Login | None) -> Target:
        """The same broker for somebody else; what is found and noted is kept together."""
        return replace(self, login=login)

    @contextmanager
    def connections(self, count: int) -> Iterator[list[RawConnection]]:
        """So many connections; all of them are closed at the end."""
        with ExitStack() as stack:
            yield [stack.enter_context(self.connect()) for _ in range(count)]

    def ask(self, message: Any) -> Any:
        with self.connect() as connection:
            return connection.ask(message)

    def make_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        """Create a topic unless there is one of this name."""
        topic = create_topics.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            assignments=(),
            configs=tuple(
                create_topics.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ),
        )
        request = create_topics.CreateTopicsRequest(topics=(topic,), timeout=timedelta(seconds=30))
        code = int(self.ask(request).topics[0].error_code)
        assert code in (0, EXISTS_ALREADY), f"topic {name}: error code {code}"

    def make_big_topic(self) -> None:
        """The topic ``big`` with nearly as many partitions as a broker may have."""
        self.make_topic("big", BIG_PARTITIONS)

    def make_full_topic(self) -> None:
        """The topic ``full`` with 56 MB, more than one fetch may answer with."""
        self.make_topic("full")
        data = honest_batch(1, bytes(1_000_000))
        with self.connect() as connection:
            for _ in range(56):
                code = produced(connection.ask(produce_request("full", data)))
                assert code == 0, f"filling: error code {code}"

    def note(self, **figures: int) -> None:
        """Keep figures for the report."""
        self.seen |= figures


def frame(message: Any) -> bytes:
    """A whole request frame."""
    return b"".join(encode_request(1, "attacker", message))


def send_what_goes(connection: RawConnection, data: bytes) -> int:
    """Send until all is sent, or nothing was taken for a second: the number of bytes sent."""
    connection.socket.settimeout(STUCK_SECONDS)
    view, sent = memoryview(data), 0
    try:
        while sent < len(data):
            sent += connection.socket.send(view[sent : sent + MIB])
    except (TimeoutError, ConnectionError):
        return sent
    return sent


def answers(connection: RawConnection, count: int, seconds: float = ANSWER_SECONDS_MAX) -> int:
    """Read up to ``count`` answers; how many came before the connection ended."""
    connection.socket.settimeout(seconds)
    for number in range(count):
        try:
            if connection.answer() is None:
                return number
        except TimeoutError:
            return number
    return count


def produce_request(topic: str, records: bytes, partition: int = 0) -> Any:
    data = produce.PartitionProduceData(index=partition, records=records)
    return produce.ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout=timedelta(seconds=30),
        topic_data=(produce.TopicProduceData(name=topic, partition_data=(data,)),),
    )


def produced(response: Any) -> int:
    """The error code of the one partition."""
    return int(response.responses[0].partition_responses[0].error_code)


def fetch_request(
    topic: str,
    partitions: Iterable[int] = (0,),
    *,
    wait_ms: int = 0,
    min_bytes: int = 0,
    bytes_max: int = 2**31 - 1,
    session_epoch: int = -1,
) -> Any:
    """A fetch from the beginning; ``session_epoch`` 0 opens a session."""
    wanted = tuple(
        fetch.FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=bytes_max)
        for number in partitions
    )
    return fetch.FetchRequest(
        replica_id=-1,
        max_wait=timedelta(milliseconds=wait_ms),
        min_bytes=min_bytes,
        max_bytes=bytes_max,
        session_epoch=session_epoch,
        topics=(fetch.FetchTopic(topic=topic, partitions=wanted),),
        forgotten_topics_data=(),
    )


def list_offsets_request(topic: str, partitions: Sequence[int], timestamp: int) -> Any:
    wanted = tuple(
        list_offsets.ListOffsetsPartition(partition_index=number, timestamp=timestamp)
        for number in partitions
    )
    return list_offsets.ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=(list_offsets.ListOffsetsTopic(name=topic, partitions=wanted),),
    )


def join_request(group: str, member: str, topics: Sequence[str], *, epoch: int = 0) -> Any:
    return heartbeat.ShareGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        rack_id=None,
        subscribed_topic_names=tuple(topics),
    )


def wait_until_refused(connection: RawConnection, seconds: float) -> bool:
    """Whether the broker closed the connection within this time."""
    connection.socket.settimeout(seconds)
    try:
        return connection.socket.recv(1, socket.MSG_PEEK) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def pause_until(deadline: float) -> None:
    """Hold the attack until ``deadline`` of the monotonic clock."""
    time.sleep(max(0.0, deadline - time.monotonic()))
