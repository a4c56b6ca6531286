"""A client obeys throttle times: what it sends, and when, on virtual time and without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.heartbeat.v4.response import HeartbeatResponse

from sharegroup.client.metrics.client_metrics import ConnectionMetrics
from sharegroup.client.metrics.metric_types import Metrics
from sharegroup.client.net.connection import Connection, Versions
from sharegroup.client.settings.client_config import ClientConfig
from sharegroup.errors import NetworkException, RequestTimedOut
from sharegroup.testing import virtual_time
from sharegroup.wire.codec.encoder import encode_response

METRICS = ConnectionMetrics(Metrics("test"), "test-metrics")
HEARTBEAT = 12


class Broker(asyncio.Transport):
    """Answers each request at once, with the next throttle time; notes when requests came."""

    def __init__(self, *throttle_ms: int) -> None:
        super().__init__()
        self._throttle_ms = list(throttle_ms)
        self.came_at: list[float] = []
        self.connection: Connection | None = None

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def writelines(self, list_of_data: Any) -> None:
        frame = b"".join(list_of_data)
        correlation_id = int.from_bytes(frame[8:12], "big")
        loop = asyncio.get_running_loop()
        self.came_at.append(round(loop.time(), 3))
        throttle_ms = self._throttle_ms.pop(0) if self._throttle_ms else 0
        answer = HeartbeatResponse(
            throttle_time=timedelta(milliseconds=throttle_ms),  # type: ignore[arg-type]
            error_code=0,  # type: ignore[arg-type]
        )
        assert self.connection is not None
        loop.call_soon(self.connection.data_received, encode_response(correlation_id, answer))

    def abort(self) -> None:
        pass


def connected(broker: Broker, **options: Any) -> Connection:
    connection = Connection(("broker", 9092), ClientConfig(**options), METRICS)
    connection._transport = broker  # No socket: nothing sizes its buffers.
    connection._versions = {HEARTBEAT: Versions(0, 4)}
    broker.connection = connection
    return connection


def heartbeat() -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id="g",  # type: ignore[arg-type]
        generation_id=1,  # type: ignore[arg-type]
        member_id="m",
        group_instance_id=None,
    )


def run(main: Coroutine[Any, Any, None]) -> None:
    virtual_time.run(main)


def test_next_request_is_sent_when_the_throttle_time_is_over() -> None:
    async def main() -> None:
        broker = Broker(1_500, 0, 200)
        connection = connected(broker)
        for _ in range(4):
            await connection.request(heartbeat())
        assert broker.came_at == [0, 1.5, 1.5, 1.7]

    run(main())


def test_requests_of_many_tasks_wait_and_keep_their_order() -> None:
    async def main() -> None:
        broker = Broker(1_000)
        connection = connected(broker)
        await connection.request(heartbeat())
        order: list[int] = []

        async def send(number: int) -> None:
            await connection.request(heartbeat())
            order.append(number)

        tasks = [asyncio.create_task(send(number)) for number in range(20)]
        await asyncio.sleep(1.0)  # At this moment the pause ends, and others come.
        tasks += [asyncio.create_task(send(number)) for number in range(20, 25)]
        await asyncio.gather(*tasks)
        assert order == list(range(25))
        assert broker.came_at == [0] + [1.0] * 25

    run(main())


def test_answer_of_an_earlier_request_does_not_shorten_the_pause() -> None:
    async def main() -> None:
        broker = Broker(2_000, 100)
        connection = connected(broker)
        await asyncio.gather(*(connection.request(heartbeat()) for _ in range(2)))
        await connection.request(heartbeat())
        assert broker.came_at == [0, 0, 2.0]

    run(main())


def test_request_does_not_wait_longer_than_its_time_out_and_the_connection_stays_open() -> None:
    async def main() -> None:
        broker = Broker(50_000)
        connection = connected(broker, request_timeout_ms=30_000)
        await connection.request(heartbeat())
        with pytest.raises(RequestTimedOut, match="over a quota"):
            await connection.request(heartbeat())
        assert connection.is_open
        await connection.request(heartbeat())
        assert broker.came_at == [0, 50.0]

    run(main())


def test_requests_without_an_answer_wait_too() -> None:
    async def main() -> None:
        broker = Broker(700)
        connection = connected(broker)
        await connection.request(heartbeat())
        await connection.drained()
        assert asyncio.get_running_loop().time() == 0.7

    run(main())


def test_requests_that_wait_fail_when_the_connection_ends() -> None:
    async def main() -> None:
        broker = Broker(5_000)
        connection = connected(broker)
        await connection.request(heartbeat())
        waiting = asyncio.create_task(connection.request(heartbeat()))
        await asyncio.sleep(1)
        connection.close()
        with pytest.raises(NetworkException, match="closed by this client"):
            await waiting
        assert asyncio.get_running_loop().time() == 1

    run(main())


def test_throttle_time_of_days_is_no_honest_one() -> None:
    async def main() -> None:
        broker = Broker(2**31 - 1)
        connection = connected(broker)
        for _ in range(2):
            await connection.request(heartbeat())
        assert broker.came_at == [0, 0]

    run(main())
