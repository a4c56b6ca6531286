"""A broker under test on its event loop: it can be stopped, killed and started again.

All methods run on the broker's loop.  `embedded` has the classes that tests use, which call these
from any thread or loop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sharegroup.broker.app import Running
from sharegroup.broker.configuration.config import Config
from sharegroup.faults.faulty_broker import AdvancingClock, FaultyBroker
from sharegroup.storage.disk.files import Files
from sharegroup.testing.power_loss import PowerLossDisk
from sharegroup.testing.security import Security, internal_address

if TYPE_CHECKING:
    # Imported at first use: a test with clients of its own does not wait for ours.
    from sharegroup.testing.broker_clients import BrokerClients


class ServedBroker:
    """A broker that may be stopped and started again on the same port and data."""

    def __init__(
        self,
        values: Mapping[str, str],
        *,
        clock: AdvancingClock | None,
        files: Files | None,
        security: Security | None = None,
        certificates: Path = Path(),
    ) -> None:
        """``values`` are the broker's settings, with ``listeners`` and ``log.dirs``.

        With ``security`` they are those for it, and its certificates are in ``certificates``.
        """
        self.values = dict(values)
        self.security, self.certificates = security, certificates
        self.faulty = FaultyBroker(clock=clock, files=files)
        self.loop = asyncio.get_running_loop()
        self.process_id = os.getpid()
        self._clients: BrokerClients | None = None
        self._has_users = False
        """Whether the users and ACLs of ``security`` are stored in the data directory."""
        self.cluster_id = ""
        self.bootstrap_servers = ""
        """The address after the first start; later starts keep it."""

    @property
    def running(self) -> Running:
        """The parts of the broker; raises RuntimeError while it is stopped."""
        if self.faulty.running is None:
            raise RuntimeError(f"the broker {self.bootstrap_servers} is stopped; call start()")
        return self.faulty.running

    # Life

    async def start(self) -> None:
        """Start the broker, on the port of the first start."""
        if self.faulty.running is not None:
            raise RuntimeError(f"the broker {self.bootstrap_servers} is running")
        running = await self.faulty.start(Config.parse(self.values))
        self.cluster_id = running.cluster_id
        self.bootstrap_servers = running.bootstrap_servers
        # With the ports that the system chose, so clients find the broker again after a restart.
        self.values["listeners"] = running.listeners
        if self.security is not None and not self._has_users:
            try:
                await (await self.clients()).let_in(self.security)
            except BaseException:
                # The caller cannot stop a broker whose start has failed.
                await self.stop()
                raise
            self._has_users = True

    async def stop(self) -> None:
        """Stop the broker cleanly; does nothing if it is stopped."""
        if self.faulty.running is not None:
            # Before the broker, so they do not try to connect to it again.
            await self._close_clients()
            await self.faulty.stop()

    async def kill(self) -> None:
        """Stop the broker as ``kill -9`` would."""
        self.running  # noqa: B018  Raises an error if it is stopped.
        await self._close_clients()
        # Its clients are closed by now: they would connect to the next broker on this port.
        await self.faulty.kill()

    async def cut_power(self) -> None:
        """Stop the broker as a power failure would: unsynced writes survive at random."""
        disk = self.faulty.files
        if not isinstance(disk, PowerLossDisk):
            raise TypeError(
                "only a PowerLossDisk can lose power: pass files=PowerLossDisk(seed=1) to the "
                "broker"
            )
        if self.faulty.running is not None:
            await self.kill()
        disk.cut_power()

    async def clients(self) -> BrokerClients:
        """Return the clients of the running broker, which its faults do not affect."""
        running = self.running
        if self._clients is None:
            # Imported here, because most tests of some projects never need it.
            from sharegroup.testing.broker_clients import BrokerClients

            self._clients = BrokerClients(running, internal_address(running.listeners))
        return self._clients

    async def _close_clients(self) -> None:
        clients, self._clients = self._clients, None
        if clients is not None:
            await clients.close()
