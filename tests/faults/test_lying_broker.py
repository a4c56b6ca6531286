"""Our clients against a broker that lies (H21): no crash, no hang, no bloat, and a way back.

Every lie is told to a client with short timeouts.  Within seconds the client must have given up
with a KafkaError that names what came (or have ignored the lie), its memory must not have grown
with numbers that were only claimed, and when the broker tells the truth again the same client
must work again.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from crc32c import crc32c

from sharegroup.client import AdminClient, Producer, ShareConsumer, TopicPartition
from sharegroup.errors import (
    KafkaError,
    RequestTimedOut,
    UnsupportedSaslMechanism,
)
from tests.faults.lying_broker import (
    API_VERSIONS,
    HEARTBEAT,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    TOPIC_ID,
    VALUE,
    Lie,
    LyingBroker,
    Request,
    acquired,
    api_versions,
    fetched,
    frame,
    header,
    honest_but,
    made,
    record_batch,
)

SECONDS_MAX = 60.0
GROWTH_BYTES_MAX = 80 * 1024 * 1024
"""The lying broker runs in this process, too: a response with 100,000 ranges takes 63 to 70 MB in
both together."""
INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1
FOREVER = timedelta(milliseconds=INT_MAX)

LIMITS: dict[str, Any] = {
    "request_timeout_ms": 600,
    "connect_timeout_ms": 1_000,
    "default_api_timeout_ms": 3_000,
    "retry_backoff_ms": 10,
    "retry_backoff_max_ms": 50,
}
WHERE = TopicPartition("t", 0)


@contextmanager
def bounded() -> Iterator[None]:
    """What happens inside takes little time and little memory."""
    Path("/proc/self/clear_refs").write_text("5")  # The peak begins anew.
    before, started_at = memory("VmRSS"), time.monotonic()
    yield
    assert time.monotonic() - started_at < SECONDS_MAX
    grown = memory("VmHWM") - before
    assert grown < GROWTH_BYTES_MAX, f"{grown} bytes more than before"


def memory(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise AssertionError(field)


def raw(payload: bytes) -> Lie:
    """An honest header, and then these bytes."""
    return lambda request, _: frame(header(request) + payload)


def with_length(length: int) -> Lie:
    return lambda request, _: frame(header(request) + b"...", length)


def altered(**values: Any) -> Lie:
    """The honest answer with other values in some fields."""
    return lambda _, honest: honest_but(honest, **values)


def silence(request: Request, honest: Any) -> None:
    return None


def three_thousand_strangers(_: Request, honest: Any) -> Any:
    (topic,) = honest.topics
    return honest_but(
        honest,
        topics=(*(honest_but(topic, name=f"stranger-{n}") for n in range(3_000)), topic),
    )


def partitions_anywhere(_: Request, honest: Any) -> Any:
    """Partitions with indexes that cannot be, one of them twice, and without the right one."""
    (topic,) = honest.topics
    (partition,) = topic.partitions
    indexes = (-1, INT_MAX, INT_MAX, 7)
    lies = tuple(honest_but(partition, partition_index=index) for index in indexes)
    return honest_but(honest, topics=(honest_but(topic, partitions=lies),))


def leader(**values: Any) -> Lie:
    """The one node is somewhere else."""

    def lie(_: Request, honest: Any) -> Any:
        (node,) = honest.brokers
        return honest_but(honest, brokers=(honest_but(node, **values),))

    return lie


def topic_error(code: int) -> Lie:
    def lie(_: Request, honest: Any) -> Any:
        (topic,) = honest.topics
        return honest_but(honest, topics=(honest_but(topic, error_code=code),))

    return lie


def offered(*ranges: tuple[int, int, int]) -> Lie:
    return lambda request, _: api_versions(request, ranges)


HUGE_COUNT = b"\xff\xff\xff\xff\x0f"  # 2**32 - 1 as a varint: an array of 2**32 - 2 elements.
THROTTLE = bytes(4)

ADMIN_LIES: dict[str, tuple[int, Lie, str]] = {
    "length of two GiB": (METADATA, with_length(INT_MAX), "frame length 2147483647: expected"),
    "negative length": (METADATA, with_length(-1), "frame length -1: expected"),
    "length of nothing": (METADATA, with_length(0), "frame length 0: expected"),
    "length of a TLS alert": (
        API_VERSIONS,
        lambda _, __: bytes.fromhex("15030300020228"),
        "the listener uses TLS: try security_protocol=SSL",
    ),
    "four billion brokers": (
        METADATA,
        raw(THROTTLE + HUGE_COUNT + bytes(20)),
        "MetadataResponse.brokers at byte",
    ),
    "four billion topics": (
        METADATA,
        raw(THROTTLE + b"\x01\x00\x00\x00\x00\x01" + HUGE_COUNT + bytes(20)),
        "MetadataResponse.topics at byte",
    ),
    "four billion tags": (
        METADATA,
        lambda request, _: frame(header(request)[:4] + HUGE_COUNT + bytes(20)),
        "ResponseHeader.tags at byte",
    ),
    "end in the middle": (
        METADATA,
        lambda request, _: frame(header(request) + THROTTLE),
        "the message ends",
    ),
    "more after the end": (
        METADATA,
        raw(THROTTLE + b"\x01\x00\x00\x00\x00\x01\x01\x00\x00\x00" + b"more"),
        "bytes follow its end",
    ),
    "another correlation id": (
        METADATA,
        lambda request, _: frame(b"\x7f\xff\xff\xff" + bytes(30)),
        "a response to request 2147483647, which was never sent",
    ),
    "negative correlation id": (
        METADATA,
        lambda request, _: frame(b"\xff" * 4 + bytes(30)),
        "a response to request -1, which was never sent",
    ),
    "no answer": (METADATA, silence, "no response to Metadata within 600 ms"),
    "no answer to the first request": (
        API_VERSIONS,
        silence,
        "no response to ApiVersions within 600 ms",
    ),
    "offers nothing": (API_VERSIONS, offered((18, 0, 4)), "does not support Metadata"),
    "offers versions that nobody knows": (
        API_VERSIONS,
        offered((18, 0, 4), (METADATA, 32_000, 32_767)),
        "supports Metadata versions 32000 to 32767; this client supports 0 to 13",
    ),
    "offers a range upside down": (
        API_VERSIONS,
        offered((18, 0, 4), (METADATA, 9, 3)),
        "supports Metadata versions 9 to 3",
    ),
    "offers negative versions": (
        API_VERSIONS,
        offered((18, 0, 4), (METADATA, -9, -3), (-1, 0, 0), (32_767, 0, 0)),
        "supports Metadata versions -9 to -3",
    ),
    "refuses its first request": (API_VERSIONS, altered(error_code=58), "refused ApiVersions"),
    "refuses its first request with an unknown code": (
        API_VERSIONS,
        altered(error_code=9_999),
        "error code 9999",
    ),
    "more before the login than there can be": (
        API_VERSIONS,
        lambda request, _: frame(header(request), 600_000),
        "frame length 600000: expected 4 to 524288 bytes",
    ),
    "topic with an unknown error": (METADATA, topic_error(9_999), "error code 9999: topic 't'"),
    "partitions anywhere": (METADATA, partitions_anywhere, "topic 't' partition 0"),
    "leader at port 0": (METADATA, leader(port=0), "127.0.0.1:0"),
    "leader at a negative port": (METADATA, leader(port=-5), "127.0.0.1:-5"),
    "leader at a port too high": (METADATA, leader(port=70_000), "127.0.0.1:70000"),
    "leader at no host": (METADATA, leader(host=""), "broker :"),
    "leader at a host with a NUL": (METADATA, leader(host="a\0b"), "broker 'a\\x00b'"),
    "leader at a host with a long label": (METADATA, leader(host="a" * 70 + ".b"), "aaaa"),
    "leader where nobody listens": (METADATA, leader(port=1), "127.0.0.1:1"),
    "offsets of nothing": (LIST_OFFSETS, altered(topics=()), "does not contain it"),
}


@asynccontextmanager
async def admin_of(broker: LyingBroker, **options: Any) -> AsyncIterator[AdminClient]:
    async with AdminClient(
        bootstrap_servers=broker.bootstrap_servers, **LIMITS, **options
    ) as admin:
        yield admin


async def first_offset(admin: AdminClient) -> int:
    """An honest broker says 12."""
    result = (await admin.list_offsets({WHERE: 0}))[WHERE]
    if isinstance(result, KafkaError):
        raise result
    return result.offset


async def until_the_truth_is_told(admin: AdminClient) -> None:
    """The client works again; on a busy machine perhaps not within its own short timeouts."""
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            try:
                assert await first_offset(admin) == 12
            except RequestTimedOut:
                continue
            return


@pytest.mark.slow
@pytest.mark.parametrize("name", ADMIN_LIES)
def test_admin_client_reports_a_false_response_and_recovers(name: str) -> None:
    key, lie, text = ADMIN_LIES[name]

    async def run() -> str:
        async with LyingBroker() as broker, admin_of(broker) as admin:
            broker.lies[key] = lie
            with bounded(), pytest.raises(KafkaError) as raised:
                await first_offset(admin)
            broker.lies.clear()
            if key == API_VERSIONS:
                # What a connection was offered holds as long as it does.
                broker.hang_up()
                while admin.metrics()["admin-client-metrics"]["connection-count"]:
                    await asyncio.sleep(0)
            await until_the_truth_is_told(admin)
        return str(raised.value)

    assert text in asyncio.run(run())


@pytest.mark.parametrize(
    ("key", "lie"),
    [
        (METADATA, altered(throttle_time=FOREVER)),
        (LIST_OFFSETS, altered(throttle_time=FOREVER)),
        (METADATA, altered(cluster_id="c" * 10_000_000)),
        (METADATA, altered(controller_id=INT_MAX, error_code=9_999)),
        (METADATA, three_thousand_strangers),
    ],
    ids=["throttle", "throttle of offsets", "long name", "stray error", "strangers"],
)
def test_harmless_false_responses_have_no_effect(key: int, lie: Lie) -> None:
    async def run() -> None:
        async with LyingBroker() as broker, admin_of(broker) as admin:
            broker.lies[key] = lie
            with bounded():
                assert await first_offset(admin) == 12

    asyncio.run(run())


def test_answers_byte_by_byte_are_answers() -> None:
    async def run() -> None:
        async with LyingBroker() as broker, admin_of(broker) as admin:
            broker.trickle = dict.fromkeys((API_VERSIONS, METADATA, LIST_OFFSETS), 0.0)
            with bounded():
                assert await first_offset(admin) == 12

    asyncio.run(run())


@pytest.mark.slow
def test_endless_response_times_out() -> None:
    """A byte now and then is no progress: the request's timeout applies."""

    async def run() -> None:
        async with LyingBroker() as broker, admin_of(broker) as admin:
            broker.trickle[METADATA] = 0.05
            broker.lies[METADATA] = raw(bytes(10_000))
            with (
                bounded(),
                pytest.raises(RequestTimedOut, match="no response to Metadata within 600 ms"),
            ):
                await first_offset(admin)

    asyncio.run(run())


