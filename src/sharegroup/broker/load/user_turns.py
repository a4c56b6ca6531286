"""A lock that the tasks of several users take in rotation, for example to decompress a batch.

    alice: a1 a2 a3 a4          the turns: a1 b1 a2 a3 a4
    bob:         b1

The tasks of one user have their turns in the order in which they asked.
"""

from __future__ import annotations

import asyncio
from collections import deque

from sharegroup.core.security.principal import Principal


class UserTurns:
    """A lock that the tasks of many users take in turn; the user None is one of them."""

    __slots__ = ("_is_taken", "_user", "_waiting")

    def __init__(self) -> None:
        self._is_taken = False
        self._user: Principal | None = None
        """The user of the last turn."""
        self._waiting: dict[Principal | None, deque[asyncio.Future[None]]] = {}
        """The waiting tasks by user, in the order of the users' next turns."""

    def __len__(self) -> int:
        """Return the number of waiting tasks."""
        return sum(map(len, self._waiting.values()))

    async def acquire(self, user: Principal | None) -> None:
        """Return when it is the turn of this task, which ends with `release`."""
        if not self._is_taken:
            # Nobody waits then, because `release` passes the lock on to the first waiting task.
            self._is_taken, self._user = True, user
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(user, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._forget(user, turn)
            else:
                self.release()  # The turn came together with the cancellation.
            raise

    def release(self) -> None:
        """End the turn; the first task of the next user has the next one."""
        assert self._is_taken, "only a task whose turn it is ends it"
        while self._waiting:
            if self._user in self._waiting:  # Others are first.
                self._waiting[self._user] = self._waiting.pop(self._user)
            self._user = next(iter(self._waiting))
            tasks = self._waiting[self._user]
            turn = tasks.popleft()
            if not tasks:
                del self._waiting[self._user]
            if not turn.done():  # Otherwise its task is being cancelled.
                turn.set_result(None)
                return
        self._is_taken = False

    def _forget(self, user: Principal | None, turn: asyncio.Future[None]) -> None:
        """Forget a task that was cancelled while it waited."""
        tasks = self._waiting.get(user)
        if tasks is not None and turn in tasks:
            tasks.remove(turn)
            if not tasks:
                del self._waiting[user]
