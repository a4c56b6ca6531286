"""The table of pages: path, page function, and its place in the navigation."""

from __future__ import annotations

from typing import NamedTuple

from sharegroup.console.pages import (
    around,
    groups,
    letters,
    overview,
    records,
    rights,
    transactions,
)
from sharegroup.console.pages.page import PageFunction
from sharegroup.console.web.changes import ChangeRoute


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
    Route("/letters", letters.letters, "Dead letters"),
    Route("/letter", letters.letter, parent="/letters"),
    Route("/records", records.records, "Records"),
    Route("/record", records.record, parent="/records"),
    Route("/topics", around.topics, "Topics"),
    Route("/topic", around.topic, parent="/topics"),
    Route("/consumer-groups", around.consumer_groups, "Consumer groups"),
    Route("/transactions", transactions.transactions, "Transactions"),
    Route("/access", rights.rights, "Access"),
    Route("/brokers", around.brokers, "Brokers"),
)

CHANGES: tuple[ChangeRoute, ...] = ()
"""What users may change."""
