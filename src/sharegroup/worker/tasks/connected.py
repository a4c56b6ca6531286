"""The application that sends and runs the tasks of a `TaskApp`: a share group for each queue.

    queue     group and topic             with priorities also
    mail      <name>.mail                 <name>.mail.high, <name>.mail.low

A process may have several at a time: that of its worker, and one that sends (`client_thread`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sharegroup.errors import InvalidConfig
from sharegroup.suggestions import did_you_mean
from sharegroup.worker.app import App
from sharegroup.worker.client_thread import ClientThread
from sharegroup.worker.declarations.policies import Expiry
from sharegroup.worker.declarations.retry import ATTEMPTS_MAX, Retry
from sharegroup.worker.results.result import ID_HEADER, KEEP_HEADER, NOT_KEPT, result_name
from sharegroup.worker.routed import Routed
from sharegroup.worker.sender import Sender
from sharegroup.worker.stores.store import StoreUnavailable
from sharegroup.worker.tasks.application import Tasks
from sharegroup.worker.tasks.message import TaskMessage
from sharegroup.worker.tasks.runs import QueueRuns
from sharegroup.worker.tasks.settings import Settings, servers_of, store_of
from sharegroup.worker.tasks.task import TaskCall

HIGH, LOW = "high", "low"
WEIGHT_HIGH, WEIGHT_NORMAL = 10, 3
"""For each task of low priority that runs, if all have a backlog."""
FORGOTTEN_SECONDS = 0.001
"""How long a forgotten result is kept, because a store has no deletion."""
RETRY = Retry(
    # The rules of each task decide (`QueueRuns`): they end a run with RetryAfter.  The only
    # failure that they cannot see is that of a result that cannot be stored.
    max_attempts=ATTEMPTS_MAX,
    max_delay="10m",
    retry_on=(StoreUnavailable,),
)


@dataclass(frozen=True, slots=True)
class Connected:
    """An application, with the handler of each queue."""

    app: App
    queues: Mapping[str, Routed[TaskMessage, Any]]
    highest_priority: int | None

    def any_sender(self) -> Sender[TaskMessage]:
        """Return the sender of one of the queues; they share their producer."""
        return next(iter(self.queues.values())).send

    async def send(self, call: TaskCall) -> None:
        """Write the record of a task."""
        routed = self.queues.get(call.queue)
        if routed is None:
            raise InvalidConfig(
                f"task {call.message.task!r}: its queue {call.queue!r} was declared after the "
                f"application was connected, which has {', '.join(self.queues)}; import the task "
                f"before (include=[...], autodiscover_tasks), or name the queue in "
                f"app.conf.task_queues"
            )
        headers = dict(call.headers)
        if call.ignore_result:
            headers[KEEP_HEADER] = NOT_KEPT
        await routed.send(
            call.message,
            id=call.id,
            headers=headers,
            delay=call.delay_seconds,
            at=call.eta,
            expires=call.expires,
            topic=self.topic(routed, call.priority),
        )

    def topic(self, routed: Routed[TaskMessage, Any], priority: int | None) -> str:
        """Return the topic of a priority; without one, that of the middle third."""
        normal, *others = routed.route.topics
        if not others or priority is None or self.highest_priority is None:
            return normal
        third = priority * 3 // (self.highest_priority + 1)
        return (f"{normal}.{LOW}", normal, f"{normal}.{HIGH}")[third]

    async def revoke(self, queue: str, task_id: str) -> bool:
        """Cancel the records of a task that wait; False if there are none, or it was too late."""
        # Imported here, because only a call of `revoke` needs the clients for it.
        from sharegroup.waiting.control_records import Intent
        from sharegroup.waiting.waiting_filter import WaitingFilter
        from sharegroup.waiting.waiting_records import Outcome, WaitingRecords
        from sharegroup.worker.transport.kafka import client_options

        route = self.queues[queue].route
        if not route.steering:
            raise InvalidConfig(
                "revoke: workers do not listen to it; set app.conf.worker_enable_remote_control = "
                "True, here and in the workers. Without it: expires=..., or a mark in your "
                "database that the task looks at"
            )
        selection = WaitingFilter(header=(ID_HEADER, task_id.encode()))
        async with WaitingRecords(route.group, **client_options(self.app)) as waiting:
            known = [record async for record in waiting.records(selection)]
            ids = {record.id for record in known if record.id is not None}
            steered = await waiting.steer(Intent.CANCEL, ids, by=f"task {task_id}", known=known)
        return any(entry.outcome is Outcome.DONE for entry in steered.values())

    async def forget(self, queue: str, task_id: str) -> None:
        """Let the result of a task expire."""
        store, name = self.app.outlet.store, result_name(self.queues[queue].route.group, task_id)
        stored = None if store is None else await store.get(name)
        if store is not None and stored is not None:
            await store.put(name, stored, keep_seconds=FORGOTTEN_SECONDS)


class Client:
    """An application that sends, on an event loop in a thread of its own."""

    def __init__(self, connected: Connected) -> None:
        self.connected = connected
        self.thread = ClientThread(connected.app, "sharegroup-tasks")

    def close(self) -> None:
        """Close its connections."""
        self.thread.close()


def connected(tasks: Tasks, queues: tuple[str, ...]) -> Connected:
    """Declare the application, which is not connected yet."""
    conf = tasks.conf
    options = {"announce": conf.worker_enable_remote_control, **tasks.app_options}
    app = App(
        tasks.main,
        bootstrap_servers=servers_of(conf.broker_url),
        store=store_of(conf.result_backend),
        **options,
    )
    if unknown := sorted(set(conf.queue_options) - set(queues)):
        raise InvalidConfig(
            f"TaskApp {tasks.main!r}: queue_options: there is no queue {unknown[0]!r}"
            f"{did_you_mean(unknown[0], queues)}; the queues are {', '.join(queues)}"
        )
    declared = {queue: _queue(tasks, app, queue) for queue in queues}
    return Connected(app, declared, conf.task_queue_max_priority)


def _queue(tasks: Tasks, app: App, queue: str) -> Routed[TaskMessage, Any]:
    conf: Settings = tasks.conf
    group = f"{tasks.main}.{queue}"
    options: dict[str, Any] = {"concurrency": conf.worker_concurrency}
    if app.store is not None:
        options["result_for"] = conf.result_expires
    topics = [group]
    if conf.task_queue_max_priority is not None:
        topics = [group, f"{group}.{HIGH}", f"{group}.{LOW}"]
        options["priorities"] = {group: WEIGHT_NORMAL, f"{group}.{HIGH}": WEIGHT_HIGH}
    runs = QueueRuns(tasks, queue)
    routed: Routed[TaskMessage, Any] = app.share_group(
        group,
        topics=topics,
        handler=runs,
        name=queue,
        retry=RETRY,
        max_handling=None,  # The option time_limit of each task limits its runs.
        expires_after=Expiry(),
        steering=conf.worker_enable_remote_control,
        **{**options, **conf.queue_options.get(queue, {})},
    )
    runs.routed = routed
    return routed
