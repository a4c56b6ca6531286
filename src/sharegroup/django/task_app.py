"""The application of a backend: a share group for each queue, a topic for each level of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from sharegroup.django.options import TaskOptions, group_of
from sharegroup.django.priorities import Level, PriorityGate
from sharegroup.django.relay import Relay
from sharegroup.django.runs import TaskRuns
from sharegroup.django.sending import Senders
from sharegroup.durations import seconds
from sharegroup.worker import App, HandlingTimeout
from sharegroup.worker.middleware import Call, Proceed
from sharegroup.worker.time_limit import time_limit


@dataclass(frozen=True, slots=True, eq=False)
class TaskApp:
    """An application that sends the tasks of a backend, and with `as_worker` runs them."""

    backend: str
    """The alias in TASKS."""
    options: TaskOptions
    queues: frozenset[str]
    app: App
    senders: Senders
    runs: TaskRuns
    sender: type[object]
    """The backend's class, which sends its signals."""

    @property
    def identity(self) -> str:
        """The same text for all that send the same tasks to the same places."""
        return repr((self.backend, self.options, sorted(self.queues)))

    def another(self) -> TaskApp:
        """Declare the same application again; one can be connected once at a time."""
        return task_app(self.backend, self.options, self.queues, self.sender)


def task_app(
    backend: str, options: TaskOptions, queues: Collection[str], sender: type[object]
) -> TaskApp:
    """Declare the application of a backend; ``sender`` is the class that sends its signals."""
    app = App(
        options.name,
        bootstrap_servers=options.bootstrap_servers,
        client=options.client,
        grace=options.grace,
        announce=options.announce,
        replication_factor=options.replication_factor,
    )
    runs = TaskRuns(backend, options, sender)
    senders = {}
    for queue in sorted(queues):
        group = group_of(options.name, queue)
        for level in Level:
            routed: Any = app.share_group(
                group,
                topics=f"{group}.{level}",
                handler=runs.run,
                name=f"{queue}.{level}",
                concurrency=options.concurrency,
                retry=options.retry,
                max_handling=None,  # `as_worker` limits the run, without the wait for its turn.
            )
            senders[queue, level] = routed.send
            runs.route = routed.route
    return TaskApp(backend, options, frozenset(queues), app, senders, runs, sender)


def as_worker(tasks: TaskApp, queues: Iterable[str] = (), *, concurrency: int | None = None) -> App:
    """Return the application, to be run: with the order of priorities, and the relay.

    Without ``queues`` it takes and publishes tasks of all.
    """
    app, options = tasks.app, tasks.options
    chosen = frozenset(queues) or tasks.queues
    app.narrow([group_of(options.name, queue) for queue in chosen], concurrency=concurrency)
    gate = PriorityGate(options.concurrency if concurrency is None else concurrency)
    limit = options.max_handling
    limit_seconds = None if limit is None else seconds(limit)
    late = f"the task ran for more than {limit}"

    @app.middleware
    async def by_priority(call: Call, proceed: Proceed) -> Any:
        async with (
            gate.turn(call.payload.priority),
            time_limit(limit_seconds, lambda: HandlingTimeout(late)),
        ):
            return await proceed(call)

    # The topics of other queues may not exist; they are made by the workers that take from them.
    senders = {place: sender for place, sender in tasks.senders.items() if place[0] in chosen}
    relay = Relay(tasks.backend, options.database, senders, tasks.runs)
    app.events.before_letter = relay.note_letter
    app.on_startup(relay.start)
    app.on_shutdown(relay.stop)
    return app
