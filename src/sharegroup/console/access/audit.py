"""Log lines that say who saw values and who changed what.

    event=console.values_seen user='ada' topic='orders' partition=0 offset=7
    event=console.exported user='ada' topic='orders' values=yes rows=120 outcome=complete
    event=console.changed user='ada' what=steer outcome=done path='/waiting/run' group='billing'
        id='0b5c' result='{"outcome": "done", "member": ""}'

Names come from users and peers, so they are quoted, escaped and cut.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping

from sharegroup.console.access.roles import Change, User
from sharegroup.escaping import shortened

log = logging.getLogger(__name__)

SAME_VIEW_MS = 60_000
VIEWS_MAX = 10_000
"""Views that are remembered; one that is forgotten is logged again."""
NAME_CHARACTERS_MAX = 250
"""Characters of a name in a line; topics have no more."""


class ValuesSeen:
    """Logs who saw values: once a minute for the same user, topic and record.

    A page that refreshes itself would otherwise write a line each second.
    """

    __slots__ = ("_logged_ms",)

    def __init__(self) -> None:
        self._logged_ms: OrderedDict[tuple[str, str, tuple[int | None, ...]], int] = OrderedDict()

    def note(self, user: User, topic: str, place: Mapping[str, int | None], *, now_ms: int) -> None:
        """Log that a user saw keys, values or headers of a topic's records."""
        view = user.name, topic, tuple(place.values())
        logged_ms = self._logged_ms.get(view)
        if logged_ms is not None and 0 <= now_ms - logged_ms < SAME_VIEW_MS:
            return
        self._logged_ms[view] = now_ms
        self._logged_ms.move_to_end(view)
        if len(self._logged_ms) > VIEWS_MAX:
            self._logged_ms.popitem(last=False)
        rest = "".join(f" {name}={number}" for name, number in place.items() if number is not None)
        log.info(
            "event=console.values_seen user=%s topic=%s%s", quoted(user.name), quoted(topic), rest
        )


def log_exported(user: User, topic: str, *, values: bool, rows: int, outcome: str) -> None:
    """Log that a user downloaded records, and whether with their values."""
    log.info(
        "event=console.exported user=%s topic=%s values=%s rows=%d outcome=%s",
        quoted(user.name), quoted(topic), "yes" if values else "no", rows, outcome,
    )  # fmt: skip


def log_changed(
    user: User, what: Change, named: Mapping[str, str], *, outcome: str, result: str = ""
) -> None:
    """Log that a user changed something, tried to, or was refused.

    ``named`` are the change's path, its subject and what was asked, by names of the console's own.
    """
    if result:
        named = {**named, "result": result}
    details = "".join(f" {name}={quoted(text)}" for name, text in named.items())
    log.info(
        "event=console.changed user=%s what=%s outcome=%s%s",
        quoted(user.name), what.value, outcome, details,
    )  # fmt: skip


def log_login(user: str, address: str, outcome: str) -> None:
    """Log an attempt to log in; a name that was not accepted is a claim."""
    level = logging.INFO if outcome == "done" else logging.WARNING
    log.log(
        level, "event=console.login user=%s address=%s outcome=%s action=%s",
        quoted(user), quoted(address), outcome,
        "none" if outcome == "done" else "'look for others of this address'",
    )  # fmt: skip


def quoted(name: str) -> str:
    """Return a name of a peer for a log line: escaped, cut, in quotes."""
    return repr(shortened(name, NAME_CHARACTERS_MAX))
