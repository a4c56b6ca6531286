"""One connection against a peer that follows a script, on a real loopback socket."""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.api_versions.v4.response import ApiVersion, ApiVersionsResponse
from kio.schema.metadata.v13.request import MetadataRequest
from kio.schema.metadata.v13.response import MetadataResponse

from sharegroup.client.metrics.client_metrics import ConnectionMetrics
from sharegroup.client.metrics.metric_types import Metrics
from sharegroup.client.net.connection import IN_FLIGHT_MAX, Connection, open_connection
from sharegroup.client.settings.client_config import ClientConfig
from sharegroup.errors import NetworkException, NoAnswer, UnsupportedVersion
from sharegroup.testing import virtual_time
from sharegroup.wire.codec.apis import request_class, response_class
from sharegroup.wire.codec.convert import downgrade
from sharegroup.wire.codec.encoder import encode_response
from tests.support.limits import HANGING_SECONDS

Respond = Callable[[int, int, int], bytes]
"""From key, version and correlation id to the bytes that the peer writes."""

METADATA = 3
METRICS = ConnectionMetrics(Metrics("test"), "test-metrics")
CONFIG = ClientConfig(request_timeout_ms=5_000, response_bytes_max=100_000)


def versions(correlation_id: int, version: int, *ranges: tuple[int, int, int]) -> bytes:
    values: dict[str, Any] = {
        "error_code": 0,
        "api_keys": tuple(
            ApiVersion(api_key=key, min_version=low, max_version=high)  # type: ignore[arg-type]
            for key, low, high in ranges
        ),
        "throttle_time": timedelta(0),
    }
    newest = ApiVersionsResponse(**values)
    return encode_response(correlation_id, downgrade(newest, response_class(18, version)))


def metadata(correlation_id: int, version: int, cluster_id: str) -> bytes:
    values: dict[str, Any] = {
        "throttle_time": timedelta(0),
        "brokers": (),
        "cluster_id": cluster_id,
        "topics": (),
        "error_code": 0,
    }
    newest = MetadataResponse(**values)
    return encode_response(correlation_id, downgrade(newest, response_class(METADATA, version)))


def request() -> MetadataRequest:
    return MetadataRequest(
        topics=(), allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )


def play(
    respond: Respond,
    scenario: Callable[[Connection], Awaitable[None]],
    *,
    ranges: tuple[tuple[int, int, int], ...] = ((18, 0, 4), (METADATA, 0, 13)),
    config: ClientConfig = CONFIG,
) -> list[tuple[int, int]]:
    """Run a scenario against the peer; the (key, version) pairs that the peer saw."""
    seen: list[tuple[int, int]] = []
    hung_up = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                length = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(length)
                key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
                correlation_id = int.from_bytes(frame[4:8], "big")
                seen.append((key, version))
                if key == 18 and version <= ranges[0][2]:
                    writer.write(versions(correlation_id, version, *ranges))
                else:
                    writer.write(respond(key, version, correlation_id))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
            hung_up.set()

    async def run() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            connection = await open_connection(("127.0.0.1", port), config, metrics=METRICS)
            try:
                await scenario(connection)
            finally:
                connection.close()
                await hung_up.wait()

    asyncio.run(run())
    return seen


def test_the_newest_common_version_is_spoken_both_ways() -> None:
    async def scenario(connection: Connection) -> None:
        answer = await connection.request(request())
        assert type(answer) is MetadataResponse
        assert answer.cluster_id == "c"

    seen = play(
        lambda key, version, correlation_id: metadata(correlation_id, version, "c"),
        scenario,
        ranges=((18, 0, 4), (METADATA, 0, 9)),
    )
    assert seen[-1] == (METADATA, 9)


def test_answers_find_their_requests() -> None:
    async def scenario(connection: Connection) -> None:
        answers = await asyncio.gather(*(connection.request(request()) for _ in range(20)))
        numbers = [int(answer.cluster_id) for answer in answers]
        assert numbers == list(range(numbers[0], numbers[0] + 20))

    play(lambda key, version, number: metadata(number, version, str(number)), scenario)