# A login.

LOGIN: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_plain_username": "user",
    "sasl_plain_password": "pencil",
}
BEARER: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_oauth_token_provider": lambda: "token",
}
PLAIN = {**LOGIN, "sasl_mechanism": "PLAIN"}


def says(*messages: bytes, **values: Any) -> Lie:
    """One challenge after the other, the last one for ever."""
    left = list(messages)

    def lie(request: Request, honest: Any) -> Any:
        message = left.pop(0) if len(left) > 1 else left[0]
        if message.startswith(b"r="):  # Go on with the client's own nonce.
            nonce = request.message.auth_bytes.partition(b",r=")[2]
            message = b"r=" + nonce + message[2:]
        return honest_but(honest, auth_bytes=message, **values)

    return lie


LOGIN_LIES: dict[str, tuple[dict[str, Any], Lie, str]] = {
    "success without a proof": (LOGIN, says(b""), "expected r=...,s=...,i=..."),
    "two billion iterations": (
        LOGIN,
        says(b"rx,s=AAAA,i=2147483648".replace(b"rx", b"r=x")),
        "asks for '2147483648' iterations; expected 4096 to 1000000",
    ),
    "one iteration": (LOGIN, says(b"r=x,s=AAAA,i=1"), "asks for '1' iterations"),
    "a signature of nobody": (
        LOGIN,
        says(b"r=x,s=AAAA,i=4096", b"v=AAAA"),
        "the server's signature is wrong",
    ),
    "no signature": (LOGIN, says(b"r=x,s=AAAA,i=4096", b""), "expected v=... from the server"),
    "an error that is none": (LOGIN, says(b"x", error_message="\x1b[2Jhacked"), "expected r="),
    "a talk without an end": (BEARER, says(b"{}"), "the server refused the token"),
    "a refusal that is no JSON": (BEARER, says(b"[" * 100_000), "without a status"),
    "words where none belong": (PLAIN, says(b"welcome"), "expected an empty response"),
    "an unknown error": (PLAIN, altered(error_code=9_999, error_message=None), "error code 9999"),
    "a refusal": (PLAIN, altered(error_code=58, error_message="no"), "SASL PLAIN: no"),
}


