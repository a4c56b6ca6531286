"""Worker processes that announce themselves: all, those of an application, and commands for them.

Users see an application if they may see the topic of its heartbeats; operators of the topic of its
commands steer it (`sharegroup.fleet`).  The page is not live, because each visit reads the
heartbeats of the last hour.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from sharegroup.console.access.roles import Change
from sharegroup.console.pages.change import Changed, Fields, Subject
from sharegroup.console.pages.overview import address
from sharegroup.console.pages.page import NotThere, Page, Visit
from sharegroup.console.pages.tables import Column, table
from sharegroup.console.parameters import BadQuery, is_number
from sharegroup.errors import InvalidConfig, KafkaError
from sharegroup.fleet.commands import EVERYBODY, Intent, Target, TargetKind
from sharegroup.fleet.fleet import Fleet, Outcome, SeenWorker, Steered
from sharegroup.fleet.fleet_topics import apps_of, commands_topic, workers_topic
from sharegroup.fleet.heartbeats import checked_id

APPS_MAX = 100
"""Applications whose heartbeats one visit reads."""
WAIT_SECONDS = 10.0
"""How long a form waits for the answers; a stop may then still be under way."""
LOST = "lost"
COLUMNS = (
    Column("app", "Application", "id", link=lambda row: address("workers", app=row["app"])),
    Column(
        "worker",
        "Worker",
        "id",
        link=lambda row: address("workers", app=row["app"], worker=row["worker"]),
    ),
    Column("phase", "Phase", "state"),
    Column("running", "In handlers", "number"),
    Column("waiting", "Taken", "number", narrow=False),
    Column("held", "Held", "number", narrow=False),
    Column("groups", "Groups", "list", narrow=False),
    Column("since_ms", "Since", "time", narrow=False),
    Column("heard_ms", "Heard", "time"),
    Column("version", "Version", "text", narrow=False),
)
EMPTY = (
    "No worker announces itself. Declare App(..., announce=True), and start or apply the worker."
)


async def workers(visit: Visit) -> Page:
    """Return the workers of all applications, or of the one that the address names."""
    app, worker_id = visit.query.get("app", ""), visit.query.get("worker", "")
    apps = _visible(visit, await visit.admin.list_topics())
    if app and app not in apps:
        raise NotThere(
            f"There is no application {app!r} whose workers announce themselves, or you may not "
            "see it."
        )
    rows: list[dict[str, Any]] = []
    problems: dict[str, str] = {}
    for name in [app] if app else apps[:APPS_MAX]:
        try:
            async with Fleet(name, **visit.options) as fleet:
                listed = (await fleet.workers()).listed()
        except (KafkaError, InvalidConfig) as error:
            problems[name] = str(error)
            continue
        rows += [_row(name, seen, visit.now_ms) for seen in listed]
    if worker_id:
        rows = [row for row in rows if row["worker"] == worker_id]
    shown = table("workers", COLUMNS, rows, visit.query, sort="app", empty=EMPTY)
    topic = commands_topic(app)
    context = {
        "shown": shown,
        "problems": problems,
        "more": max(0, len(apps) - APPS_MAX) if not app else 0,
        "app": app,
        "worker": worker_id,
        "outcomes": _outcomes(visit.query.get("outcomes", "")),
        "may_steer": bool(app and rows) and visit.rights.may_change(Change.STEER, topic=topic),
        "why_not": visit.rights.why_not(Change.STEER, topic=topic) if app else "",
    }
    return Page("workers.html", "Workers", context, {"workers": rows, "problems": problems})


async def steered_subject(_: Visit, fields: Fields) -> Subject:
    """Return the topic of commands of the application that the fields name."""
    app = fields.get("app")
    return Subject(topic=commands_topic(app) if app else None)


async def steer(visit: Visit, fields: Fields) -> Changed:
    """Quiet, resume or stop the workers of an application, or one of them."""
    app, worker_id, intent = (fields.get(name, "") for name in ("app", "worker", "intent"))
    if app not in _visible(visit, await visit.admin.list_topics()):
        raise NotThere(f"There is no application {app!r} whose workers announce themselves.")
    if intent not in tuple(Intent):
        raise BadQuery(f"intent: expected one of {', '.join(Intent)}, found {intent[:40]!r}")
    target = EVERYBODY
    if worker_id:
        try:
            target = Target(TargetKind.WORKER, checked_id(worker_id))
        except ValueError as error:
            raise BadQuery(f"worker: expected the id of a worker, found {error}") from error
    async with Fleet(app, **visit.options) as fleet:
        results = await fleet.steer(
            Intent(intent), target, by=visit.user.name, wait_seconds=WAIT_SECONDS
        )
    if not results:
        raise NotThere(f"Application {app!r} has no such worker; it may have stopped meanwhile.")
    counts = Counter(str(outcome) for _, outcome in results)
    told = ",".join(f"{outcome}:{count}" for outcome, count in sorted(counts.items()))
    kept = {"worker": worker_id} if worker_id else {}
    return Changed(address("workers", app=app, outcomes=told, **kept), {"workers": _data(results)})


def _visible(visit: Visit, topics: Sequence[str]) -> list[str]:
    may_see = visit.rights.may_see_topic
    return [app for app in apps_of(topics) if may_see(workers_topic(app))]


def _row(app: str, seen: SeenWorker, now_ms: int) -> dict[str, Any]:
    who, beat = seen.identity, seen.beat
    return {
        "app": app,
        "worker": who.worker_id,
        "host": who.host,
        "pid": who.pid,
        "phase": LOST if seen.is_lost(now_ms) else beat.phase,
        "running": beat.running,
        "waiting": beat.waiting,
        "held": beat.held,
        "groups": list(who.groups),
        "since_ms": who.since_ms,
        "heard_ms": seen.heard_ms,
        "version": who.versions.sharegroup,
        "python": who.versions.python,
    }


def _data(results: Sequence[Steered]) -> list[dict[str, str]]:
    return [
        {"worker": worker.identity.worker_id, "outcome": str(outcome)}
        for worker, outcome in results
    ]


def _outcomes(text: str) -> list[tuple[Outcome, int]]:
    """Return what became of a command, from the address; anybody may have written that."""
    found = []
    for part in text.split(",") if text else ():
        outcome, _, count = part.partition(":")
        if outcome not in tuple(Outcome) or not is_number(count):
            raise BadQuery(f"outcomes: expected OUTCOME:NUMBER,…, found {text[:40]!r}")
        found.append((Outcome(outcome), int(count)))
    return found
