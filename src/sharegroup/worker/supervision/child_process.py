"""One worker process of a supervisor: its start, its channel, its state and its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from sharegroup import stop_signals
from sharegroup.http_endpoint import HttpResponse
from sharegroup.worker.lifecycle.channel import STATE, Channel
from sharegroup.worker.lifecycle.supervised import VARIABLE, Supervised

log = logging.getLogger(__name__)

STATM = "/proc/{}/statm"
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
STARTING = "starting"
QUIET = "quiet"
UP_PHASES = ("running", QUIET)


@dataclass(frozen=True, slots=True)
class ChildState:
    """What a process has answered last."""

    app: str = ""
    phase: str = STARTING
    joined: bool = False
    ready: bool = False

    @property
    def is_up(self) -> bool:
        """Whether the start has come to its end; a quiet process is up, and not ready."""
        return self.joined and self.phase in UP_PHASES


class Child(Protocol):
    """A process as the supervisor sees it."""

    number: int
    pid: int

    @property
    def exit_code(self) -> int | None:
        """None while it runs; the negative number of the signal that ended it."""

    async def ended(self) -> int:
        """Wait until the process has ended; returns its exit code."""

    async def state(self, seconds: float) -> ChildState | None:
        """Ask for its state; None without an answer within this time."""

    async def ask(self, path: str, seconds: float) -> HttpResponse | None:
        """Ask for one of its pages; None without an answer within this time."""

    def call(self, word: str) -> None:
        """Make it ``quiet``, or let it ``resume``, ``stop`` or ``hurry``."""

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it has not ended."""

    def memory_bytes(self) -> int:
        """Return its resident memory; 0 if it has ended."""

    async def close(self) -> None:
        """Close what belongs to it, after its end."""


class ChildProcess:
    """A process that was started with the supervisor's own command line."""

    def __init__(
        self, number: int, process: asyncio.subprocess.Process, channel: Channel, lifeline: int
    ) -> None:
        self.number = number
        self.pid = process.pid
        self._process = process
        self._channel = channel
        self._lifeline = lifeline

    @classmethod
    async def start(
        cls, command: Sequence[str], supervised: Supervised, environment: Mapping[str, str]
    ) -> ChildProcess:
        """Start a process; ``supervised`` gets its descriptors here.  OSError if it can't."""
        ours, theirs = socket.socketpair()
        with contextlib.ExitStack() as started, theirs:
            started.callback(ours.close)
            watched, lifeline = os.pipe()
            started.callback(os.close, lifeline)
            stop_signals.hold()  # For the process, which inherits that.
            try:
                facts = replace(supervised, channel=theirs.fileno(), lifeline=watched)
                process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=asyncio.subprocess.DEVNULL,
                    env={**environment, VARIABLE: facts.as_text()},
                    pass_fds=(theirs.fileno(), watched),
                )
            finally:
                stop_signals.release()
                os.close(watched)
            try:
                channel = await Channel.over(ours)
            except BaseException:
                # Such as the cancellation of a reload: nobody would know of the process.
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
                raise
            started.pop_all()
        return cls(supervised.number, process, channel, lifeline)

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while it runs."""
        return self._process.returncode

    async def ended(self) -> int:
        """Wait until the process has ended; returns its exit code."""
        return await self._process.wait()

    async def state(self, seconds: float) -> ChildState | None:
        """Ask for its state; None without an answer within this time."""
        response = await self.ask(STATE, seconds)
        if response is None or not isinstance(response.body, bytes) or response.status != 200:
            return None
        try:
            facts: dict[str, Any] = dict(json.loads(response.body))
        except (TypeError, ValueError) as error:  # Of an application that writes to the channel.
            log.warning("event=state_refused process=%d error=%r", self.number, error)
            return None
        # After an upgrade and a reload, the process may be of a newer version than this one.
        return ChildState(
            app=str(facts.get("app", "")),
            phase=str(facts.get("phase", STARTING)),
            joined=facts.get("joined") is True,
            ready=facts.get("ready") is True,
        )

    async def ask(self, path: str, seconds: float) -> HttpResponse | None:
        """Ask for one of its pages; None without an answer within this time."""
        return await self._channel.ask(path, seconds)

    def call(self, word: str) -> None:
        """Make it ``quiet``, or let it ``resume``, ``stop`` or ``hurry``."""
        if self.exit_code is None:
            self._channel.call(word)

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it has not ended."""
        # asyncio has waited for a process that has a return code, so its id is never another's.
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def memory_bytes(self) -> int:
        """Return its resident memory; 0 if it has ended."""
        return resident_bytes(self.pid) or 0

    async def close(self) -> None:
        """Close the channel and the lifeline."""
        await self._channel.close()
        os.close(self._lifeline)


def resident_bytes(pid: int) -> int | None:
    """Return the resident memory of a process; None if it has ended, or without /proc."""
    try:
        with open(STATM.format(pid), "rb") as file:
            return int(file.read().split()[1]) * PAGE_BYTES
    except (OSError, IndexError):
        return None