@pytest.mark.parametrize("name", LOGIN_LIES)
def test_authentication_is_refused_without_proof_of_the_server(name: str) -> None:
    options, lie, text = LOGIN_LIES[name]

    async def run() -> str:
        async with LyingBroker() as broker, admin_of(broker, **options) as admin:
            broker.lies[SASL_AUTHENTICATE] = lie
            with bounded(), pytest.raises(KafkaError) as raised:
                await first_offset(admin)
            assert not broker.seen[METADATA], "nothing is said to a broker that is not trusted"
        return str(raised.value)

    told = asyncio.run(run())
    assert text in told
    assert "pencil" not in told


def test_error_for_an_unsupported_mechanism_names_the_offered_ones() -> None:
    async def run() -> None:
        async with LyingBroker() as broker, admin_of(broker, **PLAIN) as admin:
            broker.lies[SASL_HANDSHAKE] = altered(error_code=33, mechanisms=("GSSAPI", "KERBEROS"))
            with (
                bounded(),
                pytest.raises(
                    UnsupportedSaslMechanism, match="SASL PLAIN: the broker offers GSSAPI, KERBEROS"
                ),
            ):
                await first_offset(admin)

    asyncio.run(run())


@pytest.mark.parametrize("milliseconds", [-1, -(10**12), 1, INT_MAX, 10**14])
def test_lifetime_of_a_login_that_cannot_be_is_no_harm(milliseconds: int) -> None:
    async def run() -> int:
        async with LyingBroker() as broker, admin_of(broker, **PLAIN) as admin:
            lifetime = timedelta(milliseconds=milliseconds)
            broker.lies[SASL_AUTHENTICATE] = altered(session_lifetime=lifetime)
            with bounded():
                for _ in range(50):
                    assert await first_offset(admin) == 12
            return broker.seen[SASL_AUTHENTICATE]

    assert asyncio.run(run()) == 1  # A lifetime of 1 ms does not make us log in all the time.


