"""`Schedules`: lists and commands the schedules of an application, from any program."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterable
from typing import Any, NamedTuple, Self, Unpack

from sharegroup.client.admin.topics import describe_topics
from sharegroup.client.admin.types import TopicDescription
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.produce.producer import Producer
from sharegroup.client.records import TopicPartition
from sharegroup.client.settings.client_config import (
    ClientConfig,
    ProducerOptions,
    ReadingConfig,
    config_from,
    options_of,
)
from sharegroup.errors import KafkaError, UnknownTopicOrPartition
from sharegroup.login import login
from sharegroup.schedules.due_runs import RUN_EXPIRES_MS
from sharegroup.schedules.schedule import (
    PARTITIONS,
    REVISION_MAX,
    StoredSchedule,
    checked_name,
    partition_of,
    schedules_topic,
)
from sharegroup.schedules.schedule_log import read_partition
from sharegroup.schedules.schedule_records import (
    Entry,
    Intent,
    Owner,
    ScheduleCommand,
    encoded,
    key_of,
)

ID_BYTES = 4
ANSWER_SECONDS_MAX = 15.0
"""Time that a command waits for the owner; longer than the takeover after the death of one."""
LOOK_SECONDS = 0.2


class ScheduleNotFound(KafkaError):
    """The application has no schedule of this name."""


class CommandResult(NamedTuple):
    """What became of a command."""

    name: str
    intent: Intent
    is_done: bool
    """False if no process has carried it out yet; the next owner of the schedule will."""
    is_forgotten: bool = False
    """Whether the owner has dropped it: the schedule is gone, or the command is too old."""


class ScheduleListing(NamedTuple):
    """The schedules of an application."""

    schedules: tuple[StoredSchedule, ...]
    """By name."""
    owners: tuple[Owner | None, ...]
    """The process that owned each partition last; None if there was none yet."""


class Schedules:
    """The schedules of an application.

    Example::

        async with Schedules("orders-service", bootstrap_servers=bootstrap_servers) as schedules:
            for schedule in (await schedules.list()).schedules:
                print(schedule.name, schedule.next_due_ms)
    """

    def __init__(self, app_name: str, **options: Unpack[ProducerOptions]) -> None:
        self._producing: dict[str, Any] = dict(options)
        self._cluster = Cluster(config_from(ReadingConfig, options_of(ClientConfig, options)))
        self._app_name = app_name
        self._topic = schedules_topic(app_name)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        self._cluster.close()

    async def list(self) -> ScheduleListing:
        """Return all schedules; none if the application never ran with a schedule."""
        described = (await describe_topics(self._cluster, [self._topic]))[self._topic]
        if isinstance(described, UnknownTopicOrPartition):
            return ScheduleListing((), (None,) * PARTITIONS)
        if not isinstance(described, TopicDescription):
            raise described
        read = await asyncio.gather(*map(self._read, range(PARTITIONS)))
        schedules = [entry for part in read for entry in part if isinstance(entry, StoredSchedule)]
        owners = [
            next((entry for entry in part if isinstance(entry, Owner)), None) for part in read
        ]
        return ScheduleListing(
            tuple(sorted(schedules, key=lambda schedule: schedule.name)), tuple(owners)
        )

    async def pause(self, name: str) -> CommandResult:
        """Make no runs until `resume`; raises ScheduleNotFound."""
        return await self._command(name, Intent.PAUSE)

    async def resume(self, name: str) -> CommandResult:
        """Make runs again; those that were due during the pause are not made."""
        return await self._command(name, Intent.RESUME)

    async def run(self, name: str) -> CommandResult:
        """Make one run now, also of a paused schedule; a command of an hour ago has expired."""
        return await self._command(name, Intent.RUN)

    async def remove(self, name: str, *, revision: int = REVISION_MAX) -> CommandResult:
        """Remove a schedule, unless it was declared with a higher revision meanwhile.

        A process that declares it makes it again at its next start.
        """
        return await self._command(name, Intent.REMOVE, revision)

    async def _command(
        self, name: str, intent: Intent, revision: int = REVISION_MAX
    ) -> CommandResult:
        known = {schedule.name: schedule for schedule in (await self.list()).schedules}
        if checked_name(name) not in known:
            raise ScheduleNotFound(
                f"application {self._app_name!r} has no schedule {name!r}; it has "
                f"{', '.join(sorted(known)) or 'none'}"
            )
        command = ScheduleCommand(
            name=name,
            intent=intent,
            id=secrets.token_hex(ID_BYTES),
            by=login(),
            asked_ms=time.time_ns() // 1_000_000,
            revision=revision,
        )
        async with Producer(**self._producing, allow_auto_create_topics=False) as producer:
            await producer.send_and_wait(
                self._topic, encoded(command), key=key_of(command), partition=partition_of(name)
            )
        return await self._result(command, known[name])

    async def _result(self, command: ScheduleCommand, before: StoredSchedule) -> CommandResult:
        """Wait until the owner has deleted the command, which it does when it has decided."""
        name, intent = command.name, command.intent
        limit = time.monotonic() + ANSWER_SECONDS_MAX
        while command in (entries := await self._read(partition_of(name))):
            if time.monotonic() > limit:
                return CommandResult(name, intent, is_done=False)
            await asyncio.sleep(LOOK_SECONDS)
        is_done = was_carried_out(command, before, entries)
        return CommandResult(name, intent, is_done, is_forgotten=not is_done)

    async def _read(self, partition: int) -> tuple[Entry, ...]:
        where = TopicPartition(self._topic, partition)
        return (await read_partition(self._cluster, where)).entries


def was_carried_out(
    command: ScheduleCommand, before: StoredSchedule, entries: Iterable[Entry]
) -> bool:
    """Whether the owner that deleted a command has carried it out, and not forgotten it."""
    if command.intent is Intent.REMOVE:
        return True
    after = next(
        (
            entry
            for entry in entries
            if isinstance(entry, StoredSchedule) and entry.name == command.name
        ),
        None,
    )
    if after is None or command.intent is not Intent.RUN:
        return after is not None
    last_ms = after.last_run_ms
    if last_ms is None or last_ms == command.asked_ms:
        return last_ms is not None
    # A run that was due since may hide that of the command, unless the command was too old by then.
    return last_ms != before.last_run_ms and last_ms - command.asked_ms <= RUN_EXPIRES_MS
