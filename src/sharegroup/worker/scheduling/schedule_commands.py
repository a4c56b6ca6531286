"""Commands for the schedules of an application, from its own code: ``app.schedules.pause(name)``.

A command is a record that the owner of the schedule carries out, in this process or in another one.
The same for other programs, with lists and answers: `sharegroup.schedules.Schedules`.
"""

from __future__ import annotations

import os
import secrets
import socket

from sharegroup.schedules.schedule import checked_name, partition_of, schedules_topic
from sharegroup.schedules.schedule_records import Intent, ScheduleCommand, encoded, key_of
from sharegroup.worker.sender import NotConnected, Outlet

ID_BYTES = 4


class ScheduleCommands:
    """Pauses, resumes and runs the schedules of an application that runs or sends here.

    Example::

        await app.schedules.pause("nightly")
    """

    __slots__ = ("_app_name", "_outlet")

    def __init__(self, app_name: str, outlet: Outlet) -> None:
        self._app_name = app_name
        self._outlet = outlet

    async def pause(self, name: str) -> None:
        """Make no runs until `resume`; returns when the command is durable."""
        await self._send(name, Intent.PAUSE)

    async def resume(self, name: str) -> None:
        """Make runs again; those that were due during the pause are not made."""
        await self._send(name, Intent.RESUME)

    async def run(self, name: str) -> None:
        """Make one run now, also of a paused schedule."""
        await self._send(name, Intent.RUN)

    async def _send(self, name: str, intent: Intent) -> None:
        outlet = self._outlet
        if outlet.outbox is None or outlet.clock is None:
            raise NotConnected(
                f"App {self._app_name!r} has no producer here; command its schedules from a "
                "running app, inside `async with app.client():`, or in a test inside "
                "`async with app.test():`"
            )
        command = ScheduleCommand(
            name=checked_name(name),
            intent=intent,
            id=secrets.token_hex(ID_BYTES),
            by=f"{self._app_name} on {socket.gethostname()}/{os.getpid()}",
            asked_ms=outlet.clock.wall_ms(),
        )
        await outlet.outbox.send(
            schedules_topic(self._app_name),
            encoded(command),
            key=key_of(command),
            partition=partition_of(name),
        )