@pytest.mark.slow
def test_lifetime_beyond_all_time_is_a_message_that_cannot_be_read() -> None:
    async def run() -> None:
        async with LyingBroker() as broker, admin_of(broker, **PLAIN) as admin:
            broker.lies[SASL_AUTHENTICATE] = raw(
                b"\0\0" + b"\0" + b"\x01" + LONG_MAX.to_bytes(8, "big") + b"\0"
            )
            with bounded(), pytest.raises(KafkaError, match=r"session_lifetime.*time out of range"):
                await first_offset(admin)

    asyncio.run(run())


# A producer.

PRODUCER_LIES: dict[str, tuple[int, Lie, str]] = {
    "no producer id": (INIT_PRODUCER_ID, altered(producer_id=-1), "producer id -1"),
    "negative epoch": (INIT_PRODUCER_ID, altered(producer_epoch=-7), "epoch -7"),
    "unknown error for an id": (INIT_PRODUCER_ID, altered(error_code=9_999), "error code 9999"),
    "answer about nothing": (PRODUCE, altered(responses=()), "does not contain topic 't'"),
    "silence": (PRODUCE, silence, "no response to Produce within 600 ms"),
    "four billion topics": (PRODUCE, raw(HUGE_COUNT + bytes(20)), "ProduceResponse.responses"),
}


