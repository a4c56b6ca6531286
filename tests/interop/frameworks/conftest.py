"""One broker for all tests of the frameworks; each test has topics and groups of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from sharegroup.client import AdminClient
from sharegroup.testing import TestBroker

WAIT_SECONDS_MAX = 60.0


@pytest.fixture
def broker(sharegroup_session_broker: TestBroker) -> TestBroker:
    """The broker of the session."""
    return sharegroup_session_broker


@pytest.fixture
def bootstrap(broker: TestBroker) -> str:
    """The address of the broker."""
    return broker.bootstrap_servers


def values(broker: TestBroker, topic: str) -> list[bytes | None]:
    """The values of the records that are in a topic."""
    return [record.value for record in broker.records(topic)]


def transaction_states(broker: TestBroker) -> set[str]:
    """The states of the transactional ids that programs have used so far."""

    async def listed() -> set[str]:
        async with AdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
            return {str(found.state) for found in await admin.list_transactions()}

    return asyncio.run(listed())


def wait_until(condition: Callable[[], bool], *, waiting_for: str) -> None:
    """Wait in a thread until a condition holds; fails with its name after a minute."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"{waiting_for}: not within {WAIT_SECONDS_MAX} s"
        time.sleep(0.05)