def test_more_requests_than_slots_wait_their_turn() -> None:
    async def scenario(connection: Connection) -> None:
        answers = await asyncio.gather(*(connection.request(request()) for _ in range(200)))
        assert len(answers) == 200

    play(lambda key, version, number: metadata(number, version, ""), scenario)


def test_an_api_that_is_not_served_is_named() -> None:
    async def scenario(connection: Connection) -> None:
        with pytest.raises(UnsupportedVersion, match=r"does not support ShareFetch \(api key 78\)"):
            connection.version_of(78)

    play(lambda *_: b"", scenario)


def test_versions_without_overlap_are_named() -> None:
    async def scenario(connection: Connection) -> None:
        with pytest.raises(UnsupportedVersion, match=r"supports Metadata versions 14 to 20"):
            connection.version_of(METADATA)

    play(lambda *_: b"", scenario, ranges=((18, 0, 4), (METADATA, 14, 20)))


def test_api_versions_request_falls_back_to_version_0() -> None:
    # It answers a newer request in version 0, with error 35 (KIP-511).
    def respond(key: int, version: int, correlation_id: int) -> bytes:
        assert key == 18
        refused: dict[str, Any] = {"error_code": 35, "api_keys": ()}
        return encode_response(correlation_id, response_class(18, 0)(**refused))

    async def scenario(connection: Connection) -> None:
        assert connection.version_of(18) == 0

    seen = play(respond, scenario, ranges=((18, 0, 0), (METADATA, 0, 13)))
    assert [version for _, version in seen][-1] == 0


@pytest.mark.parametrize(
    "lie",
    [
        lambda number: b"\x7f\xff\xff\xff",
        lambda number: b"\x00\x00\x00\x01x",
        lambda number: metadata(number + 1, 13, ""),
        lambda number: (9).to_bytes(4, "big") + number.to_bytes(4, "big") + b"\xff" * 5,
        lambda number: (
            (5 + len(metadata(number, 13, "")) - 4).to_bytes(4, "big")
            + metadata(number, 13, "")[4:]
            + b"extra"
        ),
    ],
    ids=["length too large", "length too small", "unknown request", "garbage", "trailing bytes"],
)
def test_malformed_response_closes_the_connection(
    lie: Callable[[int], bytes],
) -> None:
    async def scenario(connection: Connection) -> None:
        with pytest.raises(NetworkException):
            await connection.request(request())
        assert not connection.is_open
        with pytest.raises(NetworkException):
            await connection.request(request())

    play(lambda key, version, number: lie(number), scenario)


def test_request_timeout_closes_the_connection_for_all_its_requests() -> None:
    async def scenario(connection: Connection) -> None:
        patient = asyncio.ensure_future(connection.request(request()))
        with pytest.raises(NoAnswer, match="no response to Metadata within 30 ms"):
            await connection.request(request(), timeout_ms=30)
        with pytest.raises(NetworkException, match="no response to Metadata within 30 ms"):
            await patient

    play(lambda *_: b"", scenario)


def test_request_without_a_caller_keeps_its_slot_until_it_is_answered_or_its_time_is_up() -> None:
    async def scenario(connection: Connection) -> None:
        for _ in range(IN_FLIGHT_MAX):
            cancelled = asyncio.ensure_future(connection.request(request(), timeout_ms=300))
            await asyncio.sleep(0)
            cancelled.cancel()
            await asyncio.wait([cancelled])
        waiting = asyncio.ensure_future(connection.request(request()))
        with pytest.raises(NetworkException, match="no response to Metadata within 300 ms"):
            await waiting

    seen: list[int] = []
    play(lambda key, version, number: seen.append(number) or b"", scenario)
    assert len(seen) == IN_FLIGHT_MAX


def test_answer_without_a_caller_frees_its_slot() -> None:
    async def scenario(connection: Connection) -> None:
        for _ in range(3 * IN_FLIGHT_MAX):
            cancelled = asyncio.ensure_future(connection.request(request()))
            await asyncio.sleep(0)
            cancelled.cancel()
            await asyncio.wait([cancelled])
            await connection.request(request())

    play(lambda key, version, number: metadata(number, version, ""), scenario)


def test_refused_connection_is_a_network_exception() -> None:
    async def run() -> None:
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        with pytest.raises(NetworkException, match=f"broker 127.0.0.1:{port}"):
            await open_connection(("127.0.0.1", port), CONFIG, metrics=METRICS)

    asyncio.run(run())