def produced_with(**values: Any) -> Lie:
    """The one batch's answer with other values."""

    def lie(_: Request, honest: Any) -> Any:
        (topic,) = honest.responses
        (partition,) = topic.partition_responses
        topic = honest_but(topic, partition_responses=(honest_but(partition, **values),))
        return honest_but(honest, responses=(topic,))

    return lie


PRODUCER_LIES |= {
    "answer about another partition": (
        PRODUCE,
        produced_with(index=INT_MAX),
        "does not contain topic 't' partition 0",
    ),
    "unknown error": (PRODUCE, produced_with(error_code=9_999), "error code 9999"),
}


@pytest.mark.parametrize("name", PRODUCER_LIES)
def test_producer_reports_a_false_response_and_recovers(name: str) -> None:
    key, lie, text = PRODUCER_LIES[name]
    limits = {**LIMITS, "delivery_timeout_ms": 500, "linger_ms": 0}

    async def run() -> str:
        async with (
            LyingBroker() as broker,
            Producer(bootstrap_servers=broker.bootstrap_servers, **limits) as producer,
        ):
            broker.lies[key] = lie
            with bounded(), pytest.raises(KafkaError) as raised:
                await producer.send_and_wait("t", b"v")
            broker.lies.clear()
            assert (await producer.send_and_wait("t", b"v")).offset == 11
        return str(raised.value)

    assert text in asyncio.run(run())


@pytest.mark.parametrize(
    ("values", "offset"),
    [
        ({"base_offset": -9}, -1),
        ({"base_offset": LONG_MAX}, LONG_MAX),
        ({"log_start_offset": -9}, 11),
    ],
    ids=["negative", "largest", "log start"],
)
def test_impossible_offset_is_returned_or_unknown(values: dict[str, int], offset: int) -> None:
    async def run() -> int:
        async with LyingBroker() as broker:
            broker.lies[PRODUCE] = produced_with(**values)
            async with Producer(bootstrap_servers=broker.bootstrap_servers, **LIMITS) as producer:
                with bounded():
                    return (await producer.send_and_wait("t", b"v")).offset

    assert asyncio.run(run()) == offset


# A share consumer.

BATCH = record_batch(0)


def bomb() -> bytes:
    """A batch of one record: 256 MiB of zeros, in 256 KiB of gzip."""
    batch = record_batch(0, b"", codec=1)
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = b"".join(packer.compress(bytes(1 << 20)) for _ in range(256)) + packer.flush()
    return resealed(batch[:61] + packed)


def resealed(batch: bytearray | bytes) -> bytes:
    """The batch with a length and a checksum that fit its bytes."""
    sealed = bytearray(batch)
    sealed[8:12] = (len(sealed) - 12).to_bytes(4, "big")
    sealed[17:21] = crc32c(bytes(sealed[21:])).to_bytes(4, "big")
    return bytes(sealed)


def with_count(count: int) -> bytes:
    """A batch of one record that claims to have this many."""
    batch = bytearray(BATCH)
    batch[57:61] = count.to_bytes(4, "big")
    return resealed(batch)


def flipped() -> bytes:
    batch = bytearray(BATCH)
    batch[-1] ^= 0xFF
    return bytes(batch)


def claimed_length(length: int) -> bytes:
    return BATCH[:8] + length.to_bytes(4, "big", signed=True) + BATCH[12:]


def gives(*ranges: tuple[int, int, int], records: bytes | None = BATCH, **values: Any) -> Lie:
    """Acquired (first, last, delivery count), and record batches."""
    return lambda _, __: fetched(
        tuple(acquired(first, last, count) for first, last, count in ranges), records, **values
    )


