"""Simulated members of share groups: they fetch, settle in every way there is, and misbehave.

Each has two connections, as real clients do: one for heartbeats, one for its share session.
What a member believes may be wrong, because answers are lost; the broker must hold against it.
Once the faults are over (`Board.is_settling`) members accept everything they get.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.sim.board import Board
from tests.sim.client import Client, NoAnswer
from tests.sim.messages import (
    ACCEPT,
    REJECT,
    RELEASE,
    RENEW,
    AckRange,
    Partition,
    make_heartbeat,
    make_share_acknowledge,
    make_share_fetch,
)

KEEP = -1
"""Not a wire value: say nothing of the record, so that its lock runs out."""

RECORD_LIMIT = 1

LEAVE = -1
CLOSE = -1


EVERY_KIND = ((ACCEPT, 8.0), (RELEASE, 2.0), (REJECT, 1.0), (KEEP, 1.0))
"""How often a record is settled in which way."""


@dataclass(frozen=True, slots=True)
class Habits:
    """How a member behaves; weights and probabilities per request."""

    acks: tuple[tuple[int, float], ...] = EVERY_KIND
    records_max: tuple[int, ...] = (1, 5, 50, 500)
    wait_ms: tuple[int, ...] = (0, 200, 1000)
    record_limit: float = 0.3
    separate_ack: float = 0.4
    renew: float = 0.1
    resend: float = 0.2
    think_s: float = 0.3
    crash: float = 0.01
    leave: float = 0.005
    reopen: float = 0.02
    close_session: float = 0.02
    nonsense: float = 0.03
    slow_reader: float = 0.01
    delay: float = 0
    """For a stretch of acknowledgements: that it names the delay of what it releases."""
    delay_ms_max: int = 2_500


WELL_BEHAVED = Habits(
    acks=((ACCEPT, 1),),
    wait_ms=(500,),
    records_max=(20, 100),
    renew=0,
    think_s=0.1,
    crash=0,
    leave=0,
    reopen=0,
    close_session=0,
    nonsense=0,
    slow_reader=0,
)


class Crash(Exception):
    """The member's process dies; another one takes its place."""


