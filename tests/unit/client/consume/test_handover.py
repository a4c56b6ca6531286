"""Changes of the assignment wait for a poll."""

from __future__ import annotations

import asyncio

import pytest

from sharegroup.client.consume.handover import AssignmentChange, ChangeKind, Handover
from sharegroup.client.records import TopicPartition

CHANGE = AssignmentChange(ChangeKind.REVOKED, frozenset({TopicPartition("t", 0)}))


def test_membership_goes_on_when_the_poll_has_made_the_change() -> None:
    async def run() -> None:
        woken: list[None] = []
        made: list[AssignmentChange] = []
        handover = Handover(lambda: woken.append(None))
        asking = asyncio.create_task(handover.ask(CHANGE))
        await asyncio.sleep(0)
        assert (len(woken), handover.is_pending, asking.done()) == (1, True, False)

        async def apply(change: AssignmentChange) -> None:
            assert not asking.done()
            made.append(change)

        await handover.make(apply)
        await asking
        assert (made, handover.is_pending) == ([CHANGE], False)

    asyncio.run(run())


def test_failure_of_the_listener_is_the_polls_and_the_membership_goes_on() -> None:
    async def run() -> None:
        handover = Handover(lambda: None)
        asking = asyncio.create_task(handover.ask(CHANGE))
        await asyncio.sleep(0)

        async def apply(_: AssignmentChange) -> None:
            raise ValueError("the application's")

        with pytest.raises(ValueError, match="application's"):
            await handover.make(apply)
        await asking
        assert not handover.is_pending

    asyncio.run(run())


def test_cancelled_membership_withdraws_its_change() -> None:
    async def run() -> None:
        handover = Handover(lambda: None)
        asking = asyncio.create_task(handover.ask(CHANGE))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
        assert not handover.is_pending

    asyncio.run(run())
