"""Starts, aborts and resumes jobs: what the forms of plans and jobs do."""

from __future__ import annotations

from sharegroup.console.pages.change import Changed, Fields, Subject
from sharegroup.console.pages.jobs import KINDS, check_resumed, job_of, started_request
from sharegroup.console.pages.overview import address
from sharegroup.console.pages.page import Visit
from sharegroup.console.parameters import BadQuery, is_number
from sharegroup.jobs.purge_job import PURGE
from sharegroup.jobs.redrive_job import REDRIVE


async def start_redrive(visit: Visit, fields: Fields) -> Changed:
    """Start the redrive that a plan described."""
    return await _start(visit, {**fields, "kind": REDRIVE})


async def start_purge(visit: Visit, fields: Fields) -> Changed:
    """Start the purge that a plan described."""
    return await _start(visit, {**fields, "kind": PURGE})


async def _start(visit: Visit, fields: Fields) -> Changed:
    """Start a job, and let the console run it; its kind is that of the right for the form."""
    request = started_request(visit, fields)
    counted = fields.get("counted", "")
    started = await visit.jobs.start(
        request, started_by=visit.starter, counted=int(counted) if is_number(counted) else None
    )
    visit.runs_job(started.id)
    return Changed(address("job", id=started.id), {"id": started.id, "state": str(started.state)})


async def job_subject(visit: Visit, fields: Fields) -> Subject:
    """Return the topic of the job that the fields name."""
    return Subject(topic=(await job_of(visit, _id(fields))).request.topic)


async def abort(visit: Visit, fields: Fields) -> Changed:
    """Abort a job after its present slice."""
    aborted = await visit.jobs.abort(_id(fields), by=visit.user.name)
    return Changed(address("job", id=aborted.id), {"id": aborted.id, "state": str(aborted.state)})


async def resume(visit: Visit, fields: Fields) -> Changed:
    """Let a job that failed, was aborted or lost its runner go on."""
    found = await job_of(visit, _id(fields))
    kind = KINDS.get(found.request.kind)
    if kind is None or not visit.rights.may_change(kind, topic=found.request.topic):
        raise BadQuery(f"job {found.id}: to resume it, you need the right to start it")
    check_resumed(visit, found.request)
    resumed = await visit.jobs.resume(found.id)
    visit.runs_job(resumed.id)
    return Changed(address("job", id=resumed.id), {"id": resumed.id, "state": str(resumed.state)})


def _id(fields: Fields) -> str:
    job_id = fields.get("id", "")
    if not job_id:
        raise BadQuery("id: the id of a job is missing")
    return job_id
