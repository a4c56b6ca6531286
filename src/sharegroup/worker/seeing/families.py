"""Every metric of a worker, with its kind, labels and meaning: the one place that names them.

`prometheus` gives each its values, and ``docs/metrics.md`` is made from this table.
"""

from __future__ import annotations

from typing import Literal, NamedTuple


class Family(NamedTuple):
    """One metric."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    unit: str
    text: str
    labels: tuple[str, ...]


_GROUP = ("group",)
_HANDLER = ("group", "handler")

IN_FLIGHT = Family(
    "sharegroup_worker_in_flight", "gauge", "records", "Records in handlers now.", _HANDLER
)
HANDLED = Family(
    "sharegroup_worker_handled_total", "counter", "records",
    "Runs that ended, by how: `succeeded`, `failed`, `rejected`, `released`.",
    (*_HANDLER, "outcome"),
)  # fmt: skip
FAILED = Family(
    "sharegroup_worker_failed_total", "counter", "records",
    "Runs that failed, by the class of the error.", (*_HANDLER, "error"),
)  # fmt: skip
HANDLING = Family(
    "sharegroup_worker_handling_seconds", "histogram", "seconds",
    "How long a run of a handler took.", _HANDLER,
)  # fmt: skip
QUEUED = Family(
    "sharegroup_worker_queue_seconds", "histogram", "seconds",
    "From a delivered record's timestamp to the begin of its run; what waited in a retry topic "
    "counts from when it was due.",
    _HANDLER,
)  # fmt: skip
RETRIES = Family(
    "sharegroup_worker_retries_total", "counter", "records",
    "Retries, by how they wait: `held` here, under the lock, or `postponed` to a retry topic.",
    (*_HANDLER, "how"),
)  # fmt: skip
DEAD_LETTERED = Family(
    "sharegroup_worker_dead_lettered_total", "counter", "records",
    "Records written to the dead letters.", _HANDLER,
)  # fmt: skip
UNREADABLE = Family(
    "sharegroup_worker_unreadable_total", "counter", "records",
    "Records whose bytes were not what the handler takes.", _HANDLER,
)  # fmt: skip
TIMED_OUT = Family(
    "sharegroup_worker_timed_out_total", "counter", "records",
    "Runs that were cancelled because they took longer than `max_handling`.", _HANDLER,
)  # fmt: skip
LOCKS_LOST = Family(
    "sharegroup_worker_locks_lost_total", "counter", "records",
    "Runs that were cancelled because the record's lock had ended.", _HANDLER,
)  # fmt: skip
WAITING = Family(
    "sharegroup_worker_waiting", "gauge", "records",
    "Records that were taken and whose handler has not begun.", _GROUP,
)  # fmt: skip
RETRIES_WAITING = Family(
    "sharegroup_worker_retries_waiting", "gauge", "records",
    "Retries that wait: `held` in this process; in the `tiers` of the whole group, as far as the "
    "scheduler has committed (the same in each process, asked every 15 s).",
    (*_GROUP, "where"),
)  # fmt: skip
HELD_BYTES = Family(
    "sharegroup_worker_held_bytes", "gauge", "bytes",
    "Bytes of the records that are held for a retry.", _GROUP,
)  # fmt: skip
WRITES_BLOCKED = Family(
    "sharegroup_worker_writes_blocked", "gauge", "records",
    "Records whose retry or dead letter can't be written at the moment.", _GROUP,
)  # fmt: skip
JOINED = Family(
    "sharegroup_worker_joined", "gauge", "",
    "1 while this process is a member of the share group.", _GROUP,
)  # fmt: skip
LAG = Family(
    "sharegroup_worker_lag", "gauge", "records",
    "Records of a topic that the group has not settled, records in flight among them (the same "
    "in each process, asked every 15 s; absent while nobody knows).",
    (*_GROUP, "topic"),
)  # fmt: skip
PHASE = Family(
    "sharegroup_worker_phase", "gauge", "",
    "1 for where in its life the process is: `starting`, `running`, `quiet`, `stopping`, "
    "`stopped`, `failed`.",
    ("phase",),
)  # fmt: skip

FAMILIES = (
    IN_FLIGHT, WAITING, HANDLED, FAILED, HANDLING, QUEUED, RETRIES, RETRIES_WAITING, HELD_BYTES,
    DEAD_LETTERED, WRITES_BLOCKED, UNREADABLE, TIMED_OUT, LOCKS_LOST, LAG, JOINED, PHASE,
)  # fmt: skip
"""All of them, in the order of the document."""
