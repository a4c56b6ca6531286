"""Jobs: the list, one with its progress, and the plan that says what a new one would do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from sharegroup.console.access.roles import Change, Role
from sharegroup.console.pages.letters import CONDITIONS, selection_of
from sharegroup.console.pages.overview import address
from sharegroup.console.pages.page import Forbidden, NotThere, Page, Visit
from sharegroup.console.pages.tables import Column, table
from sharegroup.console.parameters import BadQuery, is_number
from sharegroup.dead_letters.redrive_copies import RedriveOptions, unconfirmed
from sharegroup.dead_letters.selection import Selection
from sharegroup.dead_letters.topics import group_of
from sharegroup.errors import InvalidConfig
from sharegroup.jobs import Job, JobNotFound, JobRequest, purge_request, redrive_request
from sharegroup.jobs.filters import targets_of
from sharegroup.jobs.purge_job import PURGE
from sharegroup.jobs.redrive_job import REDRIVE

COLUMNS = (
    Column("id", "Job", "id", link=lambda row: address("job", id=row["id"])),
    Column("kind", "Kind", "text"),
    Column("state", "State", "state"),
    Column("topic", "Topic", "id", narrow=False),
    Column("filter", "Letters", "text", narrow=False),
    Column("done", "Done", "number"),
    Column("started_by", "By", "text", narrow=False),
    Column("created_ms", "Started", "time", narrow=False),
)
KINDS = {REDRIVE: Change.REDRIVE, PURGE: Change.PURGE}
"""The kinds of jobs that a page plans, and the right that each needs."""
EMPTY = "There are no jobs yet. A job begins with a selection of dead letters."


async def jobs(visit: Visit) -> Page:
    """Return the jobs of the cluster, the newest first."""
    listing = await visit.jobs.list()
    rows = [_row(job) for job in listing.jobs if visit.rights.may_see_topic(job.request.topic)]
    shown = table("jobs", COLUMNS, rows, visit.query, sort="-created_ms", empty=EMPTY)
    return Page("list.html", "Jobs", {"shown": shown}, {"jobs": rows})


async def job(visit: Visit) -> Page:
    """Return one job: what it does, how far it is, its result."""
    found = await job_of(visit, visit.required("id"))
    kind = KINDS.get(found.request.kind)
    topic = found.request.topic
    context = {
        "job": found,
        "is_abandoned": found.is_abandoned(visit.now_ms),
        "share": _share(found),
        "result": sorted(_result(found.result)),
        "refused": found.result.get("refused", [])[:REFUSED_SHOWN_MAX],
        "may_abort": not found.state.is_end and visit.rights.may_change(Change.ABORT, topic=topic),
        "may_resume": (found.state.is_end or found.is_abandoned(visit.now_ms))
        and str(found.state) != "done"
        and kind is not None
        and visit.rights.may_change(kind, topic=topic),
    }
    return Page("job.html", found.id, context, {"job": {**_row(found), **asdict(found)}})


REFUSED_SHOWN_MAX = 100
TARGETS_CHARACTERS_MAX = 32 * 1024
"""Length of the targets in a form; a redrive to more of them is for all, if the user may."""
NAMES_MAX = 20
"""Topics that an error names."""


async def job_of(visit: Visit, job_id: str) -> Job:
    """Return a job whose topic the user may see; `NotThere` if there is none."""
    try:
        found = await visit.jobs.show(job_id)
    except JobNotFound as error:
        raise NotThere(str(error)) from error
    if not visit.rights.may_see_topic(found.request.topic):
        raise NotThere(f"There is no job {job_id!r}, or you may not see it.")
    return found


async def plan(visit: Visit) -> Page:
    """Return what a redrive or purge of the selected letters would do; nothing is changed."""
    request = request_of(visit, visit.query)
    planned = await visit.jobs.plan(request)
    kept = {name: visit.query[name] for name in FIELDS if visit.query.get(name)}
    refused = planned.result.get("refused", [])
    targets = sorted(planned.result.get("sent", {}))
    targets_text = ",".join(targets)
    outside = outside_of_grants(visit, request, targets)
    claimed = [entry for entry in refused if entry["reason"] == unconfirmed(entry["target"])]
    kind = KINDS[request.kind]
    context = {
        "request": request,
        "count": planned.count,
        "result": sorted(_result(planned.result)),
        "refused": [entry for entry in refused if entry not in claimed][:REFUSED_SHOWN_MAX],
        "claimed": claimed[:REFUSED_SHOWN_MAX],
        "targets": targets_text if len(targets_text) <= TARGETS_CHARACTERS_MAX else "",
        "confirm": ",".join([*_confirmed(kept), *(entry["target"] for entry in claimed)]),
        "fields": sorted(kept.items()),
        "may_start": visit.rights.may_change(kind, topic=request.topic) and not outside,
        "why_not": outside_text(outside)
        if outside
        else visit.rights.why_not(kind, topic=request.topic),
        "back": address(
            "letters", **{k: v for k, v in kept.items() if k in ("topic", *CONDITIONS)}
        ),
    }
    data = {"kind": request.kind, "topic": request.topic, "filter": request.filter_text,
            "count": planned.count, "result": planned.result, "targets": targets,
            "outside_of_grants": outside}  # fmt: skip
    return Page("plan.html", f"{request.kind} of {request.topic}", context, data)


FIELDS = ("kind", "topic", "everything", "at", "target", "again", "confirm", *CONDITIONS)
"""The parameters of a plan, which the form that starts the job repeats."""


def request_of(visit: Visit, fields: Mapping[str, str]) -> JobRequest:
    """Return the job that these fields describe; `BadQuery` if they are not complete."""
    kind, topic = fields.get("kind", ""), fields.get("topic", "")
    if kind not in KINDS:
        raise BadQuery(f"kind: expected one of {', '.join(KINDS)}, found {kind[:40]!r}")
    if not topic or not visit.rights.may_see_topic(topic):
        raise NotThere(f"There is no topic {topic!r}, or you may not see it.")
    selection = selection_of(fields)
    if at := fields.get("at", ""):
        selection = Selection(places=frozenset([_place(at)]))
    if (selection.where or selection.key) and not visit.rights.may_see_values(topic):
        raise BadQuery("you may not see the values of this topic, so you cannot select by them")
    if (selection.where or selection.key) and visit.rights.masks.hide_content:
        # A letter may be of any topic, and the number of matches would tell what is masked.
        raise BadQuery("values are masked in this console, so letters cannot be selected by them")
    everything = fields.get("everything", "") == "yes"
    try:
        if kind == PURGE:
            return purge_request(topic, selection, everything=everything)
        options = RedriveOptions(
            selection=selection,
            to="original" if fields.get("target") == "original" else "own",
            again=fields.get("again") == "yes",
            confirmed=frozenset(_confirmed(fields)),
        )
        request = redrive_request(topic, options, everything=everything)
    except InvalidConfig as error:
        raise BadQuery(
            "no condition is given, so this would be about every letter of the topic: give a "
            "condition, or tick «all letters»"
        ) from error
    check_targets(visit, request, options.confirmed)
    return request


def started_request(visit: Visit, fields: Mapping[str, str]) -> JobRequest:
    """Return the job that a form starts: a redrive sends to the targets of its plan only.

    Letters may be written between the plan and the job, and name any topic.
    """
    request = request_of(visit, fields)
    if request.kind != REDRIVE:
        return request
    targets = _names(fields, "targets")
    if not targets and not _may_send_everywhere(visit):
        raise BadQuery(
            "targets: expected the topics to which letters are sent, as the plan has them, because "
            "you may not send to all topics; if the plan has too many, select fewer letters"
        )
    check_targets(visit, request, targets)
    options = {**request.options, "targets": targets or None}
    return replace(request, options=options)


def check_targets(visit: Visit, request: JobRequest, targets: Iterable[str]) -> None:
    """Refuse a redrive with a target that is not within one grant of the user."""
    outside = outside_of_grants(visit, request, targets)
    if outside:
        raise Forbidden(outside_text(outside))


def check_resumed(visit: Visit, request: JobRequest) -> None:
    """Refuse to resume a redrive of somebody else that sends where this user may not."""
    if request.kind != REDRIVE:
        return
    targets = targets_of(request.options)
    if targets is not None:
        check_targets(visit, request, targets)
    elif not _may_send_everywhere(visit):
        raise Forbidden("this job may send to all topics, and you may not; start one of your own")


def outside_of_grants(visit: Visit, request: JobRequest, targets: Iterable[str]) -> list[str]:
    """Return the targets of a redrive that the user may not send letters of this topic to.

    A grant has to name the target, or, for the own topic of a group, the group and the topic of
    the letters.
    """
    if request.kind != REDRIVE:
        return []
    may_change, is_own = visit.rights.may_change, request.options.get("to") == "own"
    return sorted(
        target
        for target in targets
        if not may_change(Change.REDRIVE, topic=target)
        and not (
            is_own
            and (group := group_of(target)) is not None
            and may_change(Change.REDRIVE, group=group, topic=request.topic)
        )
    )


def outside_text(outside: Sequence[str]) -> str:
    """Return why a redrive to these topics is refused, and what to do."""
    names = ", ".join(map(repr, outside[:NAMES_MAX]))
    more = f" and {len(outside) - NAMES_MAX} more" if len(outside) > NAMES_MAX else ""
    return (
        f"letters would go to {names}{more}, for which you have no grant of an operator; select "
        "others, for example by group, or ask for a grant in the console's file of roles"
    )


def _may_send_everywhere(visit: Visit) -> bool:
    """Whether a redrive of the user needs no list of targets."""
    rights = visit.rights
    return rights.visible is None and any(
        grant.has_every_name and grant.role is not Role.VIEWER for grant in rights.grants
    )


def _confirmed(fields: Mapping[str, str]) -> list[str]:
    """Return the topics to which letters may go that only claim to belong there."""
    return _names(fields, "confirm")


def _names(fields: Mapping[str, str], field: str) -> list[str]:
    return [name for name in fields.get(field, "").split(",") if name]


def _place(text: str) -> tuple[int, int]:
    partition, _, offset = text.partition(":")
    if not (is_number(partition) and is_number(offset)):
        raise BadQuery(f"at: expected PARTITION:OFFSET, found {text[:40]!r}")
    return int(partition), int(offset)


def _row(found: Job) -> dict[str, Any]:
    return {
        "id": found.id,
        "kind": found.request.kind,
        "state": str(found.state),
        "topic": found.request.topic,
        "filter": found.request.filter_text,
        "done": found.progress.done,
        "counted": found.progress.counted,
        "started_by": found.started_by,
        "created_ms": found.created_ms,
        "error": found.error,
    }


def _share(found: Job) -> float | None:
    """Return how much of a job is done, from 0 to 1; None if its letters were not counted."""
    counted, done = found.progress
    if str(found.state) == "done":
        return 1.0
    return None if not counted else min(1.0, done / counted)


def _result(result: Mapping[str, Any]) -> list[tuple[str, str, int]]:
    """Return the numbers of a result: what happened, where, how often."""
    rows: list[tuple[str, str, int]] = []
    for name, value in result.items():
        if isinstance(value, Mapping):
            rows += [(name, str(where), int(count)) for where, count in value.items()]
        elif isinstance(value, int) and value:
            rows.append((name.replace("_", " "), "", value))
    return rows
