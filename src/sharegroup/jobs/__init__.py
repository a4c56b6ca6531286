"""Jobs: repairs of many records that survive the process that runs them.

A job is one record in a compacted topic, with its progress.  It is run in slices, and each is one
transaction, so a runner that takes over goes on behind the last one and fences the runner before.

    job            states, requests, progress           job_records     its record, and back
    job_log        the topic of jobs                    job_run         a runner's hold on a job
    redrive_job    sends dead letters back              purge_job       deletes them
    steering_job   runs or cancels waiting records      job_runner      takes the jobs that wait
    jobs           plan, start, list, abort, resume

Another kind of job is another `JobKind` in the table that `Jobs` gets.
"""

from sharegroup.jobs.job import (
    Job,
    JobEnded,
    JobListing,
    JobNotFound,
    JobPlan,
    JobProgress,
    JobRequest,
    JobState,
    JobTaken,
)
from sharegroup.jobs.job_log import JobsTopic
from sharegroup.jobs.job_runner import JobRunner
from sharegroup.jobs.jobs import KINDS, JobKind, Jobs
from sharegroup.jobs.purge_job import purge_request
from sharegroup.jobs.redrive_job import redrive_request
from sharegroup.jobs.steering_job import steering_request

__all__ = [
    "KINDS",
    "Job",
    "JobEnded",
    "JobKind",
    "JobListing",
    "JobNotFound",
    "JobPlan",
    "JobProgress",
    "JobRequest",
    "JobRunner",
    "JobState",
    "JobTaken",
    "Jobs",
    "JobsTopic",
    "purge_request",
    "redrive_request",
    "steering_request",
]
