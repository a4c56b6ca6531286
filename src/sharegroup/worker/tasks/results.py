"""The result of a task, by its id: ``AsyncResult``.

    PENDING    not run yet, or unknown, or no longer kept
    RETRY      the last run failed, and another follows
    SUCCESS    it returned
    FAILURE    it failed finally, and is a dead letter
    REVOKED    it was revoked while it waited, or had expired

Properties and ``get`` block, for threads and scripts; coroutines use ``aget`` and ``afacts``.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sharegroup.dead_letters.reasons import DeadLetterReason
from sharegroup.errors import InvalidConfig
from sharegroup.worker.declarations.foreign_options import refuse_unknown
from sharegroup.worker.results.result import Result, ResultState
from sharegroup.worker.tasks.application import Connection, Tasks
from sharegroup.worker.tasks.elsewhere import OF_A_RESULT, OF_GET, OF_REVOKE, PAGE, lacks
from sharegroup.worker.tasks.failures import TaskFailed, TaskRevokedError, failure
from sharegroup.worker.tasks.request import CURRENT_REQUEST

PENDING, RETRY, SUCCESS = "PENDING", "RETRY", "SUCCESS"
FAILURE, REVOKED = "FAILURE", "REVOKED"
FINAL = (SUCCESS, FAILURE, REVOKED)
FIRST_PAUSE_SECONDS = 0.02
"""The pause of `AsyncResult.get` between two looks; it doubles up to ``interval``."""
NOT_RUN = (DeadLetterReason.CANCELLED, DeadLetterReason.EXPIRED)
"""The reasons for which a task did not run."""


class AsyncResult:
    """The result of a task: its state, and what it returned or how it failed."""

    def __init__(
        self,
        task_id: str,
        app: Tasks,
        *,
        queue: str | None = None,
        ignored: bool = False,
    ) -> None:
        self.id = self.task_id = task_id
        self.queue = queue
        """None for any: all queues of the application are looked at."""
        self.ignored = ignored
        self._app = app

    # In coroutines.

    async def afacts(self) -> Result[Any] | None:
        """Return all that is stored; None if it has not run yet, or is unknown."""
        return await self._app.acall(self._facts)

    async def aget(
        self,
        timeout: float | timedelta | None = None,  # noqa: ASYNC109  By the application's clock.
        *,
        propagate: bool = True,
        interval: float = 0.5,
    ) -> Any:
        """Wait for the outcome, and return what the task returned; as `get`."""
        self._check_get()
        if self.ignored:
            return None
        limit = self._limit(timeout)
        facts = await self._app.acall(lambda on: self._outcome(on, limit, interval), limit)
        return self._value(facts, propagate=propagate)

    async def arevoke(self) -> bool:
        """Make a task that waits a dead letter, in a coroutine; as `revoke`."""
        return await self._app.acall(self._revoke)

    # In threads and scripts.

    def facts(self) -> Result[Any] | None:
        """Return all that is stored; None if it has not run yet, or is unknown."""
        return self._app.call(self._facts)

    def get(
        self,
        timeout: float | timedelta | None = None,
        *,
        propagate: bool = True,
        interval: float = 0.5,
        **unknown: Any,
    ) -> Any:
        """Wait for the outcome, and return what the task returned.

        Raises TaskFailed if the task failed finally; with ``propagate=False`` that is returned.
        It is also an instance of the class that the task raised, if the modules of tasks in this
        process have that class (`tasks.failures`).  Raises TimeoutError after ``timeout`` seconds,
        by default when the result would not be kept longer.
        """
        refuse_unknown(
            unknown, ("timeout", "propagate", "interval"), "AsyncResult.get", OF_GET, "it"
        )
        self._check_get()
        if self.ignored:
            return None
        limit = self._limit(timeout)
        facts = self._app.call(lambda on: self._outcome(on, limit, interval), limit)
        return self._value(facts, propagate=propagate)

    @property
    def state(self) -> str:
        """PENDING, RETRY, SUCCESS, FAILURE or REVOKED."""
        return state_of(self.facts())

    @property
    def result(self) -> Any:
        """What the task returned, or a TaskFailed; None before its first run."""
        facts = self.facts()
        return None if facts is None else self._value(facts, propagate=False)

    @property
    def traceback(self) -> str | None:
        """The text of the traceback of a task that failed finally; None for others."""
        facts = self.facts()
        return (facts.traceback or None) if facts is not None else None

    def ready(self) -> bool:
        """Whether the outcome is final."""
        return self.state in FINAL

    def successful(self) -> bool:
        """Whether the task returned."""
        return self.state == SUCCESS

    def failed(self) -> bool:
        """Whether the task failed finally."""
        return self.state == FAILURE

    def revoke(self, **unknown: Any) -> bool:
        """Make a task that waits (countdown, eta, a retry) a dead letter; it does not run.

        Returns False if it does not wait: it is in its queue, runs, or has run.  Requires
        ``app.conf.worker_enable_remote_control = True``, and workers that run.
        """
        refuse_unknown(unknown, (), "AsyncResult.revoke", OF_REVOKE, "it")
        return self._app.call(self._revoke)

    def forget(self) -> None:
        """Remove what is stored."""
        self._app.call(self._forget)

    # Parts of the methods above.

    async def _facts(self, on: Connection) -> Result[Any] | None:
        if on.app.store is None:
            raise InvalidConfig(
                f"{self._app!r} keeps no results: TaskApp(..., backend='redis://...'), "
                f"'postgresql://...' or 'sqlite:///...', here and in the workers"
            )
        for queue in self._queues(on):
            facts = await on.queues[queue].result(self.id)
            if facts is not None:
                return facts
        return None

    async def _outcome(self, on: Connection, limit: float, interval: float) -> Result[Any]:
        _, clock = on.any_sender().connected()
        until, pause = clock.now() + limit, min(FIRST_PAUSE_SECONDS, interval)
        while True:
            facts = await self._facts(on)
            if facts is not None and state_of(facts) in FINAL:
                return facts
            if clock.now() >= until:
                raise TimeoutError(
                    f"task {self.id} is {state_of(facts)} after {limit:g} s; look whether workers "
                    f"of {', '.join(on.queues[queue].route.group for queue in self._queues(on))} "
                    f"run (sharegroup groups describe GROUP), and whether this id is known"
                )
            await clock.sleep_until(min(clock.now() + pause, until))
            pause = min(pause * 2, interval)

    async def _revoke(self, on: Connection) -> bool:
        return any([await on.revoke(queue, self.id) for queue in self._queues(on)])

    async def _forget(self, on: Connection) -> None:
        for queue in self._queues(on):
            await on.forget(queue, self.id)

    def _queues(self, on: Connection) -> tuple[str, ...]:
        if self.queue is not None and self.queue not in on.queues:
            raise self._app.no_queue(self.queue)
        return tuple(on.queues) if self.queue is None else (self.queue,)

    def _limit(self, timeout: float | timedelta | None) -> float:
        kept = self._app.conf.result_expires
        if timeout is None:
            return kept
        return timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)

    def _check_get(self) -> None:
        if CURRENT_REQUEST.get().id is not None and not self._app.conf.task_always_eager:
            raise RuntimeError(
                f"task {CURRENT_REQUEST.get().task} waits for the result of {self.id}: if all "
                f"places of the workers wait, none runs the other tasks. Let the other task send "
                f"the next one ({PAGE})"
            )

    def _value(self, facts: Result[Any], *, propagate: bool) -> Any:
        state = state_of(facts)
        if state == SUCCESS:
            if facts.omitted_bytes:
                raise InvalidConfig(
                    f"task {self.id} returned {facts.omitted_bytes} bytes, which are not kept; "
                    f"return the address of a file or of a row"
                )
            return facts.value
        if state == REVOKED:
            error: TaskFailed = TaskRevokedError(self.id, facts)
        else:
            modules = (task.run.__module__ for task in self._app.tasks.values())
            error = failure(self.id, facts, modules)
        if propagate:
            raise error
        return error

    if not TYPE_CHECKING:  # So a type checker reports an unknown name.

        def __getattr__(self, name: str) -> Any:
            raise lacks("AsyncResult", name, OF_A_RESULT)

    def __str__(self) -> str:
        return self.id

    def __repr__(self) -> str:
        return f"<AsyncResult {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsyncResult) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)


class EagerResult(AsyncResult):
    """The result of a task that ran here and now: ``task_always_eager`` or ``task.apply``."""

    def __init__(
        self,
        task_id: str,
        app: Tasks,
        value: Any,
        error: BaseException | None,
        trace: str,
    ) -> None:
        super().__init__(task_id, app)
        self._eager_value, self._error, self._trace = value, error, trace

    def get(  # Arguments that wait for nothing are those of `AsyncResult`.
        self,
        timeout: float | timedelta | None = None,  # noqa: ARG002
        *,
        propagate: bool = True,
        interval: float = 0.5,  # noqa: ARG002
        **_: Any,
    ) -> Any:
        """Return what the task returned, or raise what it raised."""
        if self._error is not None and propagate:
            raise self._error
        return self.result

    async def aget(
        self,
        timeout: float | timedelta | None = None,  # noqa: ARG002, ASYNC109
        *,
        propagate: bool = True,
        interval: float = 0.5,  # noqa: ARG002
    ) -> Any:
        """Return what the task returned, or raise what it raised."""
        await asyncio.sleep(0)
        return self.get(propagate=propagate)

    @property
    def state(self) -> str:
        """SUCCESS or FAILURE."""
        return SUCCESS if self._error is None else FAILURE

    @property
    def result(self) -> Any:
        """What the task returned or raised."""
        return self._eager_value if self._error is None else self._error

    @property
    def traceback(self) -> str | None:
        """The text of the traceback of a task that failed."""
        return self._trace or None

    def facts(self) -> Result[Any] | None:
        """Return None: the result of an eager task is not stored."""
        return None

    async def afacts(self) -> Result[Any] | None:
        """Return None: the result of an eager task is not stored."""
        return None

    def revoke(self, **_: Any) -> bool:
        """Return False: it has run."""
        return False

    async def arevoke(self) -> bool:
        """Return False: it has run."""
        return False

    def forget(self) -> None:
        """Do nothing: it is not stored."""


def state_of(facts: Result[Any] | None) -> str:
    """Return Celery's name of a state."""
    if facts is None:
        return PENDING
    match facts.state:
        case ResultState.RETRYING:
            return RETRY
        case ResultState.SUCCEEDED:
            return SUCCESS
        case ResultState.FAILED:
            return REVOKED if facts.reason in NOT_RUN else FAILURE
