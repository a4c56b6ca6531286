"""Frames that lie, against a broker process: rows H1 to H4, H6 and H13 of our threat list.

What must hold after each of them: the peer got an error or lost its connection, the log has
one line with the peer's address for each connection that was closed, everybody else is served
within a second, memory did not grow, and the process is the same one.  `untouched` checks all
of this around every test.
"""

from __future__ import annotations

import re
import select
import struct
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.fetch.v12.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.share_acknowledge.v2.request import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from kio.static.primitive import i8

from sharegroup.protocol_enums import ConfigOperation, ResourceType
from sharegroup.wire.codec.apis import APIS, Api, request_class
from sharegroup.wire.codec.encoder import encode, encode_request
from sharegroup.wire.codec.headers import encode_request_header
from sharegroup.wire.codec.schema import message_fields
from tests.faults.raw_connection import Bystander, RawConnection
from tests.faults.tokens import Kind, full_message, joined, lies_about, tokens_of, uvarint
from tests.support.processes import ServeProcess, readable, rss_bytes

REQUEST_BYTES_MAX = 104_857_600
CONNECTIONS_MAX = 250
SETTINGS = {
    "sharegroup.share.state.apis.enable": "true",  # Or 83 to 87 are no requests here.
    "sharegroup.frame.progress.timeout.ms": "1000",
    "max.connections": str(CONNECTIONS_MAX),
    "socket.request.max.bytes": str(REQUEST_BYTES_MAX),
}
BYSTANDER_SECONDS_MAX = 3.0  # A third of one at rest; another process of tests runs beside.
GROWTH_BYTES_MAX = 96 * 1024 * 1024  # Less than one frame that is only announced.
GONE_SECONDS_MAX = 15.0  # Four at rest: a thousand answers, and a second without progress.
PIPELINED = 10_000

VERSIONS = [(api, version) for api in APIS.values() for version in sorted({api.oldest, api.newest})]
NAMES = [f"{api.name}-v{version}" for api, version in VERSIONS]
every_request = pytest.mark.parametrize(("api", "version"), VERSIONS, ids=NAMES)

HELLO = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
_PEER = re.compile(r"event=(?:bad_request|connection_closed|connection_refused) peer=(\S+)")


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    folder: Path = tmp_path_factory.mktemp("hostile")
    with ServeProcess(folder / "data", settings=SETTINGS) as broker:
        for api, version in VERSIONS:  # Loads every module, so that memory can be compared.
            with RawConnection(broker.port) as peer:
                peer.send(framed(api, version))
                peer.answer()
        with RawConnection(broker.port) as peer:
            answer = peer.ask(log_everything())
        assert [int(response.error_code) for response in answer.responses] == [0]
        yield broker


def log_everything() -> IncrementalAlterConfigsRequest:
    """Let the broker log each closed connection; by default it logs one in a second."""
    change = AlterableConfig(
        name="sharegroup.broker.server.connection",
        config_operation=i8(ConfigOperation.SET),
        value="DEBUG",
    )
    loggers = AlterConfigsResource(
        resource_type=i8(ResourceType.BROKER_LOGGER), resource_name="1", configs=(change,)
    )
    return IncrementalAlterConfigsRequest(resources=(loggers,), validate_only=False)


class Closings:
    """Which peers a test expects to find in the log, as often as each lost a connection."""

    def __init__(self, broker: ServeProcess) -> None:
        self.broker = broker
        self.port = broker.port
        self.expected: Counter[str] = Counter()

    def refuses(self, data: bytes, why: str) -> None:
        """Send on a connection of its own; the broker must close it without an answer."""
        with RawConnection(self.port) as peer:
            peer.send(data)
            assert peer.answer() is None, f"{why}: answered, expected a closed connection"
            self.expected[peer.address] += 1

    def answers(self, data: bytes, why: str) -> bytes:
        """Send on a connection of its own; the broker must answer."""
        with RawConnection(self.port) as peer:
            peer.send(data)
            answer = peer.answer()
            assert answer is not None, f"{why}: closed, expected an answer"
            return answer

    def survives(self, data: bytes) -> None:
        """Either will do."""
        with RawConnection(self.port) as peer:
            peer.send(data)
            if peer.answer() is None:
                self.expected[peer.address] += 1


@pytest.fixture
def closings(serving: ServeProcess) -> Iterator[Closings]:
    with untouched(serving) as closings:
        yield closings


