"""The table of pages: path, page function, and its place in the navigation."""

from __future__ import annotations

from typing import NamedTuple

from sharegroup.console.access.roles import Change
from sharegroup.console.pages import (
    around,
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
)
from sharegroup.console.pages.page import PageFunction
from sharegroup.console.web.changes import ChangeRoute, group_subject, named_subject


class Route(NamedTuple):
    """A page, and its name in the navigation; an empty name: it is reached by links."""

    path: str
    page: PageFunction
    name: str = ""
    parent: str = ""
    """The path of the page in the navigation that this one belongs to."""


ROUTES = (
    Route("/", overview.overview, "Overview"),
    Route("/groups", groups.groups, "Share groups"),
    Route("/group", groups.group, parent="/groups"),
    Route("/reset", resets.reset, parent="/groups"),
    Route("/letters", letters.letters, "Dead letters"),
    Route("/letter", letters.letter, parent="/letters"),
    Route("/jobs", jobs.jobs, "Jobs"),
    Route("/job", jobs.job, parent="/jobs"),
    Route("/plan", jobs.plan, parent="/letters"),
    Route("/records", records.records, "Records"),
    Route("/record", records.record, parent="/records"),
    Route("/produce", produce.form, parent="/records"),
    Route("/topics", around.topics, "Topics"),
    Route("/topic", around.topic, parent="/topics"),
    Route("/consumer-groups", around.consumer_groups, "Consumer groups"),
    Route("/transactions", transactions.transactions, "Transactions"),
    Route("/access", rights.rights, "Access"),
    Route("/brokers", around.brokers, "Brokers"),
)

CHANGES: tuple[ChangeRoute, ...] = (
    ChangeRoute("/jobs/start-redrive", Change.REDRIVE, named_subject, job_changes.start_redrive),
    ChangeRoute("/jobs/start-purge", Change.PURGE, named_subject, job_changes.start_purge),
    ChangeRoute("/groups/reset", Change.RESET, group_subject, resets.perform),
    ChangeRoute("/records/produce", Change.PRODUCE, named_subject, produce.perform),
    ChangeRoute("/jobs/abort", Change.ABORT, job_changes.job_subject, job_changes.abort),
    ChangeRoute("/jobs/resume", Change.RESUME, job_changes.job_subject, job_changes.resume),
)
"""What users may change."""
