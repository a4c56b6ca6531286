"""The parts of the simulation by themselves: time, processes, connections, the storage thread."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from sharegroup.testing.power_loss import PowerLossDisk
from sharegroup.testing.virtual_time import Stuck
from tests.sim.disk import DiskSpeed, ProcessDisk, StorageThread
from tests.sim.loop import Process, SimLoop
from tests.sim.network import Connection, Network


class Silence:
    """A tap that hears nothing."""

    def opened(self, connection: Connection) -> None: ...

    def arrived(self, connection: Connection, data: bytes) -> None: ...

    def written(self, connection: Connection, data: bytes) -> None: ...

    def closed(self, connection: Connection) -> None: ...


class Heard(asyncio.Protocol):
    """What came over a connection."""

    def __init__(self) -> None:
        self.data = b""
        self.is_lost = False
        self.transport: Any = None
        self.paused = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True

    def pause_writing(self) -> None:
        self.paused += 1

    def resume_writing(self) -> None:
        self.paused -= 1


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    made = SimLoop()
    made.network = network = Network(made, random.Random(1), Silence())
    yield made
    made.close()
    network.close()


def run(loop: SimLoop, main: Coroutine[Any, Any, None]) -> None:
    loop.run_until_complete(loop.start(Process("test"), main))


async def connected(loop: SimLoop) -> tuple[Heard, Heard, Connection]:
    """Both ends of a connection, the client's first."""
    server = Heard()
    listener = await loop.create_server(lambda: server, "127.0.0.1", 9092)
    await listener.start_serving()
    _, client = await loop.create_connection(Heard, "127.0.0.1", 9092)
    await asyncio.sleep(0.01)
    network: Any = loop.network
    return client, server, network.connections[0]


def test_time_jumps_to_the_next_timer_and_stuck_is_raised_without_one(loop: SimLoop) -> None:
    async def main() -> None:
        await asyncio.sleep(3600)
        assert loop.time() == 3600
        await loop.create_future()

    with pytest.raises(Stuck, match="no timer is set"):
        run(loop, main())


def test_paused_process_continues_in_order_after_it_is_resumed(loop: SimLoop) -> None:
    other, done = Process("other"), []

    async def tick() -> None:
        for number in range(3):
            await asyncio.sleep(1)
            done.append((number, loop.time()))

    async def main() -> None:
        loop.start(other, tick())
        await asyncio.sleep(1.5)
        loop.pause(other)
        await asyncio.sleep(10)
        assert done == [(0, 1.0)]
        loop.resume(other)
        await asyncio.sleep(2)

    run(loop, main())
    assert done == [(0, 1.0), (1, 11.5), (2, 12.5)]


def test_an_ended_process_never_runs_again(loop: SimLoop) -> None:
    other, done = Process("other"), []

    async def tick() -> None:
        await asyncio.sleep(1)
        done.append("too late")

    async def main() -> None:
        loop.start(other, tick())
        await asyncio.sleep(0.5)
        loop.end(other)
        await asyncio.sleep(5)

    run(loop, main())
    assert done == []
    loop.bury([other])


def test_bytes_arrive_in_order_for_any_delays_and_pieces(loop: SimLoop) -> None:
    async def main() -> None:
        client, server, _ = await connected(loop)
        network: Any = loop.network
        network.weather.pieces, network.weather.delay_us = True, (100, 900_000)
        for number in range(50):
            client.transport.write(b"%02d" % number)
        await asyncio.sleep(60)
        assert server.data == b"".join(b"%02d" % number for number in range(50))

    run(loop, main())


def test_bytes_on_a_broken_link_arrive_when_it_is_restored(loop: SimLoop) -> None:
    async def main() -> None:
        client, server, connection = await connected(loop)
        network: Any = loop.network
        network.take_down(2_000_000, [connection])
        client.transport.write(b"late")
        await asyncio.sleep(1.9)
        assert server.data == b""
        await asyncio.sleep(0.2)
        assert server.data == b"late"

    run(loop, main())


def test_only_one_end_notices_a_half_open_connection(loop: SimLoop) -> None:
    async def main() -> None:
        client, server, connection = await connected(loop)
        network: Any = loop.network
        network.half_open(connection, client_knows=True)
        await asyncio.sleep(60)
        assert (client.is_lost, server.is_lost) == (True, False)
        network.heal()
        await asyncio.sleep(1)
        assert server.is_lost

    run(loop, main())


def test_a_reader_that_stops_reading_stops_the_writer(loop: SimLoop) -> None:
    async def main() -> None:
        client, server, _ = await connected(loop)
        client.transport.pause_reading()
        server.transport.write(bytes(20_000))
        assert server.paused == 1
        await asyncio.sleep(60)
        assert client.data == b""
        client.transport.resume_reading()
        await asyncio.sleep(1)
        assert (len(client.data), server.paused) == (20_000, 0)

    run(loop, main())


def test_blocking_work_takes_virtual_time_and_ends_with_its_process(loop: SimLoop) -> None:
    async def main() -> None:
        process = Process("storage")
        speed, chance = DiskSpeed((1_000_000, 1_000_000)), random.Random(1)
        files = ProcessDisk(PowerLossDisk(1), process, loop, chance, speed)
        thread = StorageThread(files, process, loop, chance)
        first, second = thread.submit(lambda: 1), thread.submit(lambda: 2)
        await asyncio.sleep(1.5)
        assert (first.result(), second.done()) == (1, False)
        loop.end(process)
        await asyncio.sleep(5)
        assert not second.done()
        with pytest.raises(OSError, match="the process has ended"):
            files.exists("/top")

    run(loop, main())