FETCH_LIES: dict[str, Lie] = {
    "all offsets there are": gives((0, LONG_MAX - 1, 1)),
    "all offsets and no record": gives((0, LONG_MAX - 1, 1), records=None),
    "more offsets than anybody locks": gives((0, 2**31 - 1, 1), (2**31, 2**31, 1)),
    "the largest offset": gives((LONG_MAX, LONG_MAX, 1)),
    "last before first": gives((5, 0, 1)),
    "negative offsets": gives((-(2**63), -1, 1)),
    "overlapping ranges": gives((0, 5, 1), (3, 9, 1), (0, 0, 1)),
    "ranges in no order": gives((9, 9, 1), (0, 0, 1), (5, 5, 1)),
    "a range for each of a hundred thousand offsets": gives(*((n, n, 1) for n in range(100_000))),
    "delivery counts below 0": gives((0, 0, -32_768)),
    "the largest delivery count": gives((0, 0, 32_767)),
    "ranges of records that did not come": gives((10, 20, 1)),
    "no lock": gives((0, 0, 1), lock_ms=0),
    "a lock in the past": gives((0, 0, 1), lock_ms=-INT_MAX),
    "a lock for ever": gives((0, 0, 1), lock_ms=INT_MAX),
    "garbage for records": gives((0, 0, 1), records=b"\xaa" * 500),
    "a flipped bit": gives((0, 0, 1), records=flipped()),
    "half a batch": gives((0, 0, 1), records=BATCH[:40]),
    "a batch of two GiB": gives((0, 0, 1), records=claimed_length(INT_MAX)),
    "a batch of negative length": gives((0, 0, 1), records=claimed_length(-1)),
    "two billion records": gives((0, 0, 1), records=with_count(INT_MAX)),
    "minus one record": gives((0, 0, 1), records=with_count(2**32 - 1)),
    "a batch at another offset": gives((0, 0, 1), records=record_batch(2**62)),
    "another partition": gives((0, 0, 1), partition=INT_MAX),
    "a negative partition": gives((0, 0, 1), partition=-5),
    "a topic that nobody knows": lambda _, honest: honest_but(
        honest, responses=(honest_but(honest.responses[0], topic_id=UUID(int=99)),)
    ),
    "no partition at all": lambda _, honest: honest_but(honest, responses=()),
    "unknown error": lambda _, honest: honest_but(honest, error_code=9_999),
    "throttled for 24 days": lambda _, honest: honest_but(honest, throttle_time=FOREVER),
    "silence": silence,
    "four billion topics": raw(THROTTLE + b"\0\0\0" + bytes(4) + HUGE_COUNT + bytes(20)),
}

HEARTBEAT_LIES: dict[str, Lie] = {
    "heartbeats without a pause": altered(heartbeat_interval=timedelta(0)),
    "heartbeats before the last one": altered(heartbeat_interval=-FOREVER),
    "a heartbeat in 24 days": altered(heartbeat_interval=FOREVER),
    "a negative epoch": altered(member_epoch=-5),
    "the largest epoch": altered(member_epoch=INT_MAX),
    "another member's name": altered(member_id="x" * 1_000_000),
    "partitions of topics that nobody knows": altered(
        assignment=made(
            HEARTBEAT,
            "Assignment",
            topic_partitions=(
                made(HEARTBEAT, "TopicPartitions", topic_id=UUID(int=99), partitions=(0, 1)),
            ),
        )
    ),
    "a hundred thousand partitions": altered(
        assignment=made(
            HEARTBEAT,
            "Assignment",
            topic_partitions=(
                made(HEARTBEAT, "TopicPartitions", topic_id=TOPIC_ID, partitions=range(100_000)),
            ),
        )
    ),
    "partitions that cannot be": altered(
        assignment=made(
            HEARTBEAT,
            "Assignment",
            topic_partitions=(
                made(
                    HEARTBEAT, "TopicPartitions", topic_id=TOPIC_ID, partitions=(-1, INT_MAX, 0, 0)
                ),
            ),
        )
    ),
    "silence": silence,
    "unknown error": altered(error_code=9_999, assignment=None),
}
CONSUMER_LIES = {f"fetch: {name}": (SHARE_FETCH, lie) for name, lie in FETCH_LIES.items()}
CONSUMER_LIES |= {f"heartbeat: {name}": (HEARTBEAT, lie) for name, lie in HEARTBEAT_LIES.items()}


UNREADABLE = "UnreadableDelivery: topic 't' partition 0 offsets 0 to 0 cannot be read"
TOLD: dict[str, str] = {
    "fetch: garbage for records": "CorruptMessage: topic 't' partition 0",
    "fetch: a flipped bit": UNREADABLE,
    "fetch: a batch of negative length": "CorruptMessage: topic 't' partition 0",
    "fetch: two billion records": UNREADABLE,
    "fetch: minus one record": UNREADABLE,
    "fetch: unknown error": "UnknownErrorCode: error code 9999",
    "heartbeat: unknown error": "UnknownErrorCode: error code 9999: group 'g' member",
}
"""What the application is told, and has to be; the rest is logged, and passes without its help."""

