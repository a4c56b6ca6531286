"""Jobs that redrive and purge: what they refuse, do and tell; on either broker (`conftest`)."""

from __future__ import annotations

import asyncio

import pytest

from sharegroup.client import AdminClient, Producer
from sharegroup.dead_letters.queue import DeadLetterQueue
from sharegroup.dead_letters.redrive_copies import RedriveOptions
from sharegroup.dead_letters.selection import Selection
from sharegroup.errors import InvalidConfig
from sharegroup.jobs import (
    Job,
    JobEnded,
    JobNotFound,
    JobRunner,
    Jobs,
    JobState,
    JobsTopic,
    JobTaken,
    purge_request,
    redrive_request,
)
from tests.integration.worker.collecting import on_a_loop
from tests.integration.worker.dead import Given, NoAnswer, bury, failed
from tests.integration.worker.jobs_scene import (
    committed,
    each_once,
    request,
    set_up,
    until,
)

FEW = 30


@on_a_loop
async def test_job_is_planned_started_run_and_shown(bootstrap: str, group: str) -> None:
    dead = await set_up(bootstrap, group, FEW)
    async with Jobs(bootstrap_servers=bootstrap) as jobs:
        plan = await jobs.plan(request(group))
        assert (plan.count, plan.result["sent"]) == (FEW, {f"{group}.retry": FEW})
        assert await committed(bootstrap, f"{group}.retry") == [], "a plan sends nothing"
        job = await jobs.start(request(group), started_by="anna", counted=plan.count)
        waiting = await jobs.show(job.id)
        assert waiting == job
        assert (waiting.state, waiting.started_by) == (JobState.WAITING, "anna")
        assert (waiting.progress.done, waiting.progress.remaining) == (0, FEW)
        told: list[int] = []
        done = await jobs.run(job.id, told=lambda job: told.append(job.progress.done))
        assert done == await jobs.show(job.id)
        assert (done.state, done.progress.remaining) == (JobState.DONE, 0)
        assert told[-1] == FEW
        assert done.result["sent"] == {f"{group}.retry": FEW}
        assert job.id in [listed.id for listed in (await jobs.list()).jobs]
        with pytest.raises(JobEnded, match="is done, so nothing can be done with it; start"):
            await jobs.run(job.id)
        with pytest.raises(JobEnded):
            await jobs.resume(job.id)
    assert await each_once(bootstrap, group, FEW)
    async with DeadLetterQueue(dead, bootstrap_servers=bootstrap) as queue:
        assert len(queue.ledger.done(0, 0, FEW)) == FEW, "a later redrive skips them"


@on_a_loop
async def test_empty_filter_unknown_kind_and_unknown_job_are_refused(
    bootstrap: str, group: str
) -> None:
    with pytest.raises(InvalidConfig, match=r"the filter is empty.* give a condition"):
        redrive_request("orders.dead", RedriveOptions())
    with pytest.raises(InvalidConfig, match="the filter is empty"):
        purge_request("orders.dead", Selection())
    assert purge_request("orders.dead", Selection(), everything=True).filter_text == "everything"
    async with Jobs(bootstrap_servers=bootstrap) as jobs:
        with pytest.raises(JobNotFound, match=r"job 'a\\x1bb' is not in topic '__sharegroup.jobs'"):
            await jobs.show("a\x1bb")
    async with Jobs(kinds={}, bootstrap_servers=bootstrap) as jobs:
        with pytest.raises(InvalidConfig, match="jobs of kind 'redrive' are not known here"):
            await jobs.start(request(group))


@on_a_loop
async def test_purge_deletes_what_matches_and_can_be_repeated(bootstrap: str, group: str) -> None:
    dead = await set_up(bootstrap, group, FEW)
    async with Jobs(bootstrap_servers=bootstrap) as jobs:
        for deleted in (FEW, 0):
            asked = purge_request(dead, Selection(group=group))
            assert (await jobs.plan(asked)).count == deleted
            job = await jobs.run((await jobs.start(asked)).id)
            assert (job.state, job.result["deleted"]) == (JobState.DONE, deleted)
    assert await committed(bootstrap, dead) == []


@on_a_loop
async def test_abort_half_way_keeps_what_was_sent_and_resume_sends_the_rest(
    bootstrap: str, group: str
) -> None:
    await set_up(bootstrap, group)
    async with Jobs(bootstrap_servers=bootstrap) as jobs:
        job = await jobs.start(request(group, rate=500))
        running = asyncio.ensure_future(jobs.run(job.id))
        await until(jobs, job.id, lambda job: job.progress.done >= 200)
        assert (await jobs.abort(job.id, by="bob")).state is JobState.ABORTING
        aborted = await running
        assert (aborted.state, aborted.error) == (JobState.ABORTED, "aborted by bob")
        sent = len(await committed(bootstrap, f"{group}.retry"))
        assert 200 <= sent == aborted.progress.done < 1_000
        with pytest.raises(JobEnded, match=f"before sharegroup jobs resume {job.id}"):
            await jobs.abort(job.id)
        assert (await jobs.resume(job.id)).state is JobState.WAITING
        assert (await jobs.run(job.id)).state is JobState.DONE
    assert await each_once(bootstrap, group)


