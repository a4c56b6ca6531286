"""The records of jobs: JSON, with the id of the job as key.

    key                value
    5f0c2a91           the job: written when it is started or resumed, then by its runner
    5f0c2a91/abort     a request to abort it: written by anybody, for one run of the job

There are two keys, so a request cannot be lost under the next record of the runner.  Everybody with
access to the topic can write any record.  So records are validated, and those that are no jobs are
left out.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from sharegroup.errors import MessageTooLarge
from sharegroup.jobs.job import Job, JobProgress, JobRequest, JobState, Position

JOB_BYTES_MAX = 900_000
"""Maximum size of a record; a broker's default ``max.message.bytes`` is a little larger."""
RUNS_KEPT_MAX = 5
"""Runs of refused letters that a record keeps for each target if it would be too large."""
FORMAT = 1
"""The version of the format; a record with a higher one is not read."""
ABORT_SUFFIX = "/abort"
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class AbortRequest(NamedTuple):
    """A request to abort a job."""

    job_id: str
    resumes: int
    """`Job.resumes` of the run that is meant."""
    by: str
    at_ms: int


def job_key(job_id: str) -> bytes:
    """Return the key of a job's record."""
    return job_id.encode()


def abort_key(job_id: str) -> bytes:
    """Return the key of the request to abort a job."""
    return f"{job_id}{ABORT_SUFFIX}".encode()


def encoded_job(job: Job) -> bytes:
    """Return the value of a job's record; raises MessageTooLarge above `JOB_BYTES_MAX`."""
    value = _job_value(job, job.result)
    if len(value) > JOB_BYTES_MAX:
        value = _job_value(job, _shortened(job.result))
    if len(value) > JOB_BYTES_MAX:
        raise MessageTooLarge(
            f"job {job.id!r} on topic {job.request.topic!r}: its record has {len(value)} bytes, "
            f"and {JOB_BYTES_MAX} are allowed; start a job with a shorter filter, for example for "
            "fewer single places"
        )
    return value


def _job_value(job: Job, result: Any) -> bytes:
    request = job.request
    document = {
        "format": FORMAT,
        "id": job.id,
        "kind": request.kind,
        "topic": request.topic,
        "filter": dict(request.filter),
        "options": dict(request.options),
        "started_by": job.started_by,
        "created_ms": job.created_ms,
        "state": job.state,
        "updated_ms": job.updated_ms,
        "ended_ms": job.ended_ms,
        "runner": job.runner,
        "counted": job.progress.counted,
        "done": job.progress.done,
        "result": dict(result),
        "error": job.error,
        "resumes": job.resumes,
        "topic_id": job.topic_id,
        "positions": job.positions,
    }
    return json.dumps(document, separators=(",", ":")).encode("ascii")


def _shortened(result: Any) -> Any:
    """Return the result with few of the places of refused letters, which are most of its size."""
    refused = [
        {**entry, "runs": entry["runs"][:RUNS_KEPT_MAX]} for entry in result.get("refused", ())
    ]
    return {**result, "refused": refused}


def parsed_job(key: bytes | None, value: bytes) -> Job:
    """Return the job of a record; raises ValueError if it is none."""
    document = _document(value)
    try:
        if int(document["format"]) > FORMAT:
            raise ValueError(f"format {document['format']}, expected up to {FORMAT}")  # noqa: TRY301  One text.
        job_id = str(document["id"])
        if not _ID.fullmatch(job_id) or key != job_key(job_id):
            raise ValueError(f"id {job_id!r:.100} with key {key!r:.100}")  # noqa: TRY301  One text.
        return Job(
            id=job_id,
            request=JobRequest(
                kind=str(document["kind"]),
                topic=str(document["topic"]),
                filter={**document["filter"]},
                options={**document["options"]},
            ),
            started_by=str(document["started_by"]),
            created_ms=int(document["created_ms"]),
            state=JobState(document["state"]),
            updated_ms=int(document["updated_ms"]),
            ended_ms=_optional(int, document["ended_ms"]),
            runner=_optional(str, document["runner"]),
            progress=JobProgress(_optional(int, document["counted"]), int(document["done"])),
            result={**document["result"]},
            error=_optional(str, document["error"]),
            resumes=int(document["resumes"]),
            topic_id=_optional(str, document["topic_id"]),
            positions=tuple(
                Position(int(partition), int(first), int(end))
                for partition, first, end in document["positions"]
            ),
        )
    # The last one of numbers that are infinite.
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"expected a job, found {value!r:.200}: {error!r}") from error


def encoded_abort(request: AbortRequest) -> bytes:
    """Return the value of a request to abort a job."""
    return json.dumps(request._asdict(), separators=(",", ":")).encode("ascii")


def parsed_abort(key: bytes | None, value: bytes) -> AbortRequest:
    """Return the request of a record; raises ValueError if it is none."""
    document = _document(value)
    try:
        request = AbortRequest(
            str(document["job_id"]),
            int(document["resumes"]),
            str(document["by"]),
            int(document["at_ms"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"expected a request to abort, found {value!r:.200}: {error!r}") from error
    if key != abort_key(request.job_id):
        raise ValueError(f"a request to abort {request.job_id!r:.100} with key {key!r:.100}")
    return request


def _document(value: bytes) -> dict[str, Any]:
    try:
        document = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"expected JSON, found {value!r:.200}") from error
    if not isinstance(document, dict):
        raise ValueError(f"expected an object of JSON, found {value!r:.200}")  # noqa: TRY004  As above.
    return document


def _optional(kind: Any, value: Any) -> Any:
    return None if value is None else kind(value)