@contextmanager
def untouched(broker: ServeProcess) -> Iterator[Closings]:
    pid, memory = broker.pid, rss_bytes(broker.pid)
    log_before = broker.log_path.stat().st_size
    closings = Closings(broker)
    with Bystander(broker.port, HELLO) as bystander:
        yield closings
    assert broker.running
    assert broker.pid == pid
    with RawConnection(broker.port) as peer:
        assert peer.ask(HELLO).error_code == 0
    assert bystander.slowest < BYSTANDER_SECONDS_MAX
    growth = rss_bytes(pid) - memory
    assert growth < GROWTH_BYTES_MAX, f"memory grew by {growth} bytes"
    assert peers_in_log(broker, log_before) == closings.expected


def peers_in_log(broker: ServeProcess, position: int) -> Counter[str]:
    with open(broker.log_path, "rb") as file:
        file.seek(position)
        text = file.read().decode()
    assert "Traceback" not in text, text[:2_000]
    return Counter(_PEER.findall(text))


def header(api: Api, version: int, client_id: str | None = "raw") -> bytes:
    return encode_request_header(api.key, version, 1, client_id)


def untagged(api: Api, version: int) -> bytes:
    """The body of a full message whose tags are all at their defaults."""
    cls = request_class(api.key, version)
    message = full_message(cls)
    fields = {
        field.name: getattr(message, field.name) if field.tag is None else field.default
        for field in message_fields(cls)
    }
    return encode(cls(**fields))


def framed(api: Api, version: int, body: bytes | None = None) -> bytes:
    if body is None:
        body = encode(full_message(request_class(api.key, version)))
    frame = header(api, version) + body
    return struct.pack(">i", len(frame)) + frame


# H1: the length of the frame


@every_request
def test_a_frame_length_that_cannot_be_closes_the_connection(
    api: Api, version: int, closings: Closings
) -> None:
    rest = framed(api, version)[4:]
    for length in (-1, -(2**31), 0, 7, 9, REQUEST_BYTES_MAX + 1, 2**31 - 1):
        closings.refuses(struct.pack(">i", length) + rest, f"length {length}")


# H2: frames that never end


def test_frames_without_progress_close_their_connections(closings: Closings) -> None:
    """One connection for each request type: a length of 100 MiB, a header, then silence."""
    announced = struct.pack(">i", REQUEST_BYTES_MAX)
    with ExitStack() as stack:
        peers = []
        for api, version in VERSIONS:
            peer = stack.enter_context(RawConnection(closings.port, seconds=GONE_SECONDS_MAX))
            peer.send(announced + header(api, version))
            peers.append(peer)
        for peer in peers:
            assert peer.answer() is None
            closings.expected[peer.address] += 1


def test_trickling_frames_close_their_connections(closings: Closings) -> None:
    """A byte now and then does not prolong the timeout."""
    with ExitStack() as stack:
        trickling = []
        for api, version in VERSIONS[::4]:
            peer = stack.enter_context(RawConnection(closings.port))
            peer.send(struct.pack(">i", REQUEST_BYTES_MAX) + header(api, version))
            trickling.append(peer)
        limit = time.monotonic() + GONE_SECONDS_MAX
        while trickling:
            assert time.monotonic() < limit, f"{len(trickling)} peers still trickle"
            gone = readable([peer.socket for peer in trickling], 0.05)
            for peer in [peer for peer in trickling if peer.socket in gone]:
                assert peer.answer() is None
                closings.expected[peer.address] += 1
                trickling.remove(peer)
            for peer in trickling:
                peer.send(b"\0")


# H3, H4: lengths, counts and tags inside of the message


@every_request
def test_malformed_message_closes_the_connection(
    api: Api, version: int, closings: Closings
) -> None:
    tokens = tokens_of(full_message(request_class(api.key, version)))
    assert joined(tokens) == encode(full_message(request_class(api.key, version)))
    tried = 0
    for index, token in enumerate(tokens):
        before, after = joined(tokens[:index]), joined(tokens[index + 1 :])
        for name, lie in lies_about(token, len(after)):
            closings.refuses(
                framed(api, version, before + lie + after), f"{token.path}: {token.kind} {name}"
            )
            tried += 1
    kinds = {token.kind for token in tokens} - {Kind.CONTENT}
    assert tried >= 3 * len(kinds)


@every_request
def test_tags_out_of_order_close_the_connection(api: Api, version: int, closings: Closings) -> None:
    if version < api.flexible:
        return
    body = untagged(api, version)
    assert body.endswith(b"\0")
    twice, unsorted = (b"\x64\0\x64\0", b"\x65\0\x64\0")
    for name, tags in (("twice", twice), ("unsorted", unsorted)):
        closings.refuses(framed(api, version, body[:-1] + b"\2" + tags), f"tags {name}")


