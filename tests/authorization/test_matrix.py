"""The matrix of `tests.authorization.matrix` on our broker and on Apache Kafka.

Every case has the same expected errors on both; the few differences are named in the probes.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.authorization.kafka_broker import AuthorizingKafka
from tests.authorization.matrix import cases
from tests.authorization.run import Sockets, run
from tests.support.kafka_peer import why_missing

CASES_MIN = 400
missing = why_missing()


def test_the_matrix_is_large() -> None:
    assert len(cases()) >= CASES_MIN


@pytest.mark.kafka
@pytest.mark.skipif(missing is not None, reason=missing or "")
def test_kafka(tmp_path: Path) -> None:
    every = cases()
    passwords = {case.user: f"password-{case.number}" for case in every}
    with AuthorizingKafka(tmp_path / "kafka", passwords) as kafka:
        door = Sockets(kafka.port, kafka.guarded_port, passwords, is_ours=False)
        assert asyncio.run(run(door, every)) == {}
