"""What to use in place of the names of Celery that `sharegroup.worker.tasks` does not have.

Each table has the names of one place: options of a task, of a call, of the application, settings,
attributes, and names that are imported.  All of them are errors that say what to do instead, so a
project that moves finds out at its first import, and not in production.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

PAGE = "docs/tasks.md has more"
_CANVAS = (
    "workflows are not built (canvas): let the task send the next one with .delay(...), or use an "
    "engine for workflows"
)
_FAN_OUT = (
    "workflows are not built (canvas): send each task with .delay(...), and let the last one that "
    "finds all rows done in your database go on"
)
_ROUTE = "queue='name': a queue is a topic and a share group of its own"
_SOFT = (
    "time_limit=seconds: a coroutine is cancelled, and a thread gets an exception, so `finally` "
    "runs; there is no second limit"
)
_HOOKS = "@app.worker_app.on_startup and on_shutdown"
_EVENTS = "app.worker_app.on('record.failed'), 'record.dead_lettered' and other events"
_PROGRESS = "keep progress in your database: the states are those of AsyncResult.state"
_RATE = (
    "app.conf.queue_options = {'queue': {'rate_limit': '100/s'}}, which limits a queue in each "
    "process: give the task a queue of its own"
)
_PRIORITY = "priority=... of each @app.task"
_DEAD = "nothing: a task that fails finally is a dead letter, with its arguments and traceback"
_PROCESSES = "sharegroup worker -n 4 runs processes for work that keeps a CPU busy"
_FETCH = "nothing: a worker fetches what its tasks can start now"
_LOST = "nothing: the tasks of a dead worker run again when their locks end"
_STARTED = "nothing: there is no state STARTED, which would cost a write for each run"

CANVAS_OF_TASKS: Mapping[str, str] = {
    **dict.fromkeys(("s", "si", "signature", "subtask", "replace", "add_to_chord"), _CANVAS),
    **dict.fromkeys(("chunks", "map", "starmap", "add_around"), _FAN_OUT),
}
OF_A_TASK: Mapping[str, str] = {
    "base": f"plain functions; for failures and successes: {_EVENTS}",
    "soft_time_limit": _SOFT,
    "rate_limit": _RATE,
    "track_started": _STARTED,
    "trail": "nothing: results have no children",
    "send_events": _EVENTS,
    "store_errors_even_if_ignored": "ignore_result=False; failures are dead letters in any case",
    "throws": "nothing: a class of exceptions has no log level of its own",
    "compression": "TaskApp(..., client={'compression_type': 'gzip'})",
    "backend": "TaskApp(..., backend='redis://...'), for all tasks",
    "exchange": _ROUTE,
    "routing_key": _ROUTE,
    "delivery_mode": "nothing: records are always stored, on all replicas in sync",
    "acks_on_failure_or_timeout": _DEAD,
    "on_failure": _EVENTS,
    "on_success": _EVENTS,
    "on_retry": _EVENTS,
    "before_start": _EVENTS,
    "after_return": _EVENTS,
    "pydantic": "validate in the task, or declare a handler: @app.worker_app.share_group(...)",
    "lazy": "nothing: tasks are registered when they are declared",
    "shared": "nothing: a task of an application is its own; use shared_task for all",
}
"""Options of ``@app.task``."""

OF_A_CALL: Mapping[str, str] = {
    "link": _CANVAS,
    "link_error": f"nothing to call: {_EVENTS}, or dead letters",
    **dict.fromkeys(("chain", "chord", "group_id", "group_index", "root_id", "parent_id"), _CANVAS),
    "soft_time_limit": f"an option of @app.task: {_SOFT}",
    "time_limit": "an option of @app.task(time_limit=...)",
    "exchange": _ROUTE,
    "routing_key": _ROUTE,
    "compression": "TaskApp(..., client={'compression_type': 'gzip'})",
    "shadow": "nothing: logs and dead letters have the name of the task",
    "retry": "nothing: the producer sends again for up to two minutes (delivery_timeout_ms)",
    "retry_policy": "TaskApp(..., client={...}): options of the producer",
    **dict.fromkeys(
        ("producer", "connection", "publisher"),
        "nothing: each process has one producer, which is made by its first call",
    ),
    "add_to_parent": "nothing: results have no children",
    "delivery_mode": "nothing: records are always stored, on all replicas in sync",
    "reply_to": "declare a handler with replies=True, and ask it",
    "stamp": "headers={...}",
    "stamped_headers": "headers={...}",
}
"""Options of ``apply_async`` and ``send_task``."""

OF_RETRY: Mapping[str, str] = {
    **dict.fromkeys(
        ("args", "kwargs", "queue", "priority", "routing_key", "expires"),
        "a retry is the same record: to change it, send another task with apply_async, and return",
    ),
    "throw": "nothing: `raise self.retry(...)`, which always raises",
}
"""Options of ``self.retry``."""

OF_A_RESULT: Mapping[str, str] = {
    **dict.fromkeys(("children", "parent", "collect", "graph", "iterdeps", "build_graph"), _CANVAS),
    "wait": "get(timeout=...)",
    "join": "get(timeout=...) of each result",
    "info": "result",
    "status": "state",
    "then": "let the task send the next one",
    "maybe_throw": "get(timeout=...)",
    "build": "result",
    "date_done": "facts().ended_ms",
    "retries": "facts().attempts, which counts all runs",
    "name": "facts() has what is stored: the queue's handler, the worker and the times",
    "args": "nothing: a result has no copy of its arguments",
    "kwargs": "nothing: a result has no copy of its arguments",
    "as_tuple": "id and queue",
}
"""Attributes of ``AsyncResult``."""

OF_GET: Mapping[str, str] = {
    "no_ack": "nothing",
    "follow_parents": "nothing: results have no parents",
    **dict.fromkeys(("callback", "on_message", "on_interval"), "get(timeout=...) and a call"),
    "disable_sync_subtasks": "let the other task send the next one: a task that waits for tasks "
    "stops all workers when each waits",
    **dict.fromkeys(("EXCEPTION_STATES", "PROPAGATE_STATES"), "state"),
}
"""Arguments of ``AsyncResult.get``."""

OF_REVOKE: Mapping[str, str] = {
    **dict.fromkeys(
        ("terminate", "signal"),
        "the option time_limit of the task: nothing ends a task that runs from outside",
    ),
    "wait": "nothing: it waits for the answer of the workers",
    "timeout": "nothing: it waits for the answer of the workers, up to 30 s",
    "connection": "nothing: each process has its own",
}
"""Arguments of ``AsyncResult.revoke``."""

OF_A_REQUEST: Mapping[str, str] = {
    **dict.fromkeys(("group", "chord", "chain", "children", "callbacks", "errbacks"), _CANVAS),
    **dict.fromkeys(("root_id", "parent_id"), "headers: pass an id of your own on"),
    "correlation_id": "id",
    "reply_to": "declare a handler with replies=True, and ask it",
    "timelimit": "the option time_limit of the task",
    "loglevel": "nothing: the logging module has it",
    "utc": "nothing: all times are UTC",
    "argsrepr": "args",
    "kwargsrepr": "kwargs",
    "is_eager": "called_directly",
}
"""Attributes of ``self.request``."""

OF_TASKS: Mapping[str, str] = {
    **CANVAS_OF_TASKS,
    "update_state": _PROGRESS,
    "send_event": _EVENTS,
    "apply_on_commit": "delay_on_commit(...) or apply_async_on_commit(...)",
    "subtask_from_request": _CANVAS,
    "rate_limit": _RATE,
    "backend": "AsyncResult(id)",
    "on_failure": _EVENTS,
    "on_success": _EVENTS,
    "on_retry": _EVENTS,
    "request_stack": "request",
}
"""Attributes of a task."""

OF_A_TASK_APP: Mapping[str, str] = {
    "control": (
        "AsyncResult(id).revoke(), and sharegroup worker status, quiet, resume, stop; for all: "
        "app.conf.worker_enable_remote_control = True"
    ),
    "add_periodic_task": "app.conf.beat_schedule = {...}",
    "on_after_configure": "app.conf.beat_schedule = {...}",
    "on_after_finalize": "app.conf.beat_schedule = {...}",
    "signature": _CANVAS,
    "canvas": _CANVAS,
    "Task": f"plain functions with bind=True; {_EVENTS}",
    "register_task": "@app.task above a function",
    "start": "run it with: sharegroup worker MODULE:APP",
    "worker_main": "run it with: sharegroup worker MODULE:APP",
    "Worker": "run it with: sharegroup worker MODULE:APP",
    "Beat": "nothing to start: the workers make the runs of beat_schedule",
    "setup_security": "TaskApp(..., client={'security_protocol': ...})",
    "user_options": "options of your own program",
    "steps": _HOOKS,
    "backend": "app.AsyncResult(id)",
    "amqp": _ROUTE,
    "pool": "nothing: each process has one producer",
    "connection": "sharegroup.client has the clients",
    "producer_pool": "nothing: each process has one producer",
    "log": "the logging module",
    "events": "sharegroup worker status, metrics and the console",
    "gen_task_name": "@app.task(name=...)",
    "bugreport": "sharegroup doctor",
}
"""Attributes of a TaskApp."""

OF_THE_ARGUMENTS: Mapping[str, str] = {
    "config_source": "app.config_from_object(...)",
    "set_as_current": "nothing: the TaskApp that was made last is the one of shared tasks",
    "changes": "app.conf.update(...)",
    "autofinalize": "nothing",
    "namespace": "app.config_from_object(..., namespace='CELERY')",
    "strict_typing": "@app.task(typing=False), for a task",
    "task_cls": f"plain functions with bind=True; {_EVENTS}",
    "tasks": "include=['module']",
    "result_backend": "backend='redis://...'",
    "broker_url": "broker='host:9092'",
    "bootstrap_servers": "broker='host:9092'",
    "store": "backend='redis://...', or a function that makes a store, because forked processes "
    "need their own",
    **dict.fromkeys(
        (
            "amqp",
            "backend_cls",
            "loader",
            "log",
            "control",
            "events",
            "fixups",
            "accept_magic_kwargs",
        ),
        "nothing: parts of Celery cannot be replaced here",
    ),
}
"""Arguments of ``Celery(...)``."""

OF_SETTINGS: Mapping[str, str] = {
    **dict.fromkeys(("task_soft_time_limit",), f"task_time_limit: {_SOFT}"),
    "task_track_started": _STARTED,
    "task_annotations": "options of each @app.task",
    "task_default_rate_limit": _RATE,
    "task_default_priority": _PRIORITY,
    "task_inherit_parent_priority": _PRIORITY,
    "task_create_missing_queues": "task_queues=['name', ...]: topics are declared",
    **dict.fromkeys(
        (
            *("task_default_exchange", "task_default_exchange_type", "task_default_routing_key"),
            "task_queue_ha_policy",
        ),
        _ROUTE,
    ),
    "task_default_delivery_mode": "nothing: records are always stored, on all replicas in sync",
    "task_compression": "TaskApp(..., client={'compression_type': 'gzip'})",
    "task_protocol": "nothing: a task is a record with JSON",
    "task_publish_retry": "nothing: the producer sends again for up to two minutes",
    "task_publish_retry_policy": "TaskApp(..., client={...}): options of the producer",
    "task_store_errors_even_if_ignored": "nothing: failures are dead letters in any case",
    "task_store_eager_result": "nothing: an eager task returns its result",
    "task_remote_tracebacks": "nothing: AsyncResult.traceback has the text",
    "task_send_sent_event": _EVENTS,
    "task_acks_on_failure_or_timeout": _DEAD,
    "task_allow_error_cb_on_chord_header": _CANVAS,
    "result_extended": "nothing: a result has no copy of its arguments",
    "result_persistent": "nothing: the backend keeps results",
    "result_compression": "return less, or the address of a file",
    "result_chord_join_timeout": _CANVAS,
    "result_chord_retry_interval": _CANVAS,
    "result_backend_transport_options": "backend=lambda: RedisStore(url, prefix=...)",
    "result_backend_always_retry": "nothing: a result is written four times, then the task is "
    "retried",
    "result_cache_max": "nothing: results are not cached",
    "result_exchange": _ROUTE,
    "database_url": "result_backend='postgresql://...'",
    "database_engine_options": "backend=lambda: PostgresStore(...)",
    "redis_max_connections": "backend=lambda: RedisStore(...)",
    "cache_backend": "result_backend='redis://...'",
    "broker_transport_options": "TaskApp(..., client={...}): options of the Kafka clients; there "
    "is no visibility_timeout, because locks are renewed",
    **dict.fromkeys(
        (
            "broker_connection_retry",
            "broker_connection_retry_on_startup",
            "broker_connection_max_retries",
            "broker_connection_timeout",
            "broker_heartbeat",
            "broker_heartbeat_checkrate",
            "broker_pool_limit",
            "broker_failover_strategy",
            "broker_channel_error_retry",
            "broker_native_delayed_delivery_queue_type",
        ),
        "nothing: the clients connect again by themselves; TaskApp(..., client={...}) has options",
    ),
    "broker_read_url": "broker_url",
    "broker_write_url": "broker_url",
    "broker_use_ssl": "TaskApp(..., client={'security_protocol': 'SSL', ...})",
    "broker_login_method": "TaskApp(..., client={'sasl_mechanism': ...})",
    "worker_prefetch_multiplier": _FETCH,
    "worker_disable_prefetch": _FETCH,
    "worker_eta_task_limit": "nothing: tasks with countdown or eta wait in topics",
    "worker_pool": f"nothing: plain functions run in threads, coroutines on a loop; {_PROCESSES}",
    "worker_autoscaler": "worker_concurrency='auto'",
    "worker_max_tasks_per_child": f"nothing: tasks run in threads; {_PROCESSES}",
    "worker_max_memory_per_child": "`sharegroup worker -n 1 --max-memory 1GiB`",
    "worker_lost_wait": _LOST,
    "worker_hijack_root_logger": "nothing: sharegroup worker logs to standard error",
    "worker_log_format": "nothing: sharegroup worker --log-format",
    "worker_task_log_format": "nothing: sharegroup worker --log-format",
    "worker_redirect_stdouts": "nothing: standard output stays what it is",
    "worker_redirect_stdouts_level": "nothing: standard output stays what it is",
    "worker_log_color": "nothing",
    "worker_send_task_events": _EVENTS,
    "worker_cancel_long_running_tasks_on_connection_loss": "nothing: a task whose lock is lost is "
    "interrupted",
    "worker_proc_alive_timeout": "nothing: there are no pool processes",
    "worker_deduplicate_successful_tasks": "handlers with once_by=...",
    "worker_consumer": "nothing: parts of Celery cannot be replaced here",
    "worker_state_db": "nothing: revoked tasks are removed from their topics",
    "worker_direct": _ROUTE,
    "beat_scheduler": "nothing: the workers make the runs, each once",
    "beat_schedule_filename": "nothing: schedules are kept in a topic",
    "beat_max_loop_interval": "nothing: the workers make the runs, each once",
    "beat_sync_every": "nothing: the workers make the runs, each once",
    "beat_cron_starting_deadline": "nothing: the last missed run is made",
    "security_key": "TaskApp(..., client={'security_protocol': ...})",
    "security_certificate": "TaskApp(..., client={'security_protocol': ...})",
    "event_queue_ttl": _EVENTS,
    "event_serializer": _EVENTS,
    "control_queue_ttl": "nothing: commands expire",
}
"""Settings of ``app.conf``."""

OF_THE_MODULE: Mapping[str, str] = {
    **dict.fromkeys(("chain", "signature", "Signature", "subtask", "maybe_signature"), _CANVAS),
    **dict.fromkeys(("group", "chord", "chunks", "xmap", "xstarmap"), _FAN_OUT),
    "GroupResult": _FAN_OUT,
    "ResultSet": "a list of AsyncResult",
    "current_task": "@app.task(bind=True) and self.request",
    "current_app": "the TaskApp of your project",
    "Celery": "TaskApp: from sharegroup.worker.tasks import TaskApp as Celery",
    "Retry": "raise self.retry(...); in plain handlers sharegroup.worker.RetryAfter",
    "Reject": "sharegroup.worker.Reject(reason): the task becomes a dead letter",
    "Terminated": "nothing: tasks are not ended from outside",
    "SoftTimeLimitExceeded": "time_limit, and TimeoutError in autoretry_for",
    "TimeLimitExceeded": "time_limit, and TimeoutError in autoretry_for",
    "solar": "a schedule of fixed times, or a task that computes the next one",
    "schedule": "a timedelta or a number of seconds in beat_schedule",
    "TimeoutError": "Python's own TimeoutError, which get() and the calls raise",
    "OperationalError": "TimeoutError, and sharegroup.errors.KafkaError of brokers that refuse",
    "ImproperlyConfigured": "sharegroup.errors.InvalidConfig",
    "WorkerLostError": _LOST,
    "states": "the texts of AsyncResult.state, such as 'SUCCESS'",
    "bootsteps": _HOOKS,
    **dict.fromkeys(("worker_init", "worker_process_init", "worker_shutdown"), _HOOKS),
    **dict.fromkeys(
        (
            *("signals", "after_task_publish", "before_task_publish", "task_failure"),
            *("task_postrun", "task_prerun", "task_received", "task_retry", "task_revoked"),
            *("task_success", "worker_ready", "worker_shutting_down"),
        ),
        _EVENTS,
    ),
    "setup_logging": "nothing: sharegroup worker --log-level and --log-format",
    "get_task_logger": "logging.getLogger(__name__)",
    "uuid": "str(uuid.uuid4())",
}
"""Names that are imported from ``celery`` and its modules."""

OF_AN_ENTRY: Mapping[str, str] = {
    "relative": "nothing: an interval counts from 1970, so all processes agree",
    "name": "the key of the entry",
    "crontab": "'schedule': crontab(...)",
    "enabled": "sharegroup schedules pause APP NAME",
    "last_run_at": "nothing: the topic of schedules has it",
}
"""Keys of an entry of ``beat_schedule``."""


def refuse_import(name: str) -> NoReturn:
    """Raise the error for a name of Celery's; an ImportError, whose text an import statement keeps.

    Other names are an AttributeError, as of every module.
    """
    if name in OF_THE_MODULE:
        raise ImportError(
            f"sharegroup.worker.tasks has no {name}; {OF_THE_MODULE[name]} ({PAGE})", name=name
        )
    raise AttributeError(f"module 'sharegroup.worker.tasks' has no attribute {name!r}")


def lacks(owner: str, name: str, others: Mapping[str, str]) -> AttributeError:
    """Return the error for an attribute that an object lacks, with what to use in its place."""
    advice = f"; {others[name]} ({PAGE})" if name in others else ""
    return AttributeError(f"{owner} has no attribute {name!r}{advice}", name=name)
