"""A task: a function that runs in a worker, and the calls that send it there.

add.delay(2, 3)                      from threads and scripts; blocks until it is written
await add.adelay(2, 3)               in a coroutine
add(2, 3)                            calls the function, here and now
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, NoReturn, ParamSpec, TypeVar
from uuid import uuid4

from sharegroup.durations import due_ms_of
from sharegroup.errors import InvalidConfig
from sharegroup.worker.decisions.messages import class_name, message_of
from sharegroup.worker.declarations.checks import is_whole
from sharegroup.worker.declarations.foreign_options import refuse_unknown
from sharegroup.worker.records.outcomes import RetryAfter
from sharegroup.worker.results.result import checked_id
from sharegroup.worker.tasks import results
from sharegroup.worker.tasks.application import Tasks
from sharegroup.worker.tasks.elsewhere import OF_A_CALL, OF_RETRY, OF_TASKS, lacks
from sharegroup.worker.tasks.failures import MaxRetriesExceededError
from sharegroup.worker.tasks.message import TaskMessage, message_for
from sharegroup.worker.tasks.options import TaskOptions
from sharegroup.worker.tasks.registry import current_app
from sharegroup.worker.tasks.request import CURRENT_REQUEST, TaskRequest
from sharegroup.worker.tasks.settings import CHECKS, seconds_of

P = ParamSpec("P")
R = TypeVar("R")

REASON_CHARACTERS_MAX = 400
CALL_OPTIONS = (
    *("task_id", "countdown", "eta", "expires", "queue", "ignore_result", "headers"),
    *("priority", "serializer"),
)


class TaskCall(NamedTuple):
    """A call of a task, checked."""

    message: TaskMessage
    id: str
    queue: str
    headers: Mapping[str, str]
    ignore_result: bool
    delay_seconds: float = 0.0
    eta: datetime | None = None
    expires: float | datetime | None = None
    priority: int | None = None

    def result(self, app: Tasks) -> results.AsyncResult:
        """Return the result of the call, to be read through the application that sends it."""
        return results.AsyncResult(self.id, app, queue=self.queue, ignored=self.ignore_result)


class Task(Generic[P, R]):
    """A function that runs in a worker; ``delay`` and ``apply_async`` send it there."""

    def __init__(
        self, function: Callable[..., Any], options: TaskOptions, app: Tasks | None
    ) -> None:
        self.run = function
        self.options = options
        self.name = options.name
        self._app = app
        self.is_coroutine = inspect.iscoroutinefunction(function)
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise InvalidConfig(
                f"task {self.name!r}: it has a yield, so calling it would not run it"
            )
        self._signature = inspect.signature(function)
        own: Any = self
        functools.update_wrapper(own, function, updated=())

    @property
    def app(self) -> Tasks:
        """The application of the task; of a shared one, the one that was made last."""
        if self._app is not None:
            return self._app
        return current_app(self.name)

    @property
    def request(self) -> TaskRequest:
        """The run of the task that is running in this coroutine or thread."""
        return CURRENT_REQUEST.get()

    @property
    def max_retries(self) -> int | None:
        """How often a run that failed is tried again; None for no limit."""
        return self.options.max_retries

    @property
    def default_retry_delay(self) -> float:
        """Seconds before a run that failed is tried again."""
        return self.options.default_retry_delay

    @property
    def MaxRetriesExceededError(self) -> type[Exception]:  # noqa: N802  As Celery.
        """The class of that name, for ``except self.MaxRetriesExceededError``."""
        return MaxRetriesExceededError

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, here and now; of a coroutine function the result is awaited."""
        result: R = self.run(*self._self(), *args, **kwargs)
        return result

    # Calls from threads and scripts.

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> results.AsyncResult:
        """Send the task to a worker; blocks until its record is written."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> results.AsyncResult:
        """Send the task to a worker, with options; blocks until its record is written.

        Options are countdown, eta, expires, queue, task_id, ignore_result, headers and priority.
        """
        call = self._call(args, kwargs, options)
        if self.app.conf.task_always_eager:
            return self.apply(args, kwargs, **options)
        self.app.send(call)
        return call.result(self.app)

    def apply(
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> results.AsyncResult:
        """Run the task here and now, with its retries, and return its result."""
        result: results.AsyncResult = self.app.run_eagerly(self, self._call(args, kwargs, options))
        return result

    def delay_on_commit(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Send the task when Django's transaction commits, or now if there is none."""
        self.apply_async_on_commit(args, kwargs)

    def apply_async_on_commit(
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> None:
        """Send the task when Django's transaction commits; mistakes are found now.

        If the process dies between the commit and the call, the task is not sent; the backend of
        `django.tasks` (`sharegroup.django`) has an outbox for that.
        """
        from django.db import transaction  # Here, because only projects with Django have it.

        self._call(args, kwargs, options)
        transaction.on_commit(lambda: self.apply_async(args, kwargs, **options))

    # Calls in coroutines.

    async def adelay(self, *args: P.args, **kwargs: P.kwargs) -> results.AsyncResult:
        """Send the task to a worker, in a coroutine."""
        return await self.aapply_async(args, kwargs)

    async def aapply_async(
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> results.AsyncResult:
        """Send the task to a worker, with options, in a coroutine."""
        call = self._call(args, kwargs, options)
        if self.app.conf.task_always_eager:
            # In a thread, because one with a loop cannot run another for a coroutine.
            return await asyncio.to_thread(self.apply, args, kwargs, **options)
        await self.app.asend(call)
        return call.result(self.app)

    def AsyncResult(self, task_id: str) -> results.AsyncResult:  # noqa: N802  As Celery.
        """Return the result of a call with this id."""
        return results.AsyncResult(
            task_id, self.app, queue=self.app.queue_of(self.name, self.options)
        )

    # In a run.

    def retry(
        self,
        *,
        exc: BaseException | None = None,
        countdown: float | timedelta | None = None,
        eta: datetime | None = None,
        max_retries: int | None = None,
        **unknown: Any,
    ) -> NoReturn:
        """Run the task again later: ``raise self.retry(exc=error, countdown=30)``.

        Raises ``exc``, or MaxRetriesExceededError, if it was retried ``max_retries`` times.
        """
        whose = f"task {self.name!r}: self.retry"
        refuse_unknown(unknown, ("exc", "countdown", "eta", "max_retries"), whose, OF_RETRY, "it")
        request, error = self.request, exc or sys.exception()
        if request.called_directly:
            raise error or RuntimeError(f"{whose}: the function was called as a plain one")
        most = self.max_retries if max_retries is None else max_retries
        if most is not None and request.retries >= most:
            if exc is not None:
                raise exc
            raise MaxRetriesExceededError(
                f"{self.name}[{request.id}] was retried {request.retries} times, its max_retries"
            ) from error
        if eta is not None:
            if countdown is not None:
                raise ValueError(f"{whose}: countdown and eta; expected one of them")
            now_ms = request.now_ms()
            countdown = max(due_ms_of(eta, now_ms=now_ms) - now_ms, 0) / 1000
        delay = self.default_retry_delay if countdown is None else countdown
        raise RetryAfter(delay, _reason(error)) from error

    def after_failure(self, error: Exception, request: TaskRequest, chance: float) -> Exception:
        """Return the exception that ends a failed run: the same, or RetryAfter."""
        options, most = self.options, self.options.max_retries
        if not options.retries_itself(error) or (most is not None and request.retries >= most):
            return error
        return RetryAfter(options.countdown(request.retries, chance), _reason(error))

    # Parts of the methods above.

    def check_arguments(self, message: TaskMessage) -> None:
        """Raise TypeError if the function does not take these arguments."""
        try:
            self._signature.bind(*self._self(), *message.args, **message.kwargs)
        except TypeError as error:
            raise TypeError(
                f"{self.name}{self._parameters()} got args={message.args!r:.200} and "
                f"kwargs={message.kwargs!r:.200}: {error}"
            ) from None

    def _parameters(self) -> str:
        parameters = list(self._signature.parameters.values())[1 if self.options.bind else 0 :]
        return str(inspect.Signature(parameters))

    def _self(self) -> tuple[Any, ...]:
        return (self,) if self.options.bind else ()

    def _call(
        self,
        args: Sequence[Any] | None,
        kwargs: Mapping[str, Any] | None,
        options: Mapping[str, Any],
    ) -> TaskCall:
        return call_of(self.app, self, args, kwargs, options)

    if not TYPE_CHECKING:  # So a type checker reports an unknown name.

        def __getattr__(self, name: str) -> Any:
            raise lacks(f"task {self.__dict__.get('name', '')!r}", name, OF_TASKS)

    def __repr__(self) -> str:
        return f"<task {self.name}>"


def call_of(
    app: Tasks,
    task: Task[..., Any] | str,
    args: Sequence[Any] | None,
    kwargs: Mapping[str, Any] | None,
    given: Mapping[str, Any],
) -> TaskCall:
    """Check the arguments and options of a call; a text names a task that this process lacks."""
    of_task = TaskOptions(name=task) if isinstance(task, str) else task.options
    message = message_for(of_task.name, args or (), kwargs or {})
    if not isinstance(task, str) and of_task.typing:
        task.check_arguments(message)
    whose = f"task {message.task!r}"
    refuse_unknown(given, CALL_OPTIONS, whose, OF_A_CALL, "a call")
    options = {name: value for name, value in given.items() if value is not None}
    if "serializer" in options:
        try:
            CHECKS["task_serializer"](options["serializer"])
        except ValueError as error:
            raise InvalidConfig(f"{whose}: serializer: {error}") from error
    eta, countdown = options.get("eta"), options.get("countdown", 0.0)
    if eta is not None and countdown:
        raise ValueError(f"{whose}: countdown and eta; expected one of them")
    _check_zone(eta, f"{whose}: eta")
    ignored = options.get("ignore_result", of_task.ignore_result)
    return TaskCall(
        message=message,
        id=checked_id(options.get("task_id", str(uuid4()))),
        queue=app.queue_of(message.task, of_task, options.get("queue")),
        headers=options.get("headers", {}),
        ignore_result=app.conf.task_ignore_result if ignored is None else ignored,
        delay_seconds=_seconds(countdown, f"{whose}: countdown"),
        eta=eta,
        expires=_expires(options.get("expires", of_task.expires), whose),
        priority=_priority(
            options.get("priority", of_task.priority), app.conf.task_queue_max_priority, whose
        ),
    )


def _seconds(value: Any, what: str) -> float:
    number = seconds_of(value)
    if number is None:
        raise TypeError(f"{what}={value!r:.80}; expected seconds or a timedelta")
    return max(float(number), 0.0)  # As Celery: a time that has passed is now.


def _expires(value: Any, whose: str) -> float | datetime | None:
    if value is None:
        return None
    if not isinstance(value, datetime):
        return _seconds(value, f"{whose}: expires")
    _check_zone(value, f"{whose}: expires")
    return value


def _check_zone(value: Any, what: str) -> None:
    if isinstance(value, datetime) and value.utcoffset() is None:
        raise ValueError(
            f"{what}={value.isoformat()} has no zone, so it is another time on each machine; "
            f"expected datetime.now(UTC) + ..., or django.utils.timezone.now() + ..."
        )


def _priority(value: Any, highest: int | None, whose: str) -> int | None:
    if value is None:
        return None
    if highest is None:
        raise InvalidConfig(
            f"{whose}: priority={value!r:.80}, and its queue has none; set "
            f"app.conf.task_queue_max_priority = 9, which gives each queue three topics, or give "
            f"urgent tasks a queue of their own"
        )
    if not is_whole(value, 0, highest):
        raise ValueError(
            f"{whose}: priority={value!r:.80}; expected 0 to {highest}, the most urgent one"
        )
    assert isinstance(value, int)
    return value


def _reason(error: BaseException | None) -> str:
    if error is None:
        return "self.retry()"
    return f"{class_name(error)}: {message_of(error, REASON_CHARACTERS_MAX)}"
