"""The machine with the broker: starts it, stops it, kills it, takes its power, stops its time."""

from __future__ import annotations

import asyncio
import random

from sharegroup.broker import app
from sharegroup.broker.configuration.config import Config
from sharegroup.core.delivery.delivery import Delta, RecordState
from sharegroup.errors import KafkaError
from sharegroup.ids import SharePartitionKey
from sharegroup.storage.disk.files import Files
from sharegroup.storage.sync.syncer import Syncer
from sharegroup.testing.power_loss import PowerLossDisk
from tests.faults.in_process import prepare_all
from tests.sim.client import PORT
from tests.sim.clock import SimClock
from tests.sim.disk import DiskSpeed, ProcessDisk, StorageThread
from tests.sim.loop import Process, SimLoop
from tests.sim.network import Network
from tests.sim.wiretap import Wiretap

DATA = "/top/data"

TERMINAL = 2
TERMINAL_OR_SOON = (RecordState.ACKNOWLEDGED, RecordState.ARCHIVING, RecordState.ARCHIVED)


class Machine:
    """See the module's text.  One broker at a time; the disk outlives them all."""

    def __init__(
        self,
        loop: SimLoop,
        network: Network,
        tap: Wiretap,
        *,
        seed: int,
        settings: dict[str, str],
    ) -> None:
        self.disk = PowerLossDisk(seed)
        self.disk_speed = DiskSpeed()
        self.clock = SimClock(loop)
        self.lives: list[Process] = []
        self.running: app.Running | None = None
        self.started_us = 0
        """When the broker was last ready."""
        self.left_behind: dict[SharePartitionKey, Delta] = {}
        """What share partitions were like when the last broker ended, if it ended in order."""
        self._gone: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._network = network
        self._tap = tap
        self._chance = random.Random(f"disk {seed}")
        self._settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{PORT}",
            "log.dirs": DATA,
            **settings,
        }

    @property
    def process(self) -> Process:
        return self.lives[-1]

    @property
    def is_up(self) -> bool:
        return self.running is not None

    async def start(self) -> bool:
        """Start a broker; False when its disk fails it."""
        assert self.running is None
        process = Process(f"broker-{len(self.lives) + 1}")
        self.lives.append(process)
        self._gone = self._loop.create_future()
        self._tap.life = len(self.lives)
        files = ProcessDisk(self.disk, process, self._loop, self._chance, self.disk_speed)
        thread = StorageThread(files, process, self._loop, self._chance)

        def syncer(on: Files, root: str) -> Syncer:
            return Syncer(on, root, clock=self._loop.time, thread=thread)

        starting = self._loop.start(
            process,
            app.start(Config.parse(self._settings), clock=self.clock, files=files, syncer=syncer),
        )
        await self._either(starting)
        if process.is_ended:
            return False
        try:
            self.running = starting.result()
        except (OSError, KafkaError):
            self._end(silently=False)
            self.disk.release_locks()
            return False
        prepare_all(self.running)
        # Slices of time end by the virtual clock, so a seed decides them, too.
        self.running.parts.waiting.seconds = self._loop.time
        self.running.server.budgets.turns.clock = self._loop.time
        self.started_us = self._loop.now_us
        return True

    async def stop(self) -> None:
        """Stop the broker in order."""
        assert self.running is not None
        running, self.running = self.running, None
        in_use = list(running.parts.share_partitions)
        stopping = self._loop.start(self.process, running.stop())
        await self._either(stopping)
        if self.process.is_ended:
            return
        stopping.result()
        self.left_behind = {live.key: live.state.checkpoint() for live in in_use}
        self._end(silently=False)

    def forgotten(self) -> list[str]:
        """What share partitions are not like they were left behind (S8), locks aside."""
        assert self.running is not None
        left_behind, self.left_behind = self.left_behind, {}
        found = []
        for key, before in left_behind.items():
            if self.running.parts.topics.catalog.by_id(key.topic_id) is None:
                continue
            live = self.running.parts.share_partitions.get(key)
            after, log_start = live.state.checkpoint(), live.log.start_offset
            if what_is_kept(before, log_start) != what_is_kept(after, log_start):
                found.append(f"S8: {live} was left as {before} and is {after}")
        return found

    def kill(self) -> None:
        """End the broker where it stands; what it wrote is still in the system's memory."""
        self._end(silently=False)
        self.disk.release_locks()

    def cut_power(self) -> None:
        """End the broker and lose what was not synced; its peers hear nothing of it."""
        self._end(silently=True)
        self.disk.cut_power()

    def pause(self) -> None:
        self._loop.pause(self.process)

    def resume(self) -> None:
        self._loop.resume(self.process)

    async def _either(self, task: asyncio.Task[object]) -> None:
        """Wait for a task of the broker, or for the broker's end."""
        await asyncio.wait([task, self._gone], return_when=asyncio.FIRST_COMPLETED)

    def _end(self, *, silently: bool) -> None:
        self.running = None
        self._loop.end(self.process)
        if not self._gone.done():
            self._gone.set_result(None)
        self._network.process_ended(self.process, silently=silently)


def what_is_kept(delta: Delta, log_start: int) -> tuple[int, list[tuple[int, int, int]]]:
    """The start offset, and state and delivery count of every offset behind it.

    What the log has deleted meanwhile is no part of it, and whether a dead letter is written yet
    makes no difference: that goes on by itself.
    """
    states = [
        (
            offset,
            TERMINAL if batch.state in TERMINAL_OR_SOON else int(batch.state),
            batch.delivery_count,
        )
        for batch in delta.batches
        for offset in range(max(batch.first, log_start), batch.end)
    ]
    start = max(delta.start_offset, log_start)
    while states and states[0][:2] == (start, TERMINAL):
        start += 1
        states.pop(0)
    return start, states
