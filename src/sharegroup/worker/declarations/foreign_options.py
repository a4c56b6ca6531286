"""Well-known options of other frameworks, with their equivalents in this one.

They are refused with a hint.  A setting that is silently ignored costs its user a day, and "unknown
option" does not say what to use instead.  The names are those of Kafka's consumers, Karafka,
Celery, Dramatiq and FastStream.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping

from sharegroup.errors import InvalidConfig
from sharegroup.worker.declarations.foreign_settings import DELAY, OF_SETTINGS, PAYLOAD, PROCESSES

_NO_OFFSETS = (
    "a share group has no position to move (a consumer group has: @app.consumer_group): each "
    "record is settled by itself. To go back, use "
    "`sharegroup groups --reset-offsets`; to see dead letters again, `sharegroup dlq redrive`"
)
_NO_COMMIT = "each record is settled when its handler ends: return, raise, or record.accept()"
_NO_PARTITIONS = (
    "no member owns a partition (of a consumer group one does: @app.consumer_group); "
    "record.pause(delay) or raise RetryAfter(delay)"
)
_RETRY = (
    "retry=Retry(max_attempts=..., initial_delay=..., multiplier=..., max_delay=..., jitter=..., "
    "retry_on=..., dont_retry_on=...)"
)
_GROUP_CONFIG = "group_configs={{'{name}': ...}}, a setting of the group on the broker"
_TOPICS = "topics='name' or topics=('one', 'another')"
_RESULT = "result_for='1h', with App(store=...); or to='topic': docs/worker-results.md"
_SCHEDULES = "@app.every('5m') or @app.cron('0 6 * * 1-5') above @app.share_group"
_ONE_MEMBER = "nothing: each topic of a group has a member of its own, in each process"

ELSEWHERE: Mapping[str, str] = {
    # Offsets: members of a share group cannot move an offset.
    "seek": _NO_OFFSETS,
    "offset": _NO_OFFSETS,
    "offsets": _NO_OFFSETS,
    "manual_offset_management": _NO_COMMIT,
    "manual_offsets": _NO_COMMIT,
    "enable_auto_commit": _NO_COMMIT,
    "auto_commit": _NO_COMMIT,
    "auto_commit_interval_ms": _NO_COMMIT,
    "commit": _NO_COMMIT,
    "auto_offset_reset": "start_from='earliest' or 'latest'",
    "initial_offset": "start_from='earliest' or 'latest'",
    # Partitions: a share group assigns them, and no member owns one.
    "assign": _NO_PARTITIONS,
    "partitions": "concurrency=...: any number of members and handlers share a partition",
    "partition": "concurrency=...: any number of members and handlers share a partition",
    "pause": _NO_PARTITIONS,
    "pause_partition": _NO_PARTITIONS,
    "resume": _NO_PARTITIONS,
    "pause_timeout": _RETRY,
    "long_running_job": "max_handling=...: locks are renewed for this time; nothing is paused",
    "long_running": "max_handling=...: locks are renewed for this time; nothing is paused",
    "virtual_partitions": "order_by=...: records of one key in order, all others concurrently",
    "partition_assignment_strategy": "nothing: the broker assigns the partitions",
    "exactly_once": "@app.consumer_group(..., exactly_once=True)",
    "on_failure": "@app.consumer_group(..., on_failure=...): in a share group, others go on",
    "group_instance_id": "nothing: share groups have no static members",
    "group_protocol": "nothing: it is always a share group",
    "rebalance_listener": "nothing: a rebalance takes no record away",
    # Filters: unwanted records must be settled, too.
    "filter": "only=..., a function of the record, or of the payload and the record",
    "filters": "only=..., a function of the record, or of the payload and the record",
    "throttling": "rate_limit='100/s'",
    "throttle": "rate_limit='100/s'",
    # Settings of Kafka's consumers.
    "group_id": "the first argument of share_group",
    "consumer_group": "the first argument of share_group",
    "topic": _TOPICS,
    "queue": _TOPICS,
    "queues": _TOPICS,
    "bootstrap_servers": "App(..., bootstrap_servers=...)",
    "max_poll_records": "concurrency=..., or batch=Batching(size=...) for a handler of lists",
    "max_poll_interval_ms": "max_handling=...",
    "fetch_max_bytes": "in_flight_bytes=...",
    "prefetch_count": "concurrency=...: the speed of handlers decides how much is fetched ahead",
    "prefetch": "concurrency=...: the speed of handlers decides how much is fetched ahead",
    "session_timeout_ms": _GROUP_CONFIG.format(name="share.session.timeout.ms"),
    "heartbeat_interval_ms": _GROUP_CONFIG.format(name="share.heartbeat.interval.ms"),
    "isolation_level": "nothing: the groups of workers read committed records",
    "record_lock_duration_ms": _GROUP_CONFIG.format(name="share.record.lock.duration.ms"),
    "delivery_attempt_limit": _GROUP_CONFIG.format(name="share.delivery.count.limit"),
    "acknowledgement_mode": _NO_COMMIT,
    "share_acknowledgement_mode": _NO_COMMIT,
    "value_deserializer": PAYLOAD,
    "key_deserializer": "record.key, which is bytes",
    "deserializer": PAYLOAD,
    "serializer": PAYLOAD,
    # Retries and outcomes as other frameworks call them.
    "max_attempts": "retry=Retry(max_attempts=...)",
    "max_retries": "retry=Retry(max_attempts=...), which counts the first run too",
    "retries": "retry=Retry(max_attempts=...), which counts the first run too",
    "min_backoff": "retry=Retry(initial_delay=...)",
    "max_backoff": "retry=Retry(max_delay=...)",
    "retry_backoff": "retry=Retry(initial_delay=..., multiplier=...)",
    "retry_backoff_max": "retry=Retry(max_delay=...)",
    "retry_jitter": "retry=Retry(jitter=...)",
    "jitter": "retry=Retry(jitter=...)",
    "default_retry_delay": "retry=Retry(initial_delay=..., multiplier=1)",
    "retry_on": "retry=Retry(retry_on=...)",
    "autoretry_for": "retry=Retry(retry_on=...)",
    "retry_for": "retry=Retry(retry_on=...)",
    "retry_when": "retry=Retry(retry_on=...), or raise RetryAfter(delay) in the handler",
    "dont_retry_on": "retry=Retry(dont_retry_on=...)",
    "dont_autoretry_for": "retry=Retry(dont_retry_on=...)",
    "reject_for": "retry=Retry(dont_retry_on=...), or raise Reject(...) in the handler",
    "throws": "retry=Retry(dont_retry_on=...)",
    "on_retry_exhausted": "dead_letter=DeadLetter('topic'), or app.on('record.dead_lettered')",
    "dead_letter_queue": "dead_letter=DeadLetter('topic')",
    "dlq": "dead_letter=DeadLetter('topic')",
    "time_limit": "max_handling=...",
    "soft_time_limit": "max_handling=...",
    "timeout": "max_handling=...",
    "task_time_limit": "max_handling=...",
    "acks_late": "nothing: a record is always settled after its handler",
    "ack_policy": "nothing: returning accepts, Reject rejects, other exceptions lead to a retry",
    "no_ack": "nothing: a record is always settled after its handler",
    "auto_ack": "nothing: a record is always settled after its handler",
    "max_workers": "concurrency=... for coroutines and threads, processes=... for processes",
    "workers": "concurrency=... for coroutines and threads, processes=... for processes",
    "threads": "concurrency=...: plain functions run in this number of threads",
    "key": "order_by='key', or a function of the payload",
    "ordering": "order_by='key', or a function of the payload",
    "priority": "a topic for each priority, and priorities={'urgent': 10} in the handler's options",
    **dict.fromkeys(("max_age", "expires", "expire_in", "expiring"), "expires_after='10m'"),
    "eta": DELAY,
    "countdown": DELAY,
    "schedule": _SCHEDULES,
    "run_every": _SCHEDULES,
    "cron": _SCHEDULES,
    "every": _SCHEDULES,
    "periodic": _SCHEDULES,
    # Karafka's routing, and its plan for share groups.
    "consumer": "the function below the decorator, or handler=...",
    "consumer_persistence": "nothing: a handler that is a class is created once",
    "active": "App.narrow(groups), or `sharegroup worker --groups`",
    "subscription_group": _ONE_MEMBER,
    "multiplexing": _ONE_MEMBER,
    "parallel_segments": "order_by='key', and more processes: `sharegroup worker` on more machines",
    "swarm": PROCESSES,
    "adaptive_iterator": "max_handling=...: each record has its own time and lock",
    "eofed": "nothing: a group does not tell the end of a topic; `sharegroup groups` shows the lag",
    "inline_insights": "`sharegroup groups`, or the metric sharegroup_worker_lag",
    "direct_assignments": _NO_PARTITIONS,
    "pattern": _TOPICS + "; a pattern would read topics that nobody has declared",
    "patterns": _TOPICS + "; a pattern would read topics that nobody has declared",
    "delay_by": DELAY,
    "delaying": DELAY,
    "piping": "await other.send(...) in the handler",
    "offset_metadata": "nothing: the worker keeps the finished records there",
    "mark_as_consumed": _NO_COMMIT,
    "config": "app.topic(name, partitions=..., configs={...})",
    "replication_factor": "App(replication_factor=...), or app.topic(name, replication_factor=...)",
    "deserializers": PAYLOAD,
    "max_messages": "concurrency=..., or batch=Batching(size=...) for a handler of lists",
    "max_wait_time": "batch=Batching(wait_seconds=...) for a handler of lists",
    "pause_max_timeout": "retry=Retry(max_delay=...)",
    "pause_with_exponential_backoff": "retry=Retry(multiplier=...)",
    "share_backoff_buffer": "nothing: the lock of a record that waits is renewed",
    "record_lock_duration": _GROUP_CONFIG.format(name="share.record.lock.duration.ms"),
    "share_record_lock_duration": _GROUP_CONFIG.format(name="share.record.lock.duration.ms"),
    "share_record_lock_duration_ms": _GROUP_CONFIG.format(name="share.record.lock.duration.ms"),
    "share_delivery_count_limit": _GROUP_CONFIG.format(name="share.delivery.count.limit"),
    "client_rack": "kafka={'client_rack': ...}",
    "fetch_min_bytes": "kafka={'fetch_min_bytes': ...}",
    # Celery's tasks.
    "bind": "a second parameter annotated Record: record.attempt, record.history, record.pause()",
    "base": "a class with handle, open and close, or @app.middleware",
    "ignore_result": "nothing: a result is kept only with result_for='1h'",
    "store_errors_even_if_ignored": "dead_letter=DeadLetter('topic'), which has all errors",
    "send_events": "app.on('record.started'), and so on: events are always there",
    "track_started": "app.on('record.started')",
    "backend": _RESULT,
    "compression": "App(..., client={'compression': ...})",
    "acks_on_failure_or_timeout": "retry=None: a failed record becomes a dead letter",
    "reject_on_worker_lost": "nothing: the record of a lost worker is delivered again",
    "retry_kwargs": _RETRY,
    "typing": "nothing: payloads are always checked against the annotation",
    "pydantic": "the annotation of the handler's first parameter: a pydantic model",
    "trail": "nothing: a handler has no children; record.headers are passed on by you",
    "exchange": _TOPICS,
    "routing_key": "the sender's key: handler.send(..., key=...)",
    "link": "await other.send(...) at the end of the handler",
    "link_error": "app.on('record.dead_lettered'), or a handler that reads the dead-letter topic",
    "shadow": "name='...'",
    "singleton": "the sender's unique name: handler.send(..., unique='invoice-42', for_='1h')",
    # Dramatiq and FastStream.
    "actor_name": "name='...'",
    "queue_name": _TOPICS,
    "store_results": _RESULT,
    "pipe_ignore": "await other.send(...) in the handler, with what it needs",
    "decoder": PAYLOAD,
    "parser": PAYLOAD,
    "middlewares": "@app.middleware",
    "title": "name='...'",
    "actor_class": "a class with handle, open and close, or @app.middleware",
    "broker": "App(..., bootstrap_servers=...)",
    "on_success": "app.on('record.succeeded'), or to='topic' for what the handler returns",
    "pipe_target": "to='topic' for what the handler returns",
    "notify_shutdown": "nothing: a handler that is still running at the end of grace is cancelled",
    "result_ttl": _RESULT,
    **dict.fromkeys(
        ("acks_on_failure", "acks_on_timeout"), "retry=None: a failed record becomes a dead letter"
    ),
    "retry_on_worker_lost": "nothing: the record of a lost worker is delivered again",
    "resultrepr_maxsize": "nothing: results are not logged",
    **dict.fromkeys(
        ("pydantic_strict", "pydantic_context", "pydantic_dump_kwargs"),
        "the configuration of the pydantic model, or payload=Payload(decode=..., encode=...)",
    ),
    "batch_timeout_ms": "batch=Batching(wait_seconds=...) for a handler of lists",
    "max_records": "batch=Batching(size=...) for a handler of lists",
    **dict.fromkeys(
        ("consumer_timeout_ms", "polling_interval", "rebalance_timeout_ms"),
        "nothing: records are taken when a handler has room",
    ),
    "check_crcs": "nothing: checksums are always checked",
    "codec": PAYLOAD,
    "dependencies": "startup hooks, app.state and @app.middleware",
    **dict.fromkeys(
        ("description", "include_in_schema"), "the docstring of the handler, and name='...'"
    ),
    "exclude_internal_topics": _TOPICS,
    "fetch_max_wait_ms": "kafka={'fetch_max_wait_ms': ...} of a consumer group",
    "max_partition_fetch_bytes": "kafka={'max_partition_fetch_bytes': ...} of a consumer group",
    "no_reply": "nothing: a reply is sent if the record asks for one: docs/worker-results.md",
    "persistent": "nothing: handlers are declared before the start",
    **dict.fromkeys(
        ("listener", "on_assign", "on_lost", "on_revoke"),
        "nothing: a rebalance takes no record away",
    ),
}
"""Name of an option of `share_group` elsewhere: what to use instead."""

_COMMITS = (
    "nothing: the offset of the lowest unfinished record is committed each second, and when "
    "partitions are given up"
)
OF_CONSUMER_GROUPS: Mapping[str, str] = {
    **ELSEWHERE,
    "manual_offset_management": "commit='manual', and record.finish()",
    "manual_offsets": "commit='manual', and record.finish()",
    "enable_auto_commit": _COMMITS,
    "auto_commit": _COMMITS,
    "auto_commit_interval_ms": _COMMITS,
    "transactional": "exactly_once=True",
    **dict.fromkeys(
        ("seek", "offset", "offsets"),
        "app.partitions(group).seek(topic, partition, offset), while it runs, or "
        "`sharegroup groups reset-offsets`, while no worker does",
    ),
    **dict.fromkeys(
        ("pause", "pause_partition", "resume"),
        "app.partitions(group).pause(topic, partition), and resume",
    ),
    "assign": "nothing: the group assigns the partitions",
    "partition_assignment_strategy": (
        "group_protocol='consumer' (the broker assigns) or 'classic' (cooperative-sticky)"
    ),
    **dict.fromkeys(
        ("rebalance_listener", "listener", "on_assign", "on_lost", "on_revoke"),
        "app.on('partitions.assigned'), 'partitions.revoked', 'partitions.lost'",
    ),
    "fetch_max_wait_ms": "kafka={'fetch_max_wait_ms': ...}",
    "max_partition_fetch_bytes": "kafka={'max_partition_fetch_bytes': ...}",
    "virtual_partitions": "order_by='key': records of one key in order, all others concurrently",
    "group_configs": "`sharegroup configs`: settings of a consumer group are not declared here",
    "session_timeout_ms": "the setting consumer.session.timeout.ms of the group on the broker",
    "heartbeat_interval_ms": "the setting consumer.heartbeat.interval.ms of the group",
    "group_instance_id": "nothing: static members are not built",
    "group_id": "the first argument of consumer_group",
    "consumer_group": "the first argument of consumer_group",
}
"""The same for `consumer_group`."""


def elsewhere_of(kind: str) -> Mapping[str, str]:
    """Return the names of options elsewhere for a kind of group, with what to use instead."""
    return ELSEWHERE if kind == "share" else OF_CONSUMER_GROUPS


OF_AN_APP: Mapping[str, str] = {
    **OF_SETTINGS,
    "brokers": "bootstrap_servers='host:port'",
    "servers": "bootstrap_servers='host:port'",
    "broker": "bootstrap_servers='host:port'",
    "group_id": "@app.share_group('group', topics=...), for each handler",
    "group": "@app.share_group('group', topics=...), for each handler",
    "topics": "@app.share_group('group', topics=...), for each handler",
    "client_id": "client={'client_id': ...}",
    "security_protocol": "client={'security_protocol': ..., ...}",
    "sasl_mechanism": "client={'sasl_mechanism': ..., ...}",
    "ssl_context": "client={'ssl_context': ...}",
    "shutdown_timeout": "grace='30s'",
    "grace_period": "grace='30s'",
    "concurrency": "@app.share_group(..., concurrency=...), or defaults={'concurrency': ...}",
    "lifespan": "@app.on_startup and @app.on_shutdown",
    "middlewares": "@app.middleware",
    "beat_schedule": "@app.every('5m') or @app.cron('0 6 * * 1-5'), for each handler",
    "timezone": "@app.cron('0 6 * * 1-5', timezone='Europe/Berlin'), for each schedule",
    # Karafka's setup.
    "kafka": "client={...}, or defaults={'kafka': {...}} for the consumers of all groups",
    "consumer_mapper": "the first argument of share_group is the id of the group",
    "strict_topics_namespacing": "nothing: `sharegroup worker plan` shows all topics",
    "strict_declarative_topics": "nothing: `sharegroup worker plan` shows all topics",
    "initial_offset": "defaults={'start_from': ...}",
    "max_wait_time": "defaults={'batch': Batching(wait_seconds=...)}",
    "max_messages": "defaults={'concurrency': ...}",
    "pause": "defaults={'retry': Retry(...)}",
    "share_groups": "defaults={...}",
    "swarm": PROCESSES,
    "encryption": "payload=Payload(decode=..., encode=...)",
    "monitor": "app.on('record.failed', ...), and metrics",
    "logger": "Python's logging, or `sharegroup worker --log-format`",
    # Celery's settings.
    "broker_url": "bootstrap_servers='host:port'",
    "include": "app.routes(module)",
    "imports": "app.routes(module)",
    "enable_utc": "nothing: times have zones",
    "task_routes": "topics=..., of each handler",
    "task_default_queue": "topics=..., of each handler",
    "task_default_rate_limit": "defaults={'rate_limit': '100/s'}",
    "task_annotations": "defaults={...}",
    "task_time_limit": "defaults={'max_handling': ...}",
    "task_soft_time_limit": "defaults={'max_handling': ...}",
    "task_track_started": "app.on('record.started', ...)",
    "task_always_eager": "async with app.test() as t",
    "worker_concurrency": "defaults={'concurrency': ...}",
    "worker_send_task_events": "app.on('record.started', ...): events are always there",
    "worker_hijack_root_logger": "nothing: the worker configures no logging of yours",
    # Options of handlers.
    **{
        name: f"defaults={{'{name}': ...}}"
        for name in ("retry", "dead_letter", "max_handling", "rate_limit", "expires_after")
    },
}
"""Name of an option of an application elsewhere: what to use instead."""

OF_A_SCHEDULE: Mapping[str, str] = {
    "schedule": "the first argument: app.every('5m') or app.cron('0 6 * * 1-5')",
    "crontab": "app.cron('0 6 * * 1-5', timezone='Europe/Berlin')",
    "task": "to=handler, or the decorator above the handler",
    "args": "payload=..., one value",
    "kwargs": "payload=..., one value",
    "relative": "nothing: an interval counts from 1970, so all processes agree",
    "expires": "missed='skip', or compare the run's due time in the handler",
    "tz": "timezone='Europe/Berlin'",
    "coalesce": "missed='last'",
    "misfire_grace_time": "missed='skip', 'last' or 'all'",
    "max_instances": "concurrency=... of the handler",
}
"""Options of the schedules of Celery and APScheduler."""


def refuse_unknown(
    given: Collection[str],
    known: Collection[str],
    whose: str,
    elsewhere: Mapping[str, str],
    kind: str,
) -> None:
    """Raise InvalidConfig for the first unknown option, with what to use instead if known."""
    for name in given:
        if name in known:
            continue
        if name in elsewhere:
            raise InvalidConfig(f"{whose}: {name} is not an option of {kind}; {elsewhere[name]}")
        if near := difflib.get_close_matches(name, known, n=1):
            hint = f"; did you mean {near[0]}?"
        elif known:
            hint = f"; the options are: {', '.join(sorted(known))}"
        else:
            hint = "; it has no options"
        raise InvalidConfig(f"{whose}: unknown option {name}{hint}")
