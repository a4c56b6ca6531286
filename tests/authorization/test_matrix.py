"""The matrix of `tests.authorization.matrix` on our broker and on Apache Kafka.

Every case has the same expected errors on both; the few differences are named in the probes.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.authorization.in_process import MODEL, in_process
from tests.authorization.kafka_broker import AuthorizingKafka
from tests.authorization.matrix import cases
from tests.authorization.our_broker import authorizing_broker
from tests.authorization.run import Sockets, run
from tests.support.chosen_broker import LONG_WITH_A_JVM
from tests.support.kafka_peer import why_missing

CASES_MIN = 400
missing = why_missing()


def test_the_matrix_is_large() -> None:
    assert len(cases()) >= CASES_MIN


@LONG_WITH_A_JVM
@pytest.mark.kafka
@pytest.mark.skipif(missing is not None, reason=missing or "")
def test_kafka(tmp_path: Path) -> None:
    every = cases()
    passwords = {case.user: f"password-{case.number}" for case in every}
    with AuthorizingKafka(tmp_path / "kafka", passwords) as kafka:
        door = Sockets(kafka.port, kafka.guarded_port, passwords, is_ours=False)
        assert asyncio.run(run(door, every)) == {}


def test_our_handlers(tmp_path: Path) -> None:
    """The rights are those of a simple model, so only the questions of the handlers are tested."""

    async def scenario() -> dict[str, list[str]]:
        # The requests about ACLs themselves need the authorizer.
        asked = [case for case in cases() if not case.probe.title.endswith("Acls")]
        async with in_process(tmp_path / "data", **MODEL) as door:
            return await run(door, asked)

    assert asyncio.run(scenario()) == {}


def test_our_broker(tmp_path: Path) -> None:
    """Users log in through sockets, as on Apache Kafka."""

    async def scenario() -> dict[str, list[str]]:
        every = cases()
        passwords = {case.user: f"password-{case.number}" for case in every}
        async with authorizing_broker(tmp_path / "data", passwords) as door:
            return await run(door, every)

    assert asyncio.run(scenario()) == {}
