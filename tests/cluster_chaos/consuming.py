"""A process with two members of the plain share group; every statement goes into a journal.

    python -m tests.cluster_chaos.consuming {async|sync} BOOTSTRAP FOLDER

    async-commit    settles what a poll returned, and commits; releases some records once
    async-window    handlers over several polls, some of them longer than the lock, renewed
    sync-commit     as the first one, with the blocking client in a thread
    sync-implicit   the next poll accepts

What a broker confirms is written by the callback, by place: ``accepted`` or ``released``, or
``failed`` with the error.  SIGTERM: each member closes.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from pathlib import Path

from sharegroup.client import AcknowledgementResult, Record, ShareConsumer, sync
from sharegroup.errors import KafkaError
from tests.cluster_chaos.names import CONSUMERS, PLAIN, READERS, journal, stopping

POLL_SECONDS = 1.0
PAUSE_SECONDS = 0.2
IN_FLIGHT_MAX = 64
RELEASED_EVERY, SLOW_EVERY = 97, 501
SLOW_SECONDS = 15.0
"""Longer than a lock."""
HANDLE_SECONDS = 0.02


class Member:
    """What is written down about one member."""

    def __init__(self, folder: Path, name: str) -> None:
        self._journal = journal(folder, name)
        self._given_back: set[tuple[str, int, int]] = set()

    def got(self, record: Record, lock_ms: int | None) -> bool:
        """A record was handed out; whether it is to be released."""
        assert record.value is not None
        number = int(record.value)
        place = (record.topic, record.partition, record.offset)
        self._journal.write(
            "got",
            number,
            place=place,
            delivery_count=record.delivery_count,
            fetched_at=record.deadline - (lock_ms or 0) / 1000,
        )
        return number % RELEASED_EVERY == 0 and record.delivery_count == 1

    def release(self, record: Record) -> None:
        """Give it back, and remember that."""
        self._given_back.add((record.topic, record.partition, record.offset))
        record.release()

    def told(self, result: AcknowledgementResult) -> None:
        """The callback of acknowledgements."""
        if result.is_renewal:
            return
        for offset in result.offsets:
            place = (*result.topic_partition, offset)
            given_back = place in self._given_back
            self._given_back.discard(place)
            if result.error is not None:
                error = type(result.error).__name__
                self._journal.write("failed", -1, place=place, error=error)
            else:
                self._journal.write("released" if given_back else "accepted", -1, place=place)

    def raised(self, error: BaseException) -> None:
        """The client raised out of a call."""
        self._journal.write("raised", -1, error=repr(error)[:200])

    def closed(self, error: BaseException | None) -> None:
        """It has left the group; what has no outcome was given back."""
        self._journal.write("closed", -1, error="" if error is None else repr(error)[:200])


async def commit_each(member: Member, bootstrap: str, ended: threading.Event) -> None:
    """`async-commit`."""
    consumer = ShareConsumer(
        PLAIN,
        bootstrap_servers=bootstrap,
        group_id=READERS,
        share_acknowledgement_mode="explicit",
    )
    consumer.set_acknowledgement_commit_callback(member.told)
    while not ended.is_set():
        try:
            for record in await consumer.poll(timeout=POLL_SECONDS):
                if member.got(record, consumer.acquisition_lock_timeout_ms):
                    member.release(record)
                else:
                    record.accept()
            await consumer.commit()
        except (KafkaError, TimeoutError) as error:
            member.raised(error)
            await asyncio.sleep(PAUSE_SECONDS)
    member.closed((await consumer.close()).error)


async def window(member: Member, bootstrap: str, ended: threading.Event) -> None:
    """`async-window`."""
    consumer = ShareConsumer(
        PLAIN,
        bootstrap_servers=bootstrap,
        group_id=READERS,
        share_acknowledgement_mode="explicit",
        in_flight_max=IN_FLIGHT_MAX,
        auto_renew=True,
    )
    consumer.set_acknowledgement_commit_callback(member.told)
    handlers: set[asyncio.Task[None]] = set()

    async def handle(record: Record) -> None:
        slow = int(record.value or b"") % SLOW_EVERY == 0
        await asyncio.sleep(SLOW_SECONDS if slow else HANDLE_SECONDS)
        record.accept()

    while not ended.is_set():
        try:
            for record in await consumer.poll(timeout=POLL_SECONDS):
                member.got(record, consumer.acquisition_lock_timeout_ms)
                task = asyncio.create_task(handle(record))
                handlers.add(task)
                task.add_done_callback(handlers.discard)
        except (KafkaError, TimeoutError) as error:
            member.raised(error)
            await asyncio.sleep(PAUSE_SECONDS)
    await asyncio.gather(*handlers)
    member.closed((await consumer.close()).error)


def commit_each_blocking(
    member: Member, bootstrap: str, ended: threading.Event, *, implicit: bool
) -> None:
    """`sync-commit` and `sync-implicit`."""
    consumer = sync.ShareConsumer(
        PLAIN,
        bootstrap_servers=bootstrap,
        group_id=READERS,
        share_acknowledgement_mode="implicit" if implicit else "explicit",
    )
    consumer.set_acknowledgement_commit_callback(member.told)
    while not ended.is_set():
        try:
            for record in consumer.poll(timeout=POLL_SECONDS):
                released = member.got(record, consumer.acquisition_lock_timeout_ms)
                if implicit:
                    continue
                if released:
                    member.release(record)
                else:
                    record.accept()
            if not implicit:
                consumer.commit()
        except (KafkaError, TimeoutError) as error:
            member.raised(error)
            time.sleep(PAUSE_SECONDS)
    member.closed(consumer.close().error)


async def run_async(bootstrap: str, folder: Path, ended: threading.Event) -> None:
    first, second = (Member(folder, name) for name in CONSUMERS["async"])
    await asyncio.gather(commit_each(first, bootstrap, ended), window(second, bootstrap, ended))


def run_sync(bootstrap: str, folder: Path, ended: threading.Event) -> None:
    threads = [
        threading.Thread(
            target=commit_each_blocking,
            args=(Member(folder, name), bootstrap, ended),
            kwargs={"implicit": name.endswith("implicit")},
            name=name,
        )
        for name in CONSUMERS["sync"]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main(kind: str, bootstrap: str, folder: Path) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    ended = stopping()
    if kind == "async":
        asyncio.run(run_async(bootstrap, folder, ended))
    else:
        run_sync(bootstrap, folder, ended)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
