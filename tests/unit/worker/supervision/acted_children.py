"""Processes of a supervisor that start, hang, grow and end as a test says, in virtual time."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable

from sharegroup.http_endpoint import HttpResponse
from sharegroup.testing import virtual_time
from sharegroup.worker.lifecycle.signals import Wishes
from sharegroup.worker.supervision.child_process import ChildState
from sharegroup.worker.supervision.supervisor import Supervisor

STOP_SECONDS = 2.0
UP = ChildState("shop", "running", joined=True, ready=True)


class ActedChild:
    """A process that is ready at once and stops in two seconds, unless it is told otherwise."""

    def __init__(self, number: int, pid: int) -> None:
        self.number = number
        self.pid = pid
        self.answer: ChildState | None = UP
        self.answer_seconds = 0.0
        self.bytes = 1_000
        self.heard: list[str] = []
        self.is_closed = False
        self.started_at = asyncio.get_running_loop().time()
        self._code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @property
    def exit_code(self) -> int | None:
        return self._code.result() if self._code.done() else None

    def end(self, code: int) -> None:
        if not self._code.done():
            self._code.set_result(code)

    async def ended(self) -> int:
        return await asyncio.shield(self._code)

    async def state(self, seconds: float) -> ChildState | None:
        if self.answer is None:
            await asyncio.sleep(seconds)
        return self.answer

    async def ask(self, path: str, seconds: float) -> HttpResponse | None:
        return HttpResponse(200, f"{path} of {self.number}\n".encode())

    def call(self, word: str) -> None:
        self.heard.append(word)
        if word == "stop" and self.answer is not None:
            asyncio.get_running_loop().call_later(STOP_SECONDS, self.end, 0)
        if word in ("quiet", "resume") and self.answer is not None:
            phase = "quiet" if word == "quiet" else "running"
            self.answer = ChildState("shop", phase, joined=True, ready=word == "resume")

    def send(self, number: signal.Signals) -> None:
        self.heard.append(number.name)
        self.end(-number)

    def memory_bytes(self) -> int:
        return self.bytes

    async def close(self) -> None:
        self.is_closed = True


class Scene:
    """A supervisor with acted processes; ``at_start`` changes each before it runs."""

    def __init__(
        self, count: int = 2, *, memory_bytes_max: int | None = None,
        at_start: Callable[[ActedChild], None] = lambda child: None,
    ) -> None:  # fmt: skip
        self.children: list[ActedChild] = []
        """All processes, in the order of their starts."""
        self.said: list[str] = []
        self.wishes = Wishes()
        self.at_start = at_start
        self.refusals = 0
        """How many starts the machine refuses next."""
        self.supervisor = Supervisor(
            self._start, count, self.wishes, self.said.append, memory_bytes_max=memory_bytes_max
        )
        self.task = asyncio.ensure_future(self.supervisor.run())

    async def _start(self, number: int) -> ActedChild:
        await asyncio.sleep(0)
        if self.refusals:
            self.refusals -= 1
            raise BlockingIOError(11, "Resource temporarily unavailable")
        child = ActedChild(number, 1000 + len(self.children))
        self.at_start(child)
        self.children.append(child)
        return child

    def alive(self) -> list[int]:
        """The numbers of the processes that live."""
        return sorted(child.number for child in self.children if child.exit_code is None)

    async def stopped(self) -> int:
        self.wishes.stop()
        return await self.task


def play(scene: Callable[[], Awaitable[None]]) -> None:
    """Run a scene in virtual time."""

    async def main() -> None:
        await scene()

    virtual_time.run(main())
