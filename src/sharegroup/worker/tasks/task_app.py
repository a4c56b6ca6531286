"""The application of tasks, as in Celery: ``@app.task``, ``task.delay(...)``, ``app.conf``.

    app = TaskApp("shop", broker="127.0.0.1:9092", backend="redis://localhost")

    @app.task(autoretry_for=(ConnectionError,), retry_backoff=True)
    def bill(order: int) -> str: ...

    bill.delay(7)                          sharegroup worker shop.celery:app runs it

Below it is an `App`, `TaskApp.worker_app`, with a share group for each queue.  It is declared when
the first task is sent or a worker starts, and then the settings are fixed.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import TimeoutError as WaitTimeout
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack, overload

from sharegroup.errors import InvalidConfig
from sharegroup.suggestions import did_you_mean
from sharegroup.worker.app import App
from sharegroup.worker.client_thread import PerProcess
from sharegroup.worker.declarations.foreign_options import refuse_unknown
from sharegroup.worker.tasks import eager, results
from sharegroup.worker.tasks.beat import declare_schedules
from sharegroup.worker.tasks.connected import Client, Connected, connected
from sharegroup.worker.tasks.elsewhere import OF_A_TASK_APP, OF_THE_ARGUMENTS, lacks
from sharegroup.worker.tasks.modules import import_related, imported
from sharegroup.worker.tasks.options import TaskArguments, TaskOptions, task_options
from sharegroup.worker.tasks.registry import MADE, SHARED
from sharegroup.worker.tasks.settings import Backend, Settings, read_object
from sharegroup.worker.tasks.task import Task, TaskCall, call_of
from sharegroup.worker.time_limit import time_limit

if TYPE_CHECKING:
    from sharegroup.worker.testing.app_test import AppTest

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

CALL_SECONDS = 30.0
"""How long a call waits for the broker or the backend, besides the time that it asks for."""
APP_OPTIONS = (
    *("client", "grace", "prepare", "redact", "replication_factor", "min_insync_replicas"),
    "announce",
)
"""The arguments that are those of `App`."""
ARGUMENTS = ("broker", "backend", "include", *APP_OPTIONS)


class TaskApp:
    """An application of tasks, with the interface of Celery.

    ``broker`` has the addresses of Kafka brokers; without it, the variable SHAREGROUP_BOOTSTRAP or
    the profile does.  ``backend`` keeps results: a URL of Redis, PostgreSQL or SQLite, or a
    function that makes a store.  ``include`` has modules with tasks.  Further arguments are those
    of `App`.

    Example::

        app = TaskApp("shop", broker="127.0.0.1:9092", backend="redis://localhost")

        @app.task
        def add(x: int, y: int) -> int:
            return x + y

        result = add.delay(2, 3)
        print(result.get(timeout=10))
    """

    def __init__(
        self,
        main: str,
        *,
        broker: str | list[str] | None = None,
        backend: Backend = None,
        include: Iterable[str] = (),
        **app_options: Any,
    ) -> None:
        refuse_unknown(app_options, ARGUMENTS, f"TaskApp {main!r}", OF_THE_ARGUMENTS, "a TaskApp")
        App(main, **app_options)  # Finds what is wrong with them now, and not at the first task.
        self.main = main
        self.app_options = app_options
        self.conf = Settings(f"TaskApp {main!r}")
        self.conf.update(include=list(include))
        if broker is not None:
            self.conf.broker_url = broker
        if backend is not None:
            self.conf.result_backend = backend
        self._own: dict[str, Task[..., Any]] = {}
        self._imports: list[Callable[[], object]] = []
        self._lock = threading.RLock()
        self._worker: Connected | None = None
        """The application for a worker of this process; None before it was asked for."""
        self._worker_process = 0
        """The process in which it was started; a forked one has no worker."""
        self._clients: PerProcess[Client] = PerProcess()
        MADE.append(self)

    # Declarations.

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self, /, **options: Unpack[TaskArguments]
    ) -> Callable[[Callable[..., R]], Task[..., R]]: ...
    def task(self, *function: Any, **options: Any) -> Any:
        """Declare a task; a decorator, with or without options."""
        return _declared(function, options, self._add, self)

    def _add(self, task: Task[..., Any]) -> None:
        _keep(self._own, task)

    @property
    def tasks(self) -> Mapping[str, Task[..., Any]]:
        """The tasks by their names, those of `shared_task` included."""
        return {**SHARED, **self._own}  # Own ones have precedence.

    def config_from_object(self, source: object, *, namespace: str = "") -> None:
        """Take settings from a module or object, by a dotted path or itself.

        With ``namespace="CELERY"`` they are those whose names begin with ``CELERY_``.
        """
        self.conf.update(read_object(imported(source), namespace))

    def autodiscover_tasks(
        self, packages: Iterable[str] | None = None, related_name: str = "tasks"
    ) -> None:
        """Import the modules ``tasks`` of packages, by default of Django's applications.

        They are imported when the first task is sent or a worker starts.
        """
        if isinstance(packages, str):
            raise TypeError(f"autodiscover_tasks({packages!r}): expected a list: [{packages!r}]")
        self._imports.append(lambda: import_related(packages, related_name))

    # Calls by name.

    def send_task(
        self,
        name: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> results.AsyncResult:
        """Send a task by its name; blocks until its record is written.

        This process need not have the task: then only the options of the call count.
        """
        call = call_of(self, self.tasks.get(name, name), args, kwargs, options)
        self.send(call)
        return call.result(self)

    async def asend_task(
        self,
        name: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> results.AsyncResult:
        """Send a task by its name, in a coroutine."""
        call = call_of(self, self.tasks.get(name, name), args, kwargs, options)
        await self.asend(call)
        return call.result(self)

    def AsyncResult(self, task_id: str, *, queue: str | None = None) -> results.AsyncResult:  # noqa: N802
        """Return the result of a task; without its queue, all queues are looked at."""
        return results.AsyncResult(task_id, self, queue=queue)

    # The application below.

    @property
    def worker_app(self) -> App:
        """The `App` that runs the tasks: for hooks, events, health, and other handlers."""
        return self._for_worker().app

    def test(self, **options: Any) -> AppTest:
        """Run the tasks in the process of a test, without a broker and in virtual time."""
        return self.worker_app.test(**options)

    def set_current(self) -> None:
        """Make this the application of shared tasks, in place of the one that was made last."""
        MADE.append(self)

    def close(self) -> None:
        """Close the producer of this process; the next call makes a new one."""
        self._clients.close()

    def queue_of(
        self, name: str, options: TaskOptions | None = None, queue: str | None = None
    ) -> str:
        """Return the queue of a call, of its task, of the routes, or the default one."""
        if queue is not None:
            if queue not in self._queues():
                raise self.no_queue(queue)
            return queue
        if options is not None and options.queue is not None:
            return options.queue
        for pattern, routed in self.conf.task_routes.items():
            if fnmatchcase(name, pattern):
                return routed
        return self.conf.task_default_queue

    def no_queue(self, queue: str) -> InvalidConfig:
        """Return the error for a queue that is not known."""
        queues = self._queues()
        return InvalidConfig(
            f"TaskApp {self.main!r}: there is no queue {queue!r}{did_you_mean(queue, queues)}; the "
            f"queues are {', '.join(queues)}: those of tasks, of task_routes and of task_queues"
        )

    def _queues(self) -> tuple[str, ...]:
        conf = self.conf
        of_tasks = [task.options.queue for task in self.tasks.values()]
        every = (conf.task_default_queue, *conf.task_queues, *conf.task_routes.values(), *of_tasks)
        return tuple(dict.fromkeys(queue for queue in every if queue is not None))

    def _for_worker(self) -> Connected:
        with self._lock:
            if self._worker is None:
                worker = self._connected("the worker's application was declared")
                declare_schedules(self, worker)
                worker.app.on_startup(self._note_process)
                self._worker = worker
            return self._worker

    def _note_process(self) -> None:
        self._worker_process = os.getpid()

    def _connected(self, why: str) -> Connected:
        self._import_tasks()
        made = connected(self, self._queues())
        self.conf.close(why)  # Not before: after an error the settings can be mended.
        return made

    def _import_tasks(self) -> None:
        for module in self.conf.include:
            import_module(module)
        for run in tuple(self._imports):
            run()  # After a failure it runs again; modules that are imported stay so.

    # Calls that need a connection: from threads, and in coroutines.

    def send(self, call: TaskCall) -> None:
        """Write the record of a task; blocks."""
        self.call(lambda on: on.send(call))

    async def asend(self, call: TaskCall) -> None:
        """Write the record of a task, in a coroutine."""
        await self.acall(lambda on: on.send(call))

    def call(self, make: Callable[[Connected], Coroutine[Any, Any, T]], seconds: float = 0.0) -> T:
        """Run a coroutine where senders are connected, and wait for it in this thread.

        ``seconds`` is the time that it waits itself.  Raises RuntimeError on an event loop.
        """
        if asyncio._get_running_loop() is not None:
            raise RuntimeError(
                f"TaskApp {self.main!r}: a blocking call in a coroutine would stop its event loop; "
                f"use await task.adelay(...), task.aapply_async(...), app.asend_task(...), "
                f"result.aget(...) or result.afacts()"
            )
        limit = CALL_SECONDS + seconds
        if (running := self._running()) is not None:
            worker, loop = running
            future = asyncio.run_coroutine_threadsafe(make(worker), loop)
            try:
                return future.result(limit)
            except BaseException as error:
                is_late = isinstance(error, WaitTimeout) and not future.done()
                future.cancel()
                if is_late:
                    raise self._late(limit, worker) from error
                raise
        client = self._client()
        try:
            return client.thread.run(self._on_client(client, make, limit))
        except Exception:
            self._drop_failed(client)
            raise

    async def acall(
        self, make: Callable[[Connected], Coroutine[Any, Any, T]], seconds: float = 0.0
    ) -> T:
        """Run a coroutine where senders are connected, and await it; as `call`."""
        limit = CALL_SECONDS + seconds
        if (running := self._running()) is not None:
            worker, loop = running
            async with time_limit(limit, lambda: self._late(limit, worker)):
                if loop is asyncio.get_running_loop():
                    return await make(worker)
                future = asyncio.run_coroutine_threadsafe(make(worker), loop)
                return await asyncio.wrap_future(future)
        client = await asyncio.to_thread(self._client)  # It may import the modules with tasks.
        try:
            future = client.thread.submit(self._on_client(client, make, limit))
            return await asyncio.wrap_future(future)
        except Exception:
            await asyncio.to_thread(self._drop_failed, client)
            raise

    def _running(self) -> tuple[Connected, asyncio.AbstractEventLoop] | None:
        """Return the application of the worker of this process, and its loop; None without one."""
        worker = self._worker
        if worker is None or self._worker_process != os.getpid():
            return None
        outlet = worker.app.outlet
        if outlet.outbox is None:
            return None
        assert outlet.loop is not None, "a connected application has a loop"
        return worker, outlet.loop

    def _client(self) -> Client:
        # An application of its own: it has its own loop, and a forked process its own of those.
        if self._clients.get("") is None:
            # Before the lock is held: a module may send a task while it is imported.
            self._import_tasks()
        return self._clients.of("", lambda: Client(self._connected("the first task was sent")))

    def _drop_failed(self, client: Client) -> None:
        """Let the next call connect anew, after this one could not."""
        if client.thread.has_failed and self._clients.get("") is client:
            self._clients.close_one("")

    async def _on_client(
        self, client: Client, make: Callable[[Connected], Coroutine[Any, Any, T]], limit: float
    ) -> T:
        async with time_limit(limit, lambda: self._late(limit, client.connected)):
            await client.thread.connected()
            return await make(client.connected)

    def _late(self, limit: float, on: Connected) -> TimeoutError:
        return TimeoutError(
            f"TaskApp {self.main!r}: no answer from {on.app.cluster.where} within {limit:g} s; "
            f"look whether the broker and the backend can be reached. A task that was being sent "
            f"may have been written"
        )

    # Without a worker.

    def run_eagerly(self, task: Task[..., Any], call: TaskCall) -> results.AsyncResult:
        """Run a task here and now, with its retries."""
        return eager.run(self, task, call, random.random)

    if not TYPE_CHECKING:  # So a type checker reports an unknown name.

        def __getattr__(self, name: str) -> Any:
            raise lacks("TaskApp", name, OF_A_TASK_APP)

    def __repr__(self) -> str:
        return f"<TaskApp {self.main!r}, {len(self.__dict__.get('_own', ()))} tasks>"


@overload
def shared_task(function: Callable[P, R], /) -> Task[P, R]: ...
@overload
def shared_task(
    **options: Unpack[TaskArguments],
) -> Callable[[Callable[..., R]], Task[..., R]]: ...
def shared_task(*function: Any, **options: Any) -> Any:
    """Declare a task without an application, for example in an application of Django."""
    return _declared(function, options, lambda task: _keep(SHARED, task), None)


def _declared(
    function: tuple[Any, ...],
    options: Mapping[str, Any],
    add: Callable[[Task[..., Any]], None],
    app: TaskApp | None,
) -> Any:
    given: Any = dict(options)

    def declare(call: Any) -> Task[..., Any]:
        if not callable(call) or isinstance(call, type):
            raise InvalidConfig(
                f"task: {call!r:.80}; expected a function; a class becomes a function with "
                f"bind=True: self.request, self.retry(...)"
            )
        name = given.pop("name", None)
        name = _name_of(call) if name is None else name
        task: Task[..., Any] = Task(call, task_options(name, given), app)
        add(task)
        return task

    return declare(*function) if function else declare


def _name_of(function: Callable[..., Any]) -> str:
    module = function.__module__
    if module == "__main__":  # Under the name by which a worker imports it.
        main = sys.modules["__main__"]
        spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        if spec is not None:
            module = spec.name
        elif file is not None:
            module = Path(file).stem
    return f"{module}.{function.__name__}"


def _keep(tasks: dict[str, Task[..., Any]], task: Task[..., Any]) -> None:
    other = tasks.get(task.name)
    if other is not None and _place(other) != _place(task):
        raise InvalidConfig(
            f"task {task.name!r} is declared twice: {_place(other)} and {_place(task)}; give one "
            f"of them another name=..."
        )
    tasks[task.name] = task


def _place(task: Task[..., Any]) -> str:
    return f"{task.run.__module__}.{task.run.__qualname__}"