@on_a_loop
async def test_job_stopped_between_slices_counts_only_what_it_sent_for_its_limit(
    bootstrap: str, group: str
) -> None:
    """Slices end by size here; the letters of the second one are read while the first is sent."""
    dead = await set_up(bootstrap, group, 0)
    values = [b"%d" % number + b"x" * 900_000 for number in range(18)]
    letters = [Given("orders", offset=offset, value=value) for offset, value in enumerate(values)]
    for given in letters:
        await bury(bootstrap, dead, group, (given, failed(NoAnswer("late"))))
    stop = asyncio.Event()

    def told(job: Job) -> None:
        if job.progress.done:
            stop.set()

    async with Jobs(bootstrap_servers=bootstrap) as jobs:
        job = await jobs.start(request(group, limit=16))
        stopped = await jobs.run(job.id, stop=stop, told=told)
        assert (stopped.state, stopped.progress.done) == (JobState.WAITING, 13)
        assert await committed(bootstrap, f"{group}.retry") == values[:13]
        done = await jobs.run(job.id)
    assert (done.state, done.result["sent"]) == (JobState.DONE, {f"{group}.retry": 16})
    assert await committed(bootstrap, f"{group}.retry") == values[:16]


@on_a_loop
async def test_waiting_job_is_aborted_without_a_runner(bootstrap: str, group: str) -> None:
    await set_up(bootstrap, group, FEW)
    async with Jobs(bootstrap_servers=bootstrap) as jobs:
        job = await jobs.start(request(group))
        assert (await jobs.abort(job.id)).state is JobState.ABORTED
        assert (await jobs.show(job.id)).state is JobState.ABORTED
    assert await committed(bootstrap, f"{group}.retry") == []


@on_a_loop
async def test_two_runners_of_a_job_send_each_letter_once(bootstrap: str, group: str) -> None:
    await set_up(bootstrap, group)
    async with (
        Jobs(bootstrap_servers=bootstrap) as first,
        Jobs(bootstrap_servers=bootstrap) as second,
    ):
        job = await first.start(request(group))
        results = await asyncio.gather(
            first.run(job.id), second.run(job.id), return_exceptions=True
        )
        assert [getattr(result, "state", type(result)) for result in results].count(
            JobState.DONE
        ) == 1, results
        assert {type(result) for result in results} <= {type(job), JobTaken, JobEnded}, results
    assert await each_once(bootstrap, group)


@on_a_loop
async def test_runner_takes_waiting_jobs_and_leaves_them_when_it_stops(
    bootstrap: str, group: str
) -> None:
    await set_up(bootstrap, group)
    stop = asyncio.Event()
    async with Jobs(bootstrap_servers=bootstrap) as jobs:
        slow = await jobs.start(request(group, rate=100))
        quick = await jobs.start(request(group, limit=10))
        other = await jobs.start(request(group))
        ours = {slow.id, quick.id}
        runner = JobRunner(jobs, takes=lambda job: job.id in ours, look_seconds=0.1)
        running = asyncio.ensure_future(runner.run(stop))
        await until(jobs, quick.id, lambda job: job.state is JobState.DONE)
        await until(jobs, slow.id, lambda job: job.progress.done >= 20)
        stop.set()
        await running
        assert (await jobs.show(slow.id)).state is JobState.WAITING
        assert (await jobs.show(other.id)).state is JobState.WAITING


@on_a_loop
async def test_job_whose_topic_was_deleted_fails_and_says_why(bootstrap: str, group: str) -> None:
    dead = await set_up(bootstrap, group, FEW)
    async with (
        Jobs(bootstrap_servers=bootstrap) as jobs,
        AdminClient(bootstrap_servers=bootstrap) as admin,
    ):
        job = await jobs.start(request(group))
        await admin.delete_topics([dead])
        failed = await jobs.run(job.id)
        assert failed.state is JobState.FAILED
        assert dead in (failed.error or "")


@on_a_loop
async def test_records_of_others_in_the_topic_of_jobs_are_left_out(
    bootstrap: str, group: str
) -> None:
    topic = JobsTopic(name=f"{group}.jobs", partitions=3)
    async with (
        Jobs(topic=topic, bootstrap_servers=bootstrap) as jobs,
        Producer(bootstrap_servers=bootstrap) as producer,
    ):
        job = await jobs.start(request(group))
        for value in (b"{}", b"[" * 100_000, b'{"format": 9}', b"\xff"):
            await producer.send_and_wait(topic.name, value, key=b"x")
        await producer.send_and_wait(topic.name, b"{}", key=b"x/abort")
        listing = await jobs.list()
        assert (listing.jobs, listing.unreadable) == ((job,), 5)
        assert await jobs.list() == listing, "what is read is not read again"