@every_request
def test_unknown_tags_are_skipped(api: Api, version: int, closings: Closings) -> None:
    """As a newer client may send them, and more than any client would."""
    if version < api.flexible:
        return
    for count in (1, 10_000):
        body = untagged(api, version)[:-1] + unknown_tags(count)
        closings.answers(framed(api, version, body), f"{count} unknown tags")


def test_a_megabyte_of_unknown_tags_is_skipped(closings: Closings) -> None:
    api = APIS[78]
    body = untagged(api, api.newest)[:-1] + unknown_tags(300_000)
    closings.answers(framed(api, api.newest, body), "300,000 unknown tags")


def unknown_tags(count: int) -> bytes:
    """Empty ones, above all that any message knows: our own tags begin at 10000."""
    return uvarint(count) + b"".join(uvarint(20_000 + number) + b"\0" for number in range(count))


def test_too_many_elements_in_one_message_close_the_connection(closings: Closings) -> None:
    """A few bytes an element on the wire, a kilobyte and its share of a second in the broker."""
    closings.refuses(framed(APIS[1], 12, fetch_body(30_000)), "30,001 elements")
    closings.answers(framed(APIS[1], 12, fetch_body(29_999)), "30,000 elements")


def test_a_million_elements_close_the_connection(closings: Closings) -> None:
    names = struct.pack(">i", 1_000_000) + b"\0\0" * 1_000_000
    closings.refuses(framed(APIS[3], 0, names), "1,000,000 topics")


def test_acknowledge_types_of_200_000_records_are_not_too_many(closings: Closings) -> None:
    """A group may lock a million records; their types are a byte each."""
    batch = AcknowledgementBatch(
        first_offset=0, last_offset=199_999, acknowledge_types=(1,) * 200_000
    )
    partition = AcknowledgePartition(partition_index=0, acknowledgement_batches=(batch,))
    topic = AcknowledgeTopic(topic_id=UUID(int=1), partitions=(partition,))
    request = ShareAcknowledgeRequest(
        group_id="g", member_id="m", share_session_epoch=1, topics=(topic,)
    )
    closings.answers(framed(APIS[79], 2, encode(request)), "200,000 types")


def fetch_body(partitions: int) -> bytes:
    """A fetch of one topic that does not exist."""
    wanted = tuple(
        FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1)
        for number in range(partitions)
    )
    return encode(
        FetchRequest(
            replica_id=-1,
            max_wait=timedelta(0),
            min_bytes=0,
            topics=(FetchTopic(topic="none", partitions=wanted),),
            forgotten_topics_data=(),
        )
    )


# H6: what stands before the message


@pytest.mark.parametrize("key", [-1, 4, 17, 999, 2**15 - 1])
def test_an_unknown_request_type_closes_the_connection(key: int, closings: Closings) -> None:
    frame = struct.pack(">hhih", key, 0, 1, -1)
    closings.refuses(struct.pack(">i", len(frame)) + frame, f"api key {key}")


@every_request
def test_a_version_that_is_not_served_closes_the_connection(
    api: Api, version: int, closings: Closings
) -> None:
    if api.name == "ApiVersions":
        return
    body = framed(api, version)[4:]
    for wrong in (-1, api.oldest - 1, api.newest + 1, 2**15 - 1):
        frame = body[:2] + struct.pack(">h", wrong) + body[4:]
        closings.refuses(struct.pack(">i", len(frame)) + frame, f"version {wrong}")


def test_a_version_of_api_versions_that_is_not_served_is_answered_with_version_0(
    closings: Closings,
) -> None:
    frame = struct.pack(">hhih", 18, 99, 1234, -1) + b"\0whatever a newer one has"
    answer = closings.answers(struct.pack(">i", len(frame)) + frame, "ApiVersions 99")
    correlation_id, error_code, count = struct.unpack_from(">ihi", answer)
    assert (correlation_id, error_code) == (1234, 35)
    assert len(answer) == 10 + 6 * count


@every_request
def test_the_header_of_another_version_is_survived(
    api: Api, version: int, closings: Closings
) -> None:
    """Tagged fields where the version has none, and none where it has."""
    body = encode(full_message(request_class(api.key, version)))
    plain = struct.pack(">hhih", api.key, version, 1, 3) + b"raw"
    frame = plain + (b"" if version >= api.flexible else b"\0") + body
    closings.survives(struct.pack(">i", len(frame)) + frame)