THE_END = {"heartbeat: unknown error"}
"""A coordinator that refuses a member for good ends its membership, as in Kafka."""


async def lied_to(consumer: ShareConsumer, seconds: float) -> list[str]:
    """What the consumer makes of it: errors by text, or values of records, or nothing in time."""
    told: list[str] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until and not told:
        try:
            told += [repr(record.value) for record in await consumer.poll(timeout=0.2)]
        except KafkaError as error:
            told.append(f"{type(error).__name__}: {error}")
    return told


async def until_the_truth(consumer: ShareConsumer) -> None:
    """Poll until a true record comes; what is left of the lies may be told before."""
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            try:
                if VALUE in [record.value for record in await consumer.poll(timeout=1)]:
                    return
            except KafkaError:
                await asyncio.sleep(0)


@pytest.mark.slow
@pytest.mark.parametrize("name", CONSUMER_LIES)
def test_share_consumer_recovers_from_a_false_response(name: str) -> None:
    key, lie = CONSUMER_LIES[name]

    async def run() -> list[str]:
        async with LyingBroker() as broker:
            options = {**LIMITS, "group_id": "g", "decompressed_bytes_max": 1 << 20}
            consumer = ShareConsumer("t", bootstrap_servers=broker.bootstrap_servers, **options)
            broker.lies[key] = lie
            with bounded():
                await consumer.start()
                told = await lied_to(consumer, SECONDS_MAX / 2 if name in TOLD else 0.5)
            broker.lies.clear()
            if name not in THE_END:
                await until_the_truth(consumer)
            with bounded():
                await consumer.close()
        return told

    told = asyncio.run(run())
    if name in TOLD:
        assert told, f"nothing was told of the lie {name!r}"
        assert told[0].startswith(TOLD[name])
    else:
        assert set(told) <= {repr(VALUE)}


def test_bomb_of_256_mebibytes_is_not_unpacked() -> None:
    packed = bomb()  # It is made here, where its size is not counted.

    async def run() -> list[str]:
        async with LyingBroker() as broker:
            options = {**LIMITS, "group_id": "g", "decompressed_bytes_max": 1 << 20}
            async with ShareConsumer(
                "t", bootstrap_servers=broker.bootstrap_servers, **options
            ) as member:
                broker.lies[SHARE_FETCH] = gives((0, 0, 1), records=packed)
                with bounded():
                    return await lied_to(member, SECONDS_MAX / 2)

    (told,) = asyncio.run(run())
    assert told.startswith(UNREADABLE)
    assert "a record has 0 bytes" in told, "it is read as a stream, and its first byte is a lie"


@pytest.mark.parametrize(
    ("lie", "outcome"),
    [
        (altered(responses=()), "InvalidRecordState: share session of group 'g'"),
        (altered(error_code=9_999), "UnknownErrorCode: error code 9999: share session"),
        (altered(throttle_time=FOREVER), "None"),
        (altered(acquisition_lock_timeout=-FOREVER), "None"),
        (silence, "NoAnswer: broker 127.0.0.1"),
        (
            raw(THROTTLE + b"\0\0\0" + bytes(4) + HUGE_COUNT + bytes(20)),
            "NetworkException: broker 127.0.0.1",
        ),
    ],
    ids=["about nothing", "unknown error", "throttle", "lock", "silence", "four billion topics"],
)
def test_commit_ends_for_every_false_response_to_acknowledgements(lie: Lie, outcome: str) -> None:
    async def run() -> None:
        async with LyingBroker() as broker:
            options = {**LIMITS, "group_id": "g"}
            consumer = ShareConsumer("t", bootstrap_servers=broker.bootstrap_servers, **options)
            await until_the_truth(consumer)
            broker.lies[SHARE_ACKNOWLEDGE] = lie
            with bounded():
                error = (await consumer.commit(timeout=2))[WHERE]
            told = "None" if error is None else f"{type(error).__name__}: {error}"
            assert told.startswith(outcome)
            broker.lies.clear()
            await until_the_truth(consumer)
            with bounded():
                await consumer.close()

    asyncio.run(run())