@dataclass
class ShareMember:
    """One member after the other, of one group; see the module's text."""

    name: str
    group: str
    board: Board
    chance: random.Random
    habits: Habits
    heartbeat_s: float = 0.5
    incarnation: int = 0
    fresh: int = 0
    """Records received since the faults ended."""
    member_epoch: int = 0
    session_epoch: int = 0
    subscribed: tuple[str, ...] = ()
    assigned: tuple[Partition, ...] = ()
    in_session: set[Partition] = field(default_factory=set)
    held: dict[Partition, list[int]] = field(default_factory=dict)

    @property
    def member_id(self) -> str:
        return f"{self.name}.{self.incarnation}"

    @property
    def now(self) -> Habits:
        return WELL_BEHAVED if self.board.is_settling else self.habits

    async def run(self) -> None:
        while True:
            heartbeats, session = Client(f"{self.name}-h"), Client(f"{self.name}-s")
            self._begin()
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._heartbeats(heartbeats), name=f"{self.name}-h")
                    tasks.create_task(self._session(session), name=f"{self.name}-s")
            except* Crash:
                heartbeats.close()
                session.close()
                await asyncio.sleep(self.chance.uniform(0.1, 2))

    def _begin(self) -> None:
        self.incarnation += 1
        self.member_epoch = self.session_epoch = 0
        self.assigned, self.in_session, self.held = (), set(), {}
        self._subscribe()

    def _subscribe(self) -> None:
        names = self.board.names
        everything = self.board.is_settling or self.chance.random() < 0.7
        many = len(names) if everything else self.chance.randint(1, len(names))
        self.subscribed = tuple(sorted(self.chance.sample(names, many)))

    # The group

    async def _heartbeats(self, client: Client) -> None:
        while True:
            with contextlib.suppress(NoAnswer):  # The next one tells the same.
                await self._heartbeat(client)
            await asyncio.sleep(self.heartbeat_s)
            if self.chance.random() < self.now.leave:
                await self._leave(client)

    async def _heartbeat(self, client: Client) -> None:
        joining = self.member_epoch == 0
        if self.board.is_settling and self.subscribed != tuple(sorted(self.board.names)):
            self._subscribe()
            joining = True
        names = self.subscribed if joining or self.chance.random() < 0.1 else None
        epoch = self.member_epoch
        if self.chance.random() < self.now.nonsense:
            epoch = self.chance.choice((epoch + 1, max(1, epoch - 3), 1_000))
        answer = await client.ask(make_heartbeat(self.group, self.member_id, epoch, names))
        error = int(answer.error_code)
        if error == 0:
            self.member_epoch = answer.member_epoch
            if answer.assignment is not None:
                self.assigned = tuple(
                    Partition(partition.topic_id, index)
                    for partition in answer.assignment.topic_partitions
                    for index in partition.partitions
                )
        elif error in (25, 69, 110):  # UNKNOWN_MEMBER_ID, GROUP_ID_NOT_FOUND, FENCED_MEMBER_EPOCH
            self.member_epoch, self.assigned = 0, ()

    async def _leave(self, client: Client) -> None:
        """Leave the group, mostly with the session closed first; then be somebody else."""
        with contextlib.suppress(NoAnswer):  # It will be found out.
            await client.ask(make_heartbeat(self.group, self.member_id, LEAVE, None))
        raise Crash

    # The session

    async def _session(self, client: Client) -> None:
        while True:
            await asyncio.sleep(self.chance.uniform(0, 2 * self.now.think_s))
            if self.chance.random() < self.now.crash:
                raise Crash
            if not self.assigned and not self.in_session:
                continue
            if self.chance.random() < self.now.slow_reader:
                client.pause_reading(self.chance.uniform(0.5, 3))
            try:
                await self._step(client)
            except NoAnswer:
                self._lost_session()

    async def _step(self, client: Client) -> None:
        chance, now = self.chance, self.now
        if self.session_epoch and chance.random() < now.reopen:
            self.session_epoch = 0
        if self.session_epoch == 0:
            await self._fetch(client, {})
        elif chance.random() < now.close_session:
            await self._close(client)
        elif self.held and chance.random() < now.renew:
            await self._renew(client)
        elif self.held and chance.random() < now.separate_ack:
            await self._acknowledge(client, self._choose())
        else:
            await self._fetch(client, self._choose())

    async def _fetch(self, client: Client, acks: dict[Partition, list[AckRange]]) -> None:
        opening = self.session_epoch == 0
        wanted = set(self.assigned)
        if opening:
            self.in_session = set()
        request = make_share_fetch(
            self.group,
            self.member_id,
            self._epoch(),
            partitions=sorted(wanted - self.in_session),
            forgotten=sorted(self.in_session - wanted),
            acks=acks,
            records_max=self.chance.choice(self.now.records_max),
            wait_ms=self.chance.choice(self.now.wait_ms),
            mode=RECORD_LIMIT if self.chance.random() < self.now.record_limit else 0,
        )
        answer = await self._ask(client, request)
        if self._goes_on(answer):
            self.in_session = wanted
            self._receive(answer)

    async def _acknowledge(self, client: Client, acks: dict[Partition, list[AckRange]]) -> None:
        if acks:
            request = make_share_acknowledge(self.group, self.member_id, self._epoch(), acks)
            self._goes_on(await self._ask(client, request))

    async def _renew(self, client: Client) -> None:
        acks = {
            partition: [AckRange(offsets[0], offsets[0], (RENEW,))]
            for partition, offsets in self.held.items()
        }
        if self.chance.random() < 0.5:
            request: Any = make_share_acknowledge(
                self.group, self.member_id, self._epoch(), acks, renewing=True
            )
        else:
            request = make_share_fetch(
                self.group, self.member_id, self._epoch(), partitions=(), acks=acks, renewing=True
            )
        self._goes_on(await self._ask(client, request))

    async def _close(self, client: Client) -> None:
        """The final request may settle some of what is held; the rest goes back."""
        acks = self._choose()
        if self.chance.random() < 0.5:
            request: Any = make_share_acknowledge(self.group, self.member_id, CLOSE, acks)
        else:
            request = make_share_fetch(
                self.group, self.member_id, CLOSE, partitions=(), acks=acks, records_max=0
            )
        await client.ask(request)
        self._lost_session()

    async def _ask(self, client: Client, request: Any) -> Any:
        """Ask; where no answer comes, perhaps send the very same again on another connection."""
        try:
            return await client.ask(request)
        except NoAnswer:
            if self.chance.random() < self.now.resend:
                return await client.ask(request)
            raise

    def _epoch(self) -> int:
        if self.session_epoch and self.chance.random() < self.now.nonsense:
            return self.session_epoch + self.chance.choice((-1, 1, 7))
        return self.session_epoch

    def _goes_on(self, answer: Any) -> bool:
        """Whether the session goes on after this answer."""
        if int(answer.error_code) == 0:
            self.session_epoch += 1
            return True
        self._lost_session()
        return False

    def _lost_session(self) -> None:
        """Open another one; what is held perhaps still is, and perhaps is believed to be."""
        self.session_epoch = 0
        if self.chance.random() < 0.6:
            self.held.clear()

    def _receive(self, answer: Any) -> None:
        for topic in answer.responses:
            for found in topic.partitions:
                partition = Partition(topic.topic_id, found.partition_index)
                for acquired in found.acquired_records:
                    offsets = range(acquired.first_offset, acquired.last_offset + 1)
                    self.held.setdefault(partition, []).extend(offsets)
                    if self.board.is_settling:
                        self.fresh += len(offsets)

    def _choose(self) -> dict[Partition, list[AckRange]]:
        """Acknowledge what is held, or some of it, now and then what is not."""
        acks: dict[Partition, list[AckRange]] = {}
        for partition in sorted(self.held):
            offsets = sorted(set(self.held[partition]))
            if self.chance.random() < self.now.nonsense:
                offsets = sorted({*offsets, self.chance.randrange(0, offsets[-1] + 3)})
            ranges = [self._delayed(stretch) for stretch in self._ranges(offsets)]
            if ranges:
                acks[partition] = ranges
        self.held.clear()
        return acks

    def _delayed(self, stretch: AckRange) -> AckRange:
        if RELEASE not in stretch.types or not self.now.delay:
            return stretch  # Draws nothing: runs without delays stay what they were.
        if self.chance.random() >= self.now.delay:
            return stretch
        delay_ms = min(self.chance.choice((0, 50, 700, 2_500)), self.now.delay_ms_max)
        return stretch._replace(delay_ms=delay_ms)

    def _ranges(self, offsets: list[int]) -> Iterator[AckRange]:
        """One type for each record, a whole stretch, or a stretch with a type for each."""
        kinds, weights = zip(*self.now.acks, strict=True)
        for first, last in stretches(offsets):
            how = self.chance.random()
            if how < 0.4:
                kind = self.chance.choices(kinds, weights)[0]
                if kind != KEEP:
                    yield AckRange(first, last, (kind,))
                continue
            chosen = self.chance.choices(kinds, weights, k=last - first + 1)
            if how < 0.7 and KEEP not in chosen:
                yield AckRange(first, last, tuple(chosen))
                continue
            for offset, kind in enumerate(chosen, start=first):
                if kind != KEEP:
                    yield AckRange(offset, offset, (kind,))


def stretches(offsets: list[int]) -> Iterator[tuple[int, int]]:
    """Neighbours together: the first and the last of each stretch."""
    first = previous = None
    for offset in offsets:
        if first is None:
            first = offset
        elif offset != previous + 1:
            yield first, previous
            first = offset
        previous = offset
    if first is not None:
        yield first, previous
