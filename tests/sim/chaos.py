"""The faults of a run, one after the other, as its plan permits."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from tests.sim.machine import Machine
from tests.sim.network import Connection, Network
from tests.sim.swarm import Plan

RESTART_TRIES_MAX = 50
NEVER = 1 << 60
"""More operations than the disk ever does."""

DISK_FAULTS = {"disk_full", "sync_fails", "power_at_operation"}
"""With these a broker may not be able to write down what it has in memory."""


class Chaos:
    """Does something bad from time to time until it is told to stop; then mends everything."""

    def __init__(
        self,
        plan: Plan,
        machine: Machine,
        network: Network,
        note: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._machine = machine
        self._network = network
        self._note = note
        self.problems: list[str] = []
        self.is_over = False
        self._chance = random.Random(f"chaos {plan.seed}")
        self._faults = {
            "kill": self._kill,
            "power": self._cut_power,
            "power_at_operation": self._cut_power_at_operation,
            "restart": self._restart,
            "pause": self._pause,
            "clock_jump": self._jump_clock,
            "disk_slow": self._slow_disk,
            "disk_full": self._fill_disk,
            "sync_fails": self._fail_sync,
            "network_slow": self._slow_network,
            "network_pieces": self._cut_in_pieces,
            "network_down": self._take_network_down,
            "network_reset": self._reset,
            "half_open": self._half_open,
        }

    async def run(self) -> None:
        """One fault after the other; the last one comes to its end."""
        while not self.is_over:
            await asyncio.sleep(self._chance.uniform(0, 2 * self._plan.fault_pause_s))
            if not self._plan.faults:
                continue
            name = self._chance.choice(self._plan.faults)
            self._note(f"fault {name}")
            await self._faults[name]()
            await self._keep_up()

    async def mend(self) -> None:
        """No more faults: the disk works, the network works, a broker is up."""
        self._note("mended")
        self._machine.disk.make_room()
        self._machine.disk.fail_next_sync(0)
        self._machine.disk_speed.sync_us = (50, 400)
        if not self._machine.disk.has_power:
            self._machine.cut_power()
        self._machine.disk.cut_power_after(NEVER)
        self._machine.resume()
        self._network.heal()
        if not self._machine.is_up:
            assert await self._machine.start(), "the broker does not start on a healthy disk"

    async def _keep_up(self) -> None:
        """Have a broker again, sooner or later; a disk that keeps it from starting is mended."""
        for _ in range(RESTART_TRIES_MAX):
            if self._machine.is_up:
                return
            await asyncio.sleep(self._chance.uniform(0, 1))
            if not self._machine.disk.has_power:
                self._machine.disk.cut_power()
            if await self._machine.start():
                return
            self._machine.disk.make_room()
        raise AssertionError(f"the broker did not start in {RESTART_TRIES_MAX} tries")

    async def _kill(self) -> None:
        """At once or amid some operation, perhaps of the next start; after it nothing happens.

        What was written is still in the system's memory, synced or not: the next start finds it.
        """
        if self._chance.random() < 0.5 or await self._stops_at_operation():
            self._machine.kill()
        self._machine.disk.cut_power_after(NEVER)

    async def _cut_power(self) -> None:
        self._machine.cut_power()

    async def _cut_power_at_operation(self) -> None:
        if await self._stops_at_operation():
            self._machine.cut_power()
        self._machine.disk.cut_power_after(NEVER)

    async def _stops_at_operation(self) -> bool:
        """Let the disk stop amid what it is doing by then, perhaps in the next start; if it did."""
        disk = self._machine.disk
        if self._chance.random() < 0.4:
            self._machine.kill()
        disk.cut_power_after(self._chance.randrange(1, 60))
        if not self._machine.is_up:
            await self._machine.start()
        await asyncio.sleep(self._chance.uniform(0, 1.5))
        return not disk.has_power

    async def _restart(self) -> None:
        """In order: what is known of share partitions is what was known before."""
        await self._machine.stop()
        await asyncio.sleep(self._chance.choice((0, 0.5)))
        if await self._machine.start() and not DISK_FAULTS & set(self._plan.faults):
            self.problems += self._machine.forgotten()

    async def _pause(self) -> None:
        self._machine.pause()
        await asyncio.sleep(self._chance.choice((0.1, 1, 3, 7)))
        self._machine.resume()

    async def _jump_clock(self) -> None:
        self._machine.clock.wall_offset_ms += self._chance.choice((-3_600_000, 3_600_000, -5, 900))

    async def _slow_disk(self) -> None:
        speed = self._machine.disk_speed
        speed.sync_us = self._chance.choice(((1_000, 20_000), (20_000, 400_000), (50, 400)))

    async def _fill_disk(self) -> None:
        self._machine.disk.fill_up(self._chance.choice((0, 100, 3_000)))
        await asyncio.sleep(self._chance.uniform(0.2, 2))
        self._machine.disk.make_room()

    async def _fail_sync(self) -> None:
        self._machine.disk.fail_next_sync(self._chance.randint(1, 3))

    async def _slow_network(self) -> None:
        weather = self._network.weather
        weather.delay_us = self._chance.choice(
            ((100, 1_000), (1_000, 100_000), (100, 900_000), (200_000, 400_000))
        )

    async def _cut_in_pieces(self) -> None:
        self._network.weather.pieces = not self._network.weather.pieces

    async def _take_network_down(self) -> None:
        for_us = self._chance.choice((100_000, 2_000_000, 5_000_000))
        if self._chance.random() < 0.5:
            self._network.take_all_down(for_us)
        else:
            self._network.take_down(for_us, self._some_connections())

    async def _reset(self) -> None:
        for connection in self._some_connections():
            self._network.reset(connection)

    async def _half_open(self) -> None:
        for connection in self._some_connections():
            self._network.half_open(connection, client_knows=self._chance.random() < 0.7)

    def _some_connections(self) -> list[Connection]:
        live = [connection for connection in self._network.connections if not connection.is_over]
        return self._chance.sample(live, min(len(live), self._chance.choice((1, 1, 3))))
