"""The tables of pages, files and changes: path, function, and a page's place in the navigation."""

from __future__ import annotations

from typing import NamedTuple

from sharegroup.console.access.roles import Change
from sharegroup.console.pages import (
    around,
    brokers,
    deletions,
    exports,
    groups,
    job_changes,
    jobs,
    letters,
    overview,
    produce,
    records,
    resets,
    rights,
    transactions,
    waiting,
    workers,
)
from sharegroup.console.pages.exports import ExportFunction
from sharegroup.console.pages.page import PageFunction
from sharegroup.console.web.changes import ChangeRoute, group_subject, named_subject
from sharegroup.console.web.live import PAUSE_SECONDS


class Route(NamedTuple):
    """A page, and its name in the navigation; an empty name: it is reached by links."""

    path: str
    page: PageFunction
    name: str = ""
    parent: str = ""
    """The path of the page in the navigation that this one belongs to."""
    needs: tuple[str, ...] = ()
    """The parameters without which there is no such page."""
    takes: tuple[str, ...] = ()
    """Its other parameters, without those of its tables."""
    tables: tuple[str, ...] = ()
    """The names of its tables, which are sorted, searched and paged by parameters."""
    live_seconds: float = PAUSE_SECONDS
    """The least time between two readings of its live parts."""


class DownloadRoute(NamedTuple):
    """A file that is made of records or letters."""

    path: str
    export: ExportFunction
    takes: tuple[str, ...]
    """Its parameters; it needs ``topic``."""


PLACE = ("partition", "offset")
RECORD_LIVE_SECONDS = 10.0
"""The states of a record in many groups need most of the state topic."""
PLANNED = ("kind", "topic")
PLAN_OPTIONS = tuple(name for name in jobs.FIELDS if name not in PLANNED)

ROUTES = (
    Route("/", overview.overview, "Overview", tables=("groups",)),
    Route("/groups", groups.groups, "Share groups", tables=("groups",)),
    Route(
        *("/group", groups.group),
        parent="/groups",
        needs=("id",),
        takes=("span",),
        tables=("members", "partitions", "runs"),
    ),
    Route(
        *("/reset", resets.reset),
        parent="/groups",
        needs=("group",),
        takes=("to", "topic", "offset", "time"),
        tables=("plan",),
    ),
    Route(
        *("/delete", deletions.delete),
        parent="/groups",
        needs=("group",),
        takes=("what", "topic"),
        tables=("plan",),
    ),
    Route(
        *("/letters", letters.letters, "Dead letters"),
        takes=("topic", *letters.CONDITIONS),
        tables=("topics", "kinds", "letters"),
    ),
    Route("/letter", letters.letter, parent="/letters", needs=("topic",), takes=PLACE),
    Route(
        *("/waiting", waiting.waiting, "Waiting"),
        takes=("group", "id", "outcome"),
        tables=("groups", "records", "classes"),
    ),
    Route(
        *("/workers", workers.workers, "Workers"),
        takes=("app", "worker", "outcomes"),
        tables=("workers",),
    ),
    Route("/jobs", jobs.jobs, "Jobs", tables=("jobs",)),
    Route("/job", jobs.job, parent="/jobs", needs=("id",)),
    Route("/plan", jobs.plan, parent="/letters", needs=PLANNED, takes=PLAN_OPTIONS),
    Route(
        *("/records", records.records, "Records"),
        takes=records.SEARCH,
    ),
    Route(
        *("/record", records.record),
        parent="/records",
        needs=("topic",),
        takes=PLACE,
        live_seconds=RECORD_LIVE_SECONDS,
    ),
    Route("/produce", produce.form, parent="/records", needs=("topic",)),
    Route("/topics", around.topics, "Topics", tables=("topics",)),
    Route("/topic", around.topic, parent="/topics", needs=("name",), tables=("partitions",)),
    Route("/consumer-groups", around.consumer_groups, "Consumer groups", tables=("groups",)),
    Route("/transactions", transactions.transactions, "Transactions", tables=("transactions",)),
    Route("/access", rights.rights, "Access", tables=("acls", "users", "quotas")),
    Route("/brokers", brokers.brokers, "Brokers", tables=("brokers", "features", "requests")),
)

DOWNLOADS = (
    DownloadRoute("/letters/export", exports.letters, ("topic", "format", *letters.CONDITIONS)),
    DownloadRoute("/records/export", exports.records, (*records.SEARCH, "format")),
)
"""Files, under the same addresses for browsers and, below that of the API, for programs."""

CHANGES: tuple[ChangeRoute, ...] = (
    ChangeRoute(
        *("/jobs/start-redrive", Change.REDRIVE, named_subject, job_changes.start_redrive),
        fields=(*jobs.FIELDS, "counted", "targets"),
    ),
    ChangeRoute(
        *("/jobs/start-purge", Change.PURGE, named_subject, job_changes.start_purge),
        fields=(*jobs.FIELDS, "counted"),
    ),
    ChangeRoute(
        *("/groups/reset", Change.RESET, group_subject, resets.perform), fields=("group", "plan")
    ),
    ChangeRoute(
        *("/groups/delete-offsets", Change.DELETE, named_subject, deletions.delete_offsets),
        fields=("group", "topic", "plan"),
    ),
    ChangeRoute(
        *("/groups/delete", Change.DELETE, group_subject, deletions.delete_group),
        fields=("group", "plan"),
    ),
    ChangeRoute(
        *("/records/produce", Change.PRODUCE, named_subject, produce.perform),
        fields=("topic", "partition", "key", "value", "null", "headers"),
    ),
    ChangeRoute(
        *("/waiting/run", Change.STEER, group_subject, waiting.run_now), fields=("group", "id")
    ),
    ChangeRoute(
        *("/waiting/cancel", Change.STEER, group_subject, waiting.cancel), fields=("group", "id")
    ),
    ChangeRoute(
        *("/workers/steer", Change.STEER, workers.steered_subject, workers.steer),
        fields=("app", "worker", "intent"),
    ),
    ChangeRoute(
        *("/jobs/abort", Change.ABORT, job_changes.job_subject, job_changes.abort), fields=("id",)
    ),
    ChangeRoute(
        *("/jobs/resume", Change.RESUME, job_changes.job_subject, job_changes.resume),
        fields=("id",),
    ),
)
"""What users may change."""