@every_request
@pytest.mark.parametrize("client_id", ["", None])
def test_a_client_without_a_name_is_served(
    api: Api, version: int, client_id: str | None, closings: Closings
) -> None:
    frame = header(api, version, client_id) + untagged(api, version)
    closings.answers(struct.pack(">i", len(frame)) + frame, f"client id {client_id!r}")


@every_request
def test_malformed_header_closes_the_connection(api: Api, version: int, closings: Closings) -> None:
    body = encode(full_message(request_class(api.key, version)))
    for name, client_id in (
        ("minus two", struct.pack(">h", -2)),
        ("longer than the frame", struct.pack(">h", 2**15 - 1)),
        ("no UTF-8", b"\0\1\xff"),
    ):
        frame = struct.pack(">hhi", api.key, version, 1) + client_id + body
        closings.refuses(struct.pack(">i", len(frame)) + frame, f"client id {name}")
    if version >= api.flexible:
        frame = struct.pack(">hhih", api.key, version, 1, -1) + b"\xff\xff\xff\xff\x0f" + body
        closings.refuses(struct.pack(">i", len(frame)) + frame, "4,294,967,295 header tags")


@every_request
def test_bytes_after_the_message_are_ignored(api: Api, version: int, closings: Closings) -> None:
    body = encode(full_message(request_class(api.key, version)))
    closings.survives(framed(api, version, body + b"\xff" * 1_000))


# H13: many requests, many connections


def test_a_thousand_requests_sent_at_once_are_all_answered_in_order(closings: Closings) -> None:
    """More than may wait for their answers at a time, in one piece and with nothing behind it."""
    requests = (b"".join(encode_request(number, "raw", HELLO)) for number in range(1_000))
    with RawConnection(closings.port) as peer:
        peer.send(b"".join(requests))
        for number in range(1_000):
            answer = peer.answer()
            assert answer is not None
            assert struct.unpack_from(">i", answer) == (number,)


def test_malformed_frame_after_many_requests_closes_the_connection(closings: Closings) -> None:
    """It is found in its turn, in a call that did not come from the socket."""
    requests = b"".join(encode_request(1, "raw", HELLO)) * 1_000
    with RawConnection(closings.port) as peer:
        peer.send(requests + struct.pack(">i", -1))
        closings.expected[peer.address] += 1
        answers = 0
        while peer.answer() is not None:
            answers += 1
        assert answers == 1_000


@pytest.mark.slow
def test_a_peer_that_never_reads_is_not_read_from_and_loses_its_connection(
    closings: Closings,
) -> None:
    """10,000 requests with answers of some 20 KB each would be 200 MB of answers."""
    broker_configs = DescribeConfigsResource(
        resource_type=4, resource_name="1", configuration_keys=None
    )
    request = b"".join(
        encode_request(
            1,
            "never-reads",
            DescribeConfigsRequest(
                resources=(broker_configs,), include_synonyms=True, include_documentation=True
            ),
        )
    )
    before = rss_bytes(closings.broker.pid)
    most = 0
    with RawConnection(closings.port) as peer:
        closings.expected[peer.address] += 1
        peer.send(request * PIPELINED)
        hung_up = select.poll()
        hung_up.register(peer.socket, 0)  # Only POLLHUP and POLLERR: nothing is ever read.
        limit = time.monotonic() + GONE_SECONDS_MAX
        while not hung_up.poll(50):
            assert time.monotonic() < limit, "the connection is still open"
            most = max(most, rss_bytes(closings.broker.pid) - before)
    assert most < GROWTH_BYTES_MAX, f"memory grew by {most} bytes"


def test_two_hundred_connections_are_served_and_one_above_the_limit_is_refused(
    closings: Closings,
) -> None:
    with ExitStack() as stack:
        peers = [stack.enter_context(RawConnection(closings.port)) for _ in range(200)]
        for peer in peers:
            assert peer.ask(HELLO).error_code == 0
        # The bystander has one.
        while len(peers) < CONNECTIONS_MAX - 1:
            peers.append(stack.enter_context(RawConnection(closings.port)))
            assert peers[-1].ask(HELLO).error_code == 0
        refused = stack.enter_context(RawConnection(closings.port))
        refused.send(b"".join(encode_request(1, "raw", HELLO)))
        assert refused.answer() is None
        closings.expected[refused.address] += 1