def test_the_request_class_of_version_0_needs_no_fields() -> None:
    assert request_class(18, 0)() is not None


def test_write_to_a_connection_that_is_just_closing_fails_as_a_network_error() -> None:
    """uvloop raises a RuntimeError then, before it calls ``connection_lost``."""

    class Closing(asyncio.Transport):
        def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
            pass

        def writelines(self, list_of_data: Any) -> None:
            raise RuntimeError("unable to perform operation; the handler is closed")

        def can_write_eof(self) -> bool:
            return True

        def write_eof(self) -> None:
            raise RuntimeError("unable to perform operation; the handler is closed")

        def abort(self) -> None:
            pass

    connection = Connection(("broker", 9092), CONFIG, METRICS)
    connection.connection_made(Closing())
    with pytest.raises(NetworkException, match="broker:9092: unable to perform operation"):
        connection.send_only(request())
    assert not connection.is_open

    finished = Connection(("broker", 9092), CONFIG, METRICS)
    finished.connection_made(Closing())
    asyncio.run(finished.finish())
    assert not finished.is_open


class Full(asyncio.Transport):
    """A socket of a peer that reads nothing."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def abort(self) -> None:
        pass


@pytest.mark.parametrize("callers", [1, 3])
def test_a_peer_that_reads_nothing_is_not_waited_for_without_end(callers: int) -> None:
    """Nobody waits for an answer with acks=0, so no timeout of a request closes the connection."""

    async def run() -> None:
        connection = Connection(("broker", 9092), CONFIG, METRICS)
        connection.connection_made(Full())
        connection.pause_writing()
        waiting = [asyncio.create_task(connection.drained()) for _ in range(callers)]
        await asyncio.wait(waiting)
        assert asyncio.get_running_loop().time() == 5.0
        assert isinstance(waiting[0].exception(), NoAnswer)
        assert "broker:9092: it did not read the requests for 5000 ms" in str(
            waiting[0].exception()
        )
        assert not connection.is_open
        with pytest.raises(NetworkException, match="did not read the requests"):
            connection.send_only(request())

    virtual_time.run(run())


def test_a_peer_that_reads_again_in_time_gets_the_next_request() -> None:
    async def run() -> None:
        connection = Connection(("broker", 9092), CONFIG, METRICS)
        connection.connection_made(Full())
        connection.pause_writing()
        waiting = asyncio.create_task(connection.drained())
        await asyncio.sleep(4.9)
        connection.resume_writing()
        await waiting
        assert connection.is_open

    virtual_time.run(run())


def test_an_idle_connection_is_closed_and_a_used_one_is_not() -> None:
    async def scenario(connection: Connection) -> None:
        started_at = time.monotonic()
        last_used_at = started_at
        while (now := time.monotonic()) - started_at < 0.4:
            last_used_at = now
            await connection.request(request())
            assert connection.is_open
        async with asyncio.timeout(HANGING_SECONDS):
            while connection.is_open:
                await asyncio.sleep(0.01)
        assert time.monotonic() - last_used_at >= 0.2

    config = replace(CONFIG, connections_max_idle_ms=200)
    play(lambda key, version, number: metadata(number, version, ""), scenario, config=config)


def test_a_connection_that_waits_for_an_answer_is_not_idle() -> None:
    async def scenario(connection: Connection) -> None:
        waiting = asyncio.create_task(connection.request(request()))
        await asyncio.wait([waiting], timeout=0.3)
        assert connection.is_open
        connection.close()
        with pytest.raises(NetworkException):
            await waiting

    play(lambda *_: b"", scenario, config=replace(CONFIG, connections_max_idle_ms=50))


def test_the_buffers_of_the_system_have_the_configured_sizes() -> None:
    async def scenario(connection: Connection) -> None:
        assert connection._transport is not None
        opened = connection._transport.get_extra_info("socket")
        # Linux counts its own bookkeeping in: it doubles the value.
        assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) in (70_000, 140_000)
        assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) in (50_000, 100_000)

    config = replace(CONFIG, send_buffer_bytes=70_000, receive_buffer_bytes=50_000)
    play(lambda *_: b"", scenario, config=config)
