"""Kafka's own share consumer and administrator, unmodified, in Java; see `java/ShareClient.java`.

All scenes are played by one virtual machine, at the same time.  What they tell is the same with
Apache Kafka (``SHAREGROUP_INTEROP=kafka``).
"""

from __future__ import annotations

import subprocess

import pytest

from tests.support import kafka_peer
from tests.support.java_shell import NO_COMPILER, java_command, javac

WHY_NOT = kafka_peer.why_missing() or (None if javac() else NO_COMPILER)
pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)),
]
SECONDS_MAX = 120.0
SCENES = {
    "renew": """
        lock ms: 3000
        renewed: {0=ok}
        again: 0=v0 #1
        renewed: {0=ok}
        again: 0=v0 #1
        renewed: {0=ok}
        again: 0=v0 #1
        accepted: {0=ok}
        others: []
    """,
    "renew-forbidden": """
        renewed: {0=InvalidRecordStateException}
    """,
    "record-limit": """
        one: [0=v0 #1, 1=v1 #1, 2=v2 #1]
        other has: 3
        both have: []
    """,
    "commits": """
        nothing: {}
        sync: {0=ok}
        again: [1=v1 #2]
        callback: [0:[0, 1, 2] ok, 0:[3] ok, 0:[1] ok]
    """,
    "lost-lock": """
        next: [0 again, 1 again]
        sync: {0=InvalidRecordStateException}
        callback: [InvalidRecordStateException, InvalidRecordStateException]
    """,
    "wakeup": """
        poll: WakeupException
        then: [0=after #1]
    """,
    "explicit-errors": """
        poll with records in hand: IllegalStateException
        changed before it is sent: {0=ok}
        a second time: IllegalStateException
        never had: IllegalStateException
        no subscription: IllegalStateException
    """,
    "implicit-errors": """
        acknowledge: IllegalStateException
        accepted: {0=ok}
    """,
    "implicit-end": """
        had: [0=v0 #1, 1=v1 #1, 2=v2 #1]
        after close: [0=v0 #2, 1=v1 #2, 2=v2 #2]
        after unsubscribe: [0=v0 #3, 1=v1 #3, 2=v2 #3]
        after commit: Optional[0]
    """,
    "unreadable": """
        seen: [0, unreadable 0:1, 2]
        committed: {0=ok}
    """,
    "admin": """
        listed: [Optional[Share] share Stable]
        state: Stable
        operations: [ALTER_CONFIGS, DELETE, DESCRIBE, DESCRIBE_CONFIGS, READ]
        member: resident /127.0.0.1 [0]
        delete: GroupNotEmptyException
        alter: GroupNotEmptyException
        left: Empty
        altered: ok
        offsets: SharePartitionOffsetInfo{startOffset=1, leaderEpoch=0, lag=2}
        offsets deleted: ok
        none to delete: UnknownTopicOrPartitionException
        deleted: ok
        gone: GroupIdNotFoundException
    """,
}


@pytest.fixture(scope="module")
def played(bootstrap: str) -> dict[str, list[str]]:
    """What every scene told, line by line."""
    done = subprocess.run(
        java_command(kafka_peer.kafka_libs(), "ShareClient", bootstrap, *SCENES),
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told: dict[str, list[str]] = {}
    for scene in done.stdout.split("## ")[1:]:
        name, *lines = scene.splitlines()
        told[name] = lines
    return told


@pytest.mark.parametrize("scene", SCENES)
def test_java_client_reports_the_same_as_with_kafka(
    scene: str, played: dict[str, list[str]]
) -> None:
    assert played[scene] == [line.strip() for line in SCENES[scene].strip().splitlines()]
